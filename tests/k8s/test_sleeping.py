"""Scaled to zero: executors go while no rows come and come back for the next ones; the driver stays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.operator_world import World, manifest

from streamtopology.k8s import names
from streamtopology.k8s.decide.answers import Answer, Silence
from streamtopology.k8s.decide.decision import decide

IDLE = 1000.0


def scaled_manifest(by: str = "External", replicas: int = 2) -> dict[str, Any]:
    """One class, which may have no executor."""
    executors = [{"name": "large", "cpu": "400m", "memory": "1Gi"}]
    scaled = {"class": "large", "by": by, "replicas": replicas, "minReplicas": 0, "maxReplicas": 5}
    return manifest(executors=executors, autoscale=scaled)


@pytest.fixture
def world() -> World:
    """A topology with two executors, scaled from outside."""
    world = World(scaled_manifest())
    world.settle()
    return world


def ask_for(world: World, replicas: int) -> None:
    world.change(autoscale={**world.manifest["spec"]["autoscale"], "replicas": replicas})


def ready(world: World) -> tuple[str, str]:
    return next((one["status"], one["reason"]) for one in world.manifest["status"]["conditions"] if one["type"] == "Ready")


def test_an_idle_topology_that_is_scaled_to_zero_keeps_its_driver_alone(world: World) -> None:
    driver = world.pod_names("driver")
    ask_for(world, 0)
    world.settle()
    assert world.pod_names("executor") == ["flow-large-0"], "a batch runs now and then"
    world.idle_seconds = IDLE
    world.settle()
    assert (world.pod_names("executor"), world.pod_names("driver")) == ([], driver)
    assert (world.manifest["status"]["phase"], ready(world)) == ("Asleep", ("True", "Asleep"))
    assert world.manifest["status"]["autoscale"]["replicas"] == 0
    assert world.manifest["status"]["executors"]["summary"] == "0/0"
    assert world.decide().steps == ()


def test_rows_that_wait_start_an_executor(world: World) -> None:
    world.idle_seconds = IDLE
    ask_for(world, 0)
    world.settle()
    world.idle_seconds = None
    decision = world.decide()
    assert decision.status["intent"]["action"] == "Scaling"
    world.settle()
    assert world.pod_names("executor") == ["flow-large-0"]
    assert "rows wait: an executor is started, there was none" in [message for _, message in world.events]
    world.idle_seconds = 1.0
    world.settle()
    assert world.pod_names("executor") == ["flow-large-0"], "it stays for the stabilisation"


def test_scaling_from_zero_by_request_needs_no_rows(world: World) -> None:
    world.idle_seconds = IDLE
    ask_for(world, 0)
    world.settle()
    ask_for(world, 3)
    world.settle()
    assert len(world.pod_names("executor")) == 3


def test_a_driver_that_starts_gets_an_executor_to_begin_with(world: World) -> None:
    world.idle_seconds = IDLE
    ask_for(world, 0)
    world.settle()
    for pod in world.pod_names("driver"):
        world.objects["Pod", pod]["status"]["conditions"] = []
    assert "apply StatefulSet flow-large" in [str(step) for step in world.decide().steps]


def test_pause_leaves_autoscalers_their_selector(world: World) -> None:
    before = world.manifest["status"]["autoscale"]
    world.manifest["metadata"]["annotations"] = {names.PAUSE: "true"}
    ask_for(world, 4)
    world.carry_out(world.decide())
    assert world.manifest["status"]["autoscale"] == before


def test_a_topology_that_is_paused_in_its_sleep_is_not_degraded(world: World) -> None:
    world.idle_seconds = IDLE
    ask_for(world, 0)
    world.settle()
    world.manifest["metadata"]["annotations"] = {names.PAUSE: "true"}
    world.carry_out(world.decide())
    assert ready(world) == ("True", "Asleep")
    assert "True" not in [one["status"] for one in world.manifest["status"]["conditions"] if one["type"] == "Degraded"]
    world.idle_seconds = None
    world.carry_out(world.decide())
    assert ready(world) == ("False", "ExecutorsStarting"), "rows wait, and no executor may be started"


def test_a_policy_that_is_changed_in_its_sleep_is_in_force_with_the_next_rows(world: World) -> None:
    world.idle_seconds = IDLE
    ask_for(world, 0)
    world.settle()
    (operator,) = world.manifest["spec"]["operators"]
    world.change(operators=[{**operator, "grouping": {**operator["grouping"], "policy": "fields"}}])
    for _ in range(3):
        world.carry_out(world.decide())
    assert (world.manifest["status"]["phase"], ready(world)) == ("Asleep", ("True", "Asleep"))
    assert "intent" not in world.manifest["status"]


def test_executors_of_other_classes_do_not_sleep() -> None:
    """One small executor stays for good, and batches have pauses between them."""
    executors = [{"name": "large", "cpu": "400m", "memory": "1Gi"}, {"name": "small", "cpu": "150m", "memory": "1Gi"}]
    world = World(manifest(executors=executors, autoscale=scaled_manifest(replicas=0)["spec"]["autoscale"]))
    world.settle()
    world.idle_seconds = IDLE
    world.settle()
    assert world.pod_names("executor") == ["flow-small-0"]


def test_another_operator_wakes_nobody(world: World) -> None:
    """It decides before it has asked the driver."""
    world.idle_seconds = IDLE
    ask_for(world, 0)
    world.settle()
    seen = world.look()
    assert decide(replace(seen, answer=None, attempts={}), world.settings).steps == ()
    assert decide(replace(seen, answer=Answer("flow-driver-of-before")), world.settings).steps == ()


def test_a_driver_that_cannot_be_asked_gets_an_executor(world: World) -> None:
    """Its last answer says that no rows waited then."""
    world.idle_seconds = IDLE
    ask_for(world, 0)
    world.settle()
    world.silence = Silence("no route", world.now)
    assert world.decide().steps == (), "one answer may be lost"
    world.silence = Silence("no route", world.now, 3)
    world.carry_out(world.decide())
    world.work()
    assert world.pod_names("executor") == ["flow-large-0"]


def test_a_class_that_another_takes_over_from_hands_over_first() -> None:
    """The only executor leaves, but not to sleep."""
    large, small = ({"name": name, "cpu": "400m", "memory": "1Gi"} for name in ("large", "small"))
    world = World(manifest(executors=[{**large, "replicas": 1}, {**small, "replicas": 0}]))
    world.settle()
    world.change(executors=[{**large, "replicas": 0}, {**small, "replicas": 1}])
    world.carry_out(world.decide())
    assert world.objects["StatefulSet", "flow-large"]["spec"]["replicas"] == 1, "the driver has not taken the change"
    world.settle()
    assert world.pod_names("executor") == ["flow-small-0"]
