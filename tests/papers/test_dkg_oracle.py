"""DKG, item for item what the paper's own listings give."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from papers.dkg import NOWHERE, Dkg, scheduling
from papers.instances import A_FEW, MANY, costs

from streamtopology.lab.groupings.dkg_learning import DkgLearning
from streamtopology.routing.planners import PlanInput, get
from streamtopology.routing.planners.dkg import DkgSettings, build, drift, schedule
from streamtopology.routing.table.table import RoutingTable, bucket_of

HOW_MANY = [pytest.param(A_FEW, id="few"), pytest.param(MANY, id="all", marks=pytest.mark.long)]


class Drawn:
    """A stream of items, in no order, and the paper's DKG that has learnt it."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.k, self.mu = int(rng.integers(2, 8)), int(rng.integers(1, 5))
        self.percent = int(rng.choice([2, 5, 10, 30]))
        self.counts = np.minimum(costs(rng, int(rng.integers(1, 60))), 2000)
        self.items = np.sort(rng.integers(0, 2**64, len(self.counts), dtype=np.uint64))
        self.stream = rng.permutation(np.repeat(self.items, self.counts))
        buckets = dict(zip(self.items.tolist(), bucket_of(self.items, self.k * self.mu).tolist(), strict=True))
        self.paper = Dkg(self.percent, self.k, self.mu, buckets.__getitem__)
        for item in self.stream.tolist():
            self.paper.learn(item)

    def learnt(self, eps: float) -> DkgLearning:
        learning = DkgLearning.of(eps, self.k * self.mu)
        for part in np.array_split(self.stream, 3):
            learning.learn(part, np.ones(len(part), np.int64))
        return learning

    @property
    def settings(self) -> DkgSettings:
        return DkgSettings(theta=self.percent / 100, mu=self.mu)


def places(table: RoutingTable, items: np.ndarray) -> dict[int, int]:
    return dict(zip(items.tolist(), table.lookup(items).tolist(), strict=True))


def expected(paper: Dkg, items: np.ndarray) -> dict[int, int]:
    return {item: paper.instance(item) for item in items.tolist()}


@pytest.mark.parametrize("how_many", HOW_MANY)
def test_build_places_every_item_as_the_listings(how_many: int):
    for seed in range(how_many):
        drawn = Drawn(seed)
        drawn.paper.build()
        learning = drawn.learnt(1 / len(drawn.items))  # a counter for every item
        table = build(learning.plan_input(drawn.k, drawn.settings)).table
        assert table.entry_hashes.tolist() == sorted(drawn.paper.hh), f"seed {seed}"
        assert places(table, drawn.items) == expected(drawn.paper, drawn.items), f"seed {seed}"


@pytest.mark.parametrize("how_many", HOW_MANY)
def test_build_from_a_small_sketch_is_the_listings_with_what_space_saving_found(how_many: int):
    for seed in range(how_many):
        drawn = Drawn(seed)
        learning, m = drawn.learnt(drawn.settings.precision), len(drawn.stream)
        found = dict(zip(*(column.tolist() for column in learning.heavy_hitters(drawn.settings.theta)), strict=True))
        assert drawn.paper.query().keys() <= found.keys(), f"seed {seed}"
        for item, estimate in found.items():
            assert 0 <= estimate - drawn.paper.counts[item] <= drawn.settings.precision * m, f"seed {seed}"
        drawn.paper.build(found)
        table = build(learning.plan_input(drawn.k, drawn.settings)).table
        known = np.array([item for item in drawn.items.tolist() if drawn.paper.instance(item) != NOWHERE], np.uint64)
        assert places(table, known) == expected(drawn.paper, known), f"seed {seed}"


@pytest.mark.parametrize("how_many", HOW_MANY)
def test_planner_on_a_finer_table_places_every_item_as_the_listings(how_many: int):
    """As on Spark: a bucket of the paper is four of the table's, dealt in turn so far."""
    learnt = 0
    for seed in range(how_many):
        drawn = Drawn(seed)
        drawn.paper.build()
        given = PlanInput(
            current=RoutingTable.uniform(range(drawn.k), 4 * drawn.k * drawn.mu),
            instances=tuple(range(drawn.k)),
            capacities=np.ones(drawn.k),
            fixed_seconds=np.zeros(drawn.k),
            key_hashes=drawn.items,
            key_loads=drawn.counts.astype(np.float64),
            key_state=np.zeros(len(drawn.items)),
            options={"theta": drawn.settings.theta, "mu": drawn.mu},
        )
        if drift(given):
            learnt += 1
            assert places(get("dkg")(given).table, drawn.items) == expected(drawn.paper, drawn.items), f"seed {seed}"
    assert learnt > how_many / 2


@pytest.mark.parametrize("how_many", HOW_MANY)
def test_the_schedule_is_the_papers_and_within_grahams_bound(how_many: int):
    for seed in range(how_many):
        rng = np.random.default_rng(seed)
        loads, k = np.array(costs(rng, 40)) * (rng.random(40) < 0.9), int(rng.integers(1, 9))
        owner = schedule(loads.astype(np.float64), np.ones(k), np.zeros(k))
        assert owner.tolist() == scheduling(loads.tolist(), k), f"seed {seed}"
        totals = Counter[int]()
        for instance, load in zip(owner.tolist(), loads.tolist(), strict=True):
            totals[instance] += load
        mean, heaviest = loads.sum() / k, loads.max()
        assert max(totals.values()) <= max(mean, heaviest, mean + (1 - 1 / k) * heaviest) + 1e-9
