"""The calls of one processor in one batch: keys with rows, keys with timers, and what comes of both.

State is loaded for all keys of a call at once and written back at once. What one key does wrong is undone for it alone:
what its class raises, state that does not fit its type, rows that do not fit the output.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import _create_converter_from_pandas, from_arrow_type
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, StatefulProcessor, TimerValues

from streamtopology.jobs.lazy import LazyModule
from streamtopology.jobs.operators.base import ERRORS_OF_NO_TUPLE, OperatorError
from streamtopology.jobs.operators.processors.handle import NEXT_EXPIRY, NEXT_TIMER, Handle
from streamtopology.jobs.operators.processors.spark_rows import have_names, pandas_frames, spark_rows, widened
from streamtopology.jobs.operators.processors.values import encoded, has, plain_values, zoned
from streamtopology.jobs.operators.processors.variables import WrongVariables
from streamtopology.jobs.operators.returned import WrongOutput, WrongValue, from_dicts
from streamtopology.jobs.state import KeyedState
from streamtopology.jobs.state.value_types import parts_of
from streamtopology.jobs.users_code.line import users_line

declared_cost: Any = LazyModule("streamtopology.jobs.operators.declared_cost")

# What a key of a call gives: rows of PySpark, or frames of pandas.
Given = list[Any]


class RowForm:
    """How keys and rows go to a processor and come back.

    output: its columns. name: the class, for sentences. zone: of the times that the class sees, as of Spark's session.
    is_of_groups: for applyInPandasWithState, whose numbers in frames keep their width.
    """

    def __init__(self, output: pa.Schema, name: str, zone: str, is_of_groups: bool) -> None:
        self.output, self.name, self.zone, self.is_of_groups = output, name, zone, is_of_groups

    def keys(self, columns: Sequence[pa.Array]) -> list[tuple[Any, ...]]:
        return list(zip(*(plain_values(zoned(column, self.zone)) for column in columns), strict=True))

    def rows(self, rows: pa.RecordBatch) -> Callable[[int, int], Iterator[Any]]:
        """Makes an iterator of what the class gets for the rows from one place to another."""
        made = spark_rows([plain_values(zoned(column, self.zone)) for column in rows.columns], rows.schema.names)
        return lambda start, end: iter(made[start:end])

    def batch(self, given: Given) -> pa.RecordBatch:
        """What the class gave, as rows of the output. Raises WrongOutput, WrongValue."""
        names = self.output.names
        for row in given:
            if not hasattr(row, "__fields__"):
                raise WrongOutput(f"{self.name} gives {row!r:.100}, which is no Row with names, such as Row(user=7, pages=3)")
        if have_names(given, names):
            kind = pa.struct(list(self.output))
            for as_rows_have_them in (False, True):  # what fails in both is named below, with column and value
                with suppress(ValueError):
                    return pa.RecordBatch.from_struct_array(encoded(given, kind, as_rows_have_them))
        for row in given:
            if sorted(row.__fields__) != sorted(names):
                raise WrongOutput(f"{self.name} gives {row!r:.200}, but its `output` has the columns {', '.join(names)}")
        return from_dicts([row.asDict(True) for row in given], self.output, self.name)


class PandasForm(RowForm):
    """Frames of pandas, as of transformWithStateInPandas."""

    def keys(self, columns: Sequence[pa.Array]) -> list[tuple[Any, ...]]:
        """Without zones, as the frames."""
        keys = super().keys(columns)
        return [tuple(map(_without_zone, key)) for key in keys] if any(map(_has_zone, columns)) else keys

    def rows(self, rows: pa.RecordBatch) -> Callable[[int, int], Iterator[Any]]:
        columns = [zoned(column, self.zone) for column in rows.columns]
        rows = pa.RecordBatch.from_arrays(columns, rows.schema.names)
        return pandas_frames(rows if self.is_of_groups else widened(rows), self.zone)

    def batch(self, given: Given) -> pa.RecordBatch:
        import pandas

        given = [self._with_names(frame) for frame in given if not isinstance(frame, pandas.DataFrame) or frame.columns.size]
        for frame in given:
            if not isinstance(frame, pandas.DataFrame) or not set(self.output.names) <= set(frame.columns):
                found = f"columns {', '.join(map(str, frame.columns))}" if hasattr(frame, "columns") else repr(frame)[:100]
                wanted = ", ".join(self.output.names)
                raise WrongOutput(f"{self.name} gives {found}; its `output` wants a pandas.DataFrame of {wanted}")
        try:
            together = pandas.concat(given, ignore_index=True) if given else pandas.DataFrame(columns=self.output.names)
            table = pa.Table.from_pandas(self._with_zones(together), self.output, preserve_index=False)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise WrongValue(f"{self.name} gives values that its `output` cannot hold: {error}") from error
        batches = table.combine_chunks().to_batches()  # none of no rows
        return batches[0] if batches else pa.RecordBatch.from_pylist([], self.output)

    def _with_names(self, frame: Any) -> Any:
        """The frame; if it has numbers for names, those of the output in their place, as Spark has it."""
        names: Any = getattr(frame, "columns", ())
        if len(names) != len(self.output.names) or any(isinstance(name, str) for name in names):
            return frame
        return frame.set_axis(self.output.names, axis=1)

    def _with_zones(self, frame: Any) -> Any:
        """The frame with the zone of the class for times without one. Of an hour that comes twice, the second, as Spark."""
        for name, kind in zip(self.output.names, self.output.types, strict=True):
            times = frame[name]
            if getattr(kind, "tz", None) and times.dtype.kind == "M" and times.dt.tz is None:
                frame[name] = times.dt.tz_localize(self.zone, ambiguous=False)
            elif parts_of(kind) and has(kind, _is_zoned):
                frame[name] = _create_converter_from_pandas(from_arrow_type(kind), timezone=self.zone)(times)
        return frame


def _is_zoned(kind: pa.DataType) -> bool:
    return getattr(kind, "tz", None) is not None


def _has_zone(column: pa.Array) -> bool:
    return _is_zoned(column.type)


def _without_zone(value: Any) -> Any:
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


FORMS: Mapping[str, type[RowForm]] = {"rows": RowForm, "pandas": PandasForm}


@dataclass
class Called:
    """What came of the calls for the keys of some rows.

    output: what they emit. seconds: float64[n], of each row. failed: by reason, int64[] places of the rows of keys that failed.
    """

    output: pa.RecordBatch | None
    seconds: np.ndarray
    failed: list[tuple[str, np.ndarray]] = field(default_factory=list)


class Calls:
    """One object of the processor, from its `init` to its `close`. key: the names of the key columns."""

    def __init__(
        self, processor: StatefulProcessor, handle: Handle, times: TimerValues, form: RowForm, key: Sequence[str]
    ) -> None:
        self._processor, self._handle, self._times, self._form, self._key = processor, handle, times, form, key
        self._users: Any = getattr(processor, "function_of_groups", type(processor))  # the code of the user's, for sentences

    def with_rows(self, what: str, rows: pa.RecordBatch, slots: np.ndarray, state: KeyedState, tries: int, cost: int) -> Called:
        """Call the method `what` of the processor for each key with its rows. slots: int64[n], of the key of each row.

        tries: how often a key is tried before it has failed. cost: loop turns that stand for a row's declared cost.
        """
        order = None if np.all(slots[1:] >= slots[:-1]) else np.argsort(slots, kind="stable")
        ordered, sorted_rows = (slots, rows) if order is None else (slots[order], rows.take(pa.array(order)))
        starts = np.flatnonzero(np.diff(ordered, prepend=-1, append=-1))
        unique = ordered[starts[:-1]]
        with _without_collections():
            keys = self._keys_in(state, unique)
            self._handle.load(state, unique)
            made = self._form.rows(sorted_rows)
            given, spent, failures = self._each_key(getattr(self, what), keys, starts.tolist(), made, tries, cost)
            output = self._settled(given, keys, failures, state, unique)
        places = np.arange(len(slots)) if order is None else order
        counts = np.diff(starts)
        seconds = np.empty(len(slots))
        seconds[places] = np.repeat(spent * 1e-9 / counts, counts)
        failed = [(reason, np.sort(places[starts[at] : starts[at + 1]])) for at, reason in sorted(failures.items())]
        return Called(output, seconds, failed)

    def input_rows(self, key: tuple[Any, ...], rows: Iterator[Any]) -> Iterable[Any]:
        return self._processor.handleInputRows(key, rows, self._times)

    def initial_state(self, key: tuple[Any, ...], rows: Iterator[Any]) -> Iterable[Any]:
        for row in rows:
            self._processor.handleInitialState(key, row, self._times)
        return ()

    def with_timers(self, state: KeyedState, until: int) -> pa.RecordBatch | None:
        """Fire the timers up to `until`, milliseconds since 1970, the earliest first. Raises OperatorError."""
        live = state.live()
        slots = live[state.column(NEXT_TIMER)[live] <= until]
        if not slots.size:
            return None
        state.touch(slots)
        keys, handle = self._keys_in(state, slots), self._handle
        handle.load(state, slots)
        due = sorted((timer, at) for at, timers in enumerate(handle.timers) for timer in timers or () if timer <= until)
        given: list[Given] = [[] for _ in keys]
        for timer, handle.at in due:
            key = keys[handle.at]
            try:
                given[handle.at].extend(self._processor.handleExpiredTimer(key, self._times, ExpiredTimerInfo(timer)))
                handle.deleteTimer(timer)
            except ERRORS_OF_NO_TUPLE:
                raise
            except Exception as error:
                raise OperatorError(self._reason("handleExpiredTimer", key, error)) from error
        failures: dict[int, str] = {}
        output = self._settled(given, keys, failures, state, slots)
        if failures:
            raise OperatorError(next(iter(failures.values())))
        return output

    def sweep(self, state: KeyedState) -> None:
        """Drop what has expired."""
        live = state.live()
        slots = live[state.column(NEXT_EXPIRY)[live] <= self._handle.now]
        if slots.size:
            state.touch(slots)
            self._handle.load(state, slots)
            self._handle.sweep()
            self._handle.store(state, slots)

    def close(self) -> None:
        """Raises OperatorError, since no key is to blame for what `close` raises."""
        try:
            self._processor.close()
        except ERRORS_OF_NO_TUPLE:
            raise
        except Exception as error:
            where = users_line(self._users, error)
            raise OperatorError(f"{self._users.__name__}.close raised {type(error).__name__}: {error}{where}") from error

    def _each_key(
        self, call: Any, keys: Sequence[tuple[Any, ...]], starts: Sequence[int], made: Any, tries: int, cost: int
    ) -> tuple[list[Given], np.ndarray, dict[int, str]]:
        """What each key gives, the nanoseconds it took, and the reason of each that failed by its place."""
        handle, clock = self._handle, time.perf_counter_ns
        given: list[Given] = []
        spent = np.zeros(len(keys), np.int64)
        failures: dict[int, str] = {}
        for at, key in enumerate(keys):
            handle.at, began = at, clock()
            if cost:
                declared_cost.burn(starts[at + 1] - starts[at], cost)
            try:
                given.append(list(call(key, made(starts[at], starts[at + 1]))))
            except Exception as error:  # noqa: BLE001 - of users' code: judged there
                given.append(
                    self._after(error, key, lambda at=at, key=key: call(key, made(starts[at], starts[at + 1])), tries, failures)
                )
            spent[at] = clock() - began
        return given, spent, failures

    def _after(
        self, error: Exception, key: tuple[Any, ...], again: Callable[[], Iterable[Any]], tries: int, failures: dict[int, str]
    ) -> Given:
        """What the key at hand gives in one of its other tries; nothing if it fails in all of them."""
        while True:
            if isinstance(error, ERRORS_OF_NO_TUPLE):
                error.add_note(f"{self._users.__name__} was at {self._named(key)}")
                raise error
            self._handle.undo(self._handle.at)
            tries -= 1
            if tries <= 0:
                failures[self._handle.at] = self._reason("handleInputRows", key, error)
                return []
            try:
                return list(again())
            except Exception as repeated:  # noqa: BLE001 - of users' code
                error = repeated

    def _settled(
        self, given: list[Given], keys: Sequence[Any], failures: dict[int, str], state: KeyedState, slots: np.ndarray
    ) -> pa.RecordBatch | None:
        """Write back the state; return what the keys emit. Those whose state or rows do not fit are added to `failures`."""
        while True:
            try:
                output = self._output(given, keys)
                self._handle.store(state, slots)
                return output
            except _WrongKeys as wrong:
                found = wrong.reasons
            except WrongVariables as wrong:
                found = {at: f"{reason} on {self._named(keys[at])}" for at, reason in wrong.reasons.items()}
            for at, reason in found.items():
                self._handle.undo(at)
                given[at] = []
                failures[at] = f"{self._users.__name__}: {reason}"

    def _output(self, given: list[Given], keys: Sequence[Any]) -> pa.RecordBatch | None:
        together = list(chain.from_iterable(given))
        if not together:
            return None
        try:
            return self._form.batch(together)
        except WrongValue:
            reasons = {at: reason for at, rows in enumerate(given) if rows and (reason := self._wrong(rows, keys[at]))}
            if not reasons:
                raise
            raise _WrongKeys(reasons) from None

    def _wrong(self, rows: Given, key: tuple[Any, ...]) -> str | None:
        try:
            self._form.batch(rows)
        except WrongValue as error:
            return f"{error} on {self._named(key)}"
        return None

    def _keys_in(self, state: KeyedState, slots: np.ndarray) -> list[tuple[Any, ...]]:
        return self._form.keys(state.keys(slots))

    def _reason(self, method: str, key: tuple[Any, ...], error: Exception) -> str:
        what = "" if isinstance(error, OperatorError) else f"raised {type(error).__name__}: "
        return f"{self._users.__name__}.{method} {what}{error} on {self._named(key)}{users_line(self._users, error)}"

    def _named(self, key: tuple[Any, ...]) -> str:
        return "key " + ", ".join(f"{name}={value!r:.200}" for name, value in zip(self._key, key, strict=True))


class _WrongKeys(Exception):
    def __init__(self, reasons: Mapping[int, str]) -> None:
        super().__init__()
        self.reasons = reasons


@contextmanager
def _without_collections() -> Iterator[None]:
    """A million rows made at once are a million reasons to look for cycles, of which there are none."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
