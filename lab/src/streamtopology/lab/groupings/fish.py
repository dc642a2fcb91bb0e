"""`fish`: more choices for the keys that are hot now. Counts fade from epoch to epoch, so that former hot keys are let go.

Huang et al., Efficient Time-Evolving Stream Processing at Scale (arXiv 1806.00760). Only the abstract and the beginning of
the introduction could be found. Built from them: frequencies are counted within an epoch in bounded memory and decay between
epochs; a router infers from what it has sent which instance is done first. From memory of the paper, unchecked: a hot key has
as many choices as there are instances, halved for every time that the most frequent key is twice as frequent. Ours: the share
from which a key is hot and the number of counters, as in W-Choices, the length of an epoch and the decay.

No policy: on Spark every router starts from nothing with a batch, so that W-Choices forgets, too
(docs/internals/papers/beyond.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numba import njit

from streamtopology.routing.groupings.chooser import Floats, Hashes, Instances, checked_hashes
from streamtopology.routing.groupings.many_choices import COUNTERS, HEAD, first_done
from streamtopology.routing.groupings.ticks import TickChooser, earlier_of_two
from streamtopology.routing.load.sketches.frequent import FrequentKeys, count_key
from streamtopology.routing.table.hashing import mix64

# Tuples of an epoch, per instance: a key with the least share that is hot comes a hundred times in it.
EPOCH = 500

# Share of a count that is left in the next epoch: alpha.
DECAY = 0.2

_HALF = np.uint64(32)
_SALT = np.uint64(0xD6E8FEB86659FD93)


class FishChooser(TickChooser):
    """Counts of recent tuples, of which there were `seen`, each weighted by its age in epochs."""

    def __init__(self, instances: Instances, loads: Floats, seed: int, options: Mapping[str, object]) -> None:
        super().__init__(instances, loads, seed, options)
        self._recent = FrequentKeys(COUNTERS * len(self.instances))
        self._seen = 0.0
        self._left = self._epoch = EPOCH * len(self.instances)

    def choose(self, hashes: Hashes | None, n: int) -> Instances:
        keys = checked_hashes(hashes, n, "fish")
        chosen = np.empty(n, np.int32)
        if len(self.instances) == 1:
            chosen.fill(self.instances[0])
            return chosen
        start = 0
        while start < n:
            end = min(start + self._left, n)
            self._choose_some(keys[start:end], chosen[start:end])
            self._left -= end - start
            if not self._left:
                self._decay()
            start = end
        return chosen

    def _choose_some(self, hashes: Hashes, chosen: Instances) -> None:
        choices = np.empty(len(hashes), np.int32)
        k, recent = len(self.instances), self._recent
        _find_choices(hashes, recent.keys, recent.counts, self._seen, HEAD / k, k, choices)
        _choose(hashes, choices, self.instances, self.finish, self.cost, chosen)
        self._seen += len(hashes)

    def _decay(self) -> None:
        """Begin an epoch."""
        self._recent.counts[:] = (self._recent.counts * DECAY).astype(np.int64)
        self._seen *= DECAY
        self._left = self._epoch


@njit(cache=True, nogil=True)
def _find_choices(hashes: Any, keys: Any, counts: Any, seen: Any, head_share: Any, k: Any, choices: Any) -> None:
    """Counts each key (`keys` and their `counts` after `seen` tuples); choices int32[n]: how many it has, from 2 to k."""
    top = counts.max()
    for i in range(len(hashes)):
        count = count_key(hashes[i], keys, counts)
        top = max(top, count)
        d = 2
        if np.float64(count) >= head_share * (seen + i + 1):
            d = k
            while 2 * count <= top:
                count, d = count * 2, d // 2
        choices[i] = max(d, 2)


@njit(cache=True, nogil=True)
def _choose(hashes: Any, choices: Any, instances: Any, finish: Any, cost: Any, chosen: Any) -> None:
    """At least two instances; `finish` is carried on."""
    k = np.uint64(len(instances))
    for i in range(len(hashes)):
        if choices[i] >= len(instances) and choices[i] > 2:
            choice = first_done(finish)
        else:
            choice = earlier_of_two(mix64(hashes[i]), k, finish)
            done = finish[choice]
            for j in range(2, choices[i]):
                other = ((mix64(hashes[i] + np.uint64(j) * _SALT) >> _HALF) * k) >> _HALF
                choice = other if finish[other] < done else choice
                done = min(finish[other], done)
        finish[choice] += cost[choice]
        chosen[i] = instances[choice]
