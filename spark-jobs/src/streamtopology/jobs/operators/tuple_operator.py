"""Operators that work on one tuple at a time."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from streamtopology.jobs.columnar.python_values import python_rows
from streamtopology.jobs.lazy import LazyModule
from streamtopology.jobs.operators.base import ERRORS_OF_NO_TUPLE, REPETITIONS, BadTuple, Operator, OperatorError, Output, Rows
from streamtopology.jobs.operators.python_kept import frozen
from streamtopology.jobs.operators.returned import WrongOutput, from_dicts
from streamtopology.jobs.operators.state_objects import StateObjects
from streamtopology.jobs.state import KeyedState
from streamtopology.jobs.state.field_checks import check
from streamtopology.jobs.users_code.line import users_line

if TYPE_CHECKING:
    from streamtopology.jobs.operators import declared_cost
else:
    declared_cost = LazyModule("streamtopology.jobs.operators.declared_cost")


# dtypes that hold all values of a type of Python's.
_EXACT = {np.dtype(np.float64).char: float, np.dtype(np.bool_).char: bool}


class TupleState:
    """The fields of one key, by name: `state["count"] += 1`.

    A field without a shape is a Python number. A field with a shape is a numpy view of dtype[*shape], changed in place.
    A field made by `Field.of` is a Python value, None for a new key; a list or dict may be changed in place. A struct is a dict
    of all its fields. A map is a dict, too, or a list of pairs where a dict cannot have its keys.
    """

    def __init__(self, state: KeyedState, slot: int, objects: StateObjects) -> None:
        self._state = state
        self._slot = slot
        self._objects = objects
        self._before: dict[str, Any] = {}

    def __getitem__(self, field: str) -> Any:
        if field in self._objects.fields:
            return self._objects.get(field, self._slot)
        column = self._state.arrays[field]
        return self._state.column(field)[self._slot] if column.ndim > 1 else column[self._slot].item()

    def __setitem__(self, field: str, value: Any) -> None:
        if field in self._objects.fields:
            self._objects.set(field, self._slot, value)
            return
        column = self._state.arrays[field]
        if type(value) is not _EXACT.get(column.dtype.char) or column.ndim > 1:
            check(value, column.dtype, field)
        column[self._slot] = value

    def values(self) -> dict[str, Any]:
        """A copy of all fields."""
        return self._numbers() | {field: frozen(self._objects.get(field, self._slot)) for field in self._objects.fields}

    def update(self, values: Mapping[str, Any]) -> None:
        """Set the given fields."""
        for field, value in values.items():
            self[field] = value

    def _numbers(self) -> dict[str, Any]:
        """A copy of the fields that are numbers or arrays of them."""
        objects = self._objects.fields
        return {name: np.copy(column[self._slot]) for name, column in self._state.arrays.items() if name not in objects}

    def _begin(self) -> None:
        """A tuple begins to use it."""
        self._before = self._numbers()

    def _end(self) -> None:
        """The tuple has succeeded, unless this raises WrongStateValue."""
        self._objects.tuple_done()

    def _undo(self) -> None:
        """The tuple has failed."""
        self.update(self._before)
        self._objects.undo()


class TupleOperator(Operator):
    """An operator that works on one tuple at a time; override `process_tuple`. Each tuple is timed.

    It costs some microseconds a tuple, and a copy of each list or dict of its key's state that it asks for. A tuple that raises
    leaves its key's state unchanged.

    >>> class Above(TupleOperator):
    ...     fields = (Field("times", np.int64),)
    ...     output = pa.schema([("sensor", pa.int64()), ("times", pa.int64())])
    ...     def process_tuple(self, row, state):
    ...         state["times"] += row["celsius"] is not None and row["celsius"] > 30
    ...         return {"sensor": row["sensor"], "times": state["times"]}
    >>> operator, batch = Above(), pa.record_batch({"sensor": [7, 7], "celsius": [31.0, 32.0]})
    >>> _ = operator.prepare({"readings": batch.schema}, ("sensor",))
    >>> operator.accept(Rows.of(batch, "readings", ("sensor",)), KeyedState(operator.state)).to_pylist()
    [{'sensor': 7, 'times': 1}, {'sensor': 7, 'times': 2}]
    """

    def process_tuple(self, row: dict[str, Any], state: Any) -> Iterable[dict[str, Any]] | dict[str, Any] | None:
        """Process one tuple, a dict of Python values by column. Returns a dict or dicts to emit, or None.

        A time that Python's do not know, of a year outside of 1 to 9999, 24:00 or a time of day with nanoseconds, comes as its
        ISO 8601 text.
        Each dict has all columns of `output`, and dicts in it all fields of their struct, None for NULL; what else they have is
        left out. They are copied, so they may be used again. A value that its column cannot hold unchanged is an error; only
        floats are rounded, to the nearest of the column's. state: the TupleState of the tuple's key, None when the class
        declares no `fields`. An exception that repeats makes it a bad tuple; a MemoryError or an OSError (network and disk)
        ends the run.
        """
        raise NotImplementedError(f"{type(self).__name__} has no process_tuple(); override it")

    def prepare(self, inputs: Mapping[str, pa.Schema], key: tuple[str, ...]) -> pa.Schema | None:
        self._key = key
        return super().prepare(inputs, key)

    def process(self, rows: Rows, state: Any) -> Output:
        return self.accept(rows, state)

    def accept(self, rows: Rows, state: Any, dead_letter: bool = False) -> Output:
        """Process tuple by tuple. Sets `last_tuple_seconds` (float64[n], the declared cost included)."""
        if state is None:
            emitted, _ = self._each_tuple(rows, [None] * len(rows), dead_letter)
            return self._as_batch(emitted)
        if rows.keys is None:
            raise ValueError(f"{type(self).__name__} keeps state per key and needs the rows' keys")
        is_new = state.find(rows.keys) < 0
        slots = state.slots(rows.keys)
        objects = StateObjects(state, slots)
        states = [TupleState(state, slot, objects) for slot in slots.tolist()]
        emitted, failed = self._each_tuple(rows, states, dead_letter)
        objects.write_back()
        if failed.any():
            state.delete(np.setdiff1d(slots[failed & is_new], slots[~failed]))
        return self._as_batch(emitted)

    def _each_tuple(
        self, rows: Rows, states: Sequence[TupleState | None], dead_letter: bool
    ) -> tuple[list[dict[str, Any]], np.ndarray]:
        """Rows to emit, and bool[n]: the tuples that were set aside."""
        nanoseconds = np.zeros(len(rows), np.int64)
        failed = np.zeros(len(rows), np.bool_)
        emitted: list[dict[str, Any]] = []
        columns = [] if self.output is None else self.output.names
        repetitions = REPETITIONS if dead_letter else 0
        for place, (row, state) in enumerate(zip(python_rows(rows.batch), states, strict=True)):
            started = time.perf_counter_ns()
            try:
                emitted.extend(self._one_tuple(row, state, columns, repetitions))
            except ERRORS_OF_NO_TUPLE as error:
                error.add_note(f"{type(self).__name__} was at {self._named(row)}")
                raise
            except Exception as error:
                what = "" if isinstance(error, OperatorError) else f"{type(self).__name__} raised {type(error).__name__}: "
                reason = f"{what}{error} on {self._named(row)}{users_line(type(self), error)}"
                if not dead_letter:
                    raise BadTuple(place, reason) from error
                self.put_aside(rows, np.array([place]), reason)
                failed[place] = True
            nanoseconds[place] = time.perf_counter_ns() - started
        self.last_tuple_seconds = nanoseconds * 1e-9
        return emitted, failed

    def _one_tuple(
        self,
        row: dict[str, Any],
        state: TupleState | None,
        columns: Sequence[str],
        repetitions: int,
    ) -> list[dict[str, Any]]:
        """The rows to emit for one tuple. If it fails, `state` is as before, and it is run again up to `repetitions` times."""
        if state is not None:
            state._begin()
        while True:
            try:
                declared_cost.burn(1, self.iterations_per_tuple)
                emitted = [self._checked(each, columns) for each in _as_rows(self.process_tuple(row, state))]
                if state is not None:
                    state._end()
                return emitted
            except Exception as error:
                if state is not None:
                    state._undo()
                if repetitions == 0 or isinstance(error, ERRORS_OF_NO_TUPLE):
                    raise
                repetitions -= 1

    def _checked(self, emitted: Any, columns: Sequence[str]) -> dict[str, Any]:
        """A copy of `emitted`, which has all `columns`: the class may use its dict again. Raises OperatorError."""
        if not isinstance(emitted, Mapping):
            raise OperatorError(f"{type(self).__name__} emits {emitted!r}, which is no dict")
        for name in columns:
            if name not in emitted:
                has = ", ".join(map(str, emitted)) or "none"
                raise OperatorError(
                    f"{type(self).__name__} emits a dict without {name!r}, a column of its `output` "
                    f"(None is NULL; it has: {has})"
                )
        return {name: frozen(emitted[name]) for name in columns}

    def _as_batch(self, emitted: list[dict[str, Any]]) -> Output:
        if not emitted:
            return None
        if self.output is None:
            raise WrongOutput(f"{type(self).__name__} returns tuples; set `output`, their schema")
        return from_dicts(emitted, self.output, type(self).__name__)

    def _named(self, row: dict[str, Any]) -> str:
        """The tuple's key, or the whole tuple when it has none."""
        return "key " + ", ".join(f"{name}={row.get(name)!r}" for name in self._key) if self._key else repr(row)


def _as_rows(returned: Iterable[dict[str, Any]] | dict[str, Any] | None) -> Iterable[dict[str, Any]]:
    if returned is None:
        return []
    return cast("Iterable[dict[str, Any]]", [returned] if isinstance(returned, dict) else returned)
