"""Where the rows of a query go: what a script has said to its DataStreamWriter, done for one batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streamtopology.jobs.connectors.sinks.spark_writer import batch_writer
from streamtopology.jobs.scripts.lifted import WriterSettings

Output = Callable[[DataFrame, int], object]
_OWN_OPTIONS = {"checkpointlocation", "queryname"}


def as_frame(rows: pa.Table, spark: SparkSession) -> DataFrame:
    """The rows as a frame; times without a zone are TIMESTAMP_NTZ, whatever the session takes them for."""
    return spark.createDataFrame(rows, from_arrow_schema(rows.schema, prefer_timestamp_ntz=True))


def output_of(asked: WriterSettings, rows: DataFrame, spark: SparkSession) -> Output:
    """What takes each batch's frame and number. rows: a frame with the columns of a batch's. Raises Spark's own errors.

    spark: the session that sees the view of format memory.

    A format that has a sink of Spark's for streams, as files have, gets each batch once. Any other is written to as by a batch
    job: again, if the run is killed before the batch's publication was noted.
    """
    if asked.function is not None:
        return asked.function
    if asked.row_writer is not None:
        return _EachRow(asked.row_writer)
    format_ = asked.format or rows.sparkSession.conf.get("spark.sql.sources.default") or "parquet"
    options = {name: value for name, value in asked.options.items() if name.lower() not in _OWN_OPTIONS}
    if asked.table is not None:
        return _table_writer(rows, asked.table, format_, options, asked)
    if format_ == "console":
        return _Console(asked)
    if format_ == "memory":
        return _Memory(asked, rows, spark)
    return batch_writer(rows, format_, options, asked.partition_by, asked.output_mode)


def _table_writer(rows: DataFrame, table: str, format_: str, options: Mapping[str, str], asked: WriterSettings) -> Output:
    """What writes to a table of a catalogue, which is made if it is not there, as `toTable` does. Raises AnalysisException.

    Tables of Spark's own catalogue are written to where they are; others by name, as by a batch job that appends.
    """
    spark = rows.sparkSession
    by = asked.partition_by
    if not spark.catalog.tableExists(table):
        writer = rows.write.format(format_).options(**options)
        (writer.partitionBy(*by) if by else writer).saveAsTable(table)
    if spark.catalog.getTable(table).catalog != "spark_catalog":
        return lambda frame, batch: frame.write.mode("append").options(**options).saveAsTable(table)
    about = {row.col_name: row.data_type for row in spark.sql(f"DESCRIBE TABLE EXTENDED {table}").collect()}
    provider = about["Provider"].lower()
    if provider != format_.lower():  # as Spark says it
        raise AnalysisException(f"The input source({format_}) is different from the table {table}'s provider({provider})")
    return batch_writer(rows, provider, {**options, "path": about["Location"]}, by, asked.output_mode)


class _EachRow:
    """Tasks give each row to the script's function, or to its object between `open` and `close`."""

    def __init__(self, row_writer: Any) -> None:
        self._give: Any = DataStreamWriter._construct_foreach_function(row_writer)

    def __call__(self, frame: DataFrame, batch: int) -> None:
        frame.sparkSession.sparkContext.setLocalProperty("streaming.sql.batchId", str(batch))  # where PySpark's tasks look
        frame.rdd.mapPartitionsWithIndex(self._give).count()


class _Console:
    def __init__(self, asked: WriterSettings) -> None:
        self._rows = int(asked.option("numRows") or 20)
        self._truncate = (asked.option("truncate") or "true").lower() == "true"

    def __call__(self, frame: DataFrame, batch: int) -> None:
        print(f"-------------------------------------------\nBatch: {batch}\n-------------------------------------------")
        frame.show(self._rows, self._truncate)


class _Memory:
    """All rows so far, in mode complete the last result, as the temporary view of the query's name. It is there at once."""

    def __init__(self, asked: WriterSettings, rows: DataFrame, spark: SparkSession) -> None:
        self._name = asked.name or "memory"
        self._spark = spark
        self._keeps = asked.output_mode.lower() != "complete"
        self._tables: list[pa.Table] = []
        self._show(rows.toArrow())

    def __call__(self, frame: DataFrame, batch: int) -> None:
        self._tables = [*(self._tables if self._keeps else []), frame.toArrow()]
        self._show(pa.concat_tables(self._tables))

    def _show(self, rows: pa.Table) -> None:
        as_frame(rows, self._spark).createOrReplaceTempView(self._name)
