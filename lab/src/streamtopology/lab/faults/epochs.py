"""Epochs at random: any table is allowed, and none may change a result."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np

from streamtopology.contract.reasons import EpochCause, EpochReason
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.routing.epochs.epoch import Epoch
from streamtopology.routing.table.hashing import hash_int64
from streamtopology.routing.table.pouring import Pace
from streamtopology.routing.table.splits import Splits
from streamtopology.routing.table.table import RoutingTable
from streamtopology.topology import groupings

_HASHED_KEYS = 10
_ENTRIES = 4


def random_epoch(newest: ExecutionPlan, random: Random) -> Epoch:
    """The epoch after `newest`, all tables and source shares at random; the instances stay."""
    draw = np.random.default_rng(random.getrandbits(32))
    routes = dict(newest.epoch.routes)
    for node, route in routes.items():
        if route.table is not None:
            instances = np.array(route.instances, np.int32)
            buckets = draw.choice(instances, len(route.table.buckets)).astype(np.int32)
            hashes = np.unique(hash_int64(draw.integers(0, _HASHED_KEYS, _ENTRIES)))
            table = RoutingTable(np.empty(0, np.uint64), np.empty(0, np.int32), buckets)
            owners = draw.choice(instances, len(hashes)).astype(np.int32)
            table = table.with_entries(hashes, owners)
            if groupings.get(route.policy).pours:
                table = table.with_splits(_random_splits(hashes, owners, instances, draw))
            routes[node] = replace(route, table=table)
    present = newest.placement.present
    slots = range(len(newest.placement.slots))
    shares = np.array([draw.random() + 0.01 if slot in present else 0.0 for slot in slots])
    return Epoch(newest.epoch.number + 1, routes, tuple(shares / shares.sum()), EpochReason(EpochCause.REBALANCED))


def random_paces(plan: ExecutionPlan, random: Random) -> dict[str, Pace]:
    """Paces at random of all nodes whose rows are poured; none of them may change a result."""
    draw = np.random.default_rng(random.getrandbits(32))
    sizes = {node: 1 + max(route.instances) for node, route in plan.epoch.routes.items() if groupings.get(route.policy).pours}
    return {node: Pace(draw.uniform(0.1, 1.0, size), draw.uniform(0.0, 2.0, size)) for node, size in sizes.items()}


def _random_splits(hashes: np.ndarray, homes: np.ndarray, instances: np.ndarray, draw: np.random.Generator) -> Splits:
    """Half of the keys (uint64[n]), each over its home and some others."""
    keys, first, owners = list[int](), [0], list[int]()
    for key, home in zip(hashes.tolist(), homes.tolist(), strict=True):
        if draw.random() < 0.5:
            among = {home, *draw.choice(instances, 2).tolist()}
            keys.append(key)
            owners += sorted(among)
            first.append(len(owners))
    return Splits.of(np.array(keys, np.uint64), np.array(first), np.array(owners, np.int32), np.ones(len(owners)))
