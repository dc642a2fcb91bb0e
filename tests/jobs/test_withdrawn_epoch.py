"""An epoch that the operator takes back before its state was copied is given up, and the next plan finds a free number."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pyarrow as pa
from support.config_maps import config_map
from support.reasons import BY_TEST
from support.stages import Flow, manifest

from streamtopology.jobs.checkpoint import Checkpoint
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.jobs.pods.configmap_follower import Follower
from streamtopology.jobs.pods.routing_configmap import PlannedEpoch, RoutingMap
from streamtopology.jobs.rerouting.precopy import Precopy
from streamtopology.jobs.rerouting.router import InProcessRouter
from streamtopology.jobs.runtime.topology_run import TopologyRun, new_history
from streamtopology.routing.control.controller import Controller
from streamtopology.routing.epochs.epoch import Epoch
from streamtopology.routing.table.table import RoutingTable


class Operated:
    """A flow whose epochs come from a ConfigMap, as on Kubernetes."""

    def __init__(self, folder: Path) -> None:
        operator = {"name": "n", "inputs": ["s"], "grouping": {"policy": "mixed", "key": "k"}, "run": "count"}
        self.now = 0.0
        self.reported: list[str] = []
        self.flow = Flow(folder, manifest([operator], {"s": "k BIGINT, v BIGINT"}), router=self._router)
        self.batch()
        run = SimpleNamespace(router=self.router, checkpoint=self.flow.checkpoint, notify=self.reported.append)
        self.topology = self.router.topology
        self.follower = Follower(cast("TopologyRun", run), "flow-routing", RoutingMap(self.topology, 1, None))

    def _router(self, plan: ExecutionPlan, checkpoint: Checkpoint) -> InProcessRouter:
        precopy = Precopy(checkpoint, None, self.reported.append, lambda: self.now)
        controller = Controller(plan.topology.rebalance, lambda: self.now)
        history = new_history(plan.topology)
        return InProcessRouter(plan, checkpoint, controller, history, dict, lambda: self.now, False, precopy)

    @property
    def router(self) -> InProcessRouter:
        assert isinstance(self.flow.router, InProcessRouter)
        return self.flow.router

    def batch(self) -> int:
        """The epoch that a batch of 1,000 keys runs under."""
        return self.flow.batch(s=pa.table({"k": list(range(1_000)), "v": [0] * 1_000})).epoch

    def proposal(self, every: int) -> Epoch:
        """A plan by /stats, as the operator makes it: every `every`th bucket goes to the next instance."""
        known = self.router.ready().epoch
        table = known.routes["n"].table
        assert table is not None
        buckets = table.buckets.copy()
        buckets[::every] = (buckets[::every] + 1) % 4
        other = RoutingTable(np.empty(0, np.uint64), np.empty(0, np.int32), buckets)
        return Epoch(known.number + 1, {"n": replace(known.routes["n"], table=other)}, known.source_shares, BY_TEST)

    def write(self, epoch: Epoch | None, state: str = "prepared") -> None:
        """The operator writes the ConfigMap, and the driver gets it."""
        planned = None if epoch is None else PlannedEpoch(epoch, 1, "ready" if state == "ready" else "prepared")
        self.follower.take(config_map(RoutingMap(self.topology, 1, planned)))


def test_withdrawn_epoch_never_runs_and_holds_no_files(tmp_path: Path) -> None:
    operated = Operated(tmp_path)
    before = operated.router.ready().epoch
    withdrawn = operated.proposal(every=4)
    operated.write(withdrawn)
    assert operated.batch() == before.number
    assert operated.flow.checkpoint.precopies.leases() != []
    operated.write(None)
    assert operated.flow.checkpoint.precopies.leases() == []
    for _ in range(3):
        operated.now += 1000.0
        operated.batch()
    assert operated.router.epoch.routes == before.routes
    assert any(f"epoch {withdrawn.number} was withdrawn" in text for text in operated.reported)
    assert {row["k"]: row["count"] for row in operated.flow.state("n")} == dict.fromkeys(range(1_000), 5)


def test_plan_after_a_withdrawn_one_is_taken(tmp_path: Path) -> None:
    operated = Operated(tmp_path)
    operated.write(operated.proposal(every=4))
    operated.batch()
    operated.write(None)
    operated.batch()
    again = operated.proposal(every=3)
    operated.write(again, "ready")
    assert operated.follower.refused is None
    assert operated.batch() == again.number


def test_configmap_without_an_epoch_changes_nothing_where_none_is_prepared(tmp_path: Path) -> None:
    operated = Operated(tmp_path)
    epoch = operated.proposal(every=4)
    operated.write(epoch, "ready")
    assert operated.batch() == epoch.number
    operated.write(None)
    assert operated.batch() == epoch.number
    assert operated.reported == []
