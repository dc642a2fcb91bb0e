"""The keys that pairs of keys name, as keys of an operator's planner."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streamtopology.routing.planners.key_graph import KeyNumbers
from streamtopology.routing.planners.llfd import Floats, Ints
from streamtopology.routing.planners.plan import PlanInput
from streamtopology.routing.table.table import bucket_of


def with_keys_of_pairs(given: PlanInput, numbers: KeyNumbers, rows: Floats, room: int | None = None) -> tuple[PlanInput, Ints]:
    """The operator with the keys of the pairs among its keys, and the item of each of these: int64[len(numbers.hashes)].

    A key that was not given has as many rows as its pairs, taken out of its bucket, and a mean key's state. Of these the
    `room` with most rows are added, all if left out; another one has the item -1.
    """
    item = np.full(len(numbers.hashes), -1, np.int64)
    known = numbers.find(given.key_hashes)
    item[known[known >= 0]] = np.flatnonzero(known >= 0)
    new = np.flatnonzero(item < 0)
    if room is not None and len(new) > room:
        new = np.sort(new[np.argsort(-rows[new], kind="stable")[:room]])
    if not len(new):
        return given, item
    item[new] = len(given.key_hashes) + np.arange(len(new))
    hashes, loads = numbers.hashes[new], rows[new]
    state = np.zeros(len(new))
    buckets = given.bucket_loads
    if len(buckets):
        home = bucket_of(hashes, len(buckets))
        buckets = np.maximum(buckets - np.bincount(home, loads, len(buckets)), 0.0)
        if len(given.bucket_keys):
            state = (given.bucket_state / np.maximum(given.bucket_keys, 1.0))[home]
    complete = replace(
        given,
        key_hashes=np.concatenate([given.key_hashes, hashes]),
        key_loads=np.concatenate([given.key_loads, loads]),
        key_state=np.concatenate([given.key_state, state]),
        bucket_loads=buckets,
    )
    return complete, item
