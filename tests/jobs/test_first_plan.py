"""The plan that a run starts with, after epochs that no batch was committed under."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from support.stages import Flow, manifest

from streamtopology.jobs.plan.execution_plan import ExecutionPlan

COUNT = {"name": "n", "inputs": ["s"], "grouping": {"policy": "mixed", "key": "k"}, "run": "count"}


@pytest.mark.parametrize("its_slots", [("slot-0", "slot-1"), ("slot-0", "slot-1", "other-0")])
def test_epoch_of_a_driver_that_stood_still_numbers_no_slots(tmp_path: Path, its_slots: tuple[str, ...]) -> None:
    """It knows of two executors; another driver has taken over, and committed with three. Only what is committed counts."""
    flow = Flow(tmp_path, _with(2))
    flow.batch(s=pa.table({"k": [1, 2, 3]}))
    stood_still = ExecutionPlan.from_json(flow.checkpoint.read_epoch(flow.last.epoch))
    flow.start(_with(3))
    flow.batch(s=pa.table({"k": [1, 2, 3]}))
    assert stood_still.placement.slots == ("slot-0", "slot-1")

    late = 1 + max(flow.checkpoint.epochs())
    epoch = replace(stood_still.epoch, number=late, placement=replace(stood_still.placement, slots=its_slots))
    flow.checkpoint.write_epoch(late, replace(stood_still, epoch=epoch).to_json())
    for replicas in (3, 4):
        flow.start(_with(replicas))
        assert flow.router.ready().placement.slots == tuple(f"slot-{number}" for number in range(replicas))
        flow.batch(s=pa.table({"k": [1, 2, 3]}))
    assert {row["k"]: row["count"] for row in flow.state("n")} == Counter({1: 4, 2: 4, 3: 4})


def _with(replicas: int) -> dict[str, object]:
    return manifest([COUNT], {"s": "k BIGINT"}, executors=[{"name": "slot", "replicas": replicas, "cpu": "1"}])
