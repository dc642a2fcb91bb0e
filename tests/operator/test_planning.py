"""Planning beside the event loop: a desk that judges, and a process that may die."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import signal
from typing import Any

import numpy as np
import pytest

from streamtopology.operator.planning import Desk, PlanningProcess, PlanningRequest
from streamtopology.routing.epoch import Epoch, Route
from streamtopology.routing.report import LoadReport
from streamtopology.routing.table import BUCKETS, RoutingTable, bucket_of
from streamtopology.routing.topology import Autoscale, Rebalance, Topology

CPU = (1.0, 0.25)
HASHES = np.sort(np.random.default_rng(3).integers(0, 2**64, 500, dtype=np.uint64))
MANIFEST = {
    "apiVersion": "streamtopology.dev/v1alpha1", "kind": "StreamTopology", "metadata": {"name": "flow"},
    "spec": {
        "sources": [{"name": "rows", "format": "parquet", "schema": "key BIGINT", "options": {"path": "/data"}}],
        "operators": [{"name": "counts", "inputs": ["rows"], "grouping": {"policy": "mixed", "key": "key"}, "run": "count"}],
        "executors": [{"name": "large"}],
    },
}  # fmt: skip


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def request(**changed: Any) -> PlanningRequest:
    settings: dict[str, Any] = {"rebalance": Rebalance(interval_seconds=1.0), "by_share": False, "may_judge": True}
    return PlanningRequest("flow", **{**settings, **changed})


def report(instance: int, owners: np.ndarray) -> LoadReport:
    mine = np.where(owners == instance, 20, 0)
    busy = float(mine.sum()) / (2000 * CPU[instance])
    return LoadReport(
        "counts", instance, instance, int(mine.sum()), busy, busy + 0.01,
        bucket_rows=np.bincount(bucket_of(HASHES, BUCKETS), mine, BUCKETS).astype(np.int64),
    )  # fmt: skip


def answer(batch: int, at: float, **changed: Any) -> bytes:
    """A driver with two executors of which one has a quarter of the CPU, under plain hashing."""
    table = RoutingTable.uniform(range(2))
    epoch = Epoch(1, {"counts": Route("mixed", table, (0, 1))}, (), "start")
    reports = [report(instance, table.lookup(HASHES)) for instance in range(2)]
    batches = [
        {
            "number": number, "epoch": 1, "rows": 10_000, "committed_at": at,
            "seconds": max(one.task_seconds for one in reports),
            "imbalance": {"counts": 0.6}, "reports": [one.to_wire() for one in reports], "source_reports": [],
        }
        for number in range(batch + 1)
    ]  # fmt: skip
    classes = ("large", "small")
    stats = {
        "version": 2, "topology": "flow", "phase": "running", "generation": 4, "epoch": 1, "newest_epoch": 1, "batch": batch,
        "rows_per_second": 1.0, "bound_rows_per_second": None, "policies": {}, "routing": epoch.to_wire(), "checkpoint": "/c",
        "slots": [{"index": n, "executor": f"{name}-0", "class": name, "cpu": CPU[n]} for n, name in enumerate(classes)],
        "last_batch": batches[-1], "batches": batches, "reconfigurations": [], "refused": None, "executors": [], **changed,
    }  # fmt: skip
    return json.dumps(stats).encode()


def test_skew_on_unequal_executors_becomes_an_epoch():
    clock = Clock()
    desk = Desk(clock, clock)
    desk.take("uid", answer(2, clock.now), request())
    clock.now += 5
    told = desk.take("uid", answer(9, clock.now), request())
    assert told.judgement is not None
    assert (told.judgement.kind, told.judgement.number, told.judgement.generation) == ("reroute", 2, 4)
    assert told.judgement.stages == ("counts",)
    epoch = Epoch.from_json(gzip.decompress(told.judgement.packed).decode())
    table = epoch.routes["counts"].table
    assert table is not None
    shares = np.bincount(table.lookup(HASHES), minlength=2) / len(HASHES)
    assert shares[1] == pytest.approx(0.2, abs=0.05), "a quarter of the CPU, a fifth of the keys"


def test_nothing_is_judged_while_something_is_pending():
    clock = Clock()
    desk = Desk(clock, clock)
    desk.take("uid", answer(9, clock.now), request())
    clock.now += 5
    assert desk.take("uid", answer(9, clock.now), request(may_judge=False)).judgement is None
    assert desk.take("uid", answer(9, clock.now, newest_epoch=2), request()).judgement is None


def test_batches_of_another_checkpoint_are_taken_though_their_numbers_are_lower():
    clock = Clock()
    desk = Desk(clock, clock)
    desk.take("uid", answer(90, clock.now), request())
    desk.take("uid", answer(2, clock.now), request())
    clock.now += 5
    told = desk.take("uid", answer(9, clock.now), request())
    assert told.judgement is not None
    assert told.judgement.kind == "reroute"


def test_in_mode_off_the_last_judgement_is_no_longer_told_as_what_is():
    clock = Clock()
    desk = Desk(clock, clock)
    desk.take("uid", answer(2, clock.now), request())
    clock.now += 5
    judged = desk.take("uid", answer(9, clock.now), request()).judgement
    assert judged is not None
    assert judged.imbalance is not None
    clock.now += 5
    off = request(rebalance=Rebalance(mode="Off", interval_seconds=1.0))
    left = desk.take("uid", answer(12, clock.now), off).judgement
    assert left is not None
    assert (left.verdict, left.imbalance) == (None, None)


def test_mode_recommend_recommends():
    clock = Clock()
    desk = Desk(clock, clock)
    settings = request(rebalance=Rebalance(mode="Recommend", interval_seconds=1.0))
    desk.take("uid", answer(2, clock.now), settings)
    clock.now += 5
    judgement = desk.take("uid", answer(9, clock.now), settings).judgement
    assert judgement is not None
    assert judgement.kind == "recommend"


def test_busy_executors_ask_for_more_of_the_scaled_class_and_only_if_we_scale():
    clock = Clock()
    desk = Desk(clock, clock)
    scaled = Autoscale("large", by="Operator", replicas=1, min_replicas=1, max_replicas=8, target_utilisation=0.3)
    told = desk.take("uid", answer(9, clock.now), request(autoscale=scaled, scaled_to=1))
    assert told.scaling is not None
    assert told.scaling.replicas > 1
    assert "busy" in told.scaling.reason
    external = Autoscale("large", by="External", replicas=1)
    assert Desk(clock, clock).take("uid", answer(9, clock.now), request(autoscale=external, scaled_to=1)).scaling is None


def test_a_planning_process_that_dies_is_started_again():
    async def story() -> None:
        with PlanningProcess() as planner:
            assert isinstance(await planner.read(json.dumps(MANIFEST)), Topology)
            problems = await planner.read(json.dumps({**MANIFEST, "spec": {}}))
            assert isinstance(problems, tuple)
            assert any("spec.sources" in problem for problem in problems)
            await planner.take("uid", answer(3, 0.0), request())
            assert planner.seen("uid") == 3
            await planner.take("uid", answer(1, 0.0), request())
            assert planner.seen("uid") == 1, "another checkpoint"
            for process in list(planner._pool._processes.values()):
                os.kill(process.pid, signal.SIGKILL)
            await planner.take("other", answer(1, 0.0), request())
            assert planner.seen("uid") == -1, "it has forgotten, so it is told again"

    asyncio.run(asyncio.wait_for(story(), 200))
