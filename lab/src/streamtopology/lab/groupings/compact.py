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

from streamtopology.lab.groupings.discretise import discretise
from streamtopology.routing.planners.bounded_table import within_bound
from streamtopology.routing.planners.llfd import CANDIDATE, Floats, Ints, Owners, assign, relieve
from streamtopology.routing.planners.mixed import migration_priority, mixed, until_it_fits
from streamtopology.routing.planners.order import descending
from streamtopology.routing.planners.plan import Plan, PlanInput
from streamtopology.routing.planners.problem import PlanningProblem, totals

_SLOT_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)

# R at which the paper reports a tenth of the time (section 5, figure 11).
DEFAULT_DEGREE = 8


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
    def of(problem: PlanningProblem, degree: int, error_per_instance: bool = True) -> Records:
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

    Buckets are a compact form already: with `bucket_loads` this is `mixed`.
    """
    if len(given.bucket_loads):
        return mixed(given)
    problem = PlanningProblem.of(given)
    return plan_records(problem, Records.of(problem, degree))


def plan_records(problem: PlanningProblem, records: Records) -> Plan:
    """The plan that the records of a problem lead to: the controller's part where instances report records.

    Which keys of a record move is open to it. The paper takes them by the selection criteria, which would move the
    heaviest, each heavier than planned; here they are chosen such that real loads come out as planned.
    """
    moves = _planned(records, problem.given, problem.limits())
    return problem.plan(within_bound(problem, _realised(records, moves, problem)), "mixed-compact")


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


def _realised(records: Records, moves: _Moves, problem: PlanningProblem) -> Owners:
    """The owner of every key: as many keys of each record go to each instance as its moves say."""
    by_record = np.argsort(moves.records, kind="stable")
    starts = np.searchsorted(moves.records[by_record], np.arange(len(records.load) + 1))
    touched = starts[1:] > starts[:-1]
    members = np.flatnonzero(touched[records.of_key])
    members = members[descending(problem.loads[members])]
    owner, k = problem.owner.copy(), len(problem.given.instances)
    hand_out(
        members,
        problem.loads,
        records.of_key,
        records.load,
        starts,
        moves.targets[by_record],
        moves.keys[by_record],
        records.count - np.bincount(moves.records, moves.keys, len(records.load)).astype(np.int64),
        problem.totals(owner) - records.estimated_totals(k),
        owner,
    )
    return owner


@njit(cache=True, nogil=True)
def hand_out(
    members: Any,
    loads: Any,
    of_key: Any,
    estimates: Any,
    starts: Any,
    targets: Any,
    keys: Any,
    staying: Any,
    deviation: Any,
    owner: Any,
) -> None:
    """`starts[r]`..`starts[r + 1]` are the moves of record r; `keys` and `staying` (int64 per record) are used up.

    deviation: by how much each instance's real load exceeds the planned one. A key that is heavier than its record says
    goes where that is least, or where it is most if it is lighter, so that real loads come out as planned.
    """
    for key in members:
        record = of_key[key]
        error = loads[key] - estimates[record]
        source = owner[key]
        if source != CANDIDATE:
            deviation[source] -= error
        target, chosen = (source, -1) if staying[record] > 0 else (CANDIDATE, -1)
        for move in range(starts[record], starts[record + 1]):
            if keys[move] == 0:
                continue
            if target == CANDIDATE or (deviation[targets[move]] - deviation[target]) * error < 0:
                target, chosen = targets[move], move
        if chosen < 0:
            staying[record] -= 1
        else:
            keys[chosen] -= 1
        deviation[target] += error
        owner[key] = target


@njit(cache=True, nogil=True)
def _group(
    owner: Any, home: Any, load_levels: Any, state_levels: Any, k: int, n_loads: int, n_states: int
) -> tuple[Any, Any, Any]:
    """Records of equal (owner, home, load level, state level): (record of each key, first key and count of each record)."""
    bits, grouped, n_records = 14, 0, 0
    codes, record_at = np.full(1 << bits, -1, np.int64), np.empty(1 << bits, np.int32)
    first, count = np.empty(1 << bits, np.int64), np.zeros(1 << bits, np.int64)
    of_key = np.empty(len(owner), np.int32)
    while True:
        grouped, n_records = _group_on(
            owner,
            home,
            load_levels,
            state_levels,
            k,
            n_loads,
            n_states,
            codes,
            record_at,
            first,
            count,
            of_key,
            bits,
            grouped,
            n_records,
        )
        if grouped == len(owner):
            return of_key, first[:n_records].copy(), count[:n_records].copy()
        bits += 1
        first, count = _extended(first), _extended(count)
        codes, record_at = _rehashed(codes, record_at, bits)


@njit(cache=True, nogil=True)
def _group_on(
    owner: Any,
    home: Any,
    load_levels: Any,
    state_levels: Any,
    k: int,
    n_loads: int,
    n_states: int,
    codes: Any,
    record_at: Any,
    first: Any,
    count: Any,
    of_key: Any,
    bits: int,
    grouped: int,
    n_records: int,
) -> tuple[int, int]:
    """Continues with key `grouped` until the hash table is a quarter full, or all keys are grouped: (next key, records).

    A key that finds another's slot costs a mispredicted branch, hence the empty slots. The tables are parameters, never
    exchanged in the loop: numba would count references to them, which is five times the work.
    """
    mask, shift = (1 << bits) - 1, np.uint64(64 - bits)
    for i in range(grouped, len(owner)):
        code = ((np.int64(owner[i] + 1) * k + home[i]) * n_loads + load_levels[i]) * n_states + state_levels[i]
        slot = np.int64((np.uint64(code) * _SLOT_MULTIPLIER) >> shift)
        while codes[slot] != code and codes[slot] >= 0:
            slot = (slot + 1) & mask
        if codes[slot] < 0:
            if 4 * n_records > mask:
                return i, n_records
            codes[slot], record_at[slot], first[n_records] = code, n_records, i
            n_records += 1
        record = record_at[slot]
        of_key[i] = record
        count[record] += 1
    return len(owner), n_records


@njit(cache=True, nogil=True)
def _rehashed(codes: Any, record_at: Any, bits: int) -> tuple[Any, Any]:
    """The same codes in a table of 2^bits slots."""
    new_codes, new_records = np.full(1 << bits, -1, np.int64), np.empty(1 << bits, np.int32)
    for old in range(len(codes)):
        if codes[old] >= 0:
            slot = np.int64((np.uint64(codes[old]) * _SLOT_MULTIPLIER) >> np.uint64(64 - bits))
            while new_codes[slot] >= 0:
                slot = (slot + 1) & ((1 << bits) - 1)
            new_codes[slot], new_records[slot] = codes[old], record_at[old]
    return new_codes, new_records


@njit(cache=True, nogil=True)
def _extended(values: Any) -> Any:
    extended = np.zeros(2 * len(values), values.dtype)
    extended[: len(values)] = values
    return extended
