"""Epochs at random: any table is allowed, and none may change a result."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np

from streamtopology.contract.reasons import EpochCause, EpochReason
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.routing.epochs.epoch import Epoch
from streamtopology.routing.table.hashing import hash_int64
from streamtopology.routing.table.table import RoutingTable

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
            routes[node] = replace(route, table=table.with_entries(hashes, owners))
    present = newest.placement.present
    slots = range(len(newest.placement.slots))
    shares = np.array([draw.random() + 0.01 if slot in present else 0.0 for slot in slots])
    return Epoch(newest.epoch.number + 1, routes, tuple(shares / shares.sum()), EpochReason(EpochCause.REBALANCED))
