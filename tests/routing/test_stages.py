"""The request of each stage to its planner, and the sharing of rows without a table."""

from __future__ import annotations

import numpy as np
import pytest

from streamtopology.contract.reasons import SOURCE
from streamtopology.routing import planners
from streamtopology.routing.control.decisions import PartCosts
from streamtopology.routing.control.slot_model import SlotModel
from streamtopology.routing.control.stages import ShareStage, TableStage
from streamtopology.routing.epochs.epoch import Route
from streamtopology.routing.load.bucket_rows import BucketRows
from streamtopology.routing.load.load_report import LoadReport
from streamtopology.routing.planners import Plan, PlanInput
from streamtopology.routing.planners.plan import DEFAULT_BETA
from streamtopology.routing.table.table import BUCKETS, RoutingTable

SLOTS = 4


def model(rates: list[float], fixed: list[float]) -> SlotModel:
    """Capacities (rows/s) and fixed seconds of the slots, the same at every stage."""
    stages = (SOURCE, "count")
    return SlotModel(
        np.array(rates),
        dict.fromkeys(stages, 1.0),
        {name: np.array(rates) for name in stages},
        {name: np.array(fixed) for name in stages},
    )


@pytest.mark.parametrize(("options", "beta"), [({}, DEFAULT_BETA), ({"beta": 0.5}, 0.5)])
def test_the_groupings_beta_reaches_the_planner(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, float], beta: float
) -> None:
    usual, asked = planners.get("mixed"), list[PlanInput]()

    def planner(given: PlanInput) -> Plan:
        asked.append(given)
        return usual(given)

    monkeypatch.setitem(planners.PLANNERS, "mixed", planner)
    instances = tuple(range(SLOTS))
    report = LoadReport("count", 0, 0, BUCKETS, 1.0, 1.0, bucket_rows=BucketRows.of(np.ones(BUCKETS, np.int64)))
    route = Route("mixed", RoutingTable.uniform(instances), instances, options)
    stage = TableStage("count", route, instances, [report], [report], 1, "mixed")
    stage.remedy(model([1e5] * SLOTS, [0.0] * SLOTS), 0.08, 10)
    assert [given.beta for given in asked] == [beta]


def test_source_rows_are_read_by_no_more_slots_than_pays() -> None:
    """The slow slot's fixed seconds are longer than the others take for all rows; an operator's instance waits anyway."""
    machines = model([1e5, 1e5, 1e5, 1e4], [0.1, 0.1, 0.1, 1.0])
    equal = np.full(SLOTS, 1 / SLOTS)
    reading = ShareStage(SOURCE, (0, 1, 2, 3), 30_000.0, equal).remedy(machines, 0.08, 0)
    assert reading.shares is not None
    assert reading.shares == pytest.approx((1 / 3, 1 / 3, 1 / 3, 0.0))
    # 7,500 rows take the slow slot 1.75 s; without it the others are done in 0.2 s
    assert reading.gain_seconds == pytest.approx(1.55)
    counting = ShareStage("count", (0, 1, 2, 3), 30_000.0, equal).remedy(machines, 0.08, 0)
    assert counting.gain_seconds == pytest.approx(0.75)


def test_hot_key_that_routers_split_counts_as_imbalance_and_is_planned() -> None:
    """Instances are level, as routers split the key of 60 % by themselves; its home, which is slow, holds up merging."""
    instances, rates = tuple(range(SLOTS)), [1e5, 1e5, 1e5, 0.3e5]
    table = RoutingTable.uniform([3])
    key, shares = np.array([7], np.uint64), np.array([1, 1, 1, 0.3]) / 3.3
    reports = [
        LoadReport(
            "count",
            instance,
            instance,
            int(200_000 * shares[instance]),
            *(0.6, 0.62),
            heavy_hashes=key,
            heavy_rows=np.array([int(120_000 * shares[instance])]),
            heavy_seconds=np.zeros(1),
            heavy_bytes=np.zeros(1, np.int64),
            heavy_labels=("",),
            bucket_rows=BucketRows.of(np.full(BUCKETS, int(80_000 * shares[instance] / BUCKETS))),
        )
        for instance in instances
    ]
    measured = SlotModel(
        np.array([1, 1, 1, 0.3]), {"count": 1e5}, {"count": np.array(rates)}, {"count": np.array([0.02, 0.02, 0.02, 0.067])}
    )
    route = Route("mixed", table, instances, {})
    stage = TableStage("count", route, instances, reports, reports, 1, "auto", 1, PartCosts(3e-6))
    asked = stage.plan_input(measured, 0.08, 3000)
    assert asked.splitting is not None
    assert asked.splitting.part_rows == pytest.approx(0.3)
    remedy = stage.remedy(measured, 0.08, 3000)
    assert stage.imbalance(measured) < 0.08
    assert remedy.imbalance > 1
    assert remedy.plans["count"].table.splits.hashes.tolist() == [7]
    without = TableStage("count", route, instances, reports, reports, 1, "auto")
    assert without.plan_input(measured, 0.08, 3000).splitting is None
    assert not len(without.remedy(measured, 0.08, 3000).plans["count"].table.splits)


def test_key_is_gone_only_if_all_instances_say_so() -> None:
    """Instance 1 had the key and is missing in the newest reports: it may have it still."""
    instances = (0, 1)
    table = RoutingTable.uniform(instances)

    def report(instance: int, key: int, rows: int) -> LoadReport:
        return LoadReport(
            "count",
            instance,
            instance,
            rows + BUCKETS,
            *(0.6, 0.62),
            heavy_hashes=np.array([key], np.uint64),
            heavy_rows=np.array([rows]),
            heavy_seconds=np.zeros(1),
            heavy_bytes=np.zeros(1, np.int64),
            heavy_labels=("",),
            bucket_rows=BucketRows.of(np.ones(BUCKETS, np.int64)),
        )

    before = [report(0, 1, 50), report(1, 2, 50_000)]
    machines = model([1e5, 1e5], [0.0, 0.0])
    for newest, keys in (([report(0, 1, 50), report(1, 3, 50)], [1, 3]), ([report(0, 1, 50)], [1, 2])):
        stage = TableStage(
            "count",
            Route("mixed", table, instances, {}),
            instances,
            [*before, *newest],
            newest,
            batches=2,
            planner="mixed",
            newest=newest,
        )
        assert stage.plan_input(machines, 0.08, 3000).key_hashes.tolist() == keys
