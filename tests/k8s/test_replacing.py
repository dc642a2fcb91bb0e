"""Executor pods that are replaced: by class, as many at once as may be missing, and never in silence."""

from __future__ import annotations

from typing import Any

import pytest
from support.operator_world import Object, World, manifest

from streamtopology.k8s.decide.answers import Silence
from streamtopology.k8s.decide.conditions import MISSING_SECONDS
from streamtopology.k8s.decide.observation import SILENT_TIMES
from streamtopology.k8s.decide.status import LONGEST_MESSAGE
from streamtopology.k8s.decide.steps import Delete
from streamtopology.k8s.decide.under_way import MOST_RECORDED

LARGE = {"name": "large", "replicas": 30, "cpu": "400m", "memory": "1Gi"}
SMALL = {"name": "small", "replicas": 3, "cpu": "150m", "memory": "1Gi"}
OTHER = {"pod": {"annotations": {"team": "streams"}}}
# The time at which a world begins.
CREATED = "2023-11-14T22:13:20Z"


@pytest.fixture
def world() -> World:
    """A topology that runs and has settled."""
    world = World(manifest(executors=[LARGE, SMALL]))
    world.settle()
    world.events.clear()
    return world


def condition(world: World, kind: str) -> tuple[str, str, str]:
    known = next(one for one in world.decide().status["conditions"] if one["type"] == kind)
    return known["status"], known["reason"], known["message"]


def deleted(world: World) -> list[str]:
    return [step.name for step in world.decide().steps if isinstance(step, Delete)]


def pending(world: World, name: str, message: str = "0/3 nodes are available") -> None:
    """The pod finds no node."""
    pod: Object = world.objects["Pod", name]
    pod["metadata"]["creationTimestamp"] = CREATED
    no_room = {"type": "PodScheduled", "status": "False", "message": message}
    pod["status"] = {"phase": "Pending", "conditions": [no_room]}


@pytest.mark.parametrize(("most", "large"), [(None, 3), (1, 1), (12, 12), (40, 30)])
def test_max_unavailable_pods_of_each_class_are_replaced_at_once(world: World, most: int | None, large: int) -> None:
    allowed: dict[str, Any] = {} if most is None else {"maxUnavailable": most}
    world.change(executors=[{**LARGE, **OTHER, **allowed}, {**SMALL, **OTHER}])
    world.carry_out(world.decide())
    names = [name for (kind, name) in world.objects if kind == "Pod" and "driver" not in name]
    assert len(names) == 33 - large - 1, "a tenth of the class at most, at least one"
    assert deleted(world) == [], "the first ones are not ready yet"
    world.settle()


def test_driver_that_is_not_ready_for_a_moment_keeps_the_others_of_a_class(world: World) -> None:
    """As one that has too little CPU to answer its probe in time: it runs batches on those that stay."""
    world.change(executors=[{**LARGE, **OTHER}, SMALL])
    world.objects["Pod", world.pod_names("driver")[0]]["status"]["conditions"] = []
    assert len(deleted(world)) == 3
    world.silence = Silence("refused", world.now, SILENT_TIMES)
    assert len(deleted(world)) == 30, "it does not run, perhaps for want of these changes"


def test_a_pod_that_finds_no_node_holds_up_its_own_class_alone(world: World) -> None:
    world.change(executors=[{**LARGE, **OTHER}, {**SMALL, **OTHER}])
    pending(world, "flow-small-0")
    world.carry_out(world.decide())
    world.work()
    pending(world, "flow-small-0")
    for _ in range(12):
        world.carry_out(world.decide())
        world.work()
        pending(world, "flow-small-0")
    new = [name for name in world.pod_names("executor") if "team" in world.objects["Pod", name]["metadata"]["annotations"]]
    assert len([name for name in new if "large" in name]) == 30
    assert len([name for name in new if "small" in name]) == 1


def test_a_change_that_waits_for_a_pod_says_so_after_a_while(world: World) -> None:
    world.change(executors=[LARGE, {**SMALL, **OTHER}])
    world.carry_out(world.decide())
    world.work()
    pending(world, "flow-small-0")
    waits = "executor pods are replaced, 2 yet to come; no node takes flow-small-0: 0/3 nodes are available"
    assert condition(world, "Reconfiguring") == ("True", "Resizing", waits)
    assert condition(world, "Degraded")[:2] == ("False", "AsExpected"), "a node may be on its way"
    world.now += MISSING_SECONDS + 1
    status, reason, message = condition(world, "Degraded")
    assert (status, reason) == ("True", "ExecutorsMissing")
    assert "no node takes flow-small-0" in message


def test_sentences_about_a_thousand_pods_name_the_first_ones(world: World) -> None:
    """The API server refuses a status with longer ones, and then nothing is done any more."""
    world.change(executors=[{**LARGE, "replicas": 1000}, SMALL])
    world.settle()
    world.change(executors=[{**LARGE, **OTHER, "replicas": 1000}, SMALL])
    world.carry_out(world.decide())
    del world.objects["Pod", world.pod_names("driver")[0]]
    assert len(deleted(world)) > 800
    status, _, message = condition(world, "Reconfiguring")
    assert (status, len(message) < LONGEST_MESSAGE) == ("True", True)
    assert message.endswith("more")
    assert len(world.decide().status["intent"]["steps"]) == MOST_RECORDED + 1


def test_reason_that_pods_are_not_created_is_reported_at_once(world: World) -> None:
    world.change(executors=[{**LARGE, "replicas": 31}, SMALL])
    world.carry_out(world.decide())
    world.not_created = {("StatefulSet", "flow-large"): 'pods "flow-large-30" is forbidden: exceeded quota: team'}
    status, reason, message = condition(world, "Degraded")
    assert (status, reason) == ("True", "ExecutorsNotCreated")
    assert "exceeded quota: team" in message
    assert "exceeded quota: team" in condition(world, "Reconfiguring")[2]


def test_reason_that_the_driver_is_not_created_is_reported() -> None:
    world = World(manifest())
    world.settle()
    for name in world.pod_names("driver"):
        del world.objects["Pod", name]
    why = 'pods "flow-driver-" is forbidden: error looking up service account space/mine: serviceaccount "mine" not found'
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": why}
    world.objects["Deployment", "flow-driver"]["status"] = {"conditions": [failure]}
    assert condition(world, "Ready") == ("False", "DriverNotCreated", f"the cluster does not create the driver's pod: {why}")
