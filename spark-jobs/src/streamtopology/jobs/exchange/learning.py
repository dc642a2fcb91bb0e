"""Learning choosers on Spark (decision 48): instances time their tuples, the driver merges their reports.

Each task of the next batch that routes is a scheduler of its own. All start from the knowledge that the driver had when
it made the attempt. None of it is in the checkpoint: losing it costs speed, never rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from streamtopology.contract.stats import Messages
from streamtopology.jobs.plan.results import LearningReport
from streamtopology.routing.epochs.epoch import Route
from streamtopology.routing.groupings import Chooser, make_chooser
from streamtopology.routing.groupings import learning_of as learning_of_policy
from streamtopology.routing.groupings.learning import Learning, LearningChooser, Observer
from streamtopology.routing.table.hashing import hash_int64
from streamtopology.topology import groupings

# Enough for POSG's instances to send their sketches: two windows, unless these are larger than by default.
_REHEARSED_TUPLES = 4096


def learning_of(route: Route) -> Learning | None:
    """The learning side of the route's grouping; None where it does not learn."""
    return learning_of_policy(route.policy)


def learning_identity(route: Route) -> tuple[str, str]:
    """The identity of the route's knowledge: that of other instances, policies or sketch sizes does not fit its choosers."""
    return route.policy, json.dumps([route.instances, dict(route.options)], sort_keys=True)


def new_observer(route: Route, instance: int) -> Observer[Any]:
    """A new observer for an instance of `route`, whose grouping must be one that learns."""
    learning = learning_of(route)
    assert learning is not None
    return learning.make_observer(instance, groupings.get(route.policy).check_options(route.options))


def apply_knowledge(chooser: Chooser, route: Route, wire: Mapping[str, Any] | None, schedulers: int) -> None:
    """Give one of `schedulers` choosers of `route` the reports of its instances, where it learns and any are known."""
    learning = learning_of(route)
    if learning is not None and wire is not None and isinstance(chooser, LearningChooser):
        chooser.learn(learning.read_knowledge(wire), schedulers)


def messages(reports: Sequence[LearningReport]) -> dict[str, Messages]:
    """The number and bytes of reports by node, for nodes whose instances sent any."""
    sent: dict[str, list[int]] = {}
    for node, report in reports:
        sent.setdefault(node, []).append(len(json.dumps(report)))
    return {node: Messages(node, len(sizes), sum(sizes)) for node, sizes in sent.items()}


def rehearse_learning(route: Route) -> Mapping[str, Any] | None:
    """Observe, report, learn and choose once with dummy tuples, so that the first real batches find kernels compiled.

    Returns the knowledge that the chooser was given, in wire form; None where the route does not learn.
    """
    learning = learning_of(route)
    if learning is None:
        return None
    dummies = hash_int64(np.arange(_REHEARSED_TUPLES) % 8)
    observers = [new_observer(route, instance) for instance in route.instances]
    for observer in observers:
        observer.observe(dummies, np.full(len(dummies), 1e-6))
    known = learning.nothing_known(groupings.get(route.policy).check_options(route.options))
    known = known.after([report for observer in observers if (report := observer.report()) is not None])
    instances = np.array(route.instances, np.int32)
    chooser = make_chooser(route.policy, instances, np.zeros(len(instances)), 0, route.options)
    wire = known.to_wire()
    apply_knowledge(chooser, route, wire, schedulers=1)
    chooser.choose(dummies, len(dummies))
    return wire
