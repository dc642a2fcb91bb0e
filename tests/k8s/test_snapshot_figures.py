"""Metrics of the snapshots that exist: their number by phase, and the age of the newest copy."""

from __future__ import annotations

from typing import Any

from streamtopology.k8s.instants import format_time
from streamtopology.k8s.io.metrics import PREFIX, OperatorMetrics
from streamtopology.k8s.io.queue import TopologyKey

FLOW = {"namespace": "space", "topology": "flow"}


def snapshot(phase: str, since: float = 0.0, topology: str = "flow") -> dict[str, Any]:
    ready = {"type": "Ready", "status": str(phase == "Completed"), "lastTransitionTime": format_time(since)}
    status = {"phase": phase, "conditions": [ready]} if phase else {}
    return {"metadata": {"namespace": "space"}, "spec": {"topology": topology}, "status": status}


def test_snapshots_are_counted_by_topology_and_phase_as_long_as_they_exist() -> None:
    bodies = [snapshot("Completed"), snapshot("Completed"), snapshot("Failed"), snapshot("Running", topology="other")]
    metrics = OperatorMetrics()
    metrics.snapshots.follow(lambda: bodies)

    def number(phase: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(f"{PREFIX}snapshots", {**FLOW, **labels, "phase": phase})

    assert (number("Completed"), number("Failed"), number("Running", topology="other")) == (2, 1, 1)
    del bodies[0], bodies[1]
    assert (number("Completed"), number("Failed")) == (1, None)


def test_newest_completed_snapshot_gives_the_time_of_the_last_copy() -> None:
    metrics = OperatorMetrics()
    metrics.snapshots.follow(lambda: [snapshot("Completed", 2000.0), snapshot("Completed", 1000.0), snapshot("Failed", 3000.0)])
    assert metrics.registry.get_sample_value(f"{PREFIX}snapshot_completed_timestamp_seconds", FLOW) == 2000.0


def test_missed_times_are_those_of_each_topology_with_a_schedule() -> None:
    metrics = OperatorMetrics()
    metrics.snapshots.follow(tuple, lambda: {TopologyKey("space", "flow"): 2})
    assert metrics.registry.get_sample_value(f"{PREFIX}snapshots_missed", FLOW) == 2


def test_snapshot_without_a_status_has_no_figures() -> None:
    metrics = OperatorMetrics()
    metrics.snapshots.follow(lambda: [snapshot("")])
    assert not [each for family in metrics.registry.collect() if "snapshot" in family.name for each in family.samples]
