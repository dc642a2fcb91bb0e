"""Readj, the baseline that mixed-routing compares itself with (sections 1, 5 and 6, after Gedik, Partitioning functions for
stateful data parallelism in stream processing, VLDB Journal 2014).

As mixed-routing describes it: keys in the table are moved back to their hash destination, then the keys with relatively
large load, those of at least sigma times an instance's mean load, are re-routed: every pair of instances and every move
of a key or swap of two keys between them is weighed, and the best one is done, until the load is balanced or nothing
helps. What the description leaves open: an entry goes back only where that overloads nobody, the heaviest first; the best
move lowers most the squares of the instances' finish times, weighted by capacity. Each move costs the square of the
number of candidates.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from streamtopology.routing.planners.llfd import CANDIDATE, Floats, Ints, Owners
from streamtopology.routing.planners.plan import Plan, PlanInput
from streamtopology.routing.planners.problem import PlanningProblem

# `readj` halves sigma from the one to the other.
LARGEST_SIGMA = 0.5
SMALLEST_SIGMA = 1 / 1024

# A move that lowers the sum of squares by less than this share of it is taken for rounding.
NO_GAIN = 1e-12


def readj(given: PlanInput) -> Plan:
    """Readj with its best sigma: the largest, and so the fastest, that balances; if none does, the one nearest to it."""
    best, sigma = readj_at(given, LARGEST_SIGMA), LARGEST_SIGMA
    while not best.theta_reached and sigma > SMALLEST_SIGMA:
        sigma /= 2
        plan = readj_at(given, sigma)
        if plan.imbalance_after < best.imbalance_after:
            best = plan
    return best


def readj_at(given: PlanInput, sigma: float) -> Plan:
    """Readj over the keys whose load is at least `sigma` times an instance's mean load."""
    problem = PlanningProblem.of(given)
    owner = _moved_back(problem)
    mean_load = float(problem.loads.sum()) / len(given.instances)
    candidates = np.flatnonzero((problem.loads >= sigma * mean_load) & (problem.loads > 0))
    totals = problem.totals(owner)
    owner[candidates] = _readjusted(
        problem.loads[candidates], owner[candidates], totals, problem.limits(), given.capacities, given.fixed_seconds
    )
    return problem.plan(problem.cut_to_bound(owner), "readj")


def _moved_back(problem: PlanningProblem) -> Owners:
    """The owners after every entry has gone to its hash destination that can without overloading it."""
    owner = problem.owner.copy()
    homes = np.concatenate([problem.fixed_home, problem.buckets]) if problem.given.bucket_loads.size else problem.fixed_home
    homeless = owner == CANDIDATE
    owner[homeless] = homes[homeless]
    heaviest_first = problem.entries[np.argsort(-problem.loads[problem.entries], kind="stable")]
    _move_back(heaviest_first, problem.loads, homes, owner, problem.totals(owner), problem.limits())
    return owner


@njit(cache=True, nogil=True)
def _move_back(entries: Ints, loads: Floats, homes: Owners, owner: Owners, totals: Floats, limits: Floats) -> None:
    for key in entries:
        home = homes[key]
        if owner[key] != home and totals[home] + loads[key] <= limits[home]:
            totals[owner[key]] -= loads[key]
            totals[home] += loads[key]
            owner[key] = home


@njit(cache=True, nogil=True)
def _readjusted(
    loads: Floats, owner: Owners, totals: Floats, limits: Floats, capacities: Floats, fixed_seconds: Floats
) -> Owners:
    """The owners int32[c] of the candidates after the best moves and swaps, one at a time; `totals` is kept up to date."""
    owner = owner.copy()
    while (totals > limits).any():
        key, other, target = _best_move(loads, owner, capacities, fixed_seconds + totals / capacities)
        if key < 0:
            break
        source, shift = owner[key], loads[key]
        owner[key] = target
        if other >= 0:
            shift -= loads[other]
            owner[other] = source
        totals[source] -= shift
        totals[target] += shift
    return owner


@njit(cache=True, nogil=True)
def _best_move(loads: Floats, owner: Owners, capacities: Floats, finish: Floats) -> tuple[int, int, int]:
    """(key, the key it swaps with or -1, target) that lowers the squares most; key is -1 if nothing lowers them."""
    k = len(finish)
    end = np.cumsum(np.bincount(owner, minlength=k))
    by_owner = np.argsort(owner, kind="mergesort")
    best_gain, best_key, best_other, best_target = NO_GAIN * (capacities * finish * finish).sum(), -1, -1, -1
    for i in range(k):
        for j in range(k):
            lead = finish[i] - finish[j]
            if lead <= 0:
                continue
            inertia = 1 / capacities[i] + 1 / capacities[j]
            for key in by_owner[end[i - 1] if i else 0 : end[i]]:
                gain = loads[key] * (2 * lead - loads[key] * inertia)
                if gain > best_gain:
                    best_gain, best_key, best_other, best_target = gain, key, -1, j
                for other in by_owner[end[j - 1] if j else 0 : end[j]]:
                    shift = loads[key] - loads[other]
                    gain = shift * (2 * lead - shift * inertia)
                    if gain > best_gain:
                        best_gain, best_key, best_other, best_target = gain, key, other, j
    return best_key, best_other, best_target
