"""Inputs for planners, loads counted the slow way, and mixed-routing's pseudo-code as it stands in the paper."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from streamtopology.routing.planners import PlanInput, get
from streamtopology.routing.table import RoutingTable

N_BUCKETS = 8
ANY_SIZE = 10**6


def keys_in(buckets: list[int]) -> np.ndarray:
    """Distinct key hashes, one in each of these buckets of N_BUCKETS."""
    return (np.array(buckets, np.uint64) << np.uint64(61)) + np.arange(len(buckets), dtype=np.uint64)


def plan_input(
    loads: list[float],
    owners: list[int],
    k: int,
    *,
    homes: list[int] | None = None,
    state: list[float] | None = None,
    **options: object,
) -> PlanInput:
    """Keys only: key i is at `owners[i]`, its hash destination is `homes[i]` (default: the owner), both < k <= 8."""
    homes = owners if homes is None else homes
    hashes = keys_in(homes)
    explicit = np.array([i for i, (at, home) in enumerate(zip(owners, homes, strict=True)) if at != home], np.int64)
    explicit = explicit[np.argsort(hashes[explicit])]
    table = RoutingTable(hashes[explicit], np.array(owners, np.int32)[explicit], (np.arange(N_BUCKETS) % k).astype(np.int32))
    defaults: dict[str, object] = {
        "capacities": np.ones(k),
        "fixed_seconds": np.zeros(k),
        "tolerance": 0.0,
        "max_entries": ANY_SIZE,
    }
    return PlanInput(
        current=table,
        instances=tuple(range(k)),
        key_hashes=hashes,
        key_loads=np.array(loads, np.float64),
        key_state=np.array(state if state is not None else [1.0] * len(loads)),
        **{**defaults, **options},
    )


def loads_after(given: PlanInput, table: RoutingTable) -> np.ndarray:
    """Load per active instance that keys and buckets have under a table, counted the slow way."""
    totals = dict.fromkeys(given.instances, 0.0)
    for owner, load in zip(table.lookup(given.key_hashes), given.key_loads, strict=True):
        totals[int(owner)] += load
    if len(given.bucket_loads):
        for owner, load in zip(table.buckets, given.bucket_loads, strict=True):
            totals[int(owner)] += load
    return np.array([totals[instance] for instance in given.instances])


@dataclass
class Paper:
    """Algorithms 1 to 4 of mixed-routing over plain dicts; instances of equal capacity."""

    cost: list[float]
    memory: list[float]
    home: list[int]
    k: int
    theta: float
    beta: float

    def load(self, at: dict[int, int], d: int) -> float:
        return sum(self.cost[key] for key, owner in at.items() if owner == d)

    def limit(self) -> float:
        return (1 + self.theta) * sum(self.cost) / self.k * (1 + 1e-9)

    def by_cost(self, keys):
        return sorted(keys, key=lambda key: (-self.cost[key], key))

    def by_gamma(self, keys):
        return sorted(keys, key=lambda key: (-(self.cost[key] ** self.beta) / self.memory[key], key))

    def prepare(self, at: dict[int, int], criterion) -> list[int]:
        candidates = []
        for d in range(self.k):
            for key in criterion([key for key, owner in at.items() if owner == d]):
                if self.load(at, d) <= self.limit():
                    break
                del at[key]
                candidates.append(key)
        return candidates

    def llfd(self, at: dict[int, int], candidates: list[int], criterion) -> None:
        while candidates:
            key = self.by_cost(candidates)[0]
            candidates.remove(key)
            ascending = sorted(range(self.k), key=lambda d: (self.load(at, d), d))
            chosen = next((d for d in ascending if self.adjust(key, d, at, candidates, criterion)), ascending[0])
            at[key] = chosen

    def adjust(self, key: int, d: int, at: dict[int, int], candidates: list[int], criterion) -> bool:
        excess = self.load(at, d) + self.cost[key] - self.limit()
        if excess <= 0:
            return True
        exchangeable: list[int] = []
        for other in criterion([other for other, owner in at.items() if owner == d]):
            if self.cost[other] < self.cost[key] and excess > 0:
                exchangeable.append(other)
                excess -= self.cost[other]
        if excess > 0:
            return False
        for other in exchangeable:
            del at[other]
            candidates.append(other)
        return True

    def run(self, at: dict[int, int], criterion) -> dict[int, int]:
        self.llfd(at, self.prepare(at, criterion), criterion)
        return at

    def mintable(self, at: dict[int, int]) -> dict[int, int]:
        return self.run(dict(enumerate(self.home)), self.by_cost)

    def minmig(self, at: dict[int, int]) -> dict[int, int]:
        return self.run(dict(at), self.by_gamma)

    def mixed(self, at: dict[int, int], n_max: int) -> dict[int, int]:
        table = [key for key, owner in at.items() if owner != self.home[key]]
        smallest_first = sorted(table, key=lambda key: (self.memory[key], key))
        n = 0
        while True:
            cleaned = dict(at)
            for key in smallest_first[:n]:
                cleaned[key] = self.home[key]
            result = self.run(cleaned, self.by_gamma)
            size = sum(owner != self.home[key] for key, owner in result.items())
            if size <= n_max or n >= len(table):
                return result
            n += size - n_max


@st.composite
def papers_cases(draw, distinct_costs=True):
    """Whole costs and distinct priorities, so that the paper's order leaves nothing to taste but equal costs: by number."""
    k = draw(st.integers(2, 4))
    n = draw(st.integers(k, 14))
    cost = draw(st.lists(st.integers(1, 60 if distinct_costs else 9), min_size=n, max_size=n, unique=distinct_costs))
    memory = draw(st.lists(st.integers(1, 60), min_size=n, max_size=n, unique=True))
    assume(max(cost) <= sum(cost) / k)
    gammas = [c**1.5 / m for c, m in zip(cost, memory, strict=True)]
    assume(len(set(gammas)) == n)
    owner = draw(st.lists(st.integers(0, k - 1), min_size=n, max_size=n))
    home = draw(st.lists(st.integers(0, k - 1), min_size=n, max_size=n))
    return k, cost, memory, owner, home, draw(st.sampled_from([0.0, 0.08, 0.3]))


@st.composite
def any_input(draw):
    """Keys and, half of the time, buckets; unequal instances, some of them new, some of the current ones gone."""
    known = draw(st.integers(1, 6))
    instances = tuple(draw(st.sets(st.integers(0, 7), min_size=1, max_size=4)))
    m = draw(st.integers(0, 20))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    hashes = rng.integers(0, 2**64, m, dtype=np.uint64)
    explicit = np.sort(rng.choice(np.append(hashes, rng.integers(0, 2**64, 3, dtype=np.uint64)), m // 2, False))
    table = RoutingTable(
        explicit,
        rng.integers(0, known, len(explicit)).astype(np.int32),
        rng.integers(0, known, N_BUCKETS).astype(np.int32),
    )
    with_buckets = draw(st.booleans())
    skew = draw(st.sampled_from([0.0, 1.0, 3.0]))
    return PlanInput(
        current=table,
        instances=instances,
        capacities=rng.choice([0.3, 1.0, 2.0], len(instances)) * 100,
        fixed_seconds=rng.choice([0.0, 0.1, 0.5], len(instances)),
        key_hashes=hashes,
        key_loads=np.round(rng.random(m) * 10 ** rng.uniform(0, skew, m), 3) * rng.integers(0, 4, m).clip(0, 1),
        key_state=rng.integers(0, 50, m) * 1.0,
        bucket_loads=rng.integers(0, 30, N_BUCKETS) * 1.0 if with_buckets else np.empty(0),
        bucket_state=rng.integers(0, 90, N_BUCKETS) * 1.0 if with_buckets else np.empty(0),
        tolerance=draw(st.sampled_from([0.0, 0.08, 0.3])),
        max_entries=draw(st.sampled_from([0, 2, 5, 100])),
    )


def zipf_input(seed: int, m: int = 4000, k: int = 5, **options: object) -> PlanInput:
    """An operator that was balanced before its keys changed their load, so its table is full of entries."""
    rng = np.random.default_rng(seed)
    loads = rng.permutation(1 / np.arange(1, m + 1) ** 0.9) * 1e5
    before = PlanInput(
        current=RoutingTable.uniform(range(k)),
        instances=tuple(range(k)),
        capacities=np.full(k, 1e4),
        fixed_seconds=np.zeros(k),
        key_hashes=rng.integers(0, 2**64, m, dtype=np.uint64),
        key_loads=loads,
        key_state=rng.integers(8, 400, m) * 1.0,
    )
    table = get("simple")(replace(before, max_entries=500)).table
    return replace(before, current=table, key_loads=rng.permutation(loads), **options)
