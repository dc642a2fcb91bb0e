"""KIP, host for host and key for key what the authors' library does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from papers.instances import A_FEW, MANY, costs
from papers.kip import Kip

from streamtopology.lab.groupings.kip import KEYS_PER_INSTANCE
from streamtopology.lab.groupings.planners import get
from streamtopology.routing.planners import PlanInput
from streamtopology.routing.table.table import RoutingTable, bucket_of

HOSTS = 97


def drawn(seed: int) -> PlanInput:
    """An operator under plain hashing."""
    rng = np.random.default_rng(seed)
    k, n = int(rng.integers(2, 9)), int(rng.integers(1, 120))
    hashes = np.sort(rng.integers(0, 2**64, n, dtype=np.uint64))
    return PlanInput(
        current=RoutingTable.uniform(range(k), HOSTS, seed),
        instances=tuple(range(k)),
        capacities=np.ones(k),
        fixed_seconds=np.zeros(k),
        key_hashes=hashes,
        key_loads=np.array(costs(rng, n), np.float64),
        key_state=np.ones(n),
    )


@pytest.mark.parametrize("how_many", [pytest.param(A_FEW, id="few"), pytest.param(MANY, id="all", marks=pytest.mark.long)])
def test_three_updates_in_a_row_place_every_host_and_key_as_the_library(how_many: int):
    for seed in range(how_many):
        given, rng = drawn(seed), np.random.default_rng(seed)
        heavy_keys = round(KEYS_PER_INSTANCE * len(given.instances))
        paper = Kip(
            len(given.instances), given.current.buckets.tolist(), bucket_of(given.key_hashes, HOSTS).tolist(), isolated={}
        )
        for _ in range(3):
            paper = paper.updated([int(load) for load in given.key_loads], heavy_keys)
            table = get("kip")(given).table
            assert table.buckets.tolist() == paper.hosts, seed
            assert table.lookup(given.key_hashes).tolist() == [paper.partition(key) for key in range(len(given.key_hashes))], (
                seed
            )
            given = replace(given, current=table, key_loads=rng.permutation(given.key_loads))
