"""Least-Load Fit Decreasing with Adjust (mixed-routing, algorithm 1), and phase II that feeds it (section 3).

Exact and near-linear. Candidates are assigned in descending order of load, and an exchangeable set holds only keys that
are strictly lighter than the key in hand; so a key enters the candidates at most once, one sweep over the keys in
descending order takes the place of a priority queue, and a key that has become too heavy to be exchanged stays so: each
instance's residents are scanned once, in order of priority.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Owners = npt.NDArray[np.int32]

CANDIDATE = -1
"""Owner of an item that is disassociated from every instance."""


@njit(cache=True, nogil=True)
def relieve(loads: Floats, owner: Owners, by_priority: Ints, totals: Floats, limits: Floats) -> None:
    """Phase II: takes items from each overloaded instance, by priority, until it is within its limit. In place.

    loads float64[n]; owner int32[n], position of the owning instance or CANDIDATE; by_priority int64[m], items in
    order; totals float64[k], load per instance, kept up to date; limits float64[k], largest load allowed.
    """
    overloaded = 0
    for d in range(len(limits)):
        overloaded += totals[d] > limits[d]
    for item in by_priority:
        if overloaded == 0:
            return
        d = owner[item]
        if d != CANDIDATE and loads[item] > 0 and totals[d] > limits[d]:
            owner[item] = CANDIDATE
            totals[d] -= loads[item]
            overloaded -= totals[d] <= limits[d]


@njit(cache=True, nogil=True)
def assign(
    loads: Floats,
    owner: Owners,
    by_load: Ints,
    by_priority: Ints,
    totals: Floats,
    limits: Floats,
    capacities: Floats,
    fixed_seconds: Floats,
) -> None:
    """Phase III: gives every candidate with a load to an instance, in place.

    The heaviest candidate goes to the instance that would finish first with it, if `Adjust` agrees, else to the next
    one, and so on. Where none can take it within its limit (the paper leaves this open) it goes to the first of them.
    Arrays as in `relieve`; by_load int64[n] holds the items by descending load.
    """
    k = len(limits)
    resident = owner != CANDIDATE
    residents, next_resident, end_resident = _by_owner(owner, by_priority, k)
    exchangeable = np.zeros(k)  # load of an instance's residents that are strictly lighter than the key in hand
    pending = 0
    for item in range(len(owner)):
        if resident[item]:
            exchangeable[owner[item]] += loads[item]
        elif loads[item] > 0:
            pending += 1
    passed = 0
    refused = np.empty(k, np.bool_)
    for key in by_load:
        if pending == 0:
            return
        load = float(loads[key])
        if owner[key] != CANDIDATE or load <= 0:
            continue
        while passed < len(by_load) and loads[by_load[passed]] >= load:
            if resident[by_load[passed]]:
                exchangeable[owner[by_load[passed]]] -= loads[by_load[passed]]
            passed += 1

        refused[:] = False
        first = _finishes_first(load, totals, capacities, fixed_seconds, refused)
        d = first
        while d >= 0 and totals[d] + load > limits[d] and exchangeable[d] < totals[d] + load - limits[d]:
            refused[d] = True
            d = _finishes_first(load, totals, capacities, fixed_seconds, refused)
        if d < 0:
            d = first
        else:
            while totals[d] + load > limits[d] and next_resident[d] < end_resident[d]:
                item = residents[next_resident[d]]
                next_resident[d] += 1
                if 0 < loads[item] < load:
                    owner[item] = CANDIDATE
                    resident[item] = False
                    totals[d] -= loads[item]
                    exchangeable[d] -= loads[item]
                    pending += 1
        owner[key] = d
        totals[d] += load
        pending -= 1


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
