"""`simple`: balance alone (mixed-routing, appendix A, algorithm 5), `mixed`'s extreme without regard to state."""

from __future__ import annotations

from streamtopology.routing.planners.mixed import reassigned
from streamtopology.routing.planners.plan import Plan, PlanInput
from streamtopology.routing.planners.problem import PlanningProblem


def simple(given: PlanInput) -> Plan:
    """All keys are reassigned, the heaviest first, to the instance that finishes it first."""
    problem = PlanningProblem.of(given)
    return problem.plan(reassigned(problem), "simple")
