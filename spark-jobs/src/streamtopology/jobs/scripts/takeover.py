"""PySpark in the hands of a script's host: the session that its `getOrCreate()` finds, and the queries that it starts there."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, cast

from pyspark import SparkConf, SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import session as of_sessions
from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streamtopology.jobs.connectors.sources.kafka.options import ignored_by_spark
from streamtopology.jobs.scripts import catalyst
from streamtopology.jobs.scripts.lifted import WriterSettings
from streamtopology.jobs.scripts.query import Queries
from streamtopology.jobs.scripts.streams import ScriptStreams
from streamtopology.jobs.scripts.writer import ScriptWriter

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


class Host(Protocol):
    """Answers a script in place of PySpark."""

    queries: Queries
    """Those that the script has started."""

    is_starting: bool
    """True while the host itself makes the session."""

    @property
    def spark(self) -> SparkSession:
        """The session, once the script has asked for it."""
        ...

    def begin(self, asked: Mapping[str, Any]) -> None:
        """The script asks for its session with these settings, for the first time or again."""
        ...

    def starts(self, frame: DataFrame, asked: WriterSettings) -> StreamingQuery | None:
        """Start a query; None: Spark is to run it."""
        ...

    def stop(self) -> None:
        """Stop all queries."""
        ...


class Engine(threading.local):
    """Threads of ours, whose calls are PySpark's own."""

    is_here = False


@contextmanager
def taken_over(host: Host, engine: Engine) -> Iterator[None]:
    """While entered, `host` answers all threads but those of the engine."""
    writer, streams, stop = ClassicFrame.writeStream, SparkSession.streams, SparkSession.stop
    get, end, begin = SparkSession.Builder.getOrCreate, SparkContext.stop, SparkContext.__init__
    give_to_rdds = of_sessions._monkey_patch_RDD

    def write_stream(frame: DataFrame) -> DataStreamWriter:
        return DataStreamWriter(frame) if engine.is_here else ScriptWriter(frame, host.starts, host.queries.add)

    def get_or_create(builder: SparkSession.Builder) -> SparkSession:
        if not engine.is_here:
            host.begin(cast(Any, builder)._options)
        return get(builder)

    def context_of(kind: type[SparkContext], *arguments: Any, conf: SparkConf | None = None, **named: Any) -> SparkContext:
        host.begin({} if conf is None else dict(conf.getAll()))
        return object.__new__(kind) if host.is_starting else host.spark.sparkContext

    def begin_context(context: SparkContext, *arguments: Any, **named: Any) -> None:
        if host.is_starting:
            begin(context, *arguments, **named)

    def begin_to_df(session: SparkSession) -> None:
        """Let `toDF` of RDDs make frames of the script's session, not of the newest, which is that of some batch."""
        if host.is_starting:
            give_to_rdds(session)

    cast(Any, ClassicFrame).writeStream = property(write_stream)
    of_sessions._monkey_patch_RDD = begin_to_df
    cast(Any, SparkSession.Builder).getOrCreate = get_or_create
    cast(Any, SparkSession).streams = property(lambda spark: ScriptStreams(spark, host.queries))
    cast(Any, SparkSession).stop = lambda spark: stop(spark) if engine.is_here else host.stop()
    cast(Any, SparkContext).stop = lambda context: end(context) if engine.is_here else host.stop()
    cast(Any, SparkContext).__new__ = context_of
    cast(Any, SparkContext).__init__ = begin_context
    try:
        yield
    finally:
        cast(Any, ClassicFrame).writeStream = writer
        of_sessions._monkey_patch_RDD = give_to_rdds
        cast(Any, SparkSession.Builder).getOrCreate = get
        cast(Any, SparkSession).streams = streams
        cast(Any, SparkSession).stop = stop
        cast(Any, SparkContext).stop = end
        cast(Any, SparkContext).__init__ = begin
        # Without one, as before, Python would refuse arguments: a class forgets that it had none.
        cast(Any, SparkContext).__new__ = lambda kind, *arguments, **named: object.__new__(kind)
        host.stop()


def configure(spark: SparkSession, executors: int, settings: Mapping[str, str]) -> None:
    """Set what scripts need of a session on so many executors, and the settings of the script's own builder.

    A session that names no time zone has the machine's, as of Spark's own.
    """
    jvm: Any = spark.sparkContext._jvm
    ours = {
        **_OF_SCRIPTS,
        "spark.sql.files.minPartitionNum": str(_PARTS_OF_AN_EXECUTOR * executors),
        "spark.sql.session.timeZone": jvm.java.util.TimeZone.getDefault().getID(),
    }
    for name, text in {**ours, **settings}.items():
        if spark.conf.isModifiable(name):
            spark.conf.set(name, text)


def place_in(script: Path) -> str:
    """`job.py, line 12`: where the script is now."""
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_filename != str(script):
        frame = frame.f_back
    return script.name if frame is None else f"{script.name}, line {frame.f_lineno}"


def tell_of_ignored_options(frame: DataFrame, script: Path) -> None:
    """Say which options of Kafka Spark's reader neither uses nor refuses, as it does not say so itself."""
    for option in ignored_by_spark(catalyst.options_of(catalyst.plan_of(frame), "kafka")):
        said = f"Spark's reader of Kafka has no option {option} in a stream, and ignores it; correct it, or leave it out"
        print(f"streamtopology: {place_in(script)}: {said}", file=sys.stderr, flush=True)
