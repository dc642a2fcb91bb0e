"""Any other Spark streaming source (rate, socket, a connector's format): read where Spark puts it.

Several sources of a topology are one query over their tagged union, so that a batch has one number and one commit.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from streamtopology.jobs.connectors.sources.errors import SourceError
from streamtopology.jobs.connectors.sources.schema.declared import watermark_problems
from streamtopology.jobs.connectors.sources.source_tag import TAG
from streamtopology.jobs.connectors.sources.spark.options import DATAFRAME, load_maker, spark_options, without_secrets
from streamtopology.jobs.users_code.line import users_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from streamtopology.topology import Source

# That of the session: times of rows come with it.
_ZONE = "UTC"
_NO_CONNECTOR = re.compile(r"DATA_SOURCE_NOT_|NoClassDefFoundError|ClassNotFoundException|NoSuchMethodError")
_TAIL = re.compile(r"[.;]*( SQLSTATE: \w+)?([;,]? *[(]?line \d+,? pos \d+[)]?)?[.;]*$")


def load(spark: SparkSession, source: Source, environ: Mapping[str, str] = os.environ, base_dir: Path = Path()) -> DataFrame:
    """The frame of a source after its where and select: a stream, or what a user's function makes of a table that is none.

    Raises SourceError with Spark's own sentence. Options have the values of `environ` in place of its variables; the sentence
    does not. A function of the user's is in a file relative to `base_dir`, the manifest's folder.
    """
    named = partial(_named, source, environ)
    if source.format == DATAFRAME:
        frame = _made(spark, source, base_dir)
    else:
        with named(f"Spark does not read it with format {source.format!r}"):
            reader = spark.readStream.format(source.format).options(**spark_options(source, environ))
            if source.schema is not None:
                reader = reader.schema(source.schema)
            frame = reader.load()
    if source.where is not None:
        with named(f"where {source.where!r} is refused by Spark, whose SQL it is"):
            frame = frame.where(source.where)
    if source.select:
        with named(f"select {list(source.select)!r} is refused by Spark, whose SQL it is"):
            frame = frame.selectExpr(*source.select)
    if frame.isStreaming:
        with named("its select or where does not go row by row, which only an operator can do"):
            _check_row_by_row(spark, frame)
    return frame


def _made(spark: SparkSession, source: Source, base_dir: Path) -> DataFrame:
    from pyspark.sql import DataFrame

    make, run = load_maker(source, base_dir), source.options["run"]
    try:
        frame = make(spark)
    except Exception as error:
        why = f"{type(error).__name__}: {error}{users_line(make, error)}"
        raise SourceError(f"source {source.name!r}: {run} fails by {why}") from error
    if not isinstance(frame, DataFrame):
        raise SourceError(f"source {source.name!r}: {run} returns {type(frame).__name__}, not a DataFrame")
    return frame


def rows_of(source: Source, frame: DataFrame) -> pa.Schema:
    """The rows of a frame of `load`. Raises SourceError for names and types that operators cannot have."""
    for name, times in Counter(name.lower() for name in frame.columns).items():
        if times > 1:
            sentence = f"source {source.name!r}: {times} columns are called {name!r}, which SQL takes for one"
            raise SourceError(f"{sentence}; give each another name in the source's select")
        if name == TAG:
            sentence = f"source {source.name!r}: column {name!r} has a name of ours"
            raise SourceError(f"{sentence}; give it another name in the source's select")
    rows = pa.schema([_column(source, frame, name) for name in frame.columns])
    if source.watermark is not None:
        for problem in watermark_problems(source.name, source.watermark, rows):
            raise SourceError(problem.message)
    return rows


def tagged_union(frames: Mapping[str, DataFrame]) -> DataFrame:
    """All rows of `frames`: column `__source` names the frame, the struct column of that name holds its row."""
    from pyspark.sql import functions as f

    def tagged(name: str, frame: DataFrame) -> DataFrame:
        row = f.struct(*[frame[_quoted(column)] for column in frame.columns])
        return frame.select(f.lit(name).alias(TAG), row.alias(name))

    tagged_frames = [tagged(name, frame) for name, frame in frames.items()]
    return reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), tagged_frames)


@contextmanager
def _named(source: Source, environ: Mapping[str, str], wrong: str) -> Iterator[None]:
    """Raise Spark's errors as SourceError: the source, what is wrong, Spark's first line."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        spoken = str(error.java_exception.getMessage()) if isinstance(error, Py4JJavaError) else str(error)
        shown = without_secrets([source], spoken, environ)  # whole: of a value that is cut, the rest would show
        first = next((line.strip() for line in shown.splitlines() if line.strip()), type(error).__name__)
        why = _TAIL.sub("", first)
        remedy = "; the jar of a connector is named in spec.sparkConf" if _NO_CONNECTOR.search(str(error)) else ""
        raise SourceError(f"source {source.name!r}: {wrong}: {why}{remedy}") from error


def _check_row_by_row(spark: SparkSession, frame: DataFrame) -> None:
    """Raise Spark's AnalysisException for an aggregate or a window over rows, as its query would as it starts."""
    jvm: Any = spark.sparkContext._jvm
    catalyst, streaming = jvm.org.apache.spark.sql.catalyst.analysis, jvm.org.apache.spark.sql.streaming
    plan = cast(Any, frame)._jdf.queryExecution().analyzed()
    catalyst.UnsupportedOperationChecker.checkForStreaming(plan, streaming.OutputMode.Append())


def _column(source: Source, frame: DataFrame, name: str) -> pa.Field:
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    column = next(field for field in frame.schema if field.name == name)
    for finding in filter(None, map(_unlike_ours, types_in(column.dataType))):
        raise SourceError(f"source {source.name!r}: column {name!r} {finding}")
    try:
        return to_arrow_schema(StructType([column]), timezone=_ZONE).field(0)
    except (PySparkException, ValueError) as error:
        kind = column.dataType.simpleString()
        sentence = f"source {source.name!r}: column {name!r} is {kind}, which Arrow has no type for"
        raise SourceError(f"{sentence}; cast it in the source's select, or leave it out") from error


def types_in(kind: DataType) -> Iterator[DataType]:
    """A type of Spark, and those in it."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    yield kind
    held: list[DataType] = []
    if isinstance(kind, StructType):
        held = [field.dataType for field in kind.fields]
    elif isinstance(kind, ArrayType):
        held = [kind.elementType]
    elif isinstance(kind, MapType):
        held = [kind.keyType, kind.valueType]
    for one in held:
        yield from types_in(one)


def _unlike_ours(kind: DataType) -> str | None:
    """The sentence for a type whose values Arrow would hold as others, or that operators would not compare as Spark does."""
    from pyspark.sql.types import StringType, VariantType

    if isinstance(kind, VariantType):
        return "is or holds a variant, of which only bytes would arrive; take it apart or to_json it in the source's select"
    if isinstance(kind, StringType) and not kind.isUTF8BinaryCollation():
        remedy = "COLLATE UTF8_BINARY it in the source's select, and take lower() of that if case is to play no part"
        return f"is or holds a {kind.simpleString()}, but operators and routes compare texts by their bytes; {remedy}"
    return None


def _quoted(column: str) -> str:
    return "`" + column.replace("`", "``") + "`"
