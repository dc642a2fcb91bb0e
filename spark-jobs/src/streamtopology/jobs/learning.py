"""What choosers learn on Spark (decision 48): instances time their tuples, the driver puts their reports together.

Every router task of the next batch is a scheduler of its own, and all of them start from what the driver knew when the
attempt was made. Nothing of this is in the checkpoint: to lose it costs speed, never rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamtopology.jobs.history import Messages
from streamtopology.jobs.operators.base import Operator
from streamtopology.routing import groupings
from streamtopology.routing.epoch import Epoch, Route
from streamtopology.routing.groupings import Chooser
from streamtopology.routing.groupings.knowledge import Knowledge, Learning, LearningChooser, Observer
from streamtopology.routing.hashing import hash_int64

Told = tuple[str, Mapping[str, Any]]
"""A node, and what one of its instances reported, in wire form."""

_REHEARSED_TUPLES = 4096
"""Enough for POSG's instances to send their sketches: two windows, unless these are larger than by default."""


def learning_of(route: Route) -> Learning | None:
    """How the route's grouping learns; None where it does not."""
    return groupings.get(route.policy).learning


def what_is_learnt(route: Route) -> tuple[str, str]:
    """Knowledge of other instances, another policy or sketches of another size says nothing to this route's choosers."""
    return route.policy, json.dumps([route.instances, dict(route.options)], sort_keys=True)


def new_observer(route: Route, instance: int) -> Observer[Any]:
    """The instance's side of the route's grouping, which must be one that learns."""
    spec = groupings.get(route.policy)
    assert spec.learning is not None
    return spec.learning.make_observer(instance, spec.check_options(route.options))


def seconds_of_tuples(operator: Operator, rows: int, busy_seconds: float) -> np.ndarray:
    """float64[rows]: what each tuple of an `accept` took that took `busy_seconds` altogether.

    As the operator measured or weighed them; one that works on whole batches says nothing of single tuples, and each
    gets the same part: then only the instance's speed can be learnt, and that is true.
    """
    measured = operator.last_tuple_seconds
    return measured if measured is not None and len(measured) == rows else np.full(rows, busy_seconds / max(rows, 1))


def tell(chooser: Chooser, route: Route, wire: Mapping[str, Any] | None, schedulers: int) -> None:
    """Tell a chooser of `route`, one of so many, what its instances reported, where it can learn and anything is known."""
    learning = learning_of(route)
    if learning is not None and wire is not None and isinstance(chooser, LearningChooser):
        chooser.learn(learning.read_knowledge(wire), schedulers)


def messages(told: Sequence[Told]) -> dict[str, Messages]:
    """By node, for those whose instances had anything to report."""
    sent: dict[str, list[int]] = {}
    for node, report in told:
        sent.setdefault(node, []).append(len(json.dumps(report)))
    return {node: Messages(len(sizes), sum(sizes)) for node, sizes in sent.items()}


def rehearse_learning(route: Route) -> None:
    """Observe, report, learn and choose once with made-up tuples, so that the first real batches find kernels compiled."""
    learning = learning_of(route)
    if learning is None:
        return
    spec = groupings.get(route.policy)
    made_up = hash_int64(np.arange(_REHEARSED_TUPLES) % 8)
    observers = [new_observer(route, instance) for instance in route.instances]
    for observer in observers:
        observer.observe(made_up, np.full(len(made_up), 1e-6))
    known = learning.nothing_known(spec.check_options(route.options))
    known = known.after([report for observer in observers if (report := observer.report()) is not None])
    instances = np.array(route.instances, np.int32)
    chooser = spec.chooser(instances, np.zeros(len(instances)), 0, route.options)
    tell(chooser, route, known.to_wire(), schedulers=1)
    chooser.choose(made_up, len(made_up))


@dataclass
class Lessons:
    """The driver's side: for each node what its instances have reported in committed batches."""

    _known: dict[str, tuple[tuple[str, str], Knowledge[Any]]] = field(default_factory=dict)

    def take_in(self, epoch: Epoch, told: Sequence[Told]) -> None:
        """The reports of a batch that ran under `epoch`; a policy or options that are new begin from nothing."""
        for node, route in epoch.routes.items():
            learning = learning_of(route)
            if learning is None:
                continue
            reports = [learning.read_report(report) for name, report in told if name == node]
            known = self._of(node, route) or learning.nothing_known(groupings.get(route.policy).check_options(route.options))
            self._known[node] = what_is_learnt(route), known.after(reports)

    def to_wire(self, epoch: Epoch) -> dict[str, Any]:
        """By node, what its choosers may know under `epoch`."""
        known = {node: self._of(node, route) for node, route in epoch.routes.items()}
        return {node: knowledge.to_wire() for node, knowledge in known.items() if knowledge is not None}

    def _of(self, node: str, route: Route) -> Knowledge[Any] | None:
        identity, knowledge = self._known.get(node, (None, None))
        return knowledge if identity == what_is_learnt(route) else None
