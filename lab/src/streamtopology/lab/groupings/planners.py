"""The planners by name, ours and those that exist for comparisons only."""

from __future__ import annotations

from collections.abc import Mapping

from streamtopology.lab.groupings.brute_force import mixed_brute_force
from streamtopology.lab.groupings.compact import mixed_compact
from streamtopology.lab.groupings.kip import kip
from streamtopology.lab.groupings.readj import readj
from streamtopology.lab.groupings.simple import simple
from streamtopology.routing import planners
from streamtopology.routing.planners import Planner

COMPARED: Mapping[str, Planner] = {
    "mixed-compact": mixed_compact,
    "mixed-bf": mixed_brute_force,
    "simple": simple,
    "readj": readj,
    "kip": kip,
}


def get(name: str) -> Planner:
    """The planner of this name. Raises PlanError for one that neither the lab nor the product has."""
    return COMPARED[name] if name in COMPARED else planners.get(name)
