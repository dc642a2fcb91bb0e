"""A plan within N_max where an algorithm's table is too large even when cleaned: there mixed-routing leaves N_max alone.

Two plans are made, and the one that is done first counts. One sends the lightest keys with an entry to their hash
destination. The other is MinTable for the least L_max, found by bisection, at which its table fits.
"""

from __future__ import annotations

import numpy as np

from streamtopology.routing.planners.llfd import Ints, Owners, assign, relieve_by_fewest
from streamtopology.routing.planners.order import descending
from streamtopology.routing.planners.problem import PlanningProblem

# Tables tried between L_max and the finish time that the first plan has: 0.1 % of their difference is left.
BISECTIONS = 10


def within_bound(problem: PlanningProblem, owner: Owners) -> Owners:
    """The assignment itself if it needs at most `max_entries` entries, else one that does, balanced as far as that goes."""
    best = problem.cut_to_bound(owner)
    if best is owner:
        return owner
    by_load = descending(problem.loads)
    low, high = problem.limit_seconds(), problem.latest_finish(best)
    allowed = low
    for _ in range(BISECTIONS):
        if allowed >= high:
            break
        small = _smallest_table(problem, allowed, by_load)
        if problem.n_entries(small) <= problem.given.max_entries and (end := problem.latest_finish(small)) < high:
            best, high = small, end
        else:
            low = allowed
        allowed = (low + high) / 2
    return best


def _smallest_table(problem: PlanningProblem, seconds: float, by_load: Ints) -> Owners:
    """MinTable (algorithm 2) with `seconds` as the latest finish, in which as few keys as possible leave each instance."""
    given, loads, owner, ones = problem.given, problem.loads, problem.owner.copy(), np.ones(len(problem.loads), np.int64)
    owner[problem.entries] = problem.fixed_home[problem.entries]
    totals, limits = problem.totals(owner), problem.limits_at(seconds)
    free = relieve_by_fewest(loads, owner, by_load, totals, limits)
    items, targets, _ = assign(
        loads, ones, owner, free, by_load, by_load, totals, limits, given.capacities, given.fixed_seconds
    )
    owner[items] = targets
    return owner
