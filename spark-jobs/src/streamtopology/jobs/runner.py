"""A topology running on an embedded cluster: everything a driver needs, put together, and taken apart again."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from streamtopology.jobs import expressions, work
from streamtopology.jobs.batch import Plan
from streamtopology.jobs.checkpoint import Checkpoint, CommitRecord
from streamtopology.jobs.control import ControlServer
from streamtopology.jobs.dag import PARTIAL, Dag, compile_dag
from streamtopology.jobs.driver import Driver
from streamtopology.jobs.embedded import EmbeddedCluster, executor_slots
from streamtopology.jobs.failures import TopologyFailed
from streamtopology.jobs.history import History, SlotInfo
from streamtopology.jobs.metrics import Metrics
from streamtopology.jobs.publishing import DEAD_LETTERS, Publisher
from streamtopology.jobs.query import TopologyQuery, Until, source_frames
from streamtopology.jobs.rerouting import InProcessRouter, first_routes
from streamtopology.jobs.server import StatusServer
from streamtopology.jobs.sinks import Writer, check, open_sink
from streamtopology.jobs.sources.checks import check as check_source
from streamtopology.jobs.sources.descriptors import SourceSpec
from streamtopology.jobs.sources.reading import declared_schema
from streamtopology.jobs.stats import build_stats
from streamtopology.jobs.upkeep import Upkeep
from streamtopology.jobs.watermarks import Watermarks
from streamtopology.routing.controller import Controller
from streamtopology.routing.epoch import Epoch
from streamtopology.routing.topology import (
    Level,
    ManifestError,
    Problem,
    Sink,
    Topology,
    difference,
    load,
    parse_cpu,
)  # fmt: skip

_MANIFEST_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class RunOptions:
    """Until when to run, where the checkpoint is when the manifest names none, where the status server listens."""

    until: Until = field(default_factory=Until)
    work_dir: Path = Path("build/streamtopology")
    port: int = 0


def new_history(topology: Topology) -> History:
    slots = executor_slots(topology)
    infos = tuple(SlotInfo(index, slot.name, slot.class_name, slot.cpu) for index, slot in enumerate(slots))
    return History(topology.name, infos, {operator.name: operator.grouping.policy for operator in topology.operators})


def check_before_start(topology: Topology, base_dir: Path) -> None:
    """Everything that can be found wrong without Spark; raises ManifestError with all of it."""
    problems = [Problem("spec.sinks", sentence) for sink in topology.sinks for sentence in check(sink)]
    problems += [Problem("spec.sources", sentence) for source in topology.sources for sentence in check_source(source)]
    if topology.checkpoint is not None and topology.checkpoint.startswith("s3://"):
        problems.append(Problem("spec.checkpoint", f"{topology.checkpoint}: only local paths and shared volumes are built yet"))
    if problems:
        raise ManifestError(problems)
    if all(source.reads_descriptors for source in topology.sources):
        compile_dag(topology, source_schemas(topology, {}), base_dir)


def source_schemas(topology: Topology, spark_schemas: Mapping[str, pa.Schema]) -> dict[str, pa.Schema]:
    """What operators see of each source, after its select; `spark_schemas` are those of sources that Spark reads."""
    schemas: dict[str, pa.Schema] = {}
    for source in topology.sources:
        if source.reads_descriptors:
            declared = declared_schema(SourceSpec.of(source))
            schemas[source.name] = expressions.output_schema(declared, source.select, source.where)
        else:
            schemas[source.name] = spark_schemas[source.name]
    return schemas


class TopologyRun:
    """One run of a topology on a cluster that is up. `history` tells what happens; `bound()` what could be had."""

    def __init__(
        self, embedded: EmbeddedCluster, topology: Topology, base_dir: Path, history: History, options: RunOptions
    ) -> None:
        spark = embedded.spark
        self._embedded = embedded
        self._history = history
        self._options = options
        self._base_dir = base_dir
        frames = source_frames(spark, topology)
        schemas = source_schemas(topology, {name: to_arrow_schema(frame.schema) for name, frame in frames.items()})
        folder = checkpoint_folder(topology, options.work_dir)
        self.checkpoint = Checkpoint.open(str(folder), topology.name)
        plan = _first_plan(topology, schemas, base_dir, self.checkpoint)
        self._router = InProcessRouter(
            plan, self.checkpoint, Controller(topology.rebalance, time.monotonic), history, embedded.declared_cpu,
            time.monotonic,
        )  # fmt: skip
        writer = Writer(topology.name, self.checkpoint.run)
        sinks = {sink.name: open_sink(sink, writer) for sink in topology.sinks}
        if topology.on_bad_tuple == "deadLetter":
            sinks[DEAD_LETTERS] = open_sink(Sink("dead letters", "", "json", {"path": str(folder / "dead-letters")}), writer)
        self._publisher = Publisher(self.checkpoint, sinks)
        self._driver = Driver(
            spark=spark, checkpoint=self.checkpoint, watch=embedded.watch, router=self._router, publisher=self._publisher,
            watermarks=Watermarks(topology.sources, time.time), home_of=embedded.home_of,
            upkeep=Upkeep(self.checkpoint), slots=len(embedded.cluster.slots),
            run=f"{self.checkpoint.run}/{uuid.uuid4().hex[:8]}",
            iterations_per_second=work.iterations_for(1.0), tell=self._tell,
        )  # fmt: skip
        self._query = TopologyQuery(spark, topology, frames, folder, self._driver)

    def process(self) -> None:
        """Run the stream until the options say so, the input ends, or `stop` is called."""
        topology = self._router.topology
        handlers = {"apply": self.apply_file, "resize": self.resize, "stop": self.stop}
        metrics = Metrics(self._history)
        with ExitStack() as undo:
            undo.callback(self._publisher.close)
            undo.callback(self._driver.upkeep.close)
            undo.enter_context(ControlServer(topology.name, handlers))
            undo.enter_context(StatusServer(metrics.registry, self._stats, port=self._options.port))
            self._query.run(self._options.until, self._prepare)

    def _stats(self) -> dict[str, Any]:
        return build_stats(self._history, self._router.epoch)

    def _prepare(self) -> None:
        self._history.enter("warming up")
        with self._embedded.unlimited():
            self._driver.warm_up()
        self._driver.resume()
        self._history.enter("running")

    @property
    def router(self) -> InProcessRouter:
        """Where the run's epochs come from, and where one made by hand can be published."""
        return self._router

    def bound(self) -> float:
        return self._router.bound()

    def stop(self) -> str:
        """Finish the batch at work, then stop; the checkpoint goes on from there."""
        self._query.stop()
        return "stopping after the batch at work"

    def resize(self, class_name: str, cpu: str) -> str:
        """Change the CPU of a class of executors while they run."""
        cores = parse_cpu(cpu)
        self._embedded.cluster.resize(class_name, cores)
        self._tell(f"class {class_name} now has {cores:g} CPU per executor")
        return f"class {class_name}: {cores:g} CPU per executor, at once"

    def apply_file(self, path: str) -> str:
        """Take the manifest at `path` for the running topology, as far as that needs no restart."""
        return self.apply(load(Path(path)))

    def apply(self, topology: Topology) -> str:
        change = difference(self._router.topology, topology)
        if change.level > Level.RESIZE:
            raise ValueError(
                f"this needs a restart ({'; '.join(change.sentences)}): stop the topology and run it again, it goes on "
                "from its checkpoint"
            )
        if change.level == Level.IGNORE:
            return "nothing changes"
        check_before_start(topology, self._base_dir)
        if change.level == Level.RESIZE:
            for executor in topology.executors:
                self._embedded.cluster.resize(executor.name, executor.cpu)
        number = self._router.apply(topology, "; ".join(change.sentences))
        self._tell(f"epoch {number} published: {'; '.join(change.sentences)}")
        return f"epoch {number} runs from the next batch on: {'; '.join(change.sentences)}"

    def _tell(self, text: str) -> None:
        batches = self._history.batches
        self._history.event(time.time(), batches[-1].number if batches else -1, text)


@contextmanager
def following(run: TopologyRun, manifest: Path, tell: Callable[[str], None]) -> Iterator[None]:
    """While entered, a changed manifest file is applied; what cannot be is told."""
    done = threading.Event()

    def watch() -> None:
        seen = manifest.stat().st_mtime_ns
        while not done.wait(_MANIFEST_POLL_SECONDS):
            if not manifest.exists() or manifest.stat().st_mtime_ns == seen:
                continue
            seen = manifest.stat().st_mtime_ns
            try:
                tell(f"{manifest} changed: {run.apply_file(str(manifest))}")
            except ValueError as refused:
                tell(f"{manifest} changed but is not applied: {refused}")

    watcher = threading.Thread(target=watch, name="manifest", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def checkpoint_folder(topology: Topology, work_dir: Path) -> Path:
    """Where the checkpoint is: the manifest's, else one of its own in the work folder."""
    if topology.checkpoint is None:
        return (work_dir / topology.name / "checkpoint").resolve()
    return Path(topology.checkpoint.removeprefix("file://")).resolve()


def _first_plan(topology: Topology, schemas: Mapping[str, pa.Schema], base_dir: Path, checkpoint: Checkpoint) -> Plan:
    """The plan of the newest commit where the manifest still says the same, else a new epoch that builds on it."""
    dag = compile_dag(topology, schemas, base_dir)
    last = checkpoint.last_commit()
    if last is None:
        number = 1 + max(checkpoint.epochs(), default=0)
        return Plan(topology, Epoch(number, first_routes(dag, topology, {}), (), "the first epoch"), schemas, base_dir)
    before = Plan.from_json(checkpoint.read_epoch(last.epoch))
    change = difference(before.topology, topology)
    newest = max(checkpoint.epochs())
    if change.level == Level.IGNORE and dict(before.sources) == dict(schemas) and before.epoch.number == newest:
        return before
    _refuse_to_lose_state(dag, last)
    routes = first_routes(dag, topology, before.epoch.routes)
    shares = before.epoch.source_shares if len(before.epoch.source_shares) == topology.replicas else ()
    epoch = Epoch(newest + 1, routes, shares, "; ".join(change.sentences) or "restarted")
    return Plan(topology, epoch, schemas, base_dir)


def _refuse_to_lose_state(dag: Dag, last: CommitRecord) -> None:
    """Instances beyond the new parallelism, and partials no longer there, would keep state where no one looks for it."""
    for node in dag.nodes:
        before = 1 + max(last.state.get(node.name, {}), default=-1)
        if node.state is not None and before > node.parallelism:
            raise TopologyFailed(
                f"operator {node.operator!r} had {before} instances and would now have {node.parallelism}: handing over the "
                f"state of the others is not built yet. Keep `parallelism: {before}`, or start with an empty checkpoint"
            )
        partial = node.operator + PARTIAL
        if any(left.keys for left in last.state.get(partial, {}).values()) and not any(n.name == partial for n in dag.nodes):
            raise TopologyFailed(
                f"operator {node.operator!r} was split over instances, which hold tuples back (aggregateEvery); a policy "
                "that keeps a key together would lose them. Start with the former policy and apply the change while it runs"
            )
