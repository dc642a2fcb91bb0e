"""The list of all topologies, as a value: who needs somebody comes first, and the size is bounded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamtopology.k8s.decide.listing import MOST_LISTED, listing

NOW = 1_800_000_000.0


def topology(name: str, phase: str | None = "Running", namespace: str = "streams", **status: Any) -> dict[str, Any]:
    made = {"metadata": {"name": name, "namespace": namespace}, "spec": {}}
    return made if phase is None else {**made, "status": {"phase": phase, **status}}


def condition(kind: str, status: str, message: str) -> dict[str, str]:
    return {"type": kind, "status": status, "reason": "Some", "message": message}


def row(**status: Any) -> dict[str, Any]:
    (only,) = listing([topology("flights", **status)], NOW)["topologies"]
    return only


def test_running_topology_has_its_columns() -> None:
    last = {"epoch": 4, "operator": "delays", "keysMoved": 1200, "at": "2026-11-25T10:00:00Z"}
    shown = row(throughput=51000, imbalance=0.12, executors={"summary": "3/4"}, lastRerouting=last)
    assert shown == {
        "namespace": "streams",
        "name": "flights",
        "service": "flights-driver",
        "phase": "Running",
        "state": "good",
        "text": "",
        "executors": "3/4",
        "rows_per_second": 51000,
        "imbalance": 0.12,
        "rerouted_at": 1795600800.0,
        "rerouting": "epoch 4, 1,200 keys of delays",
    }


def test_incomplete_status_of_one_topology_hides_no_other() -> None:
    odd = [
        topology("a", lastRerouting={"epoch": 4}),
        topology("b", lastRerouting={}),
        topology("c", conditions=[{"type": "Degraded", "status": "True"}]),
        topology("d", "Failed", conditions=[{"type": "Ready"}]),
        topology("e", conditions=None, executors=None),
    ]
    shown = listing(odd, NOW)["topologies"]
    assert {one["name"]: (one["state"], one["text"], one["rerouting"]) for one in shown} == {
        "c": ("act", "", None),
        "d": ("act", "", None),
        "a": ("good", "", None),
        "b": ("good", "", None),
        "e": ("good", "", None),
    }


def test_topology_without_a_status_waits() -> None:
    (shown,) = listing([topology("new", None)], NOW)["topologies"]
    assert (shown["phase"], shown["state"], shown["rows_per_second"], shown["rerouting"]) == ("New", "wait", None, None)


@pytest.mark.parametrize(
    ("phase", "bad", "state"),
    [
        ("Invalid", condition("Ready", "False", "spec.sources is empty"), "act"),
        ("Failed", condition("Ready", "False", "the driver ended with code 3"), "act"),
        ("Running", condition("Stalled", "True", "no quota for 2 pods"), "act"),
        ("Running", condition("Degraded", "True", "2 of 4 executors are ready"), "act"),
        ("Running", condition("Balanced", "False", "imbalance 41 %"), "watch"),
        ("Asleep", condition("Ready", "True", "the next rows start executors"), "wait"),
        ("Completed", condition("Ready", "False", "the input has ended"), "wait"),
    ],
)
def test_state_goes_by_phase_and_conditions_and_says_why(phase: str, bad: dict[str, str], state: str) -> None:
    shown = row(phase=phase, conditions=[bad])
    assert (shown["state"], shown["text"]) == (state, bad["message"])


def test_figures_of_a_topology_that_does_not_run_are_not_shown() -> None:
    shown = row(phase="Suspended", throughput=51000, imbalance=0.5)
    assert (shown["rows_per_second"], shown["imbalance"]) == (None, None)


def test_topology_in_need_comes_first_and_is_never_left_out() -> None:
    many = [topology(f"t{number:05d}") for number in range(5000)]
    failed = topology("zz", "Failed", conditions=[condition("Ready", "False", "x" * 100_000)])
    value = listing([*many, failed], NOW)
    assert value["total"] == 5001
    assert [one["name"] for one in value["topologies"][:2]] == ["zz", "t00000"]
    assert len(value["topologies"]) == MOST_LISTED
    assert len(json.dumps(value)) < 300_000
