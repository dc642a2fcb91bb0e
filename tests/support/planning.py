"""Inputs for planners, and loads counted the slow way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from streamtopology.lab.groupings.planners import get
from streamtopology.routing.planners import PlanInput
from streamtopology.routing.table.table import RoutingTable

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
