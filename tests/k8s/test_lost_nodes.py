"""Pods of nodes that are gone: removed once they are overdue for long enough, and only those."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.operator_world import World

from streamtopology.k8s.decide.steps import Delete
from streamtopology.k8s.instants import format_time

PATIENCE = 300.0


def lose(world: World, pod: str, reason: str = "DeletionByTaintManager") -> None:
    """Kubernetes deletes the pod, whose own time to end is over now, and nobody says that it has ended."""
    body = world.objects["Pod", pod]
    body["metadata"]["deletionTimestamp"] = format_time(world.now)
    body["status"]["conditions"] = [
        {"type": "Ready", "status": "False"},
        {"type": "DisruptionTarget", "status": "True", "reason": reason},
    ]


def removed(world: World) -> list[tuple[str, bool]]:
    return [(step.name, step.at_once) for step in world.decide().steps if isinstance(step, Delete)]


@pytest.mark.parametrize("component", ["executor", "driver"])
def test_pod_of_a_lost_node_makes_room_for_another_once_overdue(world: World, component: str) -> None:
    pod = world.pod_names(component)[0]
    lose(world, pod)
    assert removed(world) == []
    world.now += PATIENCE - 1
    assert removed(world) == []
    again = world.decide().again_seconds
    assert again is not None
    assert again <= 1
    world.now += 1
    assert removed(world) == [(pod, True)]
    before = world.objects["Pod", pod]["metadata"]["uid"]
    world.settle()
    assert len(world.pod_names(component)) == (3 if component == "executor" else 1)
    assert before not in {world.objects["Pod", name]["metadata"]["uid"] for name in world.pod_names(component)}
    assert [reason for reason, _ in world.events].count("NodeLost") == 1


def test_pod_that_ends_for_another_reason_is_left_to_its_kubelet(world: World) -> None:
    lose(world, "flow-large-0", "EvictionByEvictionAPI")
    world.now += 10 * PATIENCE
    assert removed(world) == []


def test_no_pod_is_removed_where_the_setting_is_off(world: World) -> None:
    world.settings = replace(world.settings, node_loss_seconds=0.0)
    lose(world, "flow-large-0")
    world.now += 10 * PATIENCE
    assert removed(world) == []


def test_budget_goes_where_the_operator_is_set_to_make_none(world: World) -> None:
    budget = ("PodDisruptionBudget", "flow-driver")
    assert budget in world.objects
    world.settings = replace(world.settings, disruption_budget=False)
    world.settle()
    assert budget not in world.objects
    world.settings = replace(world.settings, disruption_budget=True)
    world.settle()
    assert budget in world.objects
