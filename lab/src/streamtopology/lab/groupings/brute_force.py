"""MixedBF: Mixed with every number of entries moved back tried (mixed-routing, section 3.3).

A trial is the three phases over all items, so a plan costs the size of the table times what one trial of Mixed does; it
is the yardstick for Mixed's few trials.
"""

from __future__ import annotations

from streamtopology.routing.planners.bounded_table import within_bound
from streamtopology.routing.planners.llfd import Owners
from streamtopology.routing.planners.mixed import by_migration_priority, rebalanced, smallest_state_first
from streamtopology.routing.planners.order import descending
from streamtopology.routing.planners.plan import Plan, PlanInput
from streamtopology.routing.planners.problem import PlanningProblem


def mixed_brute_force(given: PlanInput) -> Plan:
    """The trial that moves the least state of those that keep to `max_entries` and the tolerance.

    Where none keeps to both, a table that fits comes before balance, and balance before the state moved.
    """
    problem = PlanningProblem.of(given)
    by_load, by_priority = descending(problem.loads), by_migration_priority(problem)
    entries, limits = smallest_state_first(problem), problem.limits()
    best: tuple[tuple[int, float, float], Owners] | None = None
    for n_back in range(len(entries) + 1):
        owner = rebalanced(problem, entries[:n_back], by_load, by_priority)
        too_many = max(problem.n_entries(owner) - given.max_entries, 0)
        overload = max(float((problem.totals(owner) - limits).max()), 0.0)
        worth = (too_many, overload, problem.moved_state(owner))
        if best is None or worth < best[0]:
            best = worth, owner
    assert best is not None  # the range is never empty
    return problem.plan(within_bound(problem, best[1]), "mixed-bf")
