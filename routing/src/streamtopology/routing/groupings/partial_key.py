"""`partial-key`: of the two instances that a key's hash names, each tuple takes the one with less load.

Nasir et al., The Power of Both Choices (ICDE 2015); as PKG in Consistent Grouping, section II. Load is measured in the
time that an instance needs for it, rows over capacity, counted in ticks: whole numbers compare and add in a cycle each,
and every tuple waits for the sums of the one before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numba import njit

from streamtopology.routing.groupings.spec import (
    CAPACITIES,
    Chooser,
    Floats,
    GroupingError,
    GroupingSpec,
    Hashes,
    Instances,
)
from streamtopology.routing.hashing import kernel_input, mix64

_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_TICKS_PER_ROW = 1 << 16
"""Ticks that a row takes on the fastest instance: capacities are told apart to 1 in 65,536."""
_MOST_TICKS_PER_ROW = 1 << 40
_MOST_TICKS_BEHIND = 1 << 60


class PartialKeyChooser(Chooser):
    """Two choices per key, the same in every router; between them, the instance that would be done first."""

    def __init__(self, instances: Instances, loads: Floats, seed: int, options: Mapping[str, object] | None = None) -> None:
        super().__init__(instances, loads, seed, options)
        slowness = self.capacities.max() / self.capacities
        cost = np.minimum(_TICKS_PER_ROW * slowness, _MOST_TICKS_PER_ROW)
        finish = self.loads * cost
        self._cost = np.rint(cost).astype(np.int64)
        self._finish = np.minimum(finish - finish.min(), _MOST_TICKS_BEHIND).astype(np.int64)

    def choose(self, hashes: Hashes | None, n: int) -> Instances:
        if hashes is None or len(hashes) != n:
            found = "none" if hashes is None else len(hashes)
            raise GroupingError(f"partial-key chooses by key: {n} tuples need {n} key hashes, found {found}")
        chosen = np.empty(n, np.int32)
        if len(self.instances) == 1:
            chosen.fill(self.instances[0])
        else:
            _choose(kernel_input(hashes, np.uint64, "hashes"), self.instances, self._finish, self._cost, chosen)
        return chosen


@njit(cache=True, nogil=True)
def _choose(hashes: Any, instances: Any, finish: Any, cost: Any, chosen: Any) -> None:
    """At least two instances; `finish` (the tick at which each is done with what it has) is carried on."""
    k = np.uint64(len(instances))
    for i in range(len(hashes)):
        mixed = mix64(hashes[i])
        first = ((mixed >> _HALF) * k) >> _HALF
        second = ((mixed & _LOW) * (k - np.uint64(1))) >> _HALF
        second += np.uint64(second >= first)
        # All ones where the second is done earlier; a jump here could not be predicted.
        prefers_second = np.uint64((finish[second] - finish[first]) >> np.int64(63))
        choice = first ^ ((first ^ second) & prefers_second)
        finish[choice] += cost[choice]
        chosen[i] = instances[choice]


PARTIAL_KEY = GroupingSpec(
    name="partial-key",
    kind="chooser",
    splits_keys=True,
    needs_key=True,
    summary="each tuple goes to the less loaded of its key's two instances",
    options={"capacities": CAPACITIES},
    make_chooser=PartialKeyChooser,
)
