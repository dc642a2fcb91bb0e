"""The values of a state's Arrow fields as Python's, for as long as the tuples of some keys are processed.

They are loaded once for all these keys and written back once, column by column. A tuple that fails is undone, so a list or
dict is copied when a tuple first asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from streamtopology.jobs.columnar.python_values import python_values
from streamtopology.jobs.operators.base import OperatorError
from streamtopology.jobs.operators.python_kept import frozen, loss
from streamtopology.jobs.state import KeyedState
from streamtopology.jobs.state.schema import ArrowField

_CHANGED_IN_PLACE = (list, dict)


class WrongStateValue(OperatorError):
    """A value that a field of the state cannot hold: a tuple is at fault."""


class StateObjects:
    """Values by field and slot. slots: int64[n], those of the tuples at hand, repeated ones allowed."""

    def __init__(self, state: KeyedState, slots: np.ndarray) -> None:
        self.fields = frozenset(field.name for field in state.schema.fields if isinstance(field, ArrowField))
        self._state = state
        self._slots = np.unique(slots) if self.fields else slots
        self._values: dict[str, dict[int, Any]] = {}
        self._before: dict[tuple[str, int], Any] = {}  # what the tuple at hand has asked for or replaced
        self._changed: dict[str, set[int]] = {}

    def get(self, field: str, slot: int) -> Any:
        """A list or dict may be changed in place."""
        value = self._of(field)[slot]
        if isinstance(value, _CHANGED_IN_PLACE) and (field, slot) not in self._before:
            self._before[field, slot] = frozen(value)
        return value

    def set(self, field: str, slot: int, value: Any) -> None:
        """Replace a value by a copy of `value`. Raises WrongStateValue."""
        values = self._of(field)
        self._check(field, value)
        self._before.setdefault((field, slot), values[slot])
        values[slot] = frozen(value)

    def undo(self) -> None:
        """Everything is again as before the tuple at hand."""
        for (field, slot), value in self._before.items():
            self._values[field][slot] = value
        self._before.clear()

    def tuple_done(self) -> None:
        """Check what the tuple at hand changed in place. Raises WrongStateValue: the tuple is to be undone."""
        changes = list(self._changes())
        for field, slot in changes:
            value = self._values[field][slot]
            if isinstance(value, _CHANGED_IN_PLACE):
                self._check(field, value)
        for field, slot in changes:
            self._changed.setdefault(field, set()).add(slot)
        self._before.clear()

    def write_back(self) -> None:
        """Give the state what has changed."""
        for field, slots in self._changed.items():
            at = np.fromiter(slots, np.int64, len(slots))
            values = pa.array([self._values[field][slot] for slot in slots], self._state.schema.field(field).arrow_type)
            self._state.write(field, at, values)
        self._changed.clear()

    def _changes(self) -> Iterator[tuple[str, int]]:
        for (field, slot), before in self._before.items():
            value = self._values[field][slot]
            if type(value) is not type(before) or _differs(value, before):
                yield field, slot

    def _of(self, field: str) -> dict[int, Any]:
        if field not in self._values:
            column = self._state.read(field, self._slots)
            self._values[field] = dict(zip(self._slots.tolist(), python_values(column, maps_as_dicts=True), strict=True))
        return self._values[field]

    def _check(self, field: str, value: Any) -> None:
        kind = self._state.schema.field(field).arrow_type
        try:
            reason = loss([value], pa.field(field, kind))
            pa.array([value] if reason is None else [], kind)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            reason = str(error)
        if reason is not None:
            what = f"{value!r:.200} of type {type(value).__name__}"
            raise WrongStateValue(f"state field {field!r} holds {kind}, which cannot be {what}: {reason}")


def _differs(value: Any, before: Any) -> bool:
    try:
        return bool(value != before)
    except ValueError:  # of arrays of numpy
        return True
