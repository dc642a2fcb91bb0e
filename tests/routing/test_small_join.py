"""One worker that owns most of a join is re-routed, however little of the cluster's time the join takes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.observed import BASE, SLOTS, Stream
from support.rerouted import Run

from streamtopology.routing.control.decisions import Reroute, TopologyFacts
from streamtopology.routing.epochs.epoch import Epoch, Route
from streamtopology.routing.load.load_report import LoadReport
from streamtopology.routing.table.table import BUCKETS, RoutingTable

# Of the rows, that reach the join.
LEAST_SHARE = 0.1


class JoinAtOne(Stream):
    """Alike slots and keys: `count` is balanced, and slot 2 owns nearly all keys of `top`, which gets few of the rows."""

    def first_epoch(self) -> Epoch:
        given = super().first_epoch()
        owners = np.full(BUCKETS, 2, np.int32)
        owners[: BUCKETS // 16] = np.arange(BUCKETS // 16) % SLOTS
        nobody = np.empty(0, np.int32)
        route = Route("auto", RoutingTable(np.empty(0, np.uint64), nobody, owners), tuple(range(SLOTS)))
        return replace(given, routes={"count": replace(given.routes["count"], policy="auto"), "top": route})

    def _reports(self, name: str, route: Route) -> list[LoadReport]:
        rows = self.rows
        self.rows = int(rows * LEAST_SHARE) if name == "top" else rows
        try:
            return super()._reports(name, route)
        finally:
            self.rows = rows


@pytest.mark.parametrize("seed", range(3))
def test_worker_that_owns_most_of_a_join_is_relieved_though_the_gain_is_small(seed: int) -> None:
    stream = JoinAtOne(seed, zipf=0.0, operators=("count", "top"), speeds=np.ones(SLOTS), source_rate=10 * BASE["source"])
    facts = TopologyFacts((1.0,) * SLOTS, dict.fromkeys(("count", "top"), "auto"))
    run = Run(stream, facts).go(60)
    first = run.reroutes[0][1]
    assert isinstance(first, Reroute)
    assert "top" in first.plans
    usual = float(np.median([batch.seconds for batch in run.controller._window.recent(1e9)]))
    assert first.predicted_gain_seconds < 0.15 * usual, "of the cluster's time"
    table = run.epoch.routes["top"].table
    assert table is not None
    assert np.bincount(table.lookup(stream.hashes), minlength=SLOTS).max() < 0.3 * len(stream.hashes)
    assert len(run.reroutes) <= 2
