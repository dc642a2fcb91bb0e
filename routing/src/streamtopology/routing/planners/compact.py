"""Mixed over the compact representation of all keys (mixed-routing, sections 4.1 and 4.2).

Keys that are alike, in the instance they are at (d), the one they hash to (d^h), and the discretised load and state, are
one record with a count (#); where its keys go next (d') is what the three phases work out, by the same kernels as for
single keys. The number of records depends on R and the instances, not on the keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from streamtopology.routing.hashing import mix64
from streamtopology.routing.planners.discretise import discretise
from streamtopology.routing.planners.llfd import CANDIDATE, Floats, Ints, Owners, assign, relieve
from streamtopology.routing.planners.mixed import descending, migration_priority, mixed, until_it_fits
from streamtopology.routing.planners.plan import Plan, PlanInput
from streamtopology.routing.planners.problem import Problem, totals

DEFAULT_DEGREE = 8
"""R at which the paper reports a tenth of the time (section 5, figure 11)."""


@dataclass(frozen=True, eq=False)
class Records:
    """The compact representation of n keys in m records, without d'.

    load and state: float64[m], per key, discretised; count int64[m]; owner and home int32[m], positions of instances, d
    and d^h (owner may be CANDIDATE); of_key int32[n], the record of each key.
    """

    load: Floats
    state: Floats
    count: Ints
    owner: Owners
    home: Owners
    of_key: npt.NDArray[np.int32]

    @staticmethod
    def of(problem: Problem, degree: int, error_per_instance: bool = True) -> Records:
        """Every key of a problem without buckets; `error_per_instance` is explained in `discretise`."""
        k = len(problem.given.instances)
        groups = problem.owner + np.int32(1) if error_per_instance else np.zeros(problem.n_keys, np.int32)
        load_levels, loads = discretise(problem.loads, degree, groups, k + 1)
        state_levels, states = discretise(problem.state, degree, groups, k + 1)
        of_key, first, count = _group(problem.owner, problem.fixed_home, load_levels, state_levels, k, len(loads), len(states))
        return Records(
            loads[load_levels[first]],
            states[state_levels[first]],
            count,
            problem.owner[first],
            problem.fixed_home[first],
            of_key,
        )

    def estimated_totals(self, k: int) -> Floats:
        """Load per instance position as the records have it, float64[k]; candidates count nowhere."""
        return totals(self.load * self.count, self.owner, k)


@dataclass(frozen=True, eq=False)
class _Moves:
    """Keys of records and the instance they go to: `keys[i]` keys of record `records[i]` go to position `targets[i]`."""

    records: Ints
    targets: Owners
    keys: Ints


def mixed_compact(given: PlanInput, degree: int = DEFAULT_DEGREE) -> Plan:
    """Mixed over records of alike keys, discretised with R = `degree`.

    Which keys of a record move is of no account to it, so the first ones do. Buckets are a compact form already: with
    `bucket_loads` this is `mixed`.
    """
    if len(given.bucket_loads):
        return mixed(given)
    problem = Problem.of(given)
    records = Records.of(problem, degree)
    moves = _planned(records, given, problem.limits())
    return problem.plan(problem.within_bound(_realised(records, moves, problem.owner)), "mixed-compact")


def _planned(records: Records, given: PlanInput, limits: Floats) -> _Moves:
    """Algorithm 4 over records. A record of entries is two items, for the keys moved back have another d'."""
    entries = np.flatnonzero(records.owner != records.home)
    record = np.concatenate([np.arange(len(records.load)), entries])
    load, state, home = records.load[record], records.state[record], records.home[record]
    place = np.concatenate([records.owner, records.home[entries]])
    by_load, by_priority = descending(load), descending(migration_priority(load, state, given.beta))
    back_order = np.argsort(np.where(records.owner[entries] == CANDIDATE, -1.0, records.state[entries]), kind="stable")
    back_counts = records.count[entries][back_order]
    before = np.cumsum(back_counts) - back_counts

    def attempt(n_back: int) -> tuple[_Moves, int]:
        back = np.empty(len(entries), np.int64)
        back[back_order] = np.clip(n_back - before, 0, back_counts)
        counts = np.concatenate([records.count, back])
        counts[entries] -= back
        loads_at = totals(load * counts, place, len(limits))
        free = relieve(load, counts, place, by_priority, loads_at, limits)
        unplaced = free.copy()
        items, targets, keys = assign(
            load, counts, place, unplaced, by_load, by_priority, loads_at, limits, given.capacities, given.fixed_seconds
        )
        left = np.bincount(items, keys, len(load)).astype(np.int64) + unplaced
        staying = counts - left
        stayed = np.flatnonzero((staying > 0) & (np.arange(len(load)) >= len(records.load)))
        homeless = np.flatnonzero((place == CANDIDATE) & (unplaced > 0))
        moves = _Moves(
            np.concatenate([record[items], record[stayed], record[homeless]]),
            np.concatenate([targets, place[stayed], home[homeless]]),
            np.concatenate([keys, staying[stayed], unplaced[homeless]]),
        )
        size = int(staying[place != home].sum()) + int(keys[targets != home[items]].sum())
        return moves, size

    return until_it_fits(attempt, int(back_counts.sum()), given.max_entries)


def _realised(records: Records, moves: _Moves, owner: Owners) -> Owners:
    """The owner of every key: the first keys of each record go where its moves say, the others stay."""
    by_record = np.argsort(moves.records, kind="stable")
    starts = np.searchsorted(moves.records[by_record], np.arange(len(records.load) + 1))
    moved = owner.copy()
    _hand_out(records.of_key, starts, moves.targets[by_record], moves.keys[by_record], moved)
    return moved


@njit(cache=True, nogil=True)
def _hand_out(of_key: Any, starts: Any, targets: Any, keys: Any, owner: Any) -> None:
    """Moves `starts[r]`..`starts[r + 1]` are those of record r; `keys` is used up."""
    following = starts[:-1].copy()
    for i in range(len(of_key)):
        record = of_key[i]
        move = following[record]
        if move < starts[record + 1]:
            owner[i] = targets[move]
            keys[move] -= 1
            following[record] += keys[move] == 0


@njit(cache=True, nogil=True)
def _group(
    owner: Any, home: Any, load_levels: Any, state_levels: Any, k: int, n_loads: int, n_states: int
) -> tuple[Any, Any, Any]:
    """Records of equal (owner, home, load level, state level): (record of each key, first key and count of each record)."""
    bits = 12
    slots = np.full(1 << bits, -1, np.int32)
    codes, first, count = np.empty(1 << bits, np.int64), np.empty(1 << bits, np.int64), np.zeros(1 << bits, np.int64)
    of_key = np.empty(len(owner), np.int32)
    n_records = 0
    for i in range(len(owner)):
        pair = np.int64(owner[i] + 1) * k + home[i]
        code = (pair * n_loads + load_levels[i]) * n_states + state_levels[i]
        slot = _slot(code, bits)
        while slots[slot] >= 0 and codes[slots[slot]] != code:
            slot = (slot + 1) & ((1 << bits) - 1)
        record = slots[slot]
        if record < 0:
            record = n_records
            slots[slot], codes[record], first[record] = record, code, i
            n_records += 1
        count[record] += 1
        of_key[i] = record
        if 2 * n_records > 1 << bits:
            bits += 1
            codes, first, count = _extended(codes), _extended(first), _extended(count)
            slots = np.full(1 << bits, -1, np.int32)
            for known in range(n_records):
                slot = _slot(codes[known], bits)
                while slots[slot] >= 0:
                    slot = (slot + 1) & ((1 << bits) - 1)
                slots[slot] = known
    return of_key, first[:n_records].copy(), count[:n_records].copy()


@njit(cache=True, nogil=True, inline="always")
def _slot(code: Any, bits: Any) -> Any:
    return np.int64(mix64(np.uint64(code)) >> np.uint64(64 - bits))


@njit(cache=True, nogil=True)
def _extended(values: Any) -> Any:
    extended = np.zeros(2 * len(values), values.dtype)
    extended[: len(values)] = values
    return extended
