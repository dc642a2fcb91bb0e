"""The knowledge of choosers at the start of a batch: the tuples that each instance was given, and instances' reports.

The counts are in the batch records. The reports are in no checkpoint: losing them costs speed, never rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamtopology.jobs.exchange.learning import learning_identity, learning_of
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.jobs.plan.results import LearningReport, Results
from streamtopology.routing.epochs.epoch import Epoch, Route
from streamtopology.routing.groupings.learning import Knowledge
from streamtopology.topology import groupings


@dataclass
class LearnedKnowledge:
    """By node, what its instances reported in committed batches."""

    _known: dict[str, tuple[tuple[str, str], Knowledge[Any]]] = field(
        default_factory=dict[str, tuple[tuple[str, str], Knowledge[Any]]]
    )

    def learn(self, epoch: Epoch, reports: Sequence[LearningReport]) -> None:
        """Add the reports of a batch that ran under `epoch`; under a new policy or new options learning starts over."""
        for node, route in epoch.routes.items():
            learning = learning_of(route)
            if learning is None:
                continue
            read = [learning.read_report(report) for name, report in reports if name == node]
            known = self._of(node, route) or learning.nothing_known(groupings.get(route.policy).check_options(route.options))
            self._known[node] = learning_identity(route), known.after(read)

    def to_wire(self, epoch: Epoch) -> dict[str, Any]:
        """Return, by node, what its choosers may use under `epoch`."""
        known = {node: self._of(node, route) for node, route in epoch.routes.items()}
        return {node: knowledge.to_wire() for node, knowledge in known.items() if knowledge is not None}

    def _of(self, node: str, route: Route) -> Knowledge[Any] | None:
        identity, knowledge = self._known.get(node, (None, None))
        return knowledge if identity == learning_identity(route) else None


@dataclass
class ChooserKnowledge:
    """Rows by node and instance (`loads`, float64[instances]), and the reports of instances (`learned`)."""

    loads: dict[str, np.ndarray] = field(default_factory=dict[str, np.ndarray])
    learned: LearnedKnowledge = field(default_factory=LearnedKnowledge)

    def restore(self, loads: Mapping[str, Sequence[float]]) -> None:
        """Take the counts of a batch record."""
        self.loads = {node: np.array(given) for node, given in loads.items()}

    def forget_changed(self, before: ExecutionPlan | None, plan: ExecutionPlan) -> None:
        """Drop the counts of nodes whose instances, policy or capacities change.

        Counts say who is ahead only by the shares that they came about by: by others an instance would get no tuples, or all
        of them, until the others had caught up.
        """
        routes = before.epoch.routes if before is not None else dict[str, Route]()
        same = {node for node, route in plan.epoch.routes.items() if node in routes and _divides_alike(routes[node], route)}
        self.loads = {node: loads for node, loads in self.loads.items() if node in same}

    def count(self, results: Results) -> None:
        """Add the rows of a committed batch."""
        for result in results.instances:
            self._add(result.report.operator, result.report.instance, result.report.rows)

    def _add(self, node: str, instance: int, rows: int) -> None:
        loads = self.loads.get(node, np.zeros(0))
        if instance >= len(loads):
            loads = np.concatenate([loads, np.zeros(instance + 1 - len(loads))])
        loads[instance] += rows
        self.loads[node] = loads


def _divides_alike(before: Route, route: Route) -> bool:
    """True if both divide tuples over the same instances in the same way."""
    return (before.instances, before.policy, before.options) == (route.instances, route.policy, route.options)
