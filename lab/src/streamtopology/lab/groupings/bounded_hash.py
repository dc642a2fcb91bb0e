"""`bounded-hash`: consistent hashing with bounded loads, clockwise on a circle (Mirrokni et al., 2018).

CH in Consistent Grouping, section II-B. As `porc`, whose promise of room it keeps, with another sequence of instances.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numba import njit

from streamtopology.routing.groupings.bounded import BoundedChooser, with_room
from streamtopology.routing.groupings.chooser import Floats, Hashes, Instances
from streamtopology.routing.table.hashing import hash_int64

# The circle has 65,536 places.
_CIRCLE_BITS = np.uint64(16)


class BoundedHashChooser(BoundedChooser):
    """The first instance with room, clockwise from the key's place on a circle on which each instance has one place."""

    policy = "bounded-hash"

    def __init__(self, instances: Instances, loads: Floats, seed: int, options: Mapping[str, object]) -> None:
        super().__init__(instances, loads, seed, options)
        # Hashed twice: a key may be equal to an instance's number, and must not share its place for that.
        twice = hash_int64(hash_int64(self.instances.astype(np.int64)).view(np.int64))
        places = twice >> np.uint64(64 - int(_CIRCLE_BITS))
        clockwise = np.argsort(places, kind="stable")
        self.instances, self.cost, self.filled = self.instances[clockwise], self.cost[clockwise], self.filled[clockwise]
        following = np.searchsorted(places[clockwise], np.arange(1 << int(_CIRCLE_BITS), dtype=np.uint64))
        self._first = (following % len(clockwise)).astype(np.uint64)

    def choose_with_room(self, hashes: Hashes, chosen: Instances) -> None:
        _choose_clockwise(hashes, self._first, self.instances, self.filled, self.cost, self.seen, self.slack, chosen)


@njit(cache=True, nogil=True)
def _choose_clockwise(
    hashes: Any, first: Any, instances: Any, filled: Any, cost: Any, seen: Any, slack: Any, chosen: Any
) -> None:
    """`instances`, `filled` and `cost` are in clockwise order; `first` is the position that follows each place."""
    k, shift = np.uint64(len(instances)), np.uint64(64) - _CIRCLE_BITS
    for i in range(len(hashes)):
        limit = slack * (seen + np.float64(i + 1))
        at = first[hashes[i] >> shift]
        choice = with_room(at, _after(at, k), filled, limit)
        while filled[choice] >= limit:
            at = _after(_after(at, k), k)
            choice = with_room(at, _after(at, k), filled, limit)
        filled[choice] += cost[choice]
        chosen[i] = instances[choice]


@njit(cache=True, nogil=True, inline="always")
def _after(position: Any, k: Any) -> Any:
    """The next position clockwise."""
    following = position + np.uint64(1)
    return following * np.uint64(following < k)
