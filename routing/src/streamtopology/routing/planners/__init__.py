"""The registry of our planners: a new one is a module and a line here. Those of other packages are named by reference."""

from __future__ import annotations

from collections.abc import Mapping

from streamtopology.routing.planners.auto import auto
from streamtopology.routing.planners.consistent import consistent
from streamtopology.routing.planners.dkg import dkg
from streamtopology.routing.planners.joint import Edge, JointPlan, JointPlanInput, JointPlanner
from streamtopology.routing.planners.locality import locality, locality_offline, locality_worst
from streamtopology.routing.planners.mixed import minmig, mintable, mixed
from streamtopology.routing.planners.plan import Plan, PlanError, PlanInput, Planner
from streamtopology.routing.planners.together import auto_together
from streamtopology.topology.groupings import code_of

__all__ = [
    "JOINT_PLANNERS",
    "PLANNERS",
    "Edge",
    "JointPlan",
    "JointPlanInput",
    "JointPlanner",
    "Plan",
    "PlanError",
    "PlanInput",
    "Planner",
    "get",
    "get_joint",
]

PLANNERS: Mapping[str, Planner] = {
    "mixed": mixed,
    "mintable": mintable,
    "minmig": minmig,
    "dkg": dkg,
    "consistent": consistent,
    "auto": auto,
}

# Planners of several operators at once (decision 22).
JOINT_PLANNERS: Mapping[str, JointPlanner] = {
    "locality": locality,
    "locality-offline": locality_offline,
    "locality-worst": locality_worst,
    "auto-together": auto_together,
}


def get(name: str) -> Planner:
    """The planner of this name, or at this "package.module:function"; `PlanError` names those that exist."""
    try:
        return code_of(name) if ":" in name else PLANNERS[name]
    except KeyError:
        together = "; it plans several operators together: use get_joint" if name in JOINT_PLANNERS else ""
        raise PlanError(f"there is no planner {name!r}; there are {', '.join(PLANNERS)}{together}") from None


def get_joint(name: str) -> JointPlanner:
    """The planner of several operators of this name, or at this reference; `PlanError` names those that exist."""
    try:
        return code_of(name) if ":" in name else JOINT_PLANNERS[name]
    except KeyError:
        raise PlanError(f"there is no joint planner {name!r}; there are {', '.join(JOINT_PLANNERS)}") from None
