"""The port of planners that plan several operators at once, because where one's keys live matters to the next."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from streamtopology.routing.load.load_report import KeyPairs
from streamtopology.routing.planners.plan import Plan, PlanError, PlanInput

# The alternative to leave each operator to its own planner.
ALONE = "each alone"

# Two consecutive operators, by name: the first receives rows by key and sends them to the second by key.
Edge = tuple[str, str]


@dataclass(frozen=True, eq=False)
class JointPlanInput:
    """Operators of one topology that are planned together, each as its own planner would see it.

    `pairs` has an entry for each edge between two of them: the frequency of a key of the one followed by a key of the
    other in the last `batches` batches (loads are per batch). All operators have the same active instances, so that every
    instance of one shares its server with one of each other: instance j of all of them is on one server, in the words of
    locality-aware routing, section 4.1. `remote_seconds`: how long a row between two servers keeps the sender's link busy,
    and the receiver's; 0 where nobody knows. `PlanError` says what does not fit.
    """

    operators: Mapping[str, PlanInput]
    pairs: Mapping[Edge, KeyPairs]
    batches: int = 1
    remote_seconds: float = 0.0

    def __post_init__(self) -> None:
        if not self.operators:
            raise PlanError("operators: there is no operator to plan for")
        if self.batches < 1:
            raise PlanError(f"batches: {self.batches}: pairs are counted over at least one batch")
        if not 0.0 <= self.remote_seconds < math.inf:
            raise PlanError(f"remote_seconds: {self.remote_seconds}: a row takes 0 seconds or more")
        for edge in self.pairs:
            if strangers := [name for name in edge if name not in self.operators]:
                raise PlanError(f"pairs: {edge} is about {', '.join(strangers)}; planned are {', '.join(self.operators)}")
        if len({given.instances for given in self.operators.values()}) > 1:
            active = "; ".join(f"{name}: {given.instances}" for name, given in self.operators.items())
            raise PlanError(f"instances: operators planned together have the same active instances; found {active}")

    @property
    def instances(self) -> tuple[int, ...]:
        """The active instances of every operator: the servers that keys are divided among."""
        return next(iter(self.operators.values())).instances


@dataclass(frozen=True, eq=False)
class JointPlan:
    """A plan for each operator, and the share of the counted rows whose two keys are on one server, before and after.

    `remote_*`: seconds of a batch that rows between servers take, of planners that weigh them. `chosen`: the name of the
    alternative that such a planner took.
    """

    plans: Mapping[str, Plan]
    locality_before: float
    locality_after: float
    remote_before: float = 0.0
    remote_after: float = 0.0
    chosen: str = ""


JointPlanner = Callable[[JointPlanInput], JointPlan]
