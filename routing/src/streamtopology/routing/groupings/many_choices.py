"""`d-choices` and `w-choices`: two choices for most keys, more for the few that two instances cannot hold.

Nasir et al., When Two Choices Are Not Enough: Balancing at Scale in Distributed Stream Processing (ICDE 2016). A key is
in the head when its share so far is at least theta = 1 / (5 k); each router finds the head by itself. Tuples of the
head take the instance that finishes first among d hashed ones (D-Choices, where d follows from the head's shares) or
among all (W-Choices). With Zipf(1.2) keys on 8 instances a tuple costs 16 times a numpy `take` (`bench kernels`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from streamtopology.routing.groupings.chooser import Floats, Hashes, Instances, checked_hashes
from streamtopology.routing.groupings.ticks import TickChooser, earlier_of_two
from streamtopology.routing.load.sketches.frequent import FrequentKeys, count_key
from streamtopology.routing.table.hashing import mix64
from streamtopology.routing.table.kernel import njit

# Theta as a share of an instance's part: the head is what two choices may not balance (section III).
HEAD = 0.2

# Counters per instance: a key's share is known to about a tenth of theta.
COUNTERS = 40

# The imbalance that d choices may leave, as a share of the stream: the paper's epsilon.
TOLERANCE = 1e-4

_FIRST_REVIEW = 1 << 10
_REVIEW_EVERY = 1 << 16
_ALL = 1 << 30
_HALF = np.uint64(32)
_SALT = np.uint64(0xD6E8FEB86659FD93)


class ManyChoicesChooser(TickChooser):
    """Counts keys, and reviews the number of choices after 1,024 tuples, then at doubling intervals up to 65,536."""

    policy: str

    def __init__(self, instances: Instances, loads: Floats, seed: int, options: Mapping[str, object]) -> None:
        super().__init__(instances, loads, seed, options)
        self._head_share = HEAD / len(self.instances)
        self._frequent = FrequentKeys(COUNTERS * len(self.instances))
        self._seen, self._next_review = 0, _FIRST_REVIEW
        self.choices = self.review()

    def choose(self, hashes: Hashes | None, n: int) -> Instances:
        keys = checked_hashes(hashes, n, self.policy)
        chosen = np.empty(n, np.int32)
        if len(self.instances) == 1:
            chosen.fill(self.instances[0])
            return chosen
        start = 0
        while start < n:
            end = min(start + self._next_review - self._seen, n)
            self._choose_some(keys[start:end], chosen[start:end])
            self._seen += end - start
            if self._seen == self._next_review:
                self.choices = self.review()
                self._next_review += min(self._next_review, _REVIEW_EVERY)
            start = end
        return chosen

    def review(self) -> int:
        """Return the number of choices that a key of the head has from now on."""
        raise NotImplementedError

    def head(self) -> Floats:
        """Return the shares of the keys in the head so far, largest first: float64[h]."""
        _, counts = self._frequent.at_least(self._head_share * self._seen)
        return counts / max(self._seen, 1)

    def _choose_some(self, hashes: Hashes, chosen: Instances) -> None:
        is_head = np.empty(len(hashes), np.bool_)
        _find_head(hashes, self._frequent.keys, self._frequent.counts, self._seen, self._head_share, is_head)
        _choose(hashes, is_head, self.instances, self.finish, self.cost, self.choices, chosen)


class DChoicesChooser(ManyChoicesChooser):
    """As few choices for the head as balance it."""

    policy = "d-choices"

    def review(self) -> int:
        return fewest_choices(self.head(), len(self.instances))


class WChoicesChooser(ManyChoicesChooser):
    """All instances for the head."""

    policy = "w-choices"

    def review(self) -> int:
        return _ALL


def fewest_choices(head: Floats, k: int) -> int:
    """The least d with which the head, float64[h] shares in falling order, is balanced over k instances; k: all of them.

    Section IV-A: for every prefix of the head, what must lie on its b instances (all of the prefix, and what of the
    others has all its choices among them) is within b shares, with b = k - k ((k - 1) / k)^(d h) expected instances.
    """
    if not len(head):
        return 2
    prefix = np.cumsum(head)
    rest_of_head, tail = prefix[-1] - prefix, 1.0 - prefix[-1]
    keys = np.arange(1, len(head) + 1)
    for d in range(max(2, int(np.ceil(head[0] * k))), k):
        held = k - k * ((k - 1) / k) ** (d * keys)
        load = prefix + (held / k) ** d * rest_of_head + (held / k) ** 2 * tail
        if (load <= held * (1 / k + TOLERANCE)).all():
            return d
    return k


@njit(cache=True, nogil=True)
def _find_head(hashes: Any, keys: Any, counts: Any, seen: Any, head_share: Any, is_head: Any) -> None:
    """Counts each key in the sketch (`keys` and their `counts` after `seen` tuples); is_head: its share so far is large.

    A loop of its own: in the one that chooses, every mispredicted jump would throw this work away.
    """
    for i in range(len(hashes)):
        is_head[i] = np.float64(count_key(hashes[i], keys, counts)) >= head_share * np.float64(seen + i + 1)


@njit(cache=True, nogil=True)
def _choose(hashes: Any, is_head: Any, instances: Any, finish: Any, cost: Any, d: Any, chosen: Any) -> None:
    """At least two instances; `finish` is carried on."""
    k = np.uint64(len(instances))
    for i in range(len(hashes)):
        choice = np.uint64(0)
        if not is_head[i]:
            choice = earlier_of_two(mix64(hashes[i]), k, finish)
        elif d >= len(instances):
            choice = first_done(finish)
        else:
            choice = earlier_of_two(mix64(hashes[i]), k, finish)
            done = finish[choice]
            for j in range(2, d):
                other = ((mix64(hashes[i] + np.uint64(j) * _SALT) >> _HALF) * k) >> _HALF
                choice = other if finish[other] < done else choice
                done = min(finish[other], done)
        finish[choice] += cost[choice]
        chosen[i] = instances[choice]


@njit(cache=True, nogil=True, inline="always")
def first_done(finish: Any) -> Any:
    """The position that is done first of all."""
    choice, done = np.uint64(0), finish[0]
    for other in range(1, len(finish)):
        choice = np.uint64(other) if finish[other] < done else choice
        done = min(finish[other], done)
    return choice
