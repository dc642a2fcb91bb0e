"""A script's run: the session that its `getOrCreate()` finds, and the queries that it starts there."""

from __future__ import annotations

import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from tempfile import mkdtemp
from types import ModuleType
from typing import Any, cast

import pyarrow as pa
from pyspark import SparkConf, SparkContext
from pyspark.errors import IllegalArgumentException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from rich.console import Console

from streamtopology.contract.errors import StreamTopologyError
from streamtopology.contract.phases import Phase
from streamtopology.jobs.connectors.sources.kafka.options import ignored_by_spark
from streamtopology.jobs.connectors.sources.spark.native import rows_of
from streamtopology.jobs.errors import TopologyFailed
from streamtopology.jobs.local.run import Serving, open_run, process
from streamtopology.jobs.plan.dag import compile_dag
from streamtopology.jobs.runtime.preflight.checks import check_before_start
from streamtopology.jobs.runtime.streaming_query import Until
from streamtopology.jobs.runtime.topology_run import RunOptions, new_history
from streamtopology.jobs.scripts import catalyst
from streamtopology.jobs.scripts.cut import cut
from streamtopology.jobs.scripts.lifted import SINK, WriterSettings, name_of, policy_of, topology_of
from streamtopology.jobs.scripts.outputs import as_frame, output_of
from streamtopology.jobs.scripts.parts import Cut, NotCut
from streamtopology.jobs.scripts.query import Queries, TopologyStream
from streamtopology.jobs.scripts.streams import ScriptStreams
from streamtopology.jobs.scripts.writer import ScriptWriter
from streamtopology.jobs.spark.cluster import Cluster
from streamtopology.jobs.spark.user_settings import jars_of
from streamtopology.jobs.view.live_view import View
from streamtopology.topology import ManifestError
from streamtopology.topology.spark_conf import is_free

# What is below a cut is the script's own, of as many rows as there are: it is worth compiling. Its files are read in small
# parts, several for each executor: one that is done takes the next, so that the fast ones read more. Of a batch's results,
# only few rows are worth a place in Spark's plan.
_OF_SCRIPTS = {
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.files.openCostInBytes": "256k",
    "spark.sql.execution.arrow.localRelationThreshold": "256k",
}
_PARTS_OF_AN_EXECUTOR = 4
# Formats for which Spark itself takes a checkpoint of its own where none is named.
_WITHOUT_CHECKPOINT = ("foreachBatch", "foreach", "console", "memory", "noop")


def _of_this_machine(cluster: Cluster) -> dict[str, str]:
    """Settings by what there is. A session that names no time zone has the machine's, as of Spark's own."""
    jvm: Any = cluster.spark.sparkContext._jvm
    parts = _PARTS_OF_AN_EXECUTOR * len(cluster.slots)
    zone = jvm.java.util.TimeZone.getDefault().getID()
    return {"spark.sql.files.minPartitionNum": str(parts), "spark.sql.session.timeZone": zone}


class ScriptSession:
    """Starts the queries of `script` on the cluster of `start`, whose executors are `executors`, as manifests write them.

    start: called once, where the script first asks for a session, with the settings that the script gives to it.
    is_strict: a query that cannot become a topology is refused; else Spark runs it, and a sentence on stderr says why. policy:
    of the operators' groupings; None: the one that emits what Spark does, batch by batch.
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
    ) -> None:
        self._start_cluster = start
        self._started: Cluster | None = None
        self._is_starting = False
        self._script = script
        self._executors = executors
        self._work_dir = work_dir
        self._serving = serving
        self._is_strict = is_strict
        self._policy = policy
        self._queries = Queries()
        self._engine = threading.local()
        self._turn = threading.Lock()  # two threads of a script may start queries, which need names of their own

    @contextmanager
    def taken_over(self) -> Iterator[None]:
        """While entered, queries of frames are ours to start; at the end, those that still run are stopped."""
        writer, streams, stop = ClassicFrame.writeStream, SparkSession.streams, SparkSession.stop
        get, end, begin = SparkSession.Builder.getOrCreate, SparkContext.stop, SparkContext.__init__
        session = self

        def write_stream(frame: DataFrame) -> DataStreamWriter:
            if getattr(session._engine, "is_here", False):
                return DataStreamWriter(frame)
            return ScriptWriter(frame, session._starts, session._queries.add)

        def get_or_create(builder: SparkSession.Builder) -> SparkSession:
            session._start_for(cast(Any, builder)._options)
            return get(builder)

        def context_of(kind: type[SparkContext], *arguments: Any, conf: SparkConf | None = None, **named: Any) -> SparkContext:
            session._start_for({} if conf is None else dict(conf.getAll()))
            return object.__new__(kind) if session._is_starting else session._cluster.spark.sparkContext

        def begin_context(context: SparkContext, *arguments: Any, **named: Any) -> None:
            if session._is_starting:
                begin(context, *arguments, **named)

        cast(Any, ClassicFrame).writeStream = property(write_stream)
        cast(Any, SparkSession.Builder).getOrCreate = get_or_create
        cast(Any, SparkSession).streams = property(lambda spark: ScriptStreams(spark, session._queries))
        cast(Any, SparkSession).stop = lambda spark: session.stop()
        cast(Any, SparkContext).stop = lambda context: session.stop()
        cast(Any, SparkContext).__new__ = context_of
        cast(Any, SparkContext).__init__ = begin_context
        try:
            yield
        finally:
            cast(Any, ClassicFrame).writeStream = writer
            cast(Any, SparkSession.Builder).getOrCreate = get
            cast(Any, SparkSession).streams = streams
            cast(Any, SparkSession).stop = stop
            cast(Any, SparkContext).stop = end
            cast(Any, SparkContext).__init__ = begin
            # Without one, as before, Python would refuse arguments: a class forgets that it had none.
            cast(Any, SparkContext).__new__ = lambda kind, *arguments, **named: object.__new__(kind)
            self.stop()

    def stop(self) -> None:
        """Stop the queries that run, each after its batch."""
        for query in self._queries.active():
            query.stop()

    @property
    def _cluster(self) -> Cluster:
        assert self._started is not None, "a frame has a session"
        return self._started

    def _start_for(self, asked: Mapping[str, Any]) -> None:
        """Start the cluster for a script that asks for its session with these settings, unless it runs."""
        settings = {name: str(value) for name, value in asked.items()}
        if self._started is not None:
            self._tell_of_late_jars(jars_of(settings))
        elif not self._is_starting:
            self._is_starting = True
            try:
                self._started = self._start_cluster({name: text for name, text in settings.items() if is_free(name)})
                conf = self._started.spark.conf
                for name, text in {**_OF_SCRIPTS, **_of_this_machine(self._started), **settings}.items():
                    if conf.isModifiable(name):
                        conf.set(name, text)
            finally:
                self._is_starting = False

    def _tell_of_late_jars(self, jars: Mapping[str, str]) -> None:
        """Say what a script's builder cannot do any more, and its user can: have Spark start with jars."""
        if not jars or jars_of(dict(self._cluster.spark.sparkContext.getConf().getAll())):
            return
        options = " ".join(f"--conf {name}={value}" for name, value in jars.items())
        late = f"{', '.join(jars)} comes too late, as Spark runs already; say it on the command line: {options}"
        print(f"streamtopology: {self._place()}: {late}", file=sys.stderr, flush=True)

    def _starts(self, frame: DataFrame, asked: WriterSettings) -> StreamingQuery | None:
        catalyst.check_streaming(frame, asked.output_mode)
        for option in ignored_by_spark(catalyst.options_of(catalyst.plan_of(frame), "kafka")):
            said = f"Spark's reader of Kafka has no option {option} in a stream, and ignores it; correct it, or leave it out"
            print(f"streamtopology: {self._place()}: {said}", file=sys.stderr, flush=True)
        try:
            with self._turn:
                self._refuse_taken(asked.name)
                if asked.trigger.get("once") and catalyst.has_limits(catalyst.plan_of(frame)):
                    raise NotCut("its trigger is once, for which Spark reads all in one batch, whatever limit a source has")
                return self._start(cut(frame, asked.output_mode.lower()), frame, asked)
        except NotCut as why:
            said = f"{self._place()}: {why}"
            if self._is_strict:
                raise TopologyFailed(f"{said}. --strict refuses a query that Spark would run itself") from None
            print(f"streamtopology: {said}; so Spark runs this query itself", file=sys.stderr, flush=True)
            return None

    def _refuse_taken(self, name: str | None) -> None:
        """Raise Spark's own error for a name that an active query has."""
        if name is not None and any(query.name == name for query in self._queries.active()):
            said = f"Cannot start query with name {name} as a query with that name is already active in this SparkSession"
            raise IllegalArgumentException(said)

    def _place(self) -> str:
        """`job.py, line 12`: where the script is now."""
        frame = sys._getframe()
        while frame is not None and frame.f_code.co_filename != str(self._script):
            frame = frame.f_back
        return self._script.name if frame is None else f"{self._script.name}, line {frame.f_lineno}"

    def _start(self, made: Cut, frame: DataFrame, asked: WriterSettings) -> TopologyStream:
        name = self._free_name(asked)
        module = f"streamtopology_script_{name.replace('-', '_')}"
        policy = self._policy or policy_of(made.part)
        topology = topology_of(made.part, asked, name, self._checkpoint(asked, name), self._executors, module, policy)
        base_dir = self._script.parent
        try:
            rows = {given.name: rows_of(topology.source(given.name), given.rows) for given in made.part.inputs}
            nodes = compile_dag(topology, rows, base_dir).nodes
            output = next(node.output for node in nodes if node.name == topology.sinks[0].input)
        except StreamTopologyError as error:
            said = "; ".join(problem.message for problem in error.problems) if isinstance(error, ManifestError) else str(error)
            raise NotCut(made.part.in_words(said)) from error
        assert output is not None, "an operator of a script emits rows"
        self._hand_over(module, made, asked, output)
        check_before_start(topology, base_dir)
        history = new_history(topology)
        run = open_run(self._cluster, topology, base_dir, history, RunOptions(Until(), self._work_dir))
        history.starting("reading the first rows")

        def stream() -> None:
            self._engine.is_here = True
            with View(history, Console(stderr=True), time.monotonic):
                process(run, history, self._serving)
                history.enter(Phase.DONE)

        return TopologyStream(run, history, frame, asked.name, stream, self._queries)

    def _free_name(self, asked: WriterSettings) -> str:
        taken = {query.topology for query in self._queries.active() if isinstance(query, TopologyStream)}
        name = name_of(asked.name or self._script.stem)
        if name not in taken:
            return name
        return next(f"{name}-{number}" for number in range(2, len(taken) + 3) if f"{name}-{number}" not in taken)

    def _hand_over(self, module: str, made: Cut, asked: WriterSettings, rows: pa.Schema) -> None:
        """Make what the topology's `run`s name: the frame below the cut, and what the script does with each batch."""
        handed = ModuleType(module)
        spark = self._cluster.spark
        above = made.above(as_frame(rows.empty_table(), spark))
        output = output_of(asked, above.frame)

        def take(rows: pa.Table, batch: int) -> None:
            output(above.of(as_frame(rows, spark)), batch)

        for given in made.part.inputs:
            setattr(handed, given.name, lambda spark, rows=given.rows: rows)
        setattr(handed, SINK, take if asked.function is None else wraps(asked.function)(take))  # which its errors name
        sys.modules[module] = handed

    def _checkpoint(self, asked: WriterSettings, name: str) -> str:
        given = asked.option("checkpointLocation")
        conf = self._cluster.spark.conf
        if given is None and (root := conf.get("spark.sql.streaming.checkpointLocation", None)):
            given = f"{root}/{asked.name or uuid.uuid4()}"
        if given is None:
            if asked.format not in _WITHOUT_CHECKPOINT:
                raise NotCut("it has no checkpointLocation")
            self._work_dir.mkdir(parents=True, exist_ok=True)
            return mkdtemp(prefix=f"{name}-", dir=self._work_dir)
        if given.startswith("file:"):
            return "/" + given.removeprefix("file:").lstrip("/")
        if "://" in given and not given.startswith("s3://"):
            raise NotCut(f"its checkpointLocation is {given}, and a topology's is in a folder or at s3://BUCKET/PREFIX")
        return given
