"""`auto`: of keeping, repairing and replacing the table, each with whole and with split keys, what takes least time in all.

No single algorithm is best for every stream: repairing moves little, replacing balances better, and splitting helps only
where one key is too heavy. All of them are therefore tried, and compared by seconds a batch: until the last instance has
worked, and the last home has merged, and what the switch costs, spread over the batches of a horizon.

Mixed repairs, Simple replaces. With split keys they place all others, and the split keys even out what is left. Keys are
split only where their state can be combined.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from streamtopology.routing.planners.balance import imbalance
from streamtopology.routing.planners.mixed import reassigned, repaired
from streamtopology.routing.planners.plan import Plan, PlanInput
from streamtopology.routing.planners.problem import ROUNDING, PlanningProblem
from streamtopology.routing.planners.split import (
    ItemPlacement,
    as_dealt,
    keys_to_split,
    line_of,
    scouted,
    scouts_beyond,
    split_over_fewest,
    without,
)

KEEP = "keep"


@dataclass(frozen=True, eq=False)
class Alternative:
    """A placement and what a batch takes with it, in seconds; `move`: what changing to it costs, spread over the horizon."""

    name: str
    placement: ItemPlacement
    work: float
    merge: float
    move: float

    @property
    def seconds(self) -> float:
        """Seconds of a batch once it is in force."""
        return self.work + self.merge

    def expected_seconds(self, balanced: float) -> float:
        """The same, if whole keys divide no batch better than `balanced` seconds: loads vary. Split keys level each batch."""
        return self.seconds if len(self.placement.items) else max(self.work, balanced) + self.merge


def auto(given: PlanInput) -> Plan:
    """The alternative of least seconds, the cost of the change included; of equals the first."""
    problem = PlanningProblem.of(given)
    weighed = list(alternatives(problem))
    balanced = (1 + given.tolerance / 2) * line_of(given, problem.loads)
    best = min(weighed, key=lambda one: one.expected_seconds(balanced) + one.move)
    return realised(problem, best, weighed[0] if weighed[0].name == KEEP else None)


def realised(problem: PlanningProblem, best: Alternative, keeping: Alternative | None) -> Plan:
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


def alternatives(problem: PlanningProblem) -> Iterator[Alternative]:
    """All that is worth weighing. Keeping comes first, taken as routers deal by it, unless an instance is gone or the table
    is too large."""
    given, splitting = problem.given, problem.given.splitting
    present = kept(problem)
    keeping = None if present is None else _weighed(KEEP, present, problem, None)
    if keeping is not None:
        yield keeping
    yield _weighed("repair", ItemPlacement.whole(repaired(problem)), problem, keeping)
    yield _weighed("fresh", ItemPlacement.whole(reassigned(problem)), problem, keeping)
    if splitting is None:
        return
    items = keys_to_split(problem, splitting)[: given.max_entries]
    if len(items):
        rest = without(problem, items)
        yield _weighed("repair, split", split_over_fewest(problem, repaired(rest), items), problem, keeping)
        yield _weighed("fresh, split", split_over_fewest(problem, reassigned(rest), items), problem, keeping)


def kept(problem: PlanningProblem) -> ItemPlacement | None:
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


def _weighed(name: str, placement: ItemPlacement, problem: PlanningProblem, keeping: Alternative | None) -> Alternative:
    """The placement's seconds; where no table can be kept, there is no gain that comes late."""
    splitting = problem.given.splitting
    work = placement.work_seconds(problem)
    merge = placement.merge_seconds(problem, splitting) if splitting is not None else 0.0
    if name == KEEP:
        return Alternative(name, placement, work, merge, 0.0)
    gain = 0.0 if keeping is None else keeping.seconds - work - merge
    return Alternative(name, placement, work, merge, problem.given.switch.a_batch(problem.moved_state(placement.owner), gain))


def _imbalance(placement: ItemPlacement, problem: PlanningProblem) -> float:
    given = problem.given
    return imbalance(placement.work(problem), given.capacities, given.fixed_seconds)
