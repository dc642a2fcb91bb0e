"""A run over the available input that has come to its end: what starts another one, and what does not."""

from __future__ import annotations

from typing import Any

import pytest
from support.operator_world import World, condition, manifest

from streamtopology.k8s.decide.steps import Delete

SCALED = {"class": "large", "by": "External", "replicas": 3, "maxReplicas": 9}
LARGE = {"name": "large", "cpu": "400m", "memory": "1Gi"}


def ready_sentence(world: World) -> str:
    return next(one["message"] for one in world.manifest["status"]["conditions"] if one["type"] == "Ready")


def completed(**spec: Any) -> World:
    world = World(manifest(trigger={"availableNow": True}, **spec))
    world.settle()
    world.phase = "done"
    world.settle()
    world.phase = "running"
    assert world.manifest["status"]["phase"] == "Completed"
    world.events.clear()
    return world


@pytest.fixture
def world() -> World:
    return completed(executors=[LARGE], autoscale=SCALED)


def assert_nothing_runs(world: World) -> None:
    world.settle()
    status = world.manifest["status"]
    assert (status["phase"], condition(world, "Ready")) == ("Completed", ("True", "Completed"))
    assert world.pod_names("driver") + world.pod_names("executor") == []
    assert (condition(world, "Reconciling")[0], status["observedGeneration"]) == (
        "False",
        world.manifest["metadata"]["generation"],
    )


def assert_runs(world: World) -> None:
    world.settle()
    assert world.manifest["status"]["phase"] == "Running"
    assert not [step for step in world.decide().steps if isinstance(step, Delete)]


@pytest.mark.parametrize("change", [{"replicas": 6}, {"minReplicas": 4}, {"maxReplicas": 2}, {"by": "Operator"}])
def test_scale_of_a_completed_run_starts_none_and_says_so(world: World, change: dict[str, Any]) -> None:
    world.change(autoscale={**SCALED, **change})
    assert_nothing_runs(world)
    assert "that starts no run" in ready_sentence(world)
    assert world.manifest["status"]["completed"] == 1, "the generation of the run"
    assert "Scaling" not in dict(world.events)


def test_every_scale_after_a_run_is_one_of_it_and_the_next_run_has_the_number(world: World) -> None:
    for replicas in (6, 3, 5):
        world.change(autoscale={**SCALED, "replicas": replicas})
        assert_nothing_runs(world)
    world.change(onBadTuple="deadLetter")
    assert_runs(world)
    assert len(world.pod_names("executor")) == 5


def test_scale_is_known_where_the_status_is_lost(world: World) -> None:
    world.change(autoscale={**SCALED, "replicas": 6})
    world.settle()
    del world.manifest["status"]
    assert_nothing_runs(world)


def test_scale_by_the_executors_own_number_starts_no_run() -> None:
    world = completed(executors=[{**LARGE, "replicas": 2}])
    world.change(executors=[{**LARGE, "replicas": 4}])
    assert_nothing_runs(world)


@pytest.mark.parametrize(
    "change",
    [
        {"onBadTuple": "deadLetter"},
        {"sources": [{"name": "rows", "format": "parquet", "schema": "key BIGINT", "options": {"path": "/more"}}]},
        {"executors": [{**LARGE, "cpu": "500m"}]},
        {"executors": [{**LARGE, "cpu": "500m"}], "autoscale": {**SCALED, "replicas": 6}},
    ],
)
def test_real_change_starts_a_run(world: World, change: dict[str, Any]) -> None:
    world.change(**change)
    assert_runs(world)


def test_schedule_that_suspends_and_resumes_at_once_starts_a_run(world: World) -> None:
    """As examples/schedule.yaml does: the operator may see no suspended generation."""
    world.change(suspend=True)
    world.change(suspend=False)
    assert_runs(world)


def test_scale_between_the_end_and_its_notice_starts_no_run() -> None:
    world = World(manifest(trigger={"availableNow": True}, executors=[LARGE], autoscale=SCALED))
    world.settle()
    world.phase = "done"
    world.change(autoscale={**SCALED, "replicas": 6})
    assert_nothing_runs(world)
    assert world.manifest["status"]["completed"] == 1


def test_change_between_the_end_and_its_notice_starts_a_run() -> None:
    """A driver at the end of its input takes no other manifest: another one does."""
    world = World(manifest(trigger={"availableNow": True}, executors=[LARGE], autoscale=SCALED))
    world.settle()
    [before] = world.pod_names("driver")
    world.phase = "done"
    world.change(rebalance={"tolerance": 0.5})
    decision = world.decide()
    assert [str(step) for step in decision.steps] == ["apply ConfigMap flow-routing", "apply Deployment flow-driver"]
    world.carry_out(decision)
    world.phase = "running"
    assert_runs(world)
    assert world.pod_names("driver") != [before]
