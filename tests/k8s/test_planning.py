"""Planning outside of the event loop: a judge, and a process that may die."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import signal
import time
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from support.reasons import BY_TEST
from support.wire_stats import whole

from streamtopology.contract.reasons import BindingKind, EpochReason, ScalingReason
from streamtopology.k8s.decide.answers import Judged, Judgement, PlanningRequest, Scaling
from streamtopology.k8s.decide.observation import read_topology
from streamtopology.k8s.planning.judge import Judge
from streamtopology.k8s.planning.process import PlannerDied, PlanningProcess, _Worker
from streamtopology.routing.control.assessment import Assessment
from streamtopology.routing.epochs.epoch import Epoch, Route
from streamtopology.routing.load.bucket_rows import BucketRows
from streamtopology.routing.load.load_report import LoadReport
from streamtopology.routing.table.table import BUCKETS, RoutingTable
from streamtopology.topology import Autoscale, ExecutorClass, Rebalance, ScaledClass, Topology, parse

CPU = (1.0, 0.25)
HASHES = np.sort(np.random.default_rng(3).integers(0, 2**64, 500, dtype=np.uint64))
MANIFEST = {
    "apiVersion": "streamtopology.dev/v1alpha1", "kind": "StreamTopology", "metadata": {"name": "flow"},
    "spec": {
        "sources": [{"name": "rows", "format": "parquet", "schema": "key BIGINT", "options": {"path": "/data"}}],
        "operators": [{"name": "counts", "inputs": ["rows"], "grouping": {"policy": "mixed", "key": "key"}, "run": "count"}],
        "executors": [{"name": "large"}], "checkpoint": "/c",
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


def large(count: int) -> tuple[ExecutorClass, ...]:
    """As many executors as were decided on last."""
    return (ExecutorClass("large", count),)


def report(instance: int, owners: np.ndarray, hot: int) -> LoadReport:
    mine = np.where(owners == instance, 20, 0)
    known = 1 if hot and owners[0] == instance else 0
    mine[:known] = 0
    rows = int(mine.sum()) + known * hot
    busy = rows / (2000 * CPU[instance])
    return LoadReport(
        "counts",
        instance,
        instance,
        rows,
        busy,
        busy + 0.01,
        heavy_hashes=HASHES[:known],
        heavy_rows=np.full(known, hot),
        heavy_seconds=np.zeros(known),
        heavy_bytes=np.zeros(known, np.int64),
        heavy_labels=("hot",) * known,
        bucket_rows=BucketRows.of_keys(HASHES, mine, BUCKETS),
    )


def answer(batch: int, at: float, hot: int = 0, **changed: Any) -> bytes:
    """A driver with two executors of which one has a quarter of the CPU, under plain hashing. `hot`: rows of one key."""
    table = RoutingTable.uniform(range(2))
    epoch = Epoch(1, {"counts": Route("mixed", table, (0, 1))}, (), BY_TEST)
    reports = [report(instance, table.lookup(HASHES), hot) for instance in range(2)]
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
        "topology": "flow", "phase": "running", "generation": 4, "epoch": 1, "newest_epoch": 1, "batch": batch,
        "rows_per_second": 1.0, "bound_rows_per_second": None, "policies": {}, "routing": epoch.to_wire(), "checkpoint": "/c",
        "answered_at": at,
        "slots": [{"index": n, "executor": f"{name}-0", "class": name, "cpu": CPU[n]} for n, name in enumerate(classes)],
        "last_batch": batches[-1], "batches": batches, "reconfigurations": [], "refused": None, "executors": [], **changed,
    }  # fmt: skip
    return json.dumps(whole(stats)).encode()


def test_skew_on_unequal_executors_becomes_an_epoch():
    clock = Clock()
    judge = Judge(clock)
    judge.judge("uid", answer(2, clock.now), request())
    clock.now += 5
    reported = judge.judge("uid", answer(9, clock.now), request())
    assert reported.judgement is not None
    assert (reported.judgement.kind, reported.judgement.number, reported.judgement.generation) == ("reroute", 2, 4)
    assert reported.judgement.stages == ("counts",)
    epoch = Epoch.from_json(gzip.decompress(reported.judgement.packed).decode())
    table = epoch.routes["counts"].table
    assert table is not None
    shares = np.bincount(table.lookup(HASHES), minlength=2) / len(HASHES)
    assert shares[1] == pytest.approx(0.2, abs=0.05), "a quarter of the CPU, a fifth of the keys"


def test_an_epoch_says_whether_the_key_that_bounds_it_could_be_split():
    clock = Clock()
    judge = Judge(clock)
    asked = request(operators=parse(MANIFEST).operators, rebalance=Rebalance(interval_seconds=4.0))
    judge.judge("uid", answer(2, clock.now, hot=100_000), asked)
    clock.now += 5
    judgement = judge.judge("uid", answer(9, clock.now, hot=100_000), asked).judgement
    assert judgement is not None
    assert isinstance(judgement.reason, EpochReason)
    assert judgement.reason.weighed is not None
    binding = judgement.reason.weighed.binding
    assert binding is not None
    assert (binding.kind, binding.key, binding.combinable) == (BindingKind.KEY, f"{int(HASHES[0]):016x}", True)


def test_nothing_is_judged_while_something_is_pending():
    clock = Clock()
    judge = Judge(clock)
    judge.judge("uid", answer(9, clock.now), request())
    clock.now += 5
    assert judge.judge("uid", answer(9, clock.now), request(may_judge=False)).judgement is None
    assert judge.judge("uid", answer(9, clock.now, newest_epoch=2), request()).judgement is None


def test_batches_of_another_checkpoint_are_taken_though_their_numbers_are_lower():
    clock = Clock()
    judge = Judge(clock)
    judge.judge("uid", answer(90, clock.now), request())
    judge.judge("uid", answer(2, clock.now), request())
    clock.now += 5
    reported = judge.judge("uid", answer(9, clock.now), request())
    assert reported.judgement is not None
    assert reported.judgement.kind == "reroute"


def test_in_mode_off_the_last_judgement_is_no_longer_reported_as_what_is():
    clock = Clock()
    judge = Judge(clock)
    judge.judge("uid", answer(2, clock.now), request())
    clock.now += 5
    judged = judge.judge("uid", answer(9, clock.now), request()).judgement
    assert judged is not None
    assert judged.imbalance is not None
    clock.now += 5
    off = request(rebalance=Rebalance(mode="Off", interval_seconds=1.0))
    left = judge.judge("uid", answer(12, clock.now), off).judgement
    assert left is not None
    assert (left.verdict, left.imbalance) == (None, None)


def test_mode_recommend_recommends():
    clock = Clock()
    judge = Judge(clock)
    settings = request(rebalance=Rebalance(mode="Recommend", interval_seconds=1.0))
    judge.judge("uid", answer(2, clock.now), settings)
    clock.now += 5
    judgement = judge.judge("uid", answer(9, clock.now), settings).judgement
    assert judgement is not None
    assert judgement.kind == "recommend"


def test_busy_executors_ask_for_more_of_the_scaled_class_and_only_if_we_scale():
    clock = Clock()
    judge = Judge(clock)
    scaled = Autoscale("large", by="Operator", replicas=1, min_replicas=1, max_replicas=8, target_utilisation=0.3)
    reported = judge.judge("uid", answer(9, clock.now), request(autoscale=scaled, executors=large(1)))
    assert reported.scaling is not None
    assert reported.scaling.replicas["large"] > 1
    assert reported.scaling.reason.reason is ScalingReason.LOAD
    external = Autoscale("large", by="External", replicas=1)
    assert Judge(clock).judge("uid", answer(9, clock.now), request(autoscale=external, executors=large(1))).scaling is None


SCALED = Autoscale("large", by="Operator", replicas=3, min_replicas=0, max_replicas=8, stabilisation_seconds=0.0)


def test_an_idle_stream_needs_no_executors_and_a_long_batch_keeps_them():
    clock = Clock()
    judge = Judge(clock)
    judge.judge("uid", answer(9, clock.now), request(autoscale=SCALED, executors=large(3)))
    clock.now += 1000

    def scaling(**stats: Any) -> Scaling | None:
        given = request(autoscale=SCALED, executors=large(3))
        return judge.judge("uid", answer(9, clock.now - 1000, answered_at=clock.now, **stats), given).scaling

    assert scaling(idle_seconds=None) is None, "no batch has ended for long, but one runs"
    assert scaling(idle_seconds=900.0, lag_rows=5) is None, "rows wait for the trigger"
    idle = scaling(idle_seconds=900.0, lag_rows=0)
    assert idle is not None
    assert idle.replicas == {"large": 0}


@pytest.mark.parametrize("skew", [-1e9, -3600.0, -45.0, -0.5, 0.5, 45.0, 3600.0])
def test_another_time_of_day_at_the_driver_changes_no_number_of_executors(skew: float):
    """45 seconds of skew made an executor that was busy a third of the time look busy all of it."""

    def wanted(ahead: float) -> int:
        clock = Clock()
        judge = Judge(clock)
        for batch, target in enumerate((0.5, 0.5, 0.5)):
            given = request(autoscale=replace(SCALED, target_utilisation=target), executors=large(2))
            clock.now += 20
            judged = judge.judge("uid", answer(batch, clock.now - 10 + ahead, answered_at=clock.now + ahead), given)
        assert judged.scaling is not None
        return judged.scaling.replicas["large"]

    assert wanted(skew) == wanted(0.0)


def test_lag_beyond_one_batch_asks_for_more():
    def wanted(lag_rows: int | None) -> int:
        clock = Clock()
        rate = {"rows_per_second": 1000.0, "lag_rows": lag_rows}
        judged = Judge(clock).judge("uid", answer(9, clock.now, **rate), request(autoscale=SCALED, executors=large(1)))
        assert judged.scaling is not None
        return judged.scaling.replicas["large"]

    assert wanted(10_000) == wanted(None), "as many rows as a batch has"
    assert wanted(400_000) > wanted(None)


def test_history_of_a_class_does_not_hold_another_up() -> None:
    clock = Clock()
    judge = Judge(clock)
    busy = replace(SCALED, target_utilisation=0.1, stabilisation_seconds=600.0)

    def wanted(scaled: Autoscale, idle: float | None) -> dict[str, int]:
        clock.now += 20
        at = clock.now - (0 if idle is None else 1000)
        judged = judge.judge("uid", answer(9, at, idle_seconds=idle, lag_rows=0), request(autoscale=scaled, executors=large(3)))
        assert judged.scaling is not None
        return dict(judged.scaling.replicas)

    assert wanted(busy, None)["large"] > 3
    clock.now += 400
    assert wanted(busy, 400.0)["large"] > 0, "what was needed in the last ten minutes is kept"
    assert wanted(replace(busy, executor_class="small"), 420.0) == {"small": 0}


def test_a_class_without_executors_is_added_by_its_cpu_where_others_are_busy():
    clock = Clock()
    slots = [{"index": n, "executor": f"small-{n}", "class": "small", "cpu": cpu} for n, cpu in enumerate(CPU)]
    busy = replace(SCALED, target_utilisation=0.2)
    judged = Judge(clock).judge("uid", answer(9, clock.now, slots=slots), request(autoscale=busy, executors=large(0)))
    assert judged.scaling is not None
    assert judged.scaling.replicas["large"] > 0


def test_busy_executors_ask_for_more_of_the_class_that_brings_most_for_its_price():
    """One small executor brings a quarter of a large one, for a tenth of its price."""
    scaled = (ScaledClass("large", 1, 8), ScaledClass("small", 0, 8), ScaledClass("spot", 0, 8))
    several = Autoscale("", "Operator", classes=scaled, target_utilisation=0.3)
    clock = Clock()

    def wanted(*prices: float | None) -> Scaling:
        executors = tuple(
            ExecutorClass(name, count, cpu, cost_per_hour=price)
            for (name, count, cpu), price in zip([("large", 1, 1.0), ("small", 1, 0.25), ("spot", 0, 0.5)], prices, strict=True)
        )
        given = request(autoscale=several, executors=executors)
        scaling = Judge(clock).judge("uid", answer(9, clock.now), given).scaling
        assert scaling is not None
        return scaling

    bought = wanted(1.0, 0.1, 0.4)
    assert bought.replicas["small"] > 1
    assert (bought.replicas["large"], bought.replicas["spot"]) == (1, 0)
    assert bought.reason.choice is not None
    assert (bought.reason.choice.name, bought.reason.choice.other, bought.reason.choice.priced) == ("small", "spot", True)
    spot = wanted(1.0, 0.5, 0.1)
    assert (spot.replicas["large"], spot.replicas["small"]) == (1, 1), "no spot executor runs: it counts by its CPU"
    assert spot.replicas["spot"] > 0
    unpriced = wanted(1.0, None, 0.1)
    assert unpriced.reason.choice is not None
    assert not unpriced.reason.choice.priced


def test_manifest_is_read_or_its_problems_are_listed():
    assert isinstance(read_topology(json.dumps(MANIFEST)), Topology)
    problems = read_topology(json.dumps({**MANIFEST, "spec": {}}))
    assert isinstance(problems, tuple)
    assert any("spec.sources" in problem for problem in problems)


def test_manifest_without_a_checkpoint_is_none_for_pods():
    spec = {name: value for name, value in MANIFEST["spec"].items() if name != "checkpoint"}  # type: ignore[attr-defined]
    [problem] = cast("tuple[str]", read_topology(json.dumps({**MANIFEST, "spec": spec})))
    assert problem.startswith("spec.checkpoint: a pod's own storage is lost with it: name storage that")


def test_a_planning_process_that_dies_is_started_again():
    async def story() -> None:
        with PlanningProcess() as planner:
            await planner.judge("uid", answer(3, 0.0), request())
            assert planner.known("uid").since == 3
            await planner.judge("uid", answer(1, 0.0), request())
            assert planner.known("uid").since == 1, "another checkpoint"
            for process in list(planner._reader._pool._processes.values()):
                os.kill(process.pid, signal.SIGKILL)
            await planner.judge("other", answer(1, 0.0), request())
            assert planner.known("uid").since == -1, "it has forgotten, so it gets them again"

    asyncio.run(asyncio.wait_for(story(), 200))


def test_a_plan_that_takes_too_long_is_ended_and_nothing_else_waits_for_it():
    async def story() -> None:
        with PlanningProcess(plan_seconds=1e-9) as planner:
            with pytest.raises(PlannerDied, match="took longer"):
                await planner.judge("skewed", answer(9, 0.0), request(rebalance=Rebalance(interval_seconds=1e-3)))
            read = await planner.judge("other", answer(9, 0.0), request(rebalance=Rebalance(interval_seconds=1e6)))
            assert read.judgement is not None, "the reader has not ended"
            with pytest.raises(PlannerDied, match="no answer is read for 60 s"):
                await planner.judge("skewed", answer(12, 0.0), request())
            await planner.forget("skewed")
            assert (await planner.judge("skewed", answer(12, 0.0), request())).stats.batch == 12

    asyncio.run(asyncio.wait_for(story(), 200))


def test_a_topology_is_forgotten_also_by_a_reader_that_takes_too_long():
    async def story() -> None:
        with PlanningProcess(read_seconds=1e-9) as planner:
            await planner.forget("gone")
            assert planner._reader.lives == 2, "the reader was ended"

    asyncio.run(asyncio.wait_for(story(), 200))


def test_a_call_whose_caller_is_gone_is_not_the_next_ones_time():
    """As of a driver that restarts while its plan is made."""

    async def story() -> None:
        worker = _Worker("planner", 60.0)
        try:
            await worker.call(len, "warm")
            left = asyncio.create_task(worker.call(time.sleep, 0.5))
            await asyncio.sleep(0)
            left.cancel()
            await asyncio.gather(left, return_exceptions=True)
            assert worker.waiting == 1, "so the other planner is chosen"
            await worker.call(len, "next")
            assert worker.waiting == 0
        finally:
            worker.close()

    asyncio.run(asyncio.wait_for(story(), 200))


def test_a_plan_is_made_apart_from_the_reader_and_is_that_of_one_process():
    async def story() -> Judgement:
        with PlanningProcess() as planner:
            while True:
                judged = await planner.judge("uid", answer(9, 0.0), request())
                if judged.judgement is not None and judged.judgement.kind == "reroute":
                    return judged.judgement
                await asyncio.sleep(0.05)

    apart = asyncio.run(asyncio.wait_for(story(), 200))
    clock = Clock()
    judge = Judge(clock)
    judge.judge("uid", answer(9, clock.now), request())
    clock.now += 5
    beside = judge.judge("uid", answer(9, clock.now), request()).judgement
    assert beside is not None
    assert gzip.decompress(apart.packed) == gzip.decompress(beside.packed)


def test_tables_that_make_an_epoch_too_large_are_planned_again_with_fewer_entries():
    clock = Clock()
    judge = Judge(clock)
    judge.judge("uid", answer(2, clock.now), request())
    clock.now += 5
    due = judge.read("uid", answer(9, clock.now), request())
    assert isinstance(due, Assessment)
    remedy = due.remedies()["counts"]
    hashes = np.unique(np.random.default_rng(1).integers(0, 2**64, 150_000, dtype=np.uint64))
    table = RoutingTable(hashes, np.ones(len(hashes), np.int32), remedy.plans["counts"].table.buckets)
    large = replace(remedy, plans={"counts": replace(remedy.plans["counts"], table=table)})
    smaller = judge.conclude("uid", {"counts": large})
    assert isinstance(smaller, Assessment)
    assert smaller.max_entries == due.max_entries // 2
    judged = judge.conclude("uid", smaller.remedies())
    assert isinstance(judged, Judged)
    assert judged.judgement is not None
    assert judged.judgement.kind == "reroute"
