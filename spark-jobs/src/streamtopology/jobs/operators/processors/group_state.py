"""applyInPandasWithState as a processor: one value, and the newest timeout as its timer.

Spark forgets a key's timeout with each call, unless the call sets it again. It calls a key that is over once its timeout is
before the watermark or the clock; a timer fires at it. So the timer is a millisecond later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pandas
from pyspark.sql import Row
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

Function = Callable[[tuple[Any, ...], Iterable[pandas.DataFrame], GroupState], Iterable[pandas.DataFrame]]
_STATE = "state"


def time_mode_of(timeout: str) -> str:
    """The time mode of a timeout; without one there is a clock, as Spark has it."""
    return "EventTime" if timeout == GroupStateTimeout.EventTimeTimeout else "ProcessingTime"


class GroupStateProcessor(StatefulProcessor):
    """Calls `function` as Spark does.

    state: the schema of the value, as DDL. columns: of the rows. output: the columns of what the function gives. timeout: as
    in GroupStateTimeout. has_watermark: of the rows.
    """

    def __init__(
        self, function: Function, state: str, columns: Sequence[str], output: Sequence[str], timeout: str, has_watermark: bool
    ) -> None:
        self.function_of_groups = function
        self._schema, self._columns, self._output = state, columns, output
        self._timeout, self._has_watermark = timeout, has_watermark

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._value = handle.getValueState(_STATE, self._schema)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: TimerValues) -> Iterator[Any]:
        return self._called(key, rows, timerValues, has_timed_out=False)

    def handleExpiredTimer(self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo) -> Iterator[Any]:
        return self._called(key, [pandas.DataFrame(columns=pandas.Index(self._columns))], timerValues, has_timed_out=True)

    def _called(self, key: Any, rows: Iterable[Any], times: TimerValues, *, has_timed_out: bool) -> Iterator[Any]:
        value: Any = self._value.get() if self._value.exists() else None
        state = GroupState(
            optionalValue=Row() if value is None else value,
            batchProcessingTimeMs=times.getCurrentProcessingTimeInMs(),
            eventTimeWatermarkMs=times.getCurrentWatermarkInMs() if self._has_watermark else GroupState.NO_TIMESTAMP,
            timeoutConf=self._timeout,
            hasTimedOut=has_timed_out,
            watermarkPresent=self._has_watermark,
            defined=value is not None,
            updated=False,
            removed=False,
            timeoutTimestamp=GroupState.NO_TIMESTAMP,
            keyAsUnsafe=b"",
            valueSchema=None,  # pyright: ignore[reportArgumentType] - it is for the way to the JVM
        )
        given = self.function_of_groups(key, rows, state)
        if isinstance(given, pandas.DataFrame):
            raise TypeError(f"{self.function_of_groups.__name__} returns a DataFrame; yield it, or return a list of frames")
        yield from map(self._named, given)
        self._keep(state)

    def _named(self, frame: Any) -> Any:
        """A frame whose columns have no names gets those of the output, by position, as in Spark."""
        by_place = isinstance(frame, pandas.DataFrame) and not any(isinstance(name, str) for name in frame.columns)
        return frame.set_axis(list(self._output), axis=1) if by_place and len(frame.columns) == len(self._output) else frame

    def _keep(self, state: GroupState) -> None:
        if state._updated:
            self._value.update(state.get)
        elif state._removed:
            self._value.clear()
        if self._timeout != GroupStateTimeout.NoTimeout:
            for timer in self._handle.listTimers():
                self._handle.deleteTimer(timer)
            if state._timeout_timestamp != GroupState.NO_TIMESTAMP:
                self._handle.registerTimer(int(state._timeout_timestamp) + 1)

    def close(self) -> None:
        pass
