"""Split entries: keys whose rows go to several instances in turn, while one of these is the home of their state.

A key's turns are a stretch of one array of instances, in which an owner stands as often as it has turns. Row after row takes
the turn that the golden ratio gives it: evenly spread over any subset of the rows, and for a batch that is tried again the same
as at first. A lookup is two loops, each of which the compiler vectorises: entries and buckets to codes (where a stretch starts,
and how long it is), then codes to instances. One loop for both takes three times as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from streamtopology.routing.table.hashing import frozen_copy
from streamtopology.routing.table.kernel import njit
from streamtopology.routing.table.perfect_hash import EntryIndex, Hashes, Instances, entry_index, lookup_entries

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.uint32]

# A code is start << 15 | size.
SIZE_BITS = 15

MOST_TURNS_OF_KEY = (1 << SIZE_BITS) - 1

# Turns of all keys of a table and its instances together; a router has as many again for keys that it splits by itself.
MOST_TURNS = 1 << 16

# Turns of a key where few are split: the part of an owner is then right to 1 in 8,192 of the key's rows.
FINEST_TURNS = 4096

_GOLDEN = np.uint32(0x9E3779B9)
_HALF, _START, _SIZE = np.uint32(16), np.uint32(SIZE_BITS), np.uint32(MOST_TURNS_OF_KEY)


@dataclass(frozen=True, eq=False)
class Splits:
    """The split keys of a table. Immutable: its arrays are read-only copies of what was given.

    hashes: uint64[s], sorted and distinct. Key i has owners[first[i]:first[i + 1]] (int32[o], distinct), of whose turns
    (int32[o]) each has its part; first: int64[s + 1]. ValueError says what does not fit.
    """

    hashes: Hashes
    first: Ints
    owners: Instances
    turns: Instances

    def __post_init__(self) -> None:
        for name, dtype in (("hashes", np.uint64), ("first", np.int64), ("owners", np.int32), ("turns", np.int32)):
            object.__setattr__(self, name, frozen_copy(getattr(self, name), dtype, f"splits: {name}"))
        if not (self.hashes[1:] > self.hashes[:-1]).all():
            raise ValueError("splits: hashes must be sorted and distinct")
        sizes = np.diff(self.first)
        if len(sizes) != len(self.hashes) or self.first[0] or self.first[-1] != len(self.owners) or (sizes < 1).any():
            raise ValueError("splits: first holds where the owners of each key begin, at least one for each, and their number")
        if len(self.turns) != len(self.owners) or self.turns.min(initial=0) < 0 or self.owners.min(initial=0) < 0:
            raise ValueError("splits: every owner is an instance, numbered from 0, with a number of turns")
        of_key = self.turns_by_key
        if len(of_key) and not 1 <= of_key.min() <= of_key.max() <= MOST_TURNS_OF_KEY:
            raise ValueError(f"splits: a key has 1 to {MOST_TURNS_OF_KEY} turns; found {of_key.min()} to {of_key.max()}")
        pairs = self.key_by_owner << 32 | self.owners
        if len(np.unique(pairs)) < len(pairs):
            raise ValueError("splits: an instance is named twice as the owner of a key")

    def __len__(self) -> int:
        return len(self.hashes)

    @staticmethod
    def of(hashes: Hashes, first: Ints, owners: Instances, weights: npt.NDArray[np.float64]) -> Splits:
        """Keys in any order, their owners by weights (float64[o], >= 0), rounded to turns as fine as there is room for."""
        size = turns_for(len(hashes))
        turns = np.empty(len(owners), np.int32)
        sizes = np.full(len(hashes), size, np.int64)
        deal_turns(weights, np.asarray(first, np.int64), sizes, turns)
        return _in_order(np.asarray(hashes), np.asarray(first), np.asarray(owners), turns)

    @property
    def turns_by_key(self) -> Ints:
        """int64[s]: all turns of each key."""
        return np.add.reduceat(self.turns, self.first[:-1]).astype(np.int64) if len(self) else np.empty(0, np.int64)

    @property
    def key_by_owner(self) -> Ints:
        """int64[o]: the position of the key that each owner is of."""
        return np.repeat(np.arange(len(self)), np.diff(self.first))

    def where(self, kept: npt.NDArray[np.bool_]) -> Splits:
        """Those keys of which `kept` (bool[s]) holds."""
        return self._of_owners(kept[self.key_by_owner])

    def among(self, instances: Sequence[int] | Instances) -> Splits:
        """The same keys divided among these instances alone; one that has fewer than two of them is not split."""
        active = np.isin(self.owners, instances)
        key = self.key_by_owner
        some = np.bincount(key, active & (self.turns > 0), len(self)) > 0
        several = np.bincount(key, active, len(self)) > 1
        return self._of_owners(active & (some & several)[key])

    def joined(self, others: Splits) -> Splits:
        """The keys of both, of which none is in common."""
        first = np.concatenate([self.first, others.first[1:] + len(self.owners)])
        owners = np.concatenate([self.owners, others.owners])
        return _in_order(
            np.concatenate([self.hashes, others.hashes]), first, owners, np.concatenate([self.turns, others.turns])
        )

    def _of_owners(self, kept: npt.NDArray[np.bool_]) -> Splits:
        """Those owners of which `kept` (bool[o]) holds, and the keys that have any of them."""
        counts = np.bincount(self.key_by_owner[kept], minlength=len(self))
        first = np.concatenate([[0], np.cumsum(counts[counts > 0])])
        return Splits(self.hashes[counts > 0], first, self.owners[kept], self.turns[kept])


NO_SPLITS = Splits(np.empty(0, np.uint64), np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.int32))


@dataclass(frozen=True, eq=False)
class TurnIndex:
    """A table made for dealing rows. `turns` int32[t]: the instances themselves, so that an owner alone is a stretch of one
    turn, then the turns of each split key, those of key i at starts[i]:starts[i + 1] (int64[s + 1])."""

    entries: EntryIndex
    bucket_codes: Instances
    turns: Instances
    starts: Ints

    @staticmethod
    def of(entry_hashes: Hashes, entry_instances: Instances, buckets: Instances, splits: Splits, k: int) -> TurnIndex:
        """The index of a table of instances 0..k-1 with at least one entry; every split key has one."""
        starts = k + np.concatenate([[0], np.cumsum(splits.turns_by_key)])
        codes = single_owner(entry_instances)
        codes[np.searchsorted(entry_hashes, splits.hashes)] = codes_of(starts[:-1], splits.turns_by_key)
        turns = np.concatenate([np.arange(k, dtype=np.int32), np.repeat(splits.owners, splits.turns)])
        index = entry_index(entry_hashes, codes.view(np.int32))
        return TurnIndex(index, single_owner(buckets).view(np.int32), turns, starts)

    def codes(self, hashes: Hashes) -> Codes:
        """uint32[n]: the stretch of turns of each key."""
        codes = np.empty(len(hashes), np.int32)
        lookup_entries(hashes, *self.entries, self.bucket_codes, codes)
        return codes.view(np.uint32)


def turns_for(keys: int) -> int:
    """The number of turns that each of so few split `keys` has room for, as all have as many."""
    return min(FINEST_TURNS, max(MOST_TURNS // 2 // max(keys, 1), 1))


def single_owner(instances: Instances) -> Codes:
    """uint32[n]: the codes of keys that have one owner each."""
    return codes_of(instances, np.ones(1, np.int64))


def codes_of(starts: npt.NDArray[Any], sizes: Ints) -> Codes:
    """uint32[n]: the codes of stretches of turns."""
    return (starts.astype(np.int64) << SIZE_BITS | sizes).astype(np.uint32)


def dealt(codes: Codes, turns: Instances, start: int) -> Instances:
    """int32[n], in place of `codes`: the instance of each row. `start`: of the first row, in 32 bits."""
    _deal(codes, turns, np.uint32(start & 0xFFFFFFFF))
    return codes.view(np.int32)


def _in_order(hashes: Hashes, first: Ints, owners: Instances, turns: Instances) -> Splits:
    """Splits of keys in any order."""
    order = np.argsort(hashes, kind="stable")
    sizes = np.diff(first)[order]
    after = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    taken = np.arange(len(owners)) + np.repeat(np.asarray(first)[:-1][order] - after[:-1], sizes)
    return Splits(hashes[order], after, owners[taken], turns[taken])


@njit(cache=True, nogil=True)
def deal_turns(weights: npt.NDArray[np.float64], first: Ints, sizes: Ints, turns: Instances) -> None:
    """Divide sizes[i] turns among the owners first[i]:first[i + 1] by weight; what rounding leaves is carried to the next.

    weights float64[o]; of a key without any its owners have like parts. Fills turns int32[o].
    """
    for key in range(len(sizes)):
        total = 0.0
        for owner in range(first[key], first[key + 1]):
            total += weights[owner]
        due, dealt_so_far, owners = 0.0, 0, first[key + 1] - first[key]
        for owner in range(first[key], first[key + 1]):
            due += weights[owner] / total if total > 0 else 1.0 / owners
            upto = min(round(due * sizes[key]), sizes[key])
            turns[owner] = upto - dealt_so_far
            dealt_so_far = upto


@njit(cache=True, nogil=True)
def count_turns(codes: Any, counts: Any) -> None:
    """counts[start of the stretch of each row] += 1."""
    for i in range(len(codes)):
        counts[codes[i] >> _START] += 1


@njit(cache=True, nogil=True)
def _deal(codes: Any, turns: Any, start: Any) -> None:
    """Codes become instances: row i takes turn floor(size * frac((i + start) * golden ratio)) of its key.

    All in lanes of 32 bits, so that 16 rows are one step.
    """
    for i in range(len(codes)):
        code = codes[i]
        turn = np.uint32(np.uint32(np.uint32(i) + start) * _GOLDEN) >> _HALF
        at = np.uint32(np.uint32(turn * np.uint32(code & _SIZE)) >> _HALF)
        codes[i] = np.uint32(turns[np.uint32(np.uint32(code >> _START) + at)])
