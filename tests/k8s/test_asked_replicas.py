"""The number in `spec.autoscale.replicas`: who changes it though others decide, and who changes it back and forth."""

from __future__ import annotations

from typing import Any

import pytest
from support.operator_world import World, condition, manifest
from support.reasons import BUSY

from streamtopology.k8s.decide.answers import Scaling
from streamtopology.k8s.decide.asked_replicas import COUNTED_SECONDS

LARGE = {"name": "large", "cpu": "400m", "memory": "1Gi"}


def scaled_world(by: str) -> World:
    scaled = {"class": "large", "by": by, "replicas": 3, "minReplicas": 1, "maxReplicas": 9}
    world = World(manifest(executors=[LARGE], autoscale=scaled))
    world.settle()
    return world


def ask_for(world: World, replicas: int, **changed: Any) -> None:
    """`kubectl scale`, an HPA, or a GitOps controller."""
    world.change(autoscale={**world.manifest["spec"]["autoscale"], "replicas": replicas, **changed})
    world.settle()


def degraded(world: World) -> str:
    return next(one["message"] for one in world.manifest["status"]["conditions"] if one["type"] == "Degraded")


def not_scaled(world: World) -> list[str]:
    return [message for reason, message in world.events if reason == "NotScaled"]


@pytest.mark.parametrize("by", ["Operator", "Nobody"])
def test_scale_that_changes_nothing_is_an_event_and_a_sentence(by: str) -> None:
    world = scaled_world(by)
    assert not_scaled(world) == []
    ask_for(world, 6)
    [said] = not_scaled(world)
    assert f"with autoscale.by: {by} " in said
    assert "set autoscale.by: External" in said
    assert world.manifest["status"]["autoscale"]["unheeded"] == said
    assert world.manifest["status"]["autoscale"]["desired"] == 3
    ask_for(world, 7)
    assert len(not_scaled(world)) == 2, "one for each number"


def test_sentence_goes_with_its_cause() -> None:
    for changed in ({"replicas": 3}, {"replicas": 6, "by": "External"}):
        world = scaled_world("Operator")
        ask_for(world, 6)
        ask_for(world, **changed)
        assert "unheeded" not in world.manifest["status"]["autoscale"]


@pytest.mark.parametrize(("asked", "bound", "limit"), [(0, 1, "minReplicas"), (12, 9, "maxReplicas")])
def test_scale_out_of_bounds_says_which_bound_holds(asked: int, bound: int, limit: str) -> None:
    world = scaled_world("External")
    ask_for(world, bound)
    assert not_scaled(world) == []
    ask_for(world, asked)
    [said] = not_scaled(world)
    assert f"spec.autoscale.replicas is {asked} now, and {bound} run, as autoscale.{limit} is {bound}" in said
    assert ("spec.suspend stops all executors" in said) == (asked == 0)
    assert world.manifest["status"]["autoscale"]["unheeded"] == said
    ask_for(world, bound)
    assert "unheeded" not in world.manifest["status"]["autoscale"]


def test_zero_that_minimum_allows_is_heeded() -> None:
    world = scaled_world("External")
    ask_for(world, 0, minReplicas=0)
    assert not_scaled(world) == []
    assert "unheeded" not in world.manifest["status"]["autoscale"]


def test_operators_own_decision_is_no_scale_from_outside() -> None:
    world = scaled_world("Operator")
    world.scaling = Scaling({"large": 6}, BUSY)
    world.settle()
    assert world.manifest["status"]["autoscale"]["desired"] == 6
    assert not_scaled(world) == []
    assert "unheeded" not in world.manifest["status"]["autoscale"]


def test_two_writers_of_the_number_are_a_condition() -> None:
    world = scaled_world("External")
    for replicas in (6, 3, 6):
        assert condition(world, "Degraded") == ("False", "AsExpected")
        ask_for(world, replicas)
        world.now += 60
    ask_for(world, 3)
    assert condition(world, "Degraded") == ("True", "ReplicasContested")
    assert "back and forth 3 times" in degraded(world)
    assert "(6 and 3)" in degraded(world) or "(3 and 6)" in degraded(world)
    assert "leave autoscale.replicas out of the manifest" in degraded(world)


def test_manifest_that_is_written_back_between_other_numbers_of_an_hpa_is_one_writer_too_many() -> None:
    world = scaled_world("External")
    for replicas in (6, 3, 7, 3, 5, 3):
        ask_for(world, replicas)
        world.now += 300
    assert condition(world, "Degraded") == ("True", "ReplicasContested")


def test_autoscaler_that_follows_its_load_has_the_number_for_itself() -> None:
    world = scaled_world("External")
    for replicas in (4, 6, 8, 6, 4, 3, 2, 4):
        ask_for(world, replicas)
        world.now += 60
    assert condition(world, "Degraded") == ("False", "AsExpected")


def test_quarrel_is_forgotten_within_an_hour_after_its_end() -> None:
    world = scaled_world("External")
    for replicas in (6, 3, 6, 3):
        ask_for(world, replicas)
    decision = world.decide()
    assert decision.again_seconds is not None, "nothing else may happen until then"
    assert decision.again_seconds <= COUNTED_SECONDS + 1
    world.now += decision.again_seconds
    world.settle()
    assert condition(world, "Degraded") == ("False", "AsExpected")
    assert COUNTED_SECONDS < 3600


def test_several_changes_are_kept_and_old_ones_are_not() -> None:
    world = scaled_world("External")
    for replicas in range(1, 10):
        ask_for(world, replicas)
    for replicas in range(1, 10):
        ask_for(world, replicas)
    assert [one["replicas"] for one in world.manifest["status"]["asked"]["numbers"]] == [7, 8, 9, *range(1, 10)]
