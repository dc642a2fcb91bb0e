"""Objects that somebody deletes, and that a finalizer of somebody else keeps."""

from __future__ import annotations

import pytest
from support.operator_world import World

from streamtopology.k8s.decide.conditions import MISSING_SECONDS
from streamtopology.k8s.instants import format_time

HOLD = "example.com/hold"


def hold(world: World, kind: str, name: str) -> None:
    metadata = world.objects[kind, name]["metadata"]
    metadata |= {"deletionTimestamp": format_time(world.now), "finalizers": [HOLD]}


def message(world: World, kind: str) -> tuple[str, str]:
    known = next(one for one in world.decide().status["conditions"] if one["type"] == kind)
    return known["reason"], known["message"]


@pytest.mark.parametrize(
    ("kind", "name"),
    [("Service", "flow-driver"), ("Deployment", "flow-driver"), ("StatefulSet", "flow-small"), ("ConfigMap", "flow-routing")],
)
def test_held_object_is_named_not_fought_over_and_made_again_when_it_is_gone(world: World, kind: str, name: str) -> None:
    hold(world, kind, name)
    for _ in range(20):
        decision = world.decide()
        world.carry_out(decision)
        world.now += 1
        assert decision.steps == ()
    sentence = f"{kind} {name} is being deleted and waits for {HOLD}"
    assert message(world, "Degraded") == ("BeingDeleted", sentence)
    del world.objects[kind, name]
    assert [step.place for step in world.decide().steps] == [(kind, name)], "at once, without a pause"
    world.settle()
    assert message(world, "Degraded")[0] == "AsExpected"


def test_held_pods_are_named_by_the_conditions_that_wait_for_them(world: World) -> None:
    hold(world, "Pod", "flow-large-1")
    world.now += MISSING_SECONDS + 1
    reason, text = message(world, "Degraded")
    assert (reason, f"Pod flow-large-1 is being deleted and waits for {HOLD}" in text) == ("ExecutorsMissing", True)
    driver = world.pod_names("driver")[0]
    hold(world, "Pod", driver)
    assert f"Pod {driver} is being deleted and waits for {HOLD}" in message(world, "Ready")[1]
