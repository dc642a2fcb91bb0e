"""Consistent Grouping, message by message and virtual worker by virtual worker what the paper's own text gives."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from papers.consistent import PoRC, Probed, Source, between_batches, ends
from papers.consistent import least_recently_overloaded as by_paper
from papers.instances import A_FEW, MANY, costs

from streamtopology.routing.groupings import VirtualChooser, make_chooser
from streamtopology.routing.planners import Plan, PlanInput, get
from streamtopology.routing.planners.consistent import Pairing, Signal
from streamtopology.routing.table.table import RoutingTable

HOW_MANY = [pytest.param(A_FEW, id="few"), pytest.param(MANY, id="all", marks=pytest.mark.long)]

SIGNALS = {"busy": Signal.BUSY, "fine": Signal.FINE, "idle": Signal.IDLE}
WORDS = tuple(SIGNALS)
ALL_BITS = 2**64 - 1


def mixed(x: int) -> int:
    """SplitMix64's step."""
    x = x + 0x9E3779B97F4A7C15 & ALL_BITS
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & ALL_BITS
    x = (x ^ x >> 27) * 0x94D049BB133111EB & ALL_BITS
    return x ^ x >> 31


def salted(n: int):
    """The sequence of virtual workers of a key: each mixed hash serves two salts."""

    def h(key: int, salt: int) -> int:
        word = mixed(key + (salt - 1) // 2 * 0xD6E8FEB86659FD93 & ALL_BITS)
        half = word >> 32 if salt % 2 else word & 0xFFFFFFFF
        return half * n >> 32

    return h


class Drawn:
    """Workers alike, unlike, or of heavy-tailed speeds, their virtual workers, and a stream of keys."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        k, each = int(rng.integers(2, 12)), int(rng.integers(1, 25))
        speeds = [np.ones(k), rng.choice([1.0, 2.0, 5.0, 10.0], k), 1 + rng.pareto(1.2, k)][seed % 3]
        self.capacities = [Fraction(float(speed)) for speed in speeds]
        self.owner = [int(worker) for worker in (np.arange(k * each) % k if seed % 2 else rng.integers(0, k, k * each))]
        counts = np.minimum(costs(rng, int(rng.integers(1, 60))), 100)
        keys = rng.integers(0, 2**64, len(counts), dtype=np.uint64)
        self.stream = rng.permutation(np.repeat(keys, counts))
        self.epsilon = Fraction(1, int(rng.choice([1, 8, 128])))
        self.n = len(self.owner)
        self.rng = rng

    def porc(self) -> PoRC:
        return PoRC(salted(self.n), self.n, self.epsilon, salts=8 * self.n)

    def plan(self) -> Plan:
        none, nothing, k, loads = np.empty(0, np.uint64), np.empty(0), len(self.capacities), np.ones(self.n)
        speeds = np.array([float(capacity) for capacity in self.capacities])
        return get("consistent")(
            PlanInput(self.table(), tuple(range(k)), speeds, np.zeros(k), none, nothing, nothing, loads, 0 * loads)
        )

    def table(self) -> RoutingTable:
        return RoutingTable(np.empty(0, np.uint64), np.empty(0, np.int32), np.array(self.owner, np.int32))

    def chooser(self) -> VirtualChooser:
        virtual = make_chooser("porc", np.arange(self.n, dtype=np.int32), np.zeros(self.n), 1, {"epsilon": float(self.epsilon)})
        k = len(self.capacities)
        return VirtualChooser(virtual, self.table(), np.arange(k, dtype=np.int32), np.zeros(k))


@pytest.mark.parametrize("how_many", HOW_MANY)
def test_every_message_goes_where_the_paper_sends_it_before_and_after_a_plan(how_many: int):
    for seed in range(how_many):
        drawn = Drawn(seed)
        porc, chooser, owner = drawn.porc(), drawn.chooser(), drawn.owner
        for half in np.array_split(drawn.stream, 2):
            expected = [owner[porc.get_worker(key)] for key in half.tolist()]
            assert chooser.choose(half, len(half)).tolist() == expected, f"seed {seed}"
            chooser.follow(drawn.plan().table)
            owner = between_batches(drawn.owner, drawn.capacities)


@pytest.mark.parametrize("how_many", HOW_MANY)
def test_planner_places_every_virtual_worker_as_the_paper(how_many: int):
    moved = 0
    for seed in range(how_many):
        drawn = Drawn(seed)
        expected, plan = between_batches(drawn.owner, drawn.capacities), drawn.plan()
        assert plan.table.buckets.tolist() == expected, f"seed {seed}"
        moved += expected != drawn.owner
    assert moved > how_many / 2


@pytest.mark.parametrize("how_many", HOW_MANY)
@pytest.mark.parametrize("least", [0, 1])
def test_source_moves_the_papers_virtual_workers_whatever_is_signalled(least: int, how_many: int):
    """Signals come in any order, some workers say nothing, and some say the same for long."""
    for seed in range(how_many):
        drawn = Drawn(seed)
        source, pairing, rng = Source(list(drawn.owner), least), Pairing(np.array(drawn.owner, np.int32), least), drawn.rng
        for _ in range(20):
            for worker in rng.permutation(len(drawn.capacities))[: rng.integers(1, 12)].tolist():
                word = WORDS[rng.integers(3)]
                source.hear(worker, word)
                pairing.hear(worker, SIGNALS[word])
            source.pair()
            pairing.pair()
            assert pairing.owner.tolist() == source.owner, f"seed {seed}"


def least_used(capacities: list[Fraction]) -> Probed:
    """The worker that the planner once probed: again and again the same worker."""
    return lambda source: [min(source.heard, key=lambda worker: (source.owner.count(worker) / capacities[worker], worker))]


@pytest.mark.parametrize("how_many", HOW_MANY)
def test_probing_as_the_paper_says_ends_batches_earlier_than_probing_the_least_used(how_many: int):
    apart: list[float] = []
    for drawn in map(Drawn, range(how_many)):
        owner, speeds = drawn.owner, drawn.capacities
        found = [max(ends(between_batches(owner, speeds, probed), speeds)) for probed in (least_used(speeds), by_paper)]
        apart.append(float(found[0] / found[1]))
    earlier, later = (sum(1 for ratio in apart if sign * (ratio - 1) > 0) for sign in (1, -1))
    assert earlier > 2 * later
    assert np.mean(apart) > 1
