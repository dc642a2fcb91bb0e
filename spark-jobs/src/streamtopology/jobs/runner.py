"""A topology running on a cluster: everything a driver needs, put together, and taken apart again."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from streamtopology.jobs import expressions, work
from streamtopology.jobs.batch import Plan
from streamtopology.jobs.checkpoint import Checkpoint, CommitRecord
from streamtopology.jobs.cluster import Cluster, executor_slots
from streamtopology.jobs.control import ControlServer, refuse_second_run
from streamtopology.jobs.dag import PARTIAL, compile_dag
from streamtopology.jobs.driver import Driver
from streamtopology.jobs.executors import nothing
from streamtopology.jobs.failures import TopologyFailed
from streamtopology.jobs.history import History, SlotInfo
from streamtopology.jobs.metrics import Metrics
from streamtopology.jobs.pinning import ExecutorInfo
from streamtopology.jobs.portions import Switching
from streamtopology.jobs.preparing import CopyProcess, Preparing
from streamtopology.jobs.publishing import DEAD_LETTERS, DeadLetters, Publisher
from streamtopology.jobs.query import TopologyQuery, Until, source_frames
from streamtopology.jobs.rerouting import InProcessRouter, first_routes, with_instances
from streamtopology.jobs.server import StatusServer
from streamtopology.jobs.sinks import Sink, Writer, check, open_sink
from streamtopology.jobs.sources.checks import check as check_source
from streamtopology.jobs.sources.descriptors import SourceSpec
from streamtopology.jobs.sources.reading import declared_schema
from streamtopology.jobs.state import StateSchema
from streamtopology.jobs.stats import ExecutorStanding, Standing, build_stats
from streamtopology.jobs.upkeep import Upkeep
from streamtopology.jobs.watermarks import Watermarks
from streamtopology.routing.controller import Controller
from streamtopology.routing.epoch import Epoch
from streamtopology.routing.placement import NOWHERE, Placement
from streamtopology.routing.rescaling import most_instances, rescaled_shares, slot_names, with_replicas
from streamtopology.routing.topology import (
    Level,
    ManifestError,
    Operator,
    Problem,
    Topology,
    difference,
    load,
    parse_cpu,
)  # fmt: skip


@dataclass(frozen=True)
class RunOptions:
    """Until when to run, where the checkpoint is when the manifest names none, where the status server listens.

    Unless it `decides`, the run takes its epochs from outside (an operator) and only measures.
    """

    until: Until = field(default_factory=Until)
    work_dir: Path = Path("build/streamtopology")
    port: int = 0
    decides: bool = True


def new_history(topology: Topology) -> History:
    """The history of a run to come; its slots have their numbers when its first plan is made."""
    slots = executor_slots(topology)
    infos = tuple(SlotInfo(index, slot.name, slot.class_name, slot.cpu) for index, slot in enumerate(slots))
    return History(topology.name, infos, policies_of(topology))


def policies_of(topology: Topology) -> dict[str, str]:
    return {operator.name: operator.grouping.policy for operator in topology.operators}


def check_before_start(topology: Topology, base_dir: Path) -> None:
    """Everything that can be found wrong without Spark; raises ManifestError with all of it."""
    problems = [Problem("spec.sinks", sentence) for sink in topology.sinks for sentence in check(sink)]
    problems += [Problem("spec.sources", sentence) for source in topology.sources for sentence in check_source(source)]
    problems += [
        Problem(f"spec.operators[{index}].grouping.options.capacities", sentence)
        for index, operator in enumerate(topology.operators)
        if (sentence := _unfit_capacities(operator))
    ]
    if problems:
        raise ManifestError(problems)
    if all(source.reads_descriptors for source in topology.sources):
        compile_dag(topology, source_schemas(topology, {}), base_dir)


def _unfit_capacities(operator: Operator) -> str | None:
    given = operator.grouping.options.get("capacities")
    if not isinstance(given, list | tuple) or len(given) == operator.parallelism:
        return None
    return (
        f"found {len(given)} numbers for {operator.parallelism} instances; give one for each, or leave them out to have them "
        "measured"
    )


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


def declared_state(topology: Topology, base_dir: Path) -> dict[str, StateSchema]:
    """What the manifest's operators keep, by node; nothing where only Spark can tell what they are given."""
    if not all(source.reads_descriptors for source in topology.sources):
        return {}
    nodes = compile_dag(topology, source_schemas(topology, {}), base_dir).nodes
    return {node.name: node.state for node in nodes if node.state is not None}


class TopologyRun:
    """One run of a topology on a cluster that is up. `history` tells what happens; `bound()` what could be had."""

    def __init__(self, cluster: Cluster, topology: Topology, base_dir: Path, history: History, options: RunOptions) -> None:
        if options.decides:
            refuse_second_run(topology.name)  # before the checkpoint is touched: it is the other run's
        spark = cluster.spark
        self._cluster = cluster
        self._history = history
        self._options = options
        self._base_dir = base_dir
        frames = source_frames(spark, topology)
        schemas = source_schemas(topology, {name: to_arrow_schema(frame.schema) for name, frame in frames.items()})
        self.checkpoint = Checkpoint.open(checkpoint_uri(topology, options.work_dir), topology.name)
        plan = _first_plan(topology, schemas, base_dir, self.checkpoint)
        copier = CopyProcess if options.decides else None  # elsewhere the operator starts a Job
        self._preparing = Preparing(self.checkpoint, copier, self.tell, time.monotonic)
        self._router = InProcessRouter(
            plan, self.checkpoint, Controller(topology.rebalance, time.monotonic), history, self._declared_cpu,
            time.monotonic, options.decides, self._preparing,
        )  # fmt: skip
        self._start_missing(topology)
        writer = Writer(topology.name, self.checkpoint.run)
        sinks: dict[str, Sink] = {sink.name: open_sink(sink, writer) for sink in topology.sinks}
        if topology.on_bad_tuple == "deadLetter":
            sinks[DEAD_LETTERS] = DeadLetters(self.checkpoint)
        self._publisher = Publisher(self.checkpoint, sinks)
        self._driver = Driver(
            spark=spark, checkpoint=self.checkpoint, watch=cluster.watch, router=self._router, publisher=self._publisher,
            watermarks=Watermarks(topology.sources, time.time), slot_of=cluster.slot_of,
            upkeep=Upkeep(self.checkpoint), switching=Switching(self.checkpoint, self.tell), settled=self._release,
            run=f"{self.checkpoint.run}/{uuid.uuid4().hex[:8]}",
            iterations_per_second=work.iterations_for(1.0), tell=self.tell,
        )  # fmt: skip
        self._folder = self.checkpoint.spark_folder()
        self._query = TopologyQuery(spark, topology, frames, self._folder, self._driver)

    def process(self) -> None:
        """Run the stream as `stream` does, with commands and a status server on this machine."""
        metrics = Metrics(self._history)
        status = StatusServer(metrics.registry, self._stats, self._history.is_ready, port=self._options.port)
        handlers = {
            "apply": self.apply_file,
            "resize": self.resize,
            "scale": self.scale,
            "stop": self.stop,
            "address": lambda: status.url,
        }
        with ControlServer(self._router.topology.name, handlers), status:
            self.stream()

    def stream(self) -> None:
        """Run the stream until the options say so, the input ends, or `stop` is called."""
        with ExitStack() as undo:
            undo.callback(self._folder.close)
            undo.callback(self._publisher.close)
            undo.callback(self._driver.upkeep.close)
            undo.enter_context(self._rehearsing())
            undo.callback(self._preparing.close)
            self._query.run(self._options.until, self._prepare)

    @contextmanager
    def _rehearsing(self) -> Iterator[None]:
        """While entered, executors that come are admitted only when they have gone through this topology's stages."""
        watch = self._cluster.watch
        watch.rehearsal = self._driver.rehearse_on
        try:
            yield
        finally:
            watch.rehearsal = nothing

    def _stats(self, since: int | None) -> dict[str, Any]:
        return build_stats(self._history, self.standing(), since)

    def standing(self) -> Standing:
        """Where the run stands beside its history, as `/stats` tells it."""
        admitted = {executor.id for executor in self._cluster.watch.admitted()}
        return Standing(
            routing=self._router.epoch,
            newest_epoch=self._router.ready().epoch.number,
            bound=self.bound(),
            checkpoint=self.checkpoint.uri,
            executors=[self._executor(executor, executor.id in admitted) for executor in self._cluster.watch.present()],
        )

    def _executor(self, executor: ExecutorInfo, admitted: bool) -> ExecutorStanding:
        name = self._cluster.slot_of(executor)
        slot = next((slot for slot in self._history.slots if slot.present and slot.executor == name), None)
        class_name = executor.attributes.get("CLASS", "") if slot is None else slot.class_name
        number = None if slot is None else slot.index
        return ExecutorStanding(executor.id, class_name, executor.attributes.get("POD_NAME"), number, admitted)

    def _prepare(self) -> None:
        self._history.enter("warming up")
        with self._cluster.unlimited():
            self._driver.warm_up()
        self._driver.resume()
        self._history.enter("running")

    @property
    def router(self) -> InProcessRouter:
        """Where the run's epochs come from, and where one made by hand can be published."""
        return self._router

    def bound(self) -> float:
        return self._router.bound()

    def stop(self, drain: bool = False) -> str:
        """Finish the batch at work, then stop; the checkpoint goes on from there.

        `drain`: the input is complete. In a last batch partials hand over what they hold back, and windows close for good.
        """
        self._query.stop(for_good=drain)
        return f"stopping after the batch at work{' and one more that closes all windows' if drain else ''}"

    def resize(self, class_name: str, cpu: str) -> str:
        """Change the CPU of a class of executors while they run."""
        cores = parse_cpu(cpu)
        self._cluster.resize(class_name, cores)
        self.tell(f"class {class_name} now has {cores:g} CPU per executor")
        return f"class {class_name}: {cores:g} CPU per executor, at once"

    def apply_file(self, path: str) -> str:
        """Take the manifest at `path` for the running topology, as far as that needs no restart."""
        return self.apply(load(Path(path)))

    def scale(self, class_name: str, replicas: int) -> str:
        """Have another number of executors of a class, while the others run on."""
        return self.apply(with_replicas(self._router.topology, class_name, replicas))

    def apply(self, topology: Topology) -> str:
        """Run `topology` in place of the present one. ValueError: that needs a restart, or it cannot be."""
        before = self._router.topology
        change = difference(before, topology)
        if change.level > Level.SCALE:
            raise ValueError(
                f"this needs a restart ({'; '.join(change.sentences)}): stop the topology and run it again, it goes on "
                "from its checkpoint"
            )
        if change.level == Level.IGNORE:
            return "nothing changes"
        check_before_start(topology, self._base_dir)
        number = self._router.apply(topology, "; ".join(change.sentences))
        self._fit_cluster(before, topology)
        self._history.policies = policies_of(topology)
        self.tell(f"epoch {number} published: {'; '.join(change.sentences)}")
        awaited = self._router.awaited()
        when = f"; {', '.join(awaited)} will take part when warm" if awaited else ""
        return f"epoch {number} runs from the next batch on: {'; '.join(change.sentences)}{when}"

    def _fit_cluster(self, before: Topology, topology: Topology) -> None:
        """Other limits at once, more executors as soon as they are up; fewer when a batch has gone on without them."""
        limits = {executor.name: executor.cpu for executor in before.executors}
        for executor in topology.executors:
            if limits.get(executor.name, executor.cpu) != executor.cpu:
                self._cluster.resize(executor.name, executor.cpu)
        self._start_missing(topology)

    def _start_missing(self, topology: Topology) -> None:
        """Start executors for slots that have none, with the CPU that others of their class have now."""
        there = {slot.name for slot in self._cluster.slots}
        limits = {slot.class_name: slot.cpu for slot in self._cluster.slots}
        missing = [slot for slot in executor_slots(topology) if slot.name not in there]
        self._cluster.start([replace(slot, cpu=limits.get(slot.class_name, slot.cpu)) for slot in missing])

    def _release(self, placement: Placement) -> None:
        """A batch without the executors of these slots is committed: nobody needs them, unless the topology wants them."""
        needed = {*placement.names, *slot_names(self._router.topology)}
        drained = [slot.name for slot in self._cluster.slots if slot.name not in needed]
        if drained:
            self._cluster.release(drained)
            self.tell(f"drained and released: {', '.join(drained)}")

    def _declared_cpu(self) -> dict[str, float]:
        """Cores per slot, as the classes are now."""
        return {slot.name: slot.cpu for slot in self._cluster.slots}

    def tell(self, text: str) -> None:
        batches = self._history.batches
        self._history.event(time.time(), batches[-1].number if batches else -1, text)


def checkpoint_uri(topology: Topology, work_dir: Path) -> str:
    """Where the checkpoint is: the manifest's path or bucket, else a folder of its own in the work folder."""
    if topology.checkpoint is None:
        return str((work_dir / topology.name / "checkpoint").resolve())
    if topology.checkpoint.startswith("s3://"):
        return topology.checkpoint
    return str(Path(topology.checkpoint.removeprefix("file://")).resolve())


def _first_plan(topology: Topology, schemas: Mapping[str, pa.Schema], base_dir: Path, checkpoint: Checkpoint) -> Plan:
    """The plan of the newest commit where the manifest still says the same, else a new epoch that builds on it."""
    dag = compile_dag(topology, schemas, base_dir)
    last = checkpoint.last_commit()
    names = slot_names(topology)
    instances = most_instances(topology, len(names))
    if last is None:
        number = 1 + max(checkpoint.epochs(), default=0)
        placement = Placement.first(names, instances)
        routes = first_routes(dag, topology, {}, placement, len(names))
        return Plan(topology, Epoch(number, routes, (), "the first epoch", placement), schemas, base_dir)
    before = Plan.from_json(checkpoint.read_epoch(last.epoch))
    change = difference(before.topology, topology)
    newest = max(checkpoint.epochs())
    numbered = Plan.from_json(checkpoint.read_epoch(newest)).placement.slots  # of those that came after that commit, too
    placed = replace(before.placement, slots=numbered)
    placement = placed.rescaled(names, instances)
    same = change.level == Level.IGNORE and dict(before.sources) == dict(schemas) and placed == placement
    if same and before.epoch.number == newest:
        return before
    holding = _partials_holding(last)
    if holding:  # their instances stay until they have handed over: the router sees to that
        placement = placed.rescaled(names, max(instances, sum(home != NOWHERE for home in placed.homes)))
    routes = first_routes(dag, topology, before.epoch.routes, placement, len(names))
    for partial, keeping in holding.items():
        if partial not in routes:
            raise TopologyFailed(
                f"operator {partial.removesuffix(PARTIAL)!r} was split over instances, which hold tuples back "
                "(aggregateEvery); a policy that keeps a key together would lose them. Start with the former policy and "
                "apply the change while it runs"
            )
        routes[partial] = with_instances(routes[partial], keeping)
    shares = rescaled_shares(before.epoch.source_shares, placed, placement)
    epoch = Epoch(newest + 1, routes, shares, "; ".join(change.sentences) or "restarted", placement)
    return Plan(topology, epoch, schemas, base_dir)


def _partials_holding(last: CommitRecord) -> dict[str, set[int]]:
    """By partial node, the instances that hold tuples back."""
    holding = {
        node: {instance for instance, left in instances.items() if left.keys}
        for node, instances in last.state.items()
        if node.endswith(PARTIAL)
    }
    return {node: instances for node, instances in holding.items() if instances}
