"""Reconciling and Stalled, as kstatus has them, over the changes of a topology's life."""

from __future__ import annotations

from typing import Any, Literal

from support.operator_world import World, manifest
from support.reasons import REBALANCED

from streamtopology.contract.stats import DriverRefusal
from streamtopology.k8s import names
from streamtopology.k8s.decide.answers import Judgement

Kstatus = Literal["Current", "InProgress", "Failed"]


def kstatus(world: World) -> Kstatus:
    """The word of kstatus for the resource, by its rules."""
    resource: dict[str, Any] = world.manifest
    status = resource.get("status") or {}
    if status.get("observedGeneration") != resource["metadata"]["generation"]:
        return "InProgress"
    found = {one["type"]: one["status"] for one in status["conditions"]}
    if found["Reconciling"] == "True":
        return "InProgress"
    if found["Stalled"] == "True":
        return "Failed"
    return "Current" if found["Ready"] == "True" else "InProgress"


def settled(**spec: Any) -> World:
    world = World(manifest(**spec))
    world.carry_out(world.decide())
    assert kstatus(world) == "InProgress"
    world.settle()
    assert kstatus(world) == "Current"
    return world


def test_a_change_is_in_progress_until_batches_run_under_it() -> None:
    world = settled()
    world.change(executors=[{"name": "large", "replicas": 3, "cpu": "600m", "memory": "1Gi"}])
    assert kstatus(world) == "InProgress"
    world.carry_out(world.decide())
    assert kstatus(world) == "InProgress"
    world.settle()
    assert kstatus(world) == "Current"


def test_a_topology_that_balances_itself_is_current() -> None:
    world = settled()
    assert world.driver is not None
    world.judgement = Judgement("reroute", REBALANCED, 1, world.driver.newest + 1, b"packed", ("counts",), 0.2, 0.4, 10, 1000)
    world.carry_out(world.decide())
    assert world.manifest["status"]["intent"]["action"] == "Rerouting"
    assert kstatus(world) == "Current"


def test_suspended_and_completed_topologies_are_current() -> None:
    world = settled()
    world.change(suspend=True)
    world.carry_out(world.decide())
    assert kstatus(world) == "InProgress"
    world.settle()
    assert kstatus(world) == "Current"
    completed = settled(trigger={"availableNow": True})
    completed.phase = "done"
    completed.settle()
    assert kstatus(completed) == "Current"


def test_a_paused_topology_is_in_progress_while_its_manifest_waits() -> None:
    world = settled()
    world.manifest["metadata"]["annotations"] = {names.PAUSE: "true"}
    world.carry_out(world.decide())
    assert kstatus(world) == "Current"
    for change in ({"executors": [{"name": "large", "replicas": 3, "cpu": "600m", "memory": "1Gi"}]}, {"suspend": True}):
        before = dict(world.manifest["spec"])
        world.change(**change)
        world.carry_out(world.decide())
        assert kstatus(world) == "InProgress"
        world.manifest["spec"] = {}
        world.change(**before)
        world.carry_out(world.decide())
        assert kstatus(world) == "Current"


def test_a_fault_that_needs_somebody_is_a_failure() -> None:
    world = settled()
    world.refused = DriverRefusal(None, 1, "it cannot be")
    world.carry_out(world.decide())
    assert kstatus(world) == "Failed"
    world.refused = None
    world.change(executors=[])
    world.carry_out(world.decide())
    assert kstatus(world) == "Failed"
    world.change(executors=[{"name": "large", "replicas": 2, "cpu": "400m", "memory": "1Gi"}])
    world.settle()
    assert kstatus(world) == "Current"
