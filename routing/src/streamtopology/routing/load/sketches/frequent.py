"""Frequent keys counted tuple by tuple inside a kernel: SpaceSaving in small sets.

SpaceSaving (Metwally et al., ICDT 2005) needs the least counter of all for a key that has none. Here a key's hash names
a set of 4 counters, and each set is a SpaceSaving of its own over its part of the keys, as the ways of a set-associative
cache: a tuple costs one scan of 4 counters, without a jump. `SpaceSaving` takes batches and merges; this answers "how
often so far?" for every tuple.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from streamtopology.routing.table.kernel import njit

Hashes = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.int64]

WAYS = 4
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


class FrequentKeys:
    """At least `capacity` counters, for keys given as hashes. A key seen c times, in a set that saw n tuples:

    c <= count <= c + the least count of its set <= c + n / 4 if it has a counter; c <= that least count if it has none.

    `keys` uint64[m] and `counts` int64[m], m a multiple of 4, are set after set; a count of 0 marks an unused counter.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"FrequentKeys: capacity {capacity}: it must keep at least one key")
        counters = max(-(-capacity // WAYS), 2) * WAYS
        # Unused counters have a key of another set, so that no key finds itself there.
        self.keys: Hashes = np.zeros(counters, np.uint64)
        self.keys[:WAYS] = _LOW
        self.counts: Counts = np.zeros(counters, np.int64)

    @property
    def seen(self) -> int:
        """Tuples counted; every one of them is in one counter."""
        return int(self.counts.sum())

    def count(self, hashes: Hashes) -> None:
        """Counts uint64[n] keys."""
        _count_all(hashes, self.keys, self.counts)

    def at_least(self, count: float) -> tuple[Hashes, Counts]:
        """The keys with counts of at least this, the most frequent first, and their counts."""
        often = np.flatnonzero((self.counts > 0) & (self.counts >= count))
        often = often[np.lexsort((self.keys[often], -self.counts[often]))]
        return self.keys[often], self.counts[often]


@njit(cache=True, nogil=True, inline="always")
def count_key(key: Any, keys: Any, counts: Any) -> Any:
    """Counts one more tuple of this key; returns its count. Written out for 4 ways, as conditional moves: twice as fast."""
    way_0 = (((key & _LOW) * np.uint64(len(keys) // WAYS)) >> _HALF) * np.uint64(WAYS)
    way_1, way_2, way_3 = way_0 + np.uint64(1), way_0 + np.uint64(2), way_0 + np.uint64(3)
    left = way_1 if counts[way_1] < counts[way_0] else way_0
    right = way_3 if counts[way_3] < counts[way_2] else way_2
    at = right if counts[right] < counts[left] else left
    at = way_0 if keys[way_0] == key else at
    at = way_1 if keys[way_1] == key else at
    at = way_2 if keys[way_2] == key else at
    at = way_3 if keys[way_3] == key else at
    keys[at] = key
    count = counts[at] + 1
    counts[at] = count
    return count


@njit(cache=True, nogil=True)
def _count_all(hashes: Any, keys: Any, counts: Any) -> None:
    for i in range(len(hashes)):
        count_key(hashes[i], keys, counts)
