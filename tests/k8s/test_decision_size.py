"""The work of a decision grows with the number of pods and classes, and not with their product."""

from __future__ import annotations

import sys
from typing import Any

from support.operator_world import World, manifest

PODS_OF_CLASS = 32


def settled(classes: int) -> World:
    executors = [{"name": f"c{n}", "replicas": PODS_OF_CLASS, "cpu": "400m", "memory": "1Gi"} for n in range(classes)]
    world = World(manifest(executors=executors))
    world.settle()
    return world


def calls(world: World) -> int:
    """Calls of functions, and turns of generators, in one decision about what is observed."""
    seen, counted = world.look(), 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal counted
        counted += event == "call"

    sys.setprofile(count)
    try:
        world.decide_on(seen)
    finally:
        sys.setprofile(None)
    return counted


def test_work_of_a_decision_is_in_proportion_to_pods() -> None:
    few, many = settled(classes=8), settled(classes=32)
    assert calls(many) < 5 * calls(few)
    for world in (few, many):
        world.change(executors=[{**one, "pod": {"labels": {"a": "b"}}} for one in world.manifest["spec"]["executors"]])
        world.carry_out(world.decide())
        world.work()
    assert calls(many) < 5 * calls(few), "also while pods are replaced"
