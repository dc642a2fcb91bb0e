"""A script's run: the session that its `getOrCreate()` finds, and the queries that it starts there."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from types import ModuleType
from typing import Any

from pyspark.errors import IllegalArgumentException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console

from streamtopology.contract.phases import Phase
from streamtopology.jobs.checkpoint import Checkpoint, open_store
from streamtopology.jobs.checkpoint.location import resolved
from streamtopology.jobs.checkpoint.retention import HEADER
from streamtopology.jobs.errors import TopologyFailed
from streamtopology.jobs.local.run import Ran, Serving, open_run, process, write_report
from streamtopology.jobs.runtime.preflight.checks import check_before_start
from streamtopology.jobs.runtime.streaming_query import Until
from streamtopology.jobs.runtime.topology_run import RunOptions, new_history
from streamtopology.jobs.scripts.lifted import SINK, WriterSettings, free_name, manifest_of, policy_of
from streamtopology.jobs.scripts.parts import Cut, NotCut
from streamtopology.jobs.scripts.prepared import NO_CHECKPOINT, Prepared, checkpoint_of, cut_query, prepare
from streamtopology.jobs.scripts.query import Queries, TopologyStream
from streamtopology.jobs.scripts.takeover import Engine, configure, place_in, taken_over, tell_of_ignored_options
from streamtopology.jobs.spark.cluster import Cluster
from streamtopology.jobs.spark.user_settings import jars_of
from streamtopology.jobs.view.event_log import EventLog
from streamtopology.jobs.view.live_view import View
from streamtopology.topology import parse
from streamtopology.topology.spark_conf import is_free

# Where Spark has its tables, if nothing else is said: in the folder of the script's process.
_WAREHOUSE = "spark.sql.warehouse.dir"
# Formats for which Spark itself takes a checkpoint of its own where none is named.
_WITHOUT_CHECKPOINT = ("foreachBatch", "foreach", "console", "memory", "noop")


class ScriptSession:
    """Starts the queries of `script` on the cluster of `start`, whose executors are `executors`, as manifests write them.

    start: called once, where the script first asks for a session, with the settings that the script gives to it.
    is_strict: a query that cannot become a topology is refused; else Spark runs it, and a sentence on stderr says why. policy:
    of the operators' groupings; None: the one that emits what Spark does, batch by batch. report: the folder that gets a report
    of each query that has ended.
    """

    def __init__(
        self,
        start: Callable[[Mapping[str, str]], Cluster],
        script: Path,
        executors: Sequence[Mapping[str, Any]],
        work_dir: Path,
        serving: Serving,
        is_strict: bool,
        policy: str | None,
        report: Path | None = None,
    ) -> None:
        self._start_cluster = start
        self._started: Cluster | None = None
        self.is_starting = False
        self._script = script
        self._executors = executors
        self._work_dir = work_dir
        self._serving = serving
        self._is_strict = is_strict
        self._policy = policy
        self._report = report
        self.queries = Queries()
        self._engine = Engine()
        self._turn = threading.Lock()  # two threads of a script may start queries, which need names of their own

    def taken_over(self) -> AbstractContextManager[None]:
        """While entered, queries of frames are ours to start; at the end, those that still run are stopped."""
        return taken_over(self, self._engine)

    @property
    def spark(self) -> SparkSession:
        """The session, once the script has asked for it."""
        return self._cluster.spark

    def stop(self) -> None:
        """Stop the queries that run, each after its batch."""
        for query in self.queries.active():
            query.stop()

    @property
    def _cluster(self) -> Cluster:
        assert self._started is not None, "a frame has a session"
        return self._started

    def begin(self, asked: Mapping[str, Any]) -> None:
        """Start the cluster for a script that asks for its session with these settings, unless it runs."""
        settings = {name: str(value) for name, value in asked.items()}
        if self._started is not None:
            self._tell_of_late_jars(jars_of(settings))
        elif not self.is_starting:
            self.is_starting = True
            try:
                free = {name: text for name, text in settings.items() if is_free(name) or name == _WAREHOUSE}
                self._started = self._start_cluster({_WAREHOUSE: str(Path("spark-warehouse").resolve()), **free})
                configure(self.spark, len(self._started.slots), settings)
            finally:
                self.is_starting = False

    def _tell_of_late_jars(self, jars: Mapping[str, str]) -> None:
        """Say what a script's builder cannot do any more, and its user can: have Spark start with jars."""
        if not jars or jars_of(dict(self._cluster.spark.sparkContext.getConf().getAll())):
            return
        options = " ".join(f"--conf {name}={value}" for name, value in jars.items())
        late = f"{', '.join(jars)} comes too late, as Spark runs already; say it on the command line: {options}"
        print(f"streamtopology: {place_in(self._script)}: {late}", file=sys.stderr, flush=True)

    def starts(self, frame: DataFrame, asked: WriterSettings) -> StreamingQuery | None:
        """Start a query as a topology; None: Spark is to run it, and a sentence says why."""
        tell_of_ignored_options(frame, self._script)
        try:
            with self._turn:
                self._refuse_taken(asked.name)
                return self._start(cut_query(frame, asked), frame, asked)
        except NotCut as why:
            said = f"{place_in(self._script)}: {why}"
            if self._is_strict:
                raise TopologyFailed(f"{said}. --strict refuses a query that Spark would run itself") from None
            self._refuse_topologys(asked, said)
            print(f"streamtopology: {said}; so Spark runs this query itself", file=sys.stderr, flush=True)
            return None

    def _refuse_topologys(self, asked: WriterSettings, said: str) -> None:
        """Raise TopologyFailed for a query that Spark would begin anew where a topology has its checkpoint."""
        with suppress(NotCut):
            place = checkpoint_of(asked, self.spark)
            if place is not None and not place.startswith("s3://") and Path(place, HEADER).exists():
                raise TopologyFailed(
                    f"{said}. Spark would run this query itself, and start over: {place} is the checkpoint of a topology, from "
                    "which Spark cannot go on. Give the query another checkpointLocation"
                )

    def _refuse_taken(self, name: str | None) -> None:
        """Raise Spark's own error for a name that an active query has."""
        if name is not None and any(query.name == name for query in self.queries.active()):
            said = f"Cannot start query with name {name} as a query with that name is already active in this SparkSession"
            raise IllegalArgumentException(said)

    def _start(self, made: Cut, frame: DataFrame, asked: WriterSettings) -> TopologyStream:
        name = self._free_name(asked)
        module = f"streamtopology_script_{name.replace('-', '_')}"
        policy = self._policy or policy_of(made.part)
        checkpoint = checkpoint_of(asked, frame.sparkSession) or self._own_checkpoint(name, asked)
        topology = parse(manifest_of(made.part, asked, name, checkpoint, self._executors, module, policy))
        base_dir = self._script.parent
        self._hand_over(module, prepare(made, asked, topology, base_dir, frame.sparkSession))
        self._stop_at(resolved(checkpoint))
        owner = _owner_of(resolved(checkpoint)) or name
        check_before_start(replace(topology, name=owner), base_dir)
        history = new_history(topology)
        options = RunOptions(Until(), self._work_dir, owner=owner)
        run = open_run(self._cluster, topology, base_dir, history, options)
        history.starting("reading the first rows")

        def stream() -> None:
            self._engine.is_here = True
            events = EventLog(self._work_dir / name / "events.log")
            history.listen(events)
            with View(history, Console(stderr=True), time.monotonic):
                record = process(run, history, self._serving)
                history.enter(Phase.DONE)
            if self._report is not None:
                page = record.page(run.standing(), since=-1)
                ran = Ran(topology, history, run.bound(), run.left_behind(), events, page)
                write_report(self._report / name, ran, None, say=partial(print, file=sys.stderr))

        return TopologyStream(run, history, frame, asked.name, stream, self.queries)

    def _stop_at(self, checkpoint: str) -> None:
        """Stop the query that runs on a checkpoint, as Spark does when another is started there."""
        for query in self.queries.active():
            if isinstance(query, TopologyStream) and query.checkpoint == checkpoint:
                query.stop()

    def _free_name(self, asked: WriterSettings) -> str:
        taken = {query.topology for query in self.queries.active() if isinstance(query, TopologyStream)}
        return free_name(asked.name or self._script.stem, taken)

    def _hand_over(self, module: str, prepared: Prepared) -> None:
        """Make what the topology's `run`s name: the frame below the cut, and what the script does with each batch."""
        handed = ModuleType(module)
        for name, rows in prepared.frames.items():
            setattr(handed, name, lambda spark, rows=rows: rows)
        setattr(handed, SINK, prepared.take)
        sys.modules[module] = handed

    def _own_checkpoint(self, name: str, asked: WriterSettings) -> str:
        if asked.format not in _WITHOUT_CHECKPOINT:
            raise NotCut(NO_CHECKPOINT)
        self._work_dir.mkdir(parents=True, exist_ok=True)
        return mkdtemp(prefix=f"{name}-", dir=self._work_dir)


def _owner_of(checkpoint: str) -> str:
    """The name of the topology whose checkpoint this is; empty if it is none yet. The query may have another name now."""
    store = open_store(checkpoint)
    return Checkpoint.attached(store).topology if store.exists(HEADER) else ""
