"""The groups of an aggregate: the tuples of a key, divided further by columns of theirs.

Tuples are routed by the key alone. So all groups of a key are at one instance, and move together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from streamtopology.jobs.columnar.keys import KeyColumns, key_types
from streamtopology.jobs.operators.base import Rows
from streamtopology.jobs.operators.options import OptionError, key_schema, require_column
from streamtopology.jobs.state import KeyedState


class Groups:
    """Groups by the key and further columns, and which of them had tuples in the batch."""

    def __init__(self, columns: Any) -> None:
        given = [] if columns is None else [columns] if isinstance(columns, str) else columns
        if not isinstance(given, list | tuple) or not all(isinstance(name, str) for name in given):
            raise OptionError(f"option 'groupBy' is {columns!r}; allowed: a list of columns", about="groupBy")
        self.columns = tuple(map(str, given))
        self._marks = np.zeros(0, np.bool_)

    def schema(
        self, inputs: Mapping[str, pa.Schema], key: tuple[str, ...], renamed: Mapping[str, tuple[str, ...]]
    ) -> pa.Schema:
        """Names and types of the columns of a group: the key, then the others. Raises OptionError."""
        group = list(key_schema(inputs, key, renamed))
        for name in self.columns:
            if name in [column.name for column in group]:
                raise OptionError(
                    f"option 'groupBy' has {name!r}, by which the tuples are grouped already; leave it out", about="groupBy"
                )
            kinds = [self._kind(inputs, name, alias) for alias in inputs]
            if any(kind != kinds[0] for kind in kinds):
                found = ", ".join(map(str, kinds))
                raise OptionError(f"column {name!r} is {found} in different inputs; cast it in a map", about=name)
            group.append(pa.field(name, kinds[0]))
        return pa.schema(group)

    def _kind(self, inputs: Mapping[str, pa.Schema], name: str, alias: str) -> pa.DataType:
        return key_types(pa.schema([require_column(inputs, name, alias)]), (name,)).field(0).type

    def slots(self, rows: Rows, state: KeyedState, *more: pa.Array) -> np.ndarray:
        """int64[n]: the slot of each tuple's group; `more` are the last columns of the groups, one value a tuple."""
        if rows.keys is None:
            raise ValueError("the groups of tuples need their keys")
        if not self.columns and not more:
            return state.slots(rows.keys)
        columns = [*rows.keys.decode(), *(rows.column(name) for name in self.columns), *more]
        keys = KeyColumns.from_arrays(columns, state.schema.key_types.names, len(rows))
        return state.slots(keys, rows.keys.hashes)

    def begin(self) -> None:
        """Begin an attempt at a batch: no group had tuples."""
        self._marks = np.zeros(0, np.bool_)

    def mark(self, slots: np.ndarray) -> None:
        """Remember that these groups had tuples; a group that only moved here in this batch had none."""
        if len(slots):
            missing = int(slots.max()) + 1 - len(self._marks)
            if missing > 0:
                self._marks = np.concatenate([self._marks, np.zeros(missing, np.bool_)])
            self._marks[slots] = True

    def marked(self) -> np.ndarray:
        """int64[]: the slots of the groups that had tuples."""
        return np.flatnonzero(self._marks)

    def is_marked(self, slots: np.ndarray) -> np.ndarray:
        """bool[n]: which of these groups had tuples."""
        known = slots < len(self._marks)
        found = np.zeros(len(slots), np.bool_)
        found[known] = self._marks[slots[known]]
        return found
