"""What a topology deleted with `--cascade=orphan` has left, and the next one of its name does not want."""

from __future__ import annotations

from typing import Any

import pytest
from support.operator_world import World, condition, reasons

from streamtopology.k8s import names

LARGE = {"name": "large", "replicas": 2, "cpu": "400m", "memory": "1Gi"}
LEFT = ("StatefulSet", "flow-small")


@pytest.fixture
def left(world: World) -> World:
    """A topology without the class small, applied after one with it was deleted and has left all its objects."""
    for (kind, _), body in world.objects.items():
        if kind != "Pod":
            del body["metadata"]["ownerReferences"]
    world.manifest["metadata"] |= {"uid": "uid-2", "generation": 1}
    del world.manifest["status"]
    world.manifest["spec"]["executors"] = [LARGE]
    return world


def test_class_that_a_former_topology_has_left_is_drained_and_deleted(left: World) -> None:
    pods = [name for name in left.pod_names("executor") if "large" in name]
    left.carry_out(left.decide())
    assert LEFT in left.objects, "its executors hand over first"
    assert left.objects[LEFT]["metadata"]["ownerReferences"] == [left.look().owner.reference()]
    left.settle()
    assert LEFT not in left.objects
    assert condition(left, "Degraded") == ("False", "AsExpected")
    assert left.pod_names("executor") == pods


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("ownerReferences", [{"kind": "Deployment", "name": "other", "uid": "uid-other"}]),
        ("name", "flow-mine"),
        ("labels", {names.INSTANCE: "flow", names.MANAGED_BY: names.MANAGER}),
        ("labels", {names.INSTANCE: "flow", names.MANAGED_BY: "helm", names.CLASS: "small"}),
        ("annotations", {}),
    ],
)
def test_object_of_another_owner_or_without_our_marks_is_left_alone(left: World, part: str, value: Any) -> None:
    body = left.objects.pop(LEFT)
    place = ("StatefulSet", value) if part == "name" else LEFT
    body["metadata"][part] = value
    left.objects[place] = body
    before = body["metadata"]["resourceVersion"]
    left.settle()
    assert left.objects[place]["metadata"]["resourceVersion"] == before
    assert not [step for step in reasons(left.decide().steps) if place[1] in step]
