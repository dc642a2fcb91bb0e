"""A join of tuples with a table that stays as it is: its keys are put into an index once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamtopology.jobs.columnar.key_widening import common_type
from streamtopology.jobs.columnar.keys import KeyColumns
from streamtopology.jobs.state.index import KeyIndex

_UNSIGNED = pa.decimal128(20)


def meeting_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The type in which columns of these types are compared; None if there is none that holds the values of both exactly."""
    if one != other and pa.uint64() in (one, other) and pa.types.is_integer(one) and pa.types.is_integer(other):
        return _UNSIGNED
    return common_type(one, other)


@dataclass(frozen=True)
class KeyJoin:
    """The rows of a table by their key. Rows that have NULL in it are in no group: NULL matches nothing.

    types: of the key's columns, in which keys are compared. order: int64[m], the rows of the table by group, and -1 at its end.
    starts and counts: int64[groups + 1], where a group begins there, and its rows; the last one is that of no match.
    """

    types: tuple[pa.DataType, ...]
    index: KeyIndex
    order: np.ndarray
    starts: np.ndarray
    counts: np.ndarray
    has_no_key_twice: bool

    @staticmethod
    def of(columns: Sequence[pa.Array], types: tuple[pa.DataType, ...]) -> KeyJoin:
        """By the columns of the table's key."""
        whole = np.flatnonzero(_without_null(columns))
        keys = _keys([column.take(pa.array(whole)) for column in columns], types)
        index = KeyIndex(keys.types)
        groups, _, _ = index.upsert(keys, 0)
        counts = np.bincount(groups, minlength=index.taken)
        order = np.append(whole[np.argsort(groups, kind="stable")], -1)
        starts = np.append(np.cumsum(counts) - counts, len(order) - 1)
        return KeyJoin(types, index, order, starts, np.append(counts, 0), len(counts) == len(whole))

    def is_unique(self, rows: int) -> bool:
        """True if each of the table's `rows` has a key of its own."""
        return self.has_no_key_twice and len(self.order) - 1 == rows

    def pairs(self, columns: Sequence[pa.Array], keeps_all: bool) -> tuple[np.ndarray | None, np.ndarray]:
        """The tuples that the columns are the keys of, in their order, and the table's row for each (int64[p] both).

        None: each tuple once. keeps_all: a tuple without a match is there once, with the row -1.
        """
        groups = self.index.find(_keys(columns, self.types))  # -1, the last one, without a match
        if keeps_all and self.has_no_key_twice:
            return None, self.order[self.starts[groups]]
        copies = self.counts[groups]
        if keeps_all:
            copies = np.maximum(copies, 1)
        tuples = np.repeat(np.arange(len(groups)), copies)
        places = np.arange(len(tuples)) - np.repeat(np.cumsum(copies) - copies, copies)
        return tuples, self.order[self.starts[groups[tuples]] + places]


def _keys(columns: Sequence[pa.Array], types: Sequence[pa.DataType]) -> KeyColumns:
    cast = [column if column.type == kind else column.cast(kind) for column, kind in zip(columns, types, strict=True)]
    return KeyColumns.from_arrays(cast, [str(place) for place in range(len(cast))], len(cast[0]))


def _without_null(columns: Sequence[pa.Array]) -> np.ndarray:
    """bool[n]: whether all columns have a value."""
    return np.logical_and.reduce([column.is_valid().to_numpy(zero_copy_only=False) for column in columns])
