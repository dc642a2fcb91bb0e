"""A sink that is a function of the user's, called with each batch's rows and number, as Spark's foreachBatch calls it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from streamtopology.jobs.connectors.sinks.base import SinkError, staged_table
from streamtopology.jobs.users_code.ending import is_interrupt, named
from streamtopology.jobs.users_code.line import users_line
from streamtopology.jobs.users_code.modules import LoadError, named_in

Function = Callable[[Any, int], object]
# What the function gets -> how it is made of a batch's rows.
FRAMES: dict[str, Callable[[pa.Table], Any]] = {"spark": lambda rows: _spark_frame(rows), "arrow": lambda rows: rows}


def _spark_frame(rows: pa.Table) -> Any:
    from pyspark.sql import SparkSession

    return SparkSession.builder.getOrCreate().createDataFrame(rows)


def load_function(run: str, base_dir: Path) -> Function:
    """The function that `run` names, module:function or path/file.py:function. Raises LoadError."""
    _, name, found = named_in(run, base_dir, "function")
    if not callable(found) or isinstance(found, type):
        raise LoadError(f"run {run!r}: {name!r} is no function in {run.rpartition(':')[0]}")
    try:
        inspect.signature(found).bind("the rows", "the batch's number")
    except TypeError as error:
        raise LoadError(
            f"run {run!r}: {name}{inspect.signature(found)} is called with the rows and the batch's number: {error}; declare "
            f"`def {name}(rows, batch)`"
        ) from error
    return found


class FunctionSink:
    """Calls `function` once for each batch with rows, and again with the newest batch after a restart.

    So the function gets each batch at least once, in their order. It tells a batch that comes again by its number.
    """

    def __init__(self, name: str, function: Function, frame: Callable[[pa.Table], Any]) -> None:
        self._name = name
        self._function = function
        self._frame = frame
        self._last = -1

    def publish(self, batch: int, files: Sequence[Path], end: str | None = None) -> None:
        rows = staged_table(files)
        if batch <= self._last or rows is None or not rows.num_rows:
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
