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

    types: of the key's columns, in which keys are compared. order: int64[m], the rows of the table by group; starts and counts:
    int64[groups], where a group begins in it, and its rows.
    """

    types: tuple[pa.DataType, ...]
    index: KeyIndex
    order: np.ndarray
    starts: np.ndarray
    counts: np.ndarray

    @staticmethod
    def of(columns: Sequence[pa.Array], types: tuple[pa.DataType, ...]) -> KeyJoin:
        """By the columns of the table's key."""
        whole = np.flatnonzero(_without_null(columns))
        keys = _keys([column.take(pa.array(whole)) for column in columns], types)
        index = KeyIndex(keys.types)
        groups, _, _ = index.upsert(keys, 0)
        counts = np.bincount(groups, minlength=index.taken)
        return KeyJoin(types, index, whole[np.argsort(groups, kind="stable")], np.cumsum(counts) - counts, counts)

    def is_unique(self, rows: int) -> bool:
        """True if each of the table's `rows` has a key of its own."""
        return len(self.order) == len(self.counts) == rows

    def pairs(self, columns: Sequence[pa.Array], keeps_all: bool) -> tuple[np.ndarray, np.ndarray]:
        """The tuples that the columns are the keys of, and the table's row for each (int64[p] both), in the tuples' order.

        keeps_all: a tuple without a match is there once, with the row -1.
        """
        groups = self.index.find(_keys(columns, self.types))
        is_found = (groups >= 0) & _without_null(columns)
        matches = np.zeros(len(groups), dtype=np.int64)
        matches[is_found] = self.counts[groups[is_found]]
        copies = np.maximum(matches, 1) if keeps_all else matches
        tuples = np.repeat(np.arange(len(groups)), copies)
        places = np.arange(len(tuples)) - np.repeat(np.cumsum(copies) - copies, copies)
        rows = np.full(len(tuples), -1, dtype=np.int64)
        have = is_found[tuples]
        rows[have] = self.order[self.starts[groups[tuples[have]]] + places[have]]
        return tuples, rows


def _keys(columns: Sequence[pa.Array], types: Sequence[pa.DataType]) -> KeyColumns:
    cast = [column if column.type == kind else column.cast(kind) for column, kind in zip(columns, types, strict=True)]
    return KeyColumns.from_arrays(cast, [str(place) for place in range(len(cast))], len(cast[0]))


def _without_null(columns: Sequence[pa.Array]) -> np.ndarray:
    """bool[n]: whether all columns have a value."""
    return np.logical_and.reduce([column.is_valid().to_numpy(zero_copy_only=False) for column in columns])
