"""Hashing under which no instance gets more than (1 + epsilon) times its share so far, and PoRC, which `consistent` uses.

A tuple takes the first instance with room in a sequence that its key decides. PoRC, the power of random choices, hashes the
key with salt after salt (Consistent Grouping, section IV-A, algorithm 1). Room is checked per tuple: capacity is (1 +
epsilon) times the average load, including the current tuple, so there is always an instance with room and every load stays
below its capacity + 1. A share is in proportion to the instance's capacity.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from streamtopology.routing.groupings.chooser import Chooser, Floats, Hashes, Instances, checked_hashes
from streamtopology.routing.table.hashing import mix64
from streamtopology.routing.table.kernel import njit

_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_SALT = np.uint64(0xD6E8FEB86659FD93)
# Salts tried, per instance, before the emptiest one is chosen: these miss an instance once in 3,000 keys.
_SALTS_PER_INSTANCE = 8


class BoundedChooser(Chooser):
    """The fill of each instance: `filled` float64[k], its rows over its share, with mean `seen`."""

    policy: str

    def __init__(self, instances: Instances, loads: Floats, seed: int, options: Mapping[str, object]) -> None:
        super().__init__(instances, loads, seed, options)
        self.slack = 1.0 + cast(float, options["epsilon"])
        self.cost: Floats = self.capacities.sum() / self.capacities
        self.filled: Floats = self.loads * self.cost
        self.seen = float(self.loads.sum())

    def choose(self, hashes: Hashes | None, n: int) -> Instances:
        keys = checked_hashes(hashes, n, self.policy)
        chosen = np.empty(n, np.int32)
        self.choose_with_room(keys, chosen)
        self.seen += n
        return chosen

    def choose_with_room(self, hashes: Hashes, chosen: Instances) -> None:
        """Fill `chosen` (int32[n]) and update `filled`."""
        raise NotImplementedError


class PorcChooser(BoundedChooser):
    """The first instance with room in the key's sequence of salted hashes, the same sequence in every router."""

    policy = "porc"

    def choose_with_room(self, hashes: Hashes, chosen: Instances) -> None:
        _choose_by_salt(hashes, self.instances, self.filled, self.cost, self.seen, self.slack, chosen)


@njit(cache=True, nogil=True, inline="always")
def with_room(first: Any, second: Any, filled: Any, limit: Any) -> Any:
    """The first position (uint64) if it has room, else the second, without a jump: it could not be predicted."""
    is_full = np.uint64(0) - np.uint64(filled[first] >= limit)
    return first ^ ((first ^ second) & is_full)


@njit(cache=True, nogil=True)
def _choose_by_salt(hashes: Any, instances: Any, filled: Any, cost: Any, seen: Any, slack: Any, chosen: Any) -> None:
    """Each mixed hash serves two salts: its upper and its lower half."""
    k = np.uint64(len(instances))
    pairs_of_salts = len(instances) * _SALTS_PER_INSTANCE // 2
    for i in range(len(hashes)):
        limit = slack * (seen + np.float64(i + 1))
        salted = hashes[i]
        choice = np.uint64(0)
        for _ in range(pairs_of_salts):
            mixed = mix64(salted)
            choice = with_room(((mixed >> _HALF) * k) >> _HALF, ((mixed & _LOW) * k) >> _HALF, filled, limit)
            if filled[choice] < limit:
                break
            salted += _SALT
        else:
            choice = np.uint64(np.argmin(filled))
        filled[choice] += cost[choice]
        chosen[i] = instances[choice]
