"""Mixed, MinTable and MinMig: the planners of mixed-routing (sections 3.2, 3.3).

All follow its workflow: (I) clean the table, (II) take keys from overloaded instances, (III) assign them by LLFD. Where
the paper leaves the size of the table to chance, `max_entries` still holds (`bounded_table`). Give a bound beyond the
number of keys for the paper's unbounded MinTable and MinMig.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from streamtopology.routing.planners.bounded_table import within_bound
from streamtopology.routing.planners.llfd import CANDIDATE, Floats, Ints, Owners, assign, relieve
from streamtopology.routing.planners.order import descending
from streamtopology.routing.planners.plan import Plan, PlanInput
from streamtopology.routing.planners.problem import PlanningProblem

# Trials of Mixed that move back just as many more entries as the last had too many; then the number doubles.
LITERAL_TRIALS = 16

# Bytes that a key's state counts as at least, so that a key without state has a finite migration priority.
SMALLEST_STATE = 1.0


Result = TypeVar("Result")


def mintable(given: PlanInput) -> Plan:
    """Fewest entries (algorithm 2): every entry is moved back, then the heaviest keys leave overloaded instances."""
    problem = PlanningProblem.of(given)
    heaviest_first = descending(problem.loads)
    owner = rebalanced(problem, problem.entries, heaviest_first, heaviest_first)
    return problem.plan(within_bound(problem, owner), "mintable")


def minmig(given: PlanInput) -> Plan:
    """Least state moved (algorithm 3): no entry is moved back, keys with most load for their state leave first."""
    problem = PlanningProblem.of(given)
    owner = rebalanced(problem, problem.entries[:0], descending(problem.loads), by_migration_priority(problem))
    return problem.plan(within_bound(problem, owner), "minmig")


def mixed(given: PlanInput) -> Plan:
    """MinMig within a bounded table (algorithm 4): entries with the least state are moved back until the table fits."""
    problem = PlanningProblem.of(given)
    return problem.plan(repaired(problem), "mixed")


def repaired(problem: PlanningProblem) -> Owners:
    """The owners by Mixed: overloaded instances are relieved, most work for the least state first."""
    by_load, by_priority = descending(problem.loads), by_migration_priority(problem)
    entries = smallest_state_first(problem)

    def attempt(n_back: int) -> tuple[Owners, int]:
        owner = rebalanced(problem, entries[:n_back], by_load, by_priority)
        return owner, problem.n_entries(owner)

    return within_bound(problem, until_it_fits(attempt, len(entries), problem.given.max_entries))


def reassigned(problem: PlanningProblem) -> Owners:
    """The owners by Simple (algorithm 5): every item with load from the start, the heaviest first."""
    owner = np.where(problem.loads > 0, np.int32(CANDIDATE), problem.owner).astype(np.int32)
    heaviest_first = descending(problem.loads)
    _phases_two_and_three(problem, owner, heaviest_first, heaviest_first, np.full(len(problem.given.instances), np.inf))
    return within_bound(problem, owner)


def until_it_fits(attempt: Callable[[int], tuple[Result, int]], n_entries: int, max_entries: int) -> Result:
    """Algorithm 4's search for how many entries to move back; `attempt(n)` gives a result and its size of table."""
    moved_back, trial = 0, 0
    while True:
        result, size = attempt(moved_back)
        too_many = size - max_entries
        if too_many <= 0 or moved_back >= n_entries:
            return result
        moved_back += too_many if trial < LITERAL_TRIALS else max(too_many, moved_back)
        trial += 1


def rebalanced(problem: PlanningProblem, moved_back: Ints, by_load: Ints, by_priority: Ints) -> Owners:
    """Phases I to III: the owners after these entries are moved back and overloaded instances are relieved by LLFD."""
    owner = problem.owner.copy()
    owner[moved_back] = problem.fixed_home[moved_back]
    _phases_two_and_three(problem, owner, by_load, by_priority, problem.limits())
    return owner


def smallest_state_first(problem: PlanningProblem) -> Ints:
    """Keys in the order in which they are moved back: those that must move anyway, then by the size of their state."""
    must_move = problem.owner[problem.entries] == CANDIDATE
    return problem.entries[np.argsort(np.where(must_move, -1.0, problem.state[problem.entries]), kind="stable")]


def by_migration_priority(problem: PlanningProblem) -> Ints:
    """Items by their migration priority, largest first."""
    return descending(migration_priority(problem.loads, problem.state, problem.given.beta))


def migration_priority(loads: Floats, state: Floats, beta: float) -> Floats:
    """gamma of the paper, load^beta per byte of state (section 3.2)."""
    return loads**beta / np.maximum(state, SMALLEST_STATE)


def _phases_two_and_three(problem: PlanningProblem, owner: Owners, by_load: Ints, by_priority: Ints, limits: Floats) -> None:
    """Every item is one key here; `owner` is changed in place."""
    given, ones, totals = problem.given, np.ones(len(owner), np.int64), problem.totals(owner)
    free = relieve(problem.loads, ones, owner, by_priority, totals, limits)
    items, targets, _ = assign(
        problem.loads, ones, owner, free, by_load, by_priority, totals, limits, given.capacities, given.fixed_seconds
    )
    owner[items] = targets
