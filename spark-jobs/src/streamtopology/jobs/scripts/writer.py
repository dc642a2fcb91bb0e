"""The DataStreamWriter that a script gets: it notes what it is asked, and `start` starts a topology where it can."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streamtopology.jobs.scripts import catalyst
from streamtopology.jobs.scripts.lifted import WriterSettings

# Starts what a script has asked for; None where that is left to Spark.
Start = Callable[[DataFrame, WriterSettings], StreamingQuery | None]


class ScriptWriter(DataStreamWriter):
    """Spark's own writer in all, but that `start` asks `starts` first. `started` hears of queries that are left to Spark."""

    def __init__(self, frame: DataFrame, starts: Start, started: Callable[[StreamingQuery], object]) -> None:
        super().__init__(frame)
        self._frame = frame
        self._starts = starts
        self._started = started
        self._asked = WriterSettings()

    def outputMode(self, outputMode: str) -> DataStreamWriter:
        super().outputMode(outputMode)
        self._asked.output_mode = outputMode
        return self

    def format(self, source: str) -> DataStreamWriter:
        super().format(source)
        self._asked.format = source
        return self

    def option(self, key: str, value: Any) -> DataStreamWriter:
        super().option(key, value)
        self._asked.options[key] = str(value).lower() if isinstance(value, bool) else str(value)
        return self

    def options(self, **options: Any) -> DataStreamWriter:
        for key, value in options.items():
            self.option(key, value)
        return self

    def partitionBy(self, *cols: Any) -> DataStreamWriter:
        super().partitionBy(*cols)
        self._asked.partition_by = tuple(cols[0]) if len(cols) == 1 and isinstance(cols[0], list | tuple) else cols
        return self

    def queryName(self, queryName: str) -> DataStreamWriter:
        super().queryName(queryName)
        self._asked.name = queryName
        return self

    def trigger(self, **trigger: Any) -> DataStreamWriter:
        super().trigger(**trigger)
        asked = {name: value for name, value in trigger.items() if value is not None}
        if "processingTime" in asked:
            asked["processingTime"] = catalyst.interval_seconds(self._frame.sparkSession, asked["processingTime"])
        self._asked.trigger = asked
        return self

    def foreachBatch(self, func: Callable[[DataFrame, int], None]) -> DataStreamWriter:
        super().foreachBatch(func)
        self._asked.function, self._asked.format = func, "foreachBatch"
        return self

    def foreach(self, f: Any) -> DataStreamWriter:
        super().foreach(f)
        self._asked.row_writer, self._asked.format = f, "foreach"
        return self

    def start(
        self,
        path: str | None = None,
        format: str | None = None,
        outputMode: str | None = None,
        partitionBy: str | list[str] | None = None,
        queryName: str | None = None,
        **options: Any,
    ) -> StreamingQuery:
        self._ask(format, outputMode, partitionBy, queryName, options)
        if path is not None:
            self._asked.options["path"] = path
        query = self._starts(self._frame, self._asked)
        if query is None:
            query = super().start(path)
            self._started(query)
        return query

    def toTable(
        self,
        tableName: str,
        format: str | None = None,
        outputMode: str | None = None,
        partitionBy: str | list[str] | None = None,
        queryName: str | None = None,
        **options: Any,
    ) -> StreamingQuery:
        self._ask(format, outputMode, partitionBy, queryName, options)
        self._asked.table = tableName
        query = self._starts(self._frame, self._asked)
        if query is None:
            query = super().toTable(tableName)
            self._started(query)
        return query

    def _ask(
        self,
        format: str | None,
        mode: str | None,
        by: str | list[str] | None,
        name: str | None,
        options: Mapping[str, Any],
    ) -> None:
        """Note what `start` and `toTable` are given, as by calls of its own."""
        self.options(**options)
        if mode is not None:
            self.outputMode(mode)
        if by is not None:
            self.partitionBy(by)
        if format is not None:
            self.format(format)
        if name is not None:
            self.queryName(name)
