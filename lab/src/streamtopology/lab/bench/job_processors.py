"""The classes that `bench job` gives to transformWithState; apart, as Spark's workers import them and little else."""

# The names are PySpark's.
# ruff: noqa: N802, N803

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle


class Counter(StatefulProcessor):
    """Counts the rows of a key."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "n bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        before = self._count.get()
        n = sum(1 for _ in rows) + (before[0] if before else 0)
        self._count.update((n,))
        yield Row(key=key[0], n=n)

    def close(self) -> None:
        pass


class Newest(StatefulProcessor):
    """Keeps the last ten values of a key in a list, and tells of them by a timer."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._values = handle.getListState("values", "value double")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        held = [*self._values.get(), *((row.value,) for row in rows)][-10:]
        self._values.put(held)
        for timer in self._handle.listTimers():
            self._handle.deleteTimer(timer)
        self._handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 3_600_000)
        yield Row(key=key[0], n=len(held))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        yield Row(key=key[0], n=0)

    def close(self) -> None:
        pass


class CounterInPandas(StatefulProcessor):
    """Counts the rows of a key, which it gets as frames of pandas."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "n bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        import pandas as pd

        before = self._count.get()
        n = sum(len(frame) for frame in rows) + (before[0] if before else 0)
        self._count.update((n,))
        yield pd.DataFrame({"key": [key[0]], "n": [n]})

    def close(self) -> None:
        pass
