"""A resize that the API server refuses: what is done instead, how long that is said, and when it is tried again."""

from __future__ import annotations

import pytest
from support.operator_world import World, condition, manifest

from streamtopology.k8s import names
from streamtopology.k8s.decide.resizing import RETRY_SECONDS
from streamtopology.k8s.decide.steps import Delete, Resize

QOS = 'Pod "flow-large-0" is invalid: spec: Invalid value: "Burstable": Pod QOS Class may not change as a result of resizing'
LARGE = {"name": "large", "replicas": 2, "cpu": "400m", "memory": "1Gi"}
SMALL = {"name": "small", "replicas": 1, "cpu": "150m", "memory": "1Gi"}
MORE = [{**LARGE, "cpu": "600m"}, SMALL]


@pytest.fixture
def world() -> World:
    world = World(manifest())
    world.settle()
    return world


def refuse(world: World) -> None:
    world.carry_out(world.decide(), refuse_resize=QOS)


def message(world: World, kind: str) -> str:
    return next(one["message"] for one in world.manifest["status"]["conditions"] if one["type"] == kind)


def resizes(world: World) -> list[str]:
    return [step.pod for step in world.decide().steps if isinstance(step, Resize)]


def refused(world: World) -> dict[str, str]:
    return {name: value for name, value in world.manifest["status"]["classes"][0].items() if name.startswith("refused")}


def test_refusal_goes_with_the_last_pod_that_is_not_as_it_should_be(world: World) -> None:
    world.change(executors=MORE)
    refuse(world)
    world.carry_out(world.decide())
    assert condition(world, "Degraded") == ("True", "ResizeRefused")
    assert refused(world).keys() == {"refused", "refusedFor", "refusedAt"}
    world.settle()
    assert condition(world, "Degraded") == ("False", "AsExpected")
    assert refused(world) == {}


def test_refusal_goes_where_the_manifest_takes_the_change_back(world: World) -> None:
    world.change(executors=MORE)
    refuse(world)
    world.change(executors=[LARGE, SMALL])
    world.settle()
    assert condition(world, "Degraded") == ("False", "AsExpected")
    assert refused(world) == {}


def test_refused_resize_is_tried_again_after_a_while(world: World) -> None:
    world.change(executors=MORE)
    refuse(world)
    decision = world.decide()
    assert not [step for step in decision.steps if isinstance(step, Resize)]
    world.manifest["status"] = decision.status  # the operator comes no further
    world.now += RETRY_SECONDS - 1
    assert resizes(world) == []
    world.now += 1
    assert resizes(world) == ["flow-large-0", "flow-large-1"]
    assert not [step for step in world.decide().steps if isinstance(step, Delete)], "what is resized need not be replaced"
    refuse(world)
    assert resizes(world) == [], "refused again, for as long"
    assert condition(world, "Degraded") == ("True", "ResizeRefused")


def test_resize_that_is_taken_at_last_ends_the_condition(world: World) -> None:
    world.change(executors=MORE)
    refuse(world)
    world.manifest["status"] = world.decide().status
    world.now += RETRY_SECONDS
    world.carry_out(world.decide())
    world.settle()
    assert condition(world, "Degraded") == ("False", "AsExpected")


def test_other_requests_by_admission_are_named_as_the_cause(world: World) -> None:
    for name in ("flow-large-0", "flow-large-1"):
        world.objects["Pod", name]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "100m"
    world.change(executors=MORE)
    refuse(world)
    world.carry_out(world.decide())
    said = message(world, "Degraded")
    assert "class large is replaced pod by pod" in said
    assert "Pod QOS Class may not change" in said
    assert "has made the requests of pod flow-large-0 100m CPU, 1Gi" in said


def test_pods_that_admission_makes_anew_with_other_limits_are_left_and_replaced_in_no_sentence(world: World) -> None:
    """A webhook takes the limit of CPU from every pod: another pod in its place would be changed, too."""
    stateful_set = world.objects["StatefulSet", "flow-large"]
    stateful_set["status"] = {"updateRevision": "flow-large-1"}
    for name in ("flow-large-0", "flow-large-1"):
        pod = world.objects["Pod", name]
        pod["spec"]["containers"][0]["resources"]["limits"].pop("cpu")
        pod["metadata"]["labels"][names.POD_REVISION] = "flow-large-1"
    refuse(world)
    world.carry_out(world.decide())
    assert not [step for step in world.decide().steps if isinstance(step, Delete)]
    assert condition(world, "Degraded") == ("False", "AsExpected")
    assert condition(world, "MutatedByAdmission") == ("True", "Mutated")
    assert "a resize is refused: " in message(world, "MutatedByAdmission")
    assert "QoS class" in message(world, "MutatedByAdmission")
