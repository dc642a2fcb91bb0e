"""`auto`: of keeping, repairing and replacing the table, each with whole and with split keys, what takes least time in all.

Seconds a batch: until the last instance has worked, and the last home has merged, and what moving state costs, spread over the
batches of a horizon. Mixed repairs, Simple replaces; with split keys they place all others, and these level what they leave.
Keys are split only where their state can be combined.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from streamtopology.routing.planners.balance import imbalance
from streamtopology.routing.planners.mixed import reassigned, repaired
from streamtopology.routing.planners.plan import MOVED_BYTES_PER_SECOND, SWITCH_SECONDS, Plan, PlanInput
from streamtopology.routing.planners.problem import ROUNDING, Problem
from streamtopology.routing.planners.split import (
    Placement,
    as_dealt,
    keys_to_split,
    line_of,
    scouted,
    scouts_beyond,
    split_over_fewest,
    without,
)

HORIZON_SECONDS = 60.0
"""Seconds over which a change must earn its cost: six intervals of a judgement, as these are by default."""

KEEP = "keep"


@dataclass(frozen=True, eq=False)
class Alternative:
    """A placement and what a batch takes with it, in seconds; `move`: what changing to it costs, as a share of a batch."""

    name: str
    placement: Placement
    work: float
    merge: float
    move: float

    @property
    def seconds(self) -> float:
        """Seconds of a batch once it is in force."""
        return self.work + self.merge


def auto(given: PlanInput) -> Plan:
    """The alternative of least seconds, the cost of the change included; of equals the first."""
    problem = Problem.of(given)
    weighed = list(alternatives(problem))
    best = min(weighed, key=lambda one: one.seconds + one.move)
    return realised(problem, best, weighed[0] if weighed[0].name == KEEP else None)


def realised(problem: Problem, best: Alternative, keeping: Alternative | None) -> Plan:
    """The plan of the alternative `best`, compared with `keeping` the table where that can be kept."""
    given, plan = problem.given, problem.plan(best.placement.owner, "auto")
    off = _imbalance(best.placement, problem)
    return replace(
        plan,
        table=plan.table.with_splits(given.current.splits if best is keeping else best.placement.splits(problem)),
        predicted_seconds_before=keeping.seconds if keeping else plan.predicted_seconds_before,
        predicted_seconds_after=best.seconds,
        imbalance_before=_imbalance(as_dealt(problem), problem) if keeping else plan.imbalance_before,
        imbalance_after=off,
        theta_reached=off <= given.tolerance + ROUNDING,
    )


def alternatives(problem: Problem) -> Iterator[Alternative]:
    """All that is worth weighing. Keeping comes first, taken as routers deal by it, unless an instance is gone or the table
    is too large."""
    given, splitting = problem.given, problem.given.splitting
    present = kept(problem)
    if present is not None:
        yield _weighed(KEEP, present, problem)
    yield _weighed("repair", Placement.whole(repaired(problem)), problem)
    yield _weighed("fresh", Placement.whole(reassigned(problem)), problem)
    if splitting is None:
        return
    items = keys_to_split(problem, splitting)[: given.max_entries]
    if len(items):
        rest = without(problem, items)
        yield _weighed("repair, split", split_over_fewest(problem, repaired(rest), items), problem)
        yield _weighed("fresh, split", split_over_fewest(problem, reassigned(rest), items), problem)


def kept(problem: Problem) -> Placement | None:
    """The present table as routers deal by it; None if an instance is gone or the table is too large."""
    given, splitting = problem.given, problem.given.splitting
    all_active = set(given.current.instances()) <= set(given.instances)
    if not all_active or len(given.current.entry_hashes) > given.max_entries:
        return None
    present = as_dealt(problem)
    if splitting is None:
        return present
    beyond = scouts_beyond(float(problem.loads.sum()), given.capacities, given.fixed_seconds, splitting)
    return scouted(problem, present, beyond)


def _weighed(name: str, placement: Placement, problem: Problem) -> Alternative:
    splitting = problem.given.splitting
    work = placement.work_seconds(problem)
    merge = placement.merge_seconds(problem, splitting) if splitting is not None else 0.0
    cost = 0.0 if name == KEEP else SWITCH_SECONDS + problem.moved_state(placement.owner) / MOVED_BYTES_PER_SECOND
    batches = HORIZON_SECONDS / max(line_of(problem.given, problem.loads), 1e-9)
    return Alternative(name, placement, work, merge, cost / max(batches, 1.0))


def _imbalance(placement: Placement, problem: Problem) -> float:
    given = problem.given
    return imbalance(placement.work(problem), given.capacities, given.fixed_seconds)
