"""A changed checkpoint: the driver knows in which one the topology has committed its last batch."""

from __future__ import annotations

import pytest
from support.operator_world import World, manifest


@pytest.fixture
def world() -> World:
    """A topology that runs and has settled."""
    world = World(manifest())
    world.settle()
    return world


def former(world: World) -> str | None:
    return world.objects["ConfigMap", "flow-routing"]["data"].get("formerCheckpoint")


def test_a_new_topology_had_no_checkpoint() -> None:
    world = World(manifest())
    world.carry_out(world.decide())
    assert former(world) is None


def test_a_changed_checkpoint_comes_with_the_one_of_the_last_batch(world: World) -> None:
    world.change(checkpoint="/other")
    world.carry_out(world.decide())
    assert former(world) == "/checkpoint"


def test_the_checkpoint_of_the_last_batch_is_remembered_while_no_driver_has_one(world: World) -> None:
    assert world.driver is not None
    world.change(operators=[{**world.manifest["spec"]["operators"][0], "run": "quantiles", "with": {"column": "key"}}])
    world.carry_out(world.decide())
    world.driver = None
    world.carry_out(world.decide())
    world.change(checkpoint="/other")
    world.carry_out(world.decide())
    assert former(world) == "/checkpoint"
    world.change(checkpoint="/another")
    world.carry_out(world.decide())
    assert former(world) == "/checkpoint"


def test_restore_alone_restarts_nothing(world: World) -> None:
    driver = world.pod_names("driver")
    world.change(restore={"from": "/backup"})
    world.settle()
    assert world.pod_names("driver") == driver


def test_restore_starts_a_driver_again_that_has_not_begun(world: World) -> None:
    (driver,) = world.pod_names("driver")
    world.objects["Pod", driver]["status"]["conditions"][0]["status"] = "False"
    world.change(restore={"from": "/backup"})
    world.settle()
    assert world.pod_names("driver") != [driver]
