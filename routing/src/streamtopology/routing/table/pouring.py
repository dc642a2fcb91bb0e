"""Pouring: a router deals the rows of split keys so that its own batch is level, whatever has changed since they were planned.

A plan is as old as its window. A key that becomes hot now would overload an instance until the next plan. A router sees the
rows of this very batch, so it can do better: it counts the rows that all other keys give to each instance, and then fills
up with those of split keys. If an instance would still finish long after the others, the router scouts: it looks for heavy
keys in a sample of the rows and splits these over all instances, for this batch alone.

Routers need not agree. Where state can be combined, rows that come to another instance than the home of their key are merged
into it, and no state moves. All are pure functions of the rows, so a retried batch is dealt as at first.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from streamtopology.routing.table.hashing import kernel_input
from streamtopology.routing.table.perfect_hash import Hashes, Instances
from streamtopology.routing.table.splits import (
    FINEST_TURNS,
    SIZE_BITS,
    Codes,
    Ints,
    codes_of,
    count_turns,
    deal_turns,
    dealt,
    single_owner,
)
from streamtopology.routing.table.table import RoutingTable
from streamtopology.routing.table.water import poured, water_line

Floats = npt.NDArray[np.float64]

# Rows among which a router looks for heavy keys.
SAMPLE = 4096

# Rows of a key in the sample by which it counts as heavy.
SEEN = 8

# Keys that a router splits by itself in one batch, at most.
MOST_SCOUTED = 16


@dataclass(frozen=True, eq=False)
class Pace:
    """The speed of instances 0..k-1: instance j is done after fixed_seconds[j] + rows / capacities[j]; float64[k] each.

    Capacity 0: the instance is not active. `routers`: of which each has a like part of the rows of a batch. `scouts_beyond`: an
    instance that would finish after more than this many times the perfect division is scouted.
    """

    capacities: Floats
    fixed_seconds: Floats
    routers: float = 1.0
    scouts_beyond: float = np.inf

    @property
    def of_router(self) -> Floats:
        """float64[k]: rows/s that one router may give to each instance."""
        return self.capacities / self.routers


@dataclass(frozen=True, eq=False)
class Poured:
    """The instance of each row, int32[n], and the keys that the router split by itself, uint64[s]."""

    owners: Instances
    scouted: Hashes


@dataclass(frozen=True, eq=False)
class _Stretches:
    """The turns of split keys and of rows dealt so far: key i has `rows[i]` of them, given to owners[first[i]:first[i + 1]] in
    the turns starts[i]:starts[i + 1]. `given` float64[k]: rows of other keys and, in rows, the fixed seconds."""

    given: Floats
    rows: Floats
    first: Ints
    owners: Instances
    starts: Ints

    def filled(self, capacities: Floats) -> tuple[Floats, Floats]:
        """(parts float64[o], rows float64[k]): what each owner gets of its key, and each instance of all keys."""
        rows = self.given.copy()
        return poured(rows, capacities, self.rows, self.first, self.owners), rows


@dataclass(eq=False)
class Pourer:
    """One router's batch at one `pace`, dealt chunk by chunk: each chunk evens out the load of the earlier chunks.

    start: as for `RoutingTable.deal`.
    """

    pace: Pace
    start: int
    _given: Floats = field(init=False)
    _rows: int = 0

    def __post_init__(self) -> None:
        self._given = np.zeros(len(self.pace.capacities))

    def pour(self, table: RoutingTable, hashes: Hashes) -> Poured:
        """Deal a piece of the batch (key hashes uint64[n]) to the table's instances, all of which are active at this pace."""
        dealt = pour(table, hashes, self.pace, self.start + self._rows, self._given)
        self._given += np.bincount(dealt.owners, minlength=len(self._given))
        self._rows += len(hashes)
        return dealt


def pour(table: RoutingTable, hashes: Hashes, pace: Pace, start: int, given: Floats | None = None) -> Poured:
    """Deal rows (key hashes uint64[n]) to the table's instances, all of which are active at this `pace`.

    start: as for `RoutingTable.deal`. given float64[k]: rows of the same batch that each instance has got already.
    """
    keys, capacities = kernel_input(hashes, np.uint64, "hashes"), pace.of_router
    before = np.zeros(len(capacities)) if given is None else given
    codes, stretches = _counted(table, keys, pace, before)
    _, filled = stretches.filled(capacities)
    scouted: list[int] = []
    if np.isfinite(pace.scouts_beyond) and len(keys):
        line = water_line(pace.fixed_seconds, capacities, float(len(keys)) + before.sum())
        limits = pace.scouts_beyond * line * capacities
        if (filled > limits).any():
            scouted = _scouted(keys, codes, table, filled, limits)
            stretches = _with_scouted(stretches, scouted, keys, codes, np.flatnonzero(capacities > 0).astype(np.int32))
    if len(stretches.rows):
        parts, _ = stretches.filled(capacities)
        of_owner = np.empty(len(parts), np.int32)
        deal_turns(parts, stretches.first, np.diff(stretches.starts), of_owner)
        k = int(stretches.starts[0])
        turns = np.concatenate([np.arange(k, dtype=np.int32), np.repeat(stretches.owners, of_owner)])
        owners = dealt(codes, turns, start)
    else:
        owners = (codes >> np.uint32(SIZE_BITS)).astype(np.int32)
    return Poured(owners, np.array(scouted, np.uint64))


def _counted(table: RoutingTable, keys: Hashes, pace: Pace, before: Floats) -> tuple[Codes, _Stretches]:
    """The code of each row, and the table's split keys with their rows. before float64[k]: rows given already."""
    if len(table.splits):
        index, first, owners = table.turn_index, table.splits.first, table.splits.owners
        codes, starts = index.codes(keys), index.starts
    else:
        k = len(pace.capacities)
        codes, starts = single_owner(table.lookup(keys)), np.array([k])
        first, owners = np.zeros(1, np.int64), np.empty(0, np.int32)
    counts = np.zeros(int(starts[-1]), np.int64)
    count_turns(codes, counts)
    given, named = pace.fixed_seconds * pace.of_router + before, counts[: starts[0]]
    given[: len(named)] += named
    return codes, _Stretches(given, counts[starts[:-1]].astype(np.float64), first, owners, starts)


def _scouted(keys: Hashes, codes: Codes, table: RoutingTable, filled: Floats, limits: Floats) -> list[int]:
    """Heavy keys of instances beyond their limit, the most frequent first, until no instance is.

    filled, limits float64[k]: rows that each instance has, and may have.
    """
    step = max(len(keys) // SAMPLE, 1)
    sampled, where, seen = np.unique(keys[::step], return_index=True, return_counts=True)
    left, found = filled.copy(), list[int]()
    for heavy in np.argsort(-seen, kind="stable"):
        if seen[heavy] < SEEN or len(found) == MOST_SCOUTED or (left <= limits).all():
            break
        owners = _owners(int(codes[where[heavy] * step]), table)
        if (left[owners] > limits[owners]).any():
            found.append(int(sampled[heavy]))
            left[owners] -= np.count_nonzero(keys == sampled[heavy]) / len(owners)
    return found


def _owners(code: int, table: RoutingTable) -> npt.NDArray[np.int32]:
    """The instances of a stretch: of a split key's turns, or the one instance."""
    start = code >> SIZE_BITS
    if not len(table.splits) or start < table.turn_index.starts[0]:
        return np.array([start], np.int32)
    key = int(np.searchsorted(table.turn_index.starts, start))
    return table.splits.owners[table.splits.first[key] : table.splits.first[key + 1]]


def _with_scouted(before: _Stretches, scouted: list[int], keys: Hashes, codes: Codes, instances: Instances) -> _Stretches:
    """The stretches with those of the keys scouted, each over all `instances`; their `codes` are changed in place."""
    given, rows, starts = before.given.copy(), [before.rows.copy()], [before.starts]
    end = int(before.starts[-1])
    for key in scouted:
        mine = keys == np.uint64(key)
        start = int(codes[np.argmax(mine)] >> SIZE_BITS)
        count = float(np.count_nonzero(mine))
        if start < before.starts[0]:
            given[start] -= count
        else:
            rows[0][np.searchsorted(before.starts, start)] = 0.0
        codes[mine] = codes_of(np.array([end]), np.array([FINEST_TURNS]))[0]
        end += FINEST_TURNS
        rows.append(np.array([count]))
        starts.append(np.array([end]))
    owners = np.concatenate([before.owners, *([instances] * len(scouted))])
    more = before.first[-1] + len(instances) * np.arange(1, len(scouted) + 1)
    return replace(
        before,
        given=given,
        rows=np.concatenate(rows),
        first=np.concatenate([before.first, more]),
        owners=owners,
        starts=np.concatenate(starts),
    )
