"""A sink that is any writer of Spark: jdbc, orc, avro, and what a jar brings, with the writer's own options.

What Spark has a sink for in streams gets each batch by its number, but for files: Spark's readers find no file if a number is
left out, and batches without rows leave one out. All others are written to as by a batch job that appends: again, if the run
is killed before the batch's publication was noted.
"""

# What py4j returns has no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from streamtopology.jobs.connectors.sinks.base import SinkError, staged_table
from streamtopology.jobs.connectors.sinks.function import spark_frame
from streamtopology.jobs.connectors.sinks.partitions import partition_columns
from streamtopology.jobs.variables import first_line, with_variables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streamtopology import topology

Write = Callable[["DataFrame", int], object]

WRITER, PARTITIONS = "writer", "partitionBy"
_OF_FILES = "org.apache.spark.sql.execution.datasources.FileFormat"


def batch_writer(
    rows: DataFrame, format_: str, options: Mapping[str, str], by: Sequence[str], output_mode: str = "append"
) -> Write:
    """What writes each batch's frame, by its number if it can. rows: with the columns of a batch. Raises Spark's own errors."""
    source = _data_source(rows, format_, options, by)
    return _write_by(_stream_sink(source, rows, output_mode), format_, options, by)


def options_of(sink: topology.Sink, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The writer's options, with the variables' values. Raises MissingVariable."""
    given = {name: text for name, text in sink.options.items() if name not in (WRITER, PARTITIONS)}
    return {name: with_variables(name, text, environ, "the driver") for name, text in given.items()}


class SparkSink:
    """Gives each batch with rows to a writer of Spark. `rows`: their columns; if known, a wrong writer is found at once."""

    def __init__(self, sink: topology.Sink, rows: pa.Schema | None) -> None:
        from pyspark.sql import SparkSession

        self._sink = sink
        self._write: Write | None = None
        self._last = -1
        if rows is not None and SparkSession.getActiveSession() is not None:  # commands that ask a checkpoint have none
            with self._named("Spark does not write with"):
                self._write = self._opened(spark_frame(rows.empty_table()))

    def publish(self, batch: int, files: Sequence[Path], end: str | None = None) -> None:
        rows = staged_table(files)
        if batch <= self._last or rows is None or not rows.num_rows:
            return
        with self._named(f"batch {batch} cannot be written by Spark with"):
            frame = spark_frame(rows)
            self._write = self._write or self._opened(frame)
            self._write(frame, batch)
        self._last = batch

    def close(self) -> None:
        pass

    def _opened(self, frame: DataFrame) -> Write:
        name, options, by = self._sink.options[WRITER], options_of(self._sink), partition_columns(self._sink)
        source = _data_source(frame, name, options, by)
        return _write_by(None if _is_of_files(source, frame) else _stream_sink(source, frame, "append"), name, options, by)

    @contextmanager
    def _named(self, what: str) -> Generator[None]:
        """Raise errors as SinkError, with Spark's first line and without the values of variables."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        try:
            yield
        except (PySparkException, Py4JJavaError) as error:
            spoken = str(error.java_exception.getMessage()) if isinstance(error, Py4JJavaError) else None
            first = first_line(error, self._sink.options.values(), os.environ, spoken)
            writer = f"writer {self._sink.options[WRITER]!r}"
            raise SinkError(f"sink {self._sink.name!r}: {what} {writer}: {first}") from error


def _data_source(rows: DataFrame, format_: str, options: Mapping[str, str], by: Sequence[str]) -> Any:
    """What Spark knows of a format with these options."""
    spark = rows.sparkSession
    jvm: Any = spark.sparkContext._jvm
    none, sequence = jvm.scala.Option.empty(), jvm.PythonUtils.toSeq
    return jvm.org.apache.spark.sql.execution.datasources.DataSource(
        cast(Any, spark)._jsparkSession, format_, sequence([]), none, sequence(list(by)), none,
        jvm.PythonUtils.toScalaMap(dict(options)), none, none,
    )  # fmt: skip


def _is_of_files(source: Any, rows: DataFrame) -> bool:
    """True for a format of files. Asked before there is a sink of it: that would make its log in the folder."""
    from py4j.java_gateway import is_instance_of

    return is_instance_of(cast(Any, rows.sparkSession.sparkContext)._gateway, source.providingInstance(), _OF_FILES)


def _stream_sink(source: Any, rows: DataFrame, output_mode: str) -> Any:
    """Spark's own sink of a stream of such rows; None if the format has none in this mode."""
    from pyspark.errors import UnsupportedOperationException

    jvm: Any = rows.sparkSession.sparkContext._jvm
    mode = jvm.org.apache.spark.sql.catalyst.streaming.InternalOutputModes.apply(output_mode)
    try:
        return source.createSink(mode, cast(Any, rows)._jdf.schema())
    except UnsupportedOperationException:
        return None


def _write_by(sink: Any, format_: str, options: Mapping[str, str], by: Sequence[str]) -> Write:
    if sink is None:
        return lambda frame, batch: _append(frame, format_, options, by)
    return lambda frame, batch: sink.addBatch(batch, cast(Any, frame)._jdf)


def _append(frame: DataFrame, format_: str, options: Mapping[str, str], by: Sequence[str]) -> None:
    writer = frame.write.format(format_).mode("append").options(**options)
    (writer.partitionBy(*by) if by else writer).save()
