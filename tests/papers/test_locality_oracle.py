"""Locality-aware planners, key for key what the paper's own text gives."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from papers.instances import A_FEW, MANY, costs
from papers.locality import Pairs, Vertex, stays, together

from streamtopology.routing.load.load_report import KeyPairs
from streamtopology.routing.planners import JointPlan, JointPlanInput, PlanInput, get_joint
from streamtopology.routing.table.table import RoutingTable

HOW_MANY = [pytest.param(A_FEW, id="few"), pytest.param(MANY, id="all", marks=pytest.mark.long)]

OPERATORS = ("X", "Y")


class Drawn:
    """Pairs of a correlated stream, the keys' state and where they are, by hash or, `running`, by an earlier table."""

    def __init__(self, seed: int, running: bool) -> None:
        rng = np.random.default_rng(seed)
        n, size = int(rng.integers(1, 6)), int(rng.integers(2, 80))
        keys = rng.integers(0, 2**64, (2, int(rng.integers(2, 40))), dtype=np.uint64).tolist()
        ranks = rng.integers(len(keys[0]), size=size)
        others = np.where(rng.random(size) < rng.choice([0.2, 0.8]), ranks, rng.integers(len(keys[0]), size=size))
        self.pairs = Pairs({(keys[0][x], keys[1][y]): c for x, y, c in zip(ranks, others, costs(rng, size), strict=True)}, n)
        self.state: dict[Vertex, int] = {vertex: int(rng.integers(1, 2**40)) for vertex in self.pairs.vertices()}
        self.tables = {name: RoutingTable.uniform(range(n), 64) for name in OPERATORS}
        if running:
            for name in OPERATORS:
                hashes = self.hashes(name)
                self.tables[name] = self.tables[name].with_entries(hashes, rng.integers(0, n, len(hashes)).astype(np.int32))
        self.at = self.places(self.tables)

    def hashes(self, name: str) -> np.ndarray:
        return np.array(sorted(key for operator, key in self.pairs.vertices() if operator == name), np.uint64)

    def places(self, tables: Mapping[str, RoutingTable]) -> dict[Vertex, int]:
        return {
            (name, key): int(server)
            for name in OPERATORS
            for key, server in zip(self.hashes(name).tolist(), tables[name].lookup(self.hashes(name)), strict=True)
        }

    def given(self) -> JointPlanInput:
        ends = np.array(list(self.pairs.counts), np.uint64)
        counts = np.array(list(self.pairs.counts.values()), np.int64)
        counted = KeyPairs.summed(ends[:, 0], ends[:, 1], counts, int(counts.sum()), None)
        return JointPlanInput({name: self.operator(name) for name in OPERATORS}, {("X", "Y"): counted})

    def operator(self, name: str) -> PlanInput:
        hashes, frequency = self.hashes(name), self.pairs.frequency()
        return PlanInput(
            current=self.tables[name],
            instances=tuple(range(self.pairs.n)),
            capacities=np.ones(self.pairs.n),
            fixed_seconds=np.zeros(self.pairs.n),
            key_hashes=hashes,
            key_loads=np.array([frequency[name, key] for key in hashes.tolist()], np.float64),
            key_state=np.array([self.state[name, key] for key in hashes.tolist()], np.float64),
            max_entries=10**9,
        )

    def is_placed_as_the_paper(self, found: dict[Vertex, int]) -> bool:
        """The same keys are together, and as much state stays: the same servers but where two are as good for it."""
        paper = self.pairs.placed(self.at, self.state)
        kept = [stays(placed, self.at, self.state) for placed in (found, paper)]
        return together(found) == together(paper) and kept[0] == kept[1]

    def planned(self, plan: JointPlan) -> dict[Vertex, int]:
        return self.places({name: plan.plans[name].table for name in OPERATORS})


@pytest.mark.parametrize("how_many", HOW_MANY)
@pytest.mark.parametrize("running", [False, True])
def test_online_places_every_key_as_the_paper(running: bool, how_many: int):
    for seed in range(how_many):
        drawn = Drawn(seed, running)
        assert drawn.is_placed_as_the_paper(drawn.planned(get_joint("locality")(drawn.given()))), f"seed {seed}"


@pytest.mark.parametrize("how_many", HOW_MANY)
def test_offline_places_every_key_as_the_paper_once(how_many: int):
    for seed in range(how_many):
        fresh, running = Drawn(seed, running=False), Drawn(seed, running=True)
        assert fresh.is_placed_as_the_paper(fresh.planned(get_joint("locality-offline")(fresh.given()))), f"seed {seed}"
        if any(len(table.entry_hashes) for table in running.tables.values()):
            assert running.planned(get_joint("locality-offline")(running.given())) == running.at, f"seed {seed}"


@pytest.mark.parametrize("how_many", HOW_MANY)
def test_worst_case_sends_every_tuple_of_a_part_to_the_next_server(how_many: int):
    for seed in range(how_many):
        drawn = Drawn(seed, running=False)
        worst, n = drawn.planned(get_joint("locality-worst")(drawn.given())), drawn.pairs.n
        local = {(name, key): (server - (name == "Y")) % n for (name, key), server in worst.items()}
        assert drawn.is_placed_as_the_paper(local), f"seed {seed}"
