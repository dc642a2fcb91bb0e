"""The oracles' operators as planners are given them, and what planners make of them in the oracles' terms."""

from __future__ import annotations

from papers.mixed import At, Operator
from support.planning import plan_input

from streamtopology.routing.planners import Plan, PlanInput


def as_input(operator: Operator) -> PlanInput:
    """Every key is known by itself, and no table is too large."""
    tolerance = operator.percent / 100
    return plan_input(operator.cost, operator.at, operator.k, homes=operator.home, state=operator.memory, tolerance=tolerance)


def placed(given: PlanInput, plan: Plan) -> At:
    """The instance of every key."""
    return dict(enumerate(plan.table.lookup(given.key_hashes).tolist()))
