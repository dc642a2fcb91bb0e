"""Every batch of a split operator is divided by the capacities in force, whatever former batches and epochs were given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.reasons import BY_TEST
from support.stages import SLOTS, Flow, manifest

from streamtopology.contract.reasons import PARTIAL
from streamtopology.jobs.checkpoint import Checkpoint
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.jobs.rerouting.port import CommittedAttempt
from streamtopology.jobs.rerouting.router import InProcessRouter
from streamtopology.jobs.runtime.topology_run import new_history
from streamtopology.routing.control.controller import Controller
from streamtopology.routing.epochs.epoch import Epoch
from streamtopology.topology import parse

NODE = f"n{PARTIAL}"
ROWS = 6_000
EQUAL = (0.25, 0.25, 0.25, 0.25)


class Listening(InProcessRouter):
    """Keeps the batch it heard of last."""

    def committed(self, done: CommittedAttempt) -> None:
        self.heard = done
        super().committed(done)


def router(plan: ExecutionPlan, checkpoint: Checkpoint) -> Listening:
    controller = Controller(plan.topology.rebalance, lambda: 0.0)
    return Listening(plan, checkpoint, controller, new_history(plan.topology), dict, lambda: 0.0)


def given(policy: str, mode: str = "Off", **options: object) -> dict[str, Any]:
    grouping = {"policy": policy, "key": "k"} | ({"options": options} if options else {})
    return manifest(
        [{"name": "n", "inputs": ["s"], "grouping": grouping, "run": "count"}], {"s": "k BIGINT"}, rebalance={"mode": mode}
    )


def skewed() -> pa.Table:
    """A stream in which no key is too frequent for the two instances that it may go to."""
    return pa.table({"k": np.random.default_rng(3).integers(0, 30, ROWS) ** 2})


def of_one_key() -> pa.Table:
    return pa.table({"k": np.full(ROWS, 7)})


def listening(flow: Flow) -> Listening:
    assert isinstance(flow.router, Listening)
    return flow.router


def shares_of_a_batch(flow: Flow, rows: pa.Table) -> np.ndarray:
    """Run one batch; the part of its rows that each instance got, float64[SLOTS]."""
    flow.batch(s=rows)
    got = np.zeros(SLOTS)
    for result in listening(flow).heard.results.instances:
        if result.report.operator == NODE:
            got[result.report.instance] += result.report.rows
    assert got.sum() == rows.num_rows
    return got / got.sum()


def weigh(flow: Flow, capacities: tuple[float, ...]) -> None:
    """Publish an epoch with these capacities, as the controller does."""
    epoch = listening(flow).newest().epoch
    route = epoch.routes[NODE]
    routes = {**epoch.routes, NODE: replace(route, options={**route.options, "capacities": list(capacities)})}
    listening(flow).publish(Epoch(epoch.number + 1, routes, epoch.source_shares, BY_TEST, epoch.placement))


def capacities_in_force(flow: Flow) -> object:
    return listening(flow).ready().epoch.routes[NODE].options.get("capacities")


@pytest.mark.parametrize("policy", ["partial-key", "d-choices", "w-choices", "porc", "bounded-hash"])
def test_every_batch_follows_the_capacities_through_new_epochs_and_restarts(tmp_path: Path, policy: str) -> None:
    flow = Flow(tmp_path, given("mixed"), router=router)
    flow.batch(s=skewed())
    listening(flow).apply(parse(given(policy)), ["the test says so"])
    for _ in range(10):
        assert shares_of_a_batch(flow, skewed()) == pytest.approx(EQUAL, abs=0.03)
    for capacities in [(0.3, 0.3, 0.25, 0.15), (0.2, 0.3, 0.35, 0.15)]:
        weigh(flow, capacities)
        for _ in range(3):
            assert shares_of_a_batch(flow, skewed()) == pytest.approx(capacities, abs=0.03)
        flow.start(given(policy))
        assert shares_of_a_batch(flow, skewed()) == pytest.approx(capacities, abs=0.03)


@pytest.mark.parametrize("policy", ["partial-key", "d-choices", "w-choices"])
def test_instances_that_a_frequent_key_passed_by_are_not_owed_its_rows(tmp_path: Path, policy: str) -> None:
    flow = Flow(tmp_path, given(policy), router=router)
    for _ in range(5):
        flow.batch(s=of_one_key())
    for _ in range(3):
        assert shares_of_a_batch(flow, skewed()) == pytest.approx(EQUAL, abs=0.03)


def test_an_edit_of_something_else_keeps_measured_capacities(tmp_path: Path) -> None:
    flow = Flow(tmp_path, given("partial-key"), router=router)
    flow.batch(s=skewed())
    weigh(flow, (0.3, 0.3, 0.25, 0.15))
    flow.batch(s=skewed())
    listening(flow).apply(parse(given("partial-key", mode="Recommend")), ["the test says so"])
    assert capacities_in_force(flow) == [0.3, 0.3, 0.25, 0.15]
    flow.batch(s=skewed())
    flow.start(given("partial-key", mode="Auto"))
    assert capacities_in_force(flow) == [0.3, 0.3, 0.25, 0.15]


def test_capacities_of_the_manifest_come_and_go_with_it(tmp_path: Path) -> None:
    flow = Flow(tmp_path, given("partial-key"), router=router)
    flow.batch(s=skewed())
    weigh(flow, (0.3, 0.3, 0.25, 0.15))
    flow.batch(s=skewed())
    listening(flow).apply(parse(given("partial-key", capacities=[1, 1, 1, 2])), ["the test says so"])
    assert capacities_in_force(flow) == [1, 1, 1, 2]
    flow.batch(s=skewed())
    listening(flow).apply(parse(given("partial-key")), ["the test says so"])
    assert capacities_in_force(flow) is None
