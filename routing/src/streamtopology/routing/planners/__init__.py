"""The registry of planners: a new one is a module and a line here."""

from __future__ import annotations

from collections.abc import Mapping

from streamtopology.routing.planners.brute_force import mixed_brute_force
from streamtopology.routing.planners.compact import mixed_compact
from streamtopology.routing.planners.consistent import consistent
from streamtopology.routing.planners.dkg import dkg
from streamtopology.routing.planners.mixed import minmig, mintable, mixed, simple
from streamtopology.routing.planners.plan import Plan, PlanError, PlanInput, Planner
from streamtopology.routing.planners.readj import readj

__all__ = ["PLANNERS", "Plan", "PlanError", "PlanInput", "Planner", "get"]

PLANNERS: Mapping[str, Planner] = {
    "mixed": mixed,
    "mixed-compact": mixed_compact,
    "mixed-bf": mixed_brute_force,
    "mintable": mintable,
    "minmig": minmig,
    "simple": simple,
    "dkg": dkg,
    "readj": readj,
    "consistent": consistent,
}


def get(name: str) -> Planner:
    """The planner of this name; `PlanError` names those that exist."""
    try:
        return PLANNERS[name]
    except KeyError:
        raise PlanError(f"there is no planner {name!r}; there are {', '.join(PLANNERS)}") from None
