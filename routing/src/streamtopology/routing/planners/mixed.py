"""Mixed, MinTable, MinMig and Simple: the planners of mixed-routing (sections 3.2, 3.3, appendix A).

All follow its workflow: (I) clean the table, (II) take keys from overloaded instances, (III) assign them by LLFD. Where
the paper leaves the size of the table to chance, `max_entries` still holds: the lightest keys go back to their hash
destination. Give a bound beyond the number of keys for the paper's unbounded MinTable, MinMig and Simple.
"""

from __future__ import annotations

import numpy as np

from streamtopology.routing.planners.llfd import CANDIDATE, Floats, Ints, Owners, assign, relieve
from streamtopology.routing.planners.plan import Plan, PlanInput
from streamtopology.routing.planners.problem import Problem

LITERAL_TRIALS = 16
"""Trials of Mixed that move back just as many more entries as the last had too many; then the number doubles."""

SMALLEST_STATE = 1.0
"""Bytes that a key's state counts as at least, so that a key without state has a finite migration priority."""


def mintable(given: PlanInput) -> Plan:
    """Fewest entries (algorithm 2): every entry is moved back, then the heaviest keys leave overloaded instances."""
    problem = Problem.of(given)
    heaviest_first = _descending(problem.loads)
    owner = _moved_back(problem, problem.entries)
    return _balanced(problem, owner, heaviest_first, heaviest_first, "mintable")


def minmig(given: PlanInput) -> Plan:
    """Least state moved (algorithm 3): no entry is moved back, keys with most load for their state leave first."""
    problem = Problem.of(given)
    return _balanced(problem, problem.owner, _descending(problem.loads), _by_migration_priority(problem), "minmig")


def mixed(given: PlanInput) -> Plan:
    """MinMig within a bounded table (algorithm 4): entries with the least state are moved back until the table fits."""
    problem = Problem.of(given)
    by_load, by_priority = _descending(problem.loads), _by_migration_priority(problem)
    smallest_first = problem.entries[np.argsort(problem.state[problem.entries], kind="stable")]
    moved_back, trial = 0, 0
    while True:
        owner = _moved_back(problem, smallest_first[:moved_back])
        _rebalance(problem, owner, by_load, by_priority)
        too_many = problem.n_entries(owner) - given.max_entries
        if too_many <= 0 or moved_back >= len(smallest_first):
            return problem.plan(problem.within_bound(owner), "mixed")
        moved_back += too_many if trial < LITERAL_TRIALS else max(too_many, moved_back)
        trial += 1


def simple(given: PlanInput) -> Plan:
    """Balance alone (algorithm 5): all keys are assigned anew, the heaviest first, to the one done first with it."""
    problem = Problem.of(given)
    owner = np.where(problem.loads > 0, np.int32(CANDIDATE), problem.owner).astype(np.int32)
    heaviest_first = _descending(problem.loads)
    no_limits = np.full(len(given.instances), np.inf)
    _assign(problem, owner, heaviest_first, heaviest_first, problem.totals(owner), no_limits)
    return problem.plan(problem.within_bound(owner), "simple")


def _balanced(problem: Problem, owner: Owners, by_load: Ints, by_priority: Ints, algorithm: str) -> Plan:
    owner = owner.copy()
    _rebalance(problem, owner, by_load, by_priority)
    return problem.plan(problem.within_bound(owner), algorithm)


def _rebalance(problem: Problem, owner: Owners, by_load: Ints, by_priority: Ints) -> None:
    """Phases II and III, in place."""
    totals, limits = problem.totals(owner), problem.limits()
    relieve(problem.loads, owner, by_priority, totals, limits)
    _assign(problem, owner, by_load, by_priority, totals, limits)


def _assign(problem: Problem, owner: Owners, by_load: Ints, by_priority: Ints, totals: Floats, limits: Floats) -> None:
    machines = (problem.given.capacities, problem.given.fixed_seconds)
    assign(problem.loads, owner, by_load, by_priority, totals, limits, *machines)


def _moved_back(problem: Problem, entries: Ints) -> Owners:
    """Phase I: the current owners with these entries removed from the table."""
    owner = problem.owner.copy()
    owner[entries] = problem.fixed_home[entries]
    return owner


def _by_migration_priority(problem: Problem) -> Ints:
    """Items by load^beta per byte of state, gamma of the paper, largest first."""
    return _descending(problem.loads**problem.given.beta / np.maximum(problem.state, SMALLEST_STATE))


def _descending(values: Floats) -> Ints:
    return np.argsort(-values, kind="stable")
