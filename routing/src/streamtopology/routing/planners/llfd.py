"""Least-Load Fit Decreasing with Adjust (mixed-routing, algorithm 1), and phase II that feeds it (section 3).

An item stands for one key or for several that are alike (a record of the compact representation, section 4.1), so the
exact and the compact planners are one algorithm: `counts` says how many keys an item is, and keys leave it singly.

Exact and near-linear. Candidates are assigned in descending order of load, and an exchangeable set holds only keys that
are strictly lighter than the key in hand; so a key enters the candidates at most once, one sweep over the items in
descending order takes the place of a priority queue, and a key that has become too heavy to be exchanged stays so: each
instance's residents are scanned once, in order of priority.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from streamtopology.routing.table.kernel import njit

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Owners = npt.NDArray[np.int32]

# Owner of an item that is disassociated from every instance.
CANDIDATE = -1


@njit(cache=True, nogil=True)
def relieve(loads: Floats, counts: Ints, owner: Owners, by_priority: Ints, totals: Floats, limits: Floats) -> Ints:
    """Phase II: takes keys from each overloaded instance, by priority, until it is within its limit.

    loads float64[n], per key; counts int64[n], keys of each item; owner int32[n], position of the owning instance or
    CANDIDATE; by_priority int64[m], items in order; totals float64[k], load per instance, kept up to date; limits
    float64[k], largest load allowed. Returns int64[n]: the candidates, how many keys of each item have no instance.
    """
    free = np.where(owner == CANDIDATE, counts, 0)
    overloaded = 0
    for d in range(len(limits)):
        overloaded += totals[d] > limits[d]
    for item in by_priority:
        if overloaded == 0:
            break
        d = owner[item]
        if d != CANDIDATE and loads[item] > 0 and totals[d] > limits[d]:
            free[item] = _take(loads[item], counts[item], d, totals, limits[d])
            overloaded -= totals[d] <= limits[d]
    return free


@njit(cache=True, nogil=True)
def relieve_by_fewest(loads: Floats, owner: Owners, by_load: Ints, totals: Floats, limits: Floats) -> Ints:
    """Phase II for the smallest table: as few keys as possible leave each overloaded instance.

    These are its heaviest ones, but for the last: the lightest that is enough. Every item is one key; arrays and result
    as in `relieve`.
    """
    free = np.where(owner == CANDIDATE, 1, 0)
    enough = np.full(len(limits), -1)  # the lightest item of each instance so far that alone brings it within its limit
    overloaded = 0
    for d in range(len(limits)):
        overloaded += totals[d] > limits[d]
    for item in by_load:
        if overloaded == 0 or loads[item] <= 0:
            break
        d = owner[item]
        if d == CANDIDATE or totals[d] <= limits[d]:
            continue
        if totals[d] - loads[item] <= limits[d]:
            enough[d] = item
        elif enough[d] < 0:
            free[item] = 1
            totals[d] -= loads[item]
        else:
            totals[d] -= loads[enough[d]]
            overloaded -= 1
    for d in range(len(limits)):
        if enough[d] >= 0:
            free[enough[d]] = 1
            if totals[d] > limits[d]:
                totals[d] -= loads[enough[d]]
    return free


@njit(cache=True, nogil=True)
def assign(
    loads: Floats,
    counts: Ints,
    owner: Owners,
    free: Ints,
    by_load: Ints,
    by_priority: Ints,
    totals: Floats,
    limits: Floats,
    capacities: Floats,
    fixed_seconds: Floats,
) -> tuple[Ints, Owners, Ints]:
    """Phase III: gives every candidate with a load to an instance.

    The heaviest candidate goes to the instance that would finish first with it, if `Adjust` agrees, else to the next
    one, and so on. Where none can take it within its limit (the paper leaves this open) it goes to the first of them.
    Arrays as in `relieve`, whose result `free` is changed in place; by_load int64[n] holds the items by descending
    load. Returns the assignments in order: (items int64[a], instance positions int32[a], how many keys int64[a]).
    """
    residents, next_resident, end_resident = _by_owner(owner, by_priority, len(limits))
    exchangeable = np.zeros(len(limits))  # load of an instance's residents that are strictly lighter than the key in hand
    pending = 0
    for item in range(len(owner)):
        if owner[item] != CANDIDATE:
            exchangeable[owner[item]] += (counts[item] - free[item]) * loads[item]
        if loads[item] > 0:
            pending += free[item]
    items, targets, keys, made = np.empty(64, np.int64), np.empty(64, np.int32), np.empty(64, np.int64), 0
    passed = 0
    refused = np.empty(len(limits), np.bool_)
    for item in by_load:
        if pending == 0 or loads[item] <= 0:
            break
        load = float(loads[item])
        while free[item] > 0:
            while passed < len(by_load) and loads[by_load[passed]] >= load:
                lapsed = by_load[passed]
                if owner[lapsed] != CANDIDATE:
                    exchangeable[owner[lapsed]] -= (counts[lapsed] - free[lapsed]) * loads[lapsed]
                passed += 1

            d, fits = _instance_for(load, totals, limits, exchangeable, capacities, fixed_seconds, refused)
            if fits:
                pending += _make_room(
                    d, load, limits[d], loads, counts, free, totals, exchangeable, residents, next_resident, end_resident
                )
            totals[d] += load
            free[item] -= 1
            pending -= 1
            if made and items[made - 1] == item and targets[made - 1] == d:
                keys[made - 1] += 1
                continue
            if made == len(items):
                items, targets, keys = _doubled(items), _doubled(targets), _doubled(keys)
            items[made], targets[made], keys[made] = item, d, 1
            made += 1
    return items[:made], targets[:made], keys[:made]


@njit(cache=True, nogil=True)
def _instance_for(
    load: float,
    totals: Floats,
    limits: Floats,
    exchangeable: Floats,
    capacities: Floats,
    fixed_seconds: Floats,
    refused: npt.NDArray[np.bool_],
) -> tuple[int, bool]:
    """The first instance to finish with `load` added of those that can take it within their limits, and True.

    The first to finish of all, and False, where none can. `refused` is room to work in.
    """
    refused[:] = False
    first = _finishes_first(load, totals, capacities, fixed_seconds, refused)
    d = first
    while d >= 0 and totals[d] + load > limits[d] and exchangeable[d] < totals[d] + load - limits[d]:
        refused[d] = True
        d = _finishes_first(load, totals, capacities, fixed_seconds, refused)
    return (first, False) if d < 0 else (d, True)


@njit(cache=True, nogil=True)
def _make_room(
    d: Any,
    load: float,
    limit: Any,
    loads: Floats,
    counts: Ints,
    free: Ints,
    totals: Floats,
    exchangeable: Floats,
    residents: Ints,
    next_resident: Ints,
    end_resident: Ints,
) -> int:
    """Frees residents of instance d that are lighter than `load` until that fits within the limit; returns how many keys."""
    freed = 0
    while totals[d] + load > limit and next_resident[d] < end_resident[d]:
        item = residents[next_resident[d]]
        kept = counts[item] - free[item]
        if 0 < loads[item] < load and kept > 0:
            taken = _take(loads[item], kept, d, totals, limit - load)
            free[item] += taken
            kept -= taken
            exchangeable[d] -= taken * loads[item]
            freed += taken
        if kept == 0 or loads[item] >= load or loads[item] <= 0:
            next_resident[d] += 1
    return freed


@njit(cache=True, nogil=True)
def _take(load: Any, available: Any, d: Any, totals: Floats, limit: Any) -> int:
    """Takes as many of the keys, each of this load, from instance d as bring it within the limit; returns how many."""
    taken = 0
    while taken < available and totals[d] > limit:
        more = min(available - taken, max(1, int(np.ceil((totals[d] - limit) / load))))
        totals[d] -= more * load
        taken += more
    return taken


@njit(cache=True, nogil=True)
def _by_owner(owner: Owners, by_priority: Ints, k: int) -> tuple[Ints, Ints, Ints]:
    """Items grouped by owner, by priority within each: (items, start int64[k], end int64[k])."""
    end = np.zeros(k, np.int64)
    for d in owner:
        if d != CANDIDATE:
            end[d] += 1
    end = np.cumsum(end)
    start = np.zeros(k, np.int64)
    start[1:] = end[:-1]
    items = np.empty(end[-1], np.int64)
    free = start.copy()
    for item in by_priority:
        d = owner[item]
        if d != CANDIDATE:
            items[free[d]] = item
            free[d] += 1
    return items, start, end


@njit(cache=True, nogil=True)
def _doubled(values: Any) -> Any:
    doubled = np.empty(2 * len(values), values.dtype)
    doubled[: len(values)] = values
    return doubled


@njit(cache=True, nogil=True)
def _finishes_first(
    load: float, totals: Floats, capacities: Floats, fixed_seconds: Floats, refused: npt.NDArray[np.bool_]
) -> int:
    """The instance, of those that have not refused, that would be done first with `load` added; -1 when all have."""
    best = -1
    earliest = np.inf
    for d in range(len(totals)):
        finish = fixed_seconds[d] + (totals[d] + load) / capacities[d]
        if not refused[d] and finish < earliest:
            best = d
            earliest = finish
    return best
