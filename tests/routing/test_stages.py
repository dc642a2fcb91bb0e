"""The request of each stage to its planner, and the sharing of rows without a table."""

from __future__ import annotations

import numpy as np
import pytest

from streamtopology.contract.reasons import SOURCE
from streamtopology.routing import planners
from streamtopology.routing.control.slot_model import SlotModel
from streamtopology.routing.control.stages import ShareStage, TableStage
from streamtopology.routing.epochs.epoch import Route
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
    report = LoadReport("count", 0, 0, BUCKETS, 1.0, 1.0, bucket_rows=np.ones(BUCKETS, np.int64))
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
