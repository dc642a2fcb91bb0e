"""A sink that is a function of the user's, called with each batch's rows and number, as Spark's foreachBatch calls it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from streamtopology.jobs.connectors.sinks.base import SinkError, staged_table
from streamtopology.jobs.users_code.ending import is_interrupt, named
from streamtopology.jobs.users_code.line import users_line

Function = Callable[[Any, int], object]
# What the function gets -> how it is made of a batch's rows.
FRAMES: dict[str, Callable[[pa.Table], Any]] = {"spark": lambda rows: spark_frame(rows), "arrow": lambda rows: rows}


def spark_frame(rows: pa.Table) -> Any:
    """The rows as a DataFrame of this process's session."""
    from pyspark.sql import SparkSession

    return SparkSession.builder.getOrCreate().createDataFrame(rows)


class FunctionSink:
    """Calls `function` once for each batch with rows, and again with the newest batch after a restart.

    So the function gets each batch at least once, in their order. It tells a batch that comes again by its number. `empty`:
    the table that it gets for a batch without rows; None: it is not called then.
    """

    def __init__(self, name: str, function: Function, frame: Callable[[pa.Table], Any], empty: pa.Table | None = None) -> None:
        self._name = name
        self._function = function
        self._frame = frame
        self._empty = empty
        self._last = -1

    def publish(self, batch: int, files: Sequence[Path], end: str | None = None) -> None:
        rows = staged_table(files)
        if rows is None or not rows.num_rows:
            rows = self._empty
        if batch <= self._last or rows is None:
            return
        try:
            self._function(self._frame(rows), batch)
        except BaseException as error:
            if is_interrupt(error):
                raise
            what = f"{type(error).__name__}: {error}" if isinstance(error, Exception) else named(error)
            raise SinkError(
                f"sink {self._name!r}: the function failed at batch {batch} by {what}{users_line(self._function, error)}"
            ) from error
        self._last = batch

    def close(self) -> None:
        pass
