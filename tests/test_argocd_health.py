"""The health script of examples/argocd-health.yaml, run by a Lua interpreter on what the operator reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from lupa import LuaRuntime
from support.operator_world import World, manifest

SCRIPT = yaml.safe_load((Path(__file__).parents[1] / "examples" / "argocd-health.yaml").read_text())["data"][
    "resource.customizations.health.streamtopology.dev_StreamTopology"
]


def health(resource: dict[str, Any]) -> tuple[str, str]:
    """(status, message), as Argo CD would show them."""
    lua = LuaRuntime(unpack_returned_tuples=True)
    judged = lua.execute(f"return function(obj)\n{SCRIPT}\nend")(lua.table_from(resource, recursive=True))
    return judged["status"], judged["message"]


def settled(**spec: Any) -> World:
    world = World(manifest(**spec))
    world.settle()
    return world


def test_a_running_topology_is_healthy_and_a_changed_one_progresses() -> None:
    world = settled()
    assert health(world.manifest) == ("Healthy", "batches run on 3 of 3 executors")
    world.change(rebalance={"tolerance": 0.3})
    assert health(world.manifest) == ("Progressing", "the operator has not seen this version yet")
    world.carry_out(world.decide())
    assert health(world.manifest)[0] == "Progressing"
    world.settle()
    assert health(world.manifest)[0] == "Healthy"


def test_a_topology_that_was_just_created_progresses() -> None:
    world = World(manifest())
    assert health(world.manifest)[0] == "Progressing"
    world.carry_out(world.decide())
    assert health(world.manifest)[0] == "Progressing"


def test_an_end_that_was_asked_for_is_no_fault() -> None:
    world = settled(trigger={"availableNow": True})
    world.phase = "done"
    world.settle()
    assert health(world.manifest) == ("Healthy", "the input has come to its end and everything is committed")
    suspended = settled()
    suspended.change(suspend=True)
    suspended.settle()
    assert health(suspended.manifest)[0] == "Suspended"


@pytest.mark.parametrize("wrong", [{"executors": []}, {"operators": [{"name": "counts", "inputs": ["none"]}]}])
def test_a_mistake_is_degraded_with_its_place(wrong: dict[str, Any]) -> None:
    world = settled()
    world.change(**wrong)
    world.carry_out(world.decide())
    status, message = health(world.manifest)
    assert status == "Degraded"
    assert "spec." in message
