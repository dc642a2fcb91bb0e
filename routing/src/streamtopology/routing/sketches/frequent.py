"""Frequent keys counted tuple by tuple inside a kernel: SpaceSaving in small sets.

SpaceSaving (Metwally et al., ICDT 2005) needs the least counter of all for a key that has none. Here a key's hash names
a set of 4 counters, and each set is a SpaceSaving of its own over its part of the keys, as the ways of a set-associative
cache: a tuple costs two scans of half a cache line. `SpaceSaving` takes batches and merges; this answers "how often so far?"
for every tuple.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

Hashes = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.int64]

WAYS = 4
_WAYS = np.uint64(WAYS)
_HALF = np.uint64(32)


class FrequentKeys:
    """At least `capacity` counters, for keys given as hashes. A key seen c times, in a set that saw n tuples:

    c <= count <= c + the least count of its set <= c + n / 4 if it has a counter; c <= that least count if it has none.

    `keys` uint64[m] and `counts` int64[m], m a multiple of 4, are set after set; a count of 0 marks an unused counter.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"FrequentKeys: capacity {capacity}: it must keep at least one key")
        counters = -(-capacity // WAYS) * WAYS
        self.keys: Hashes = np.zeros(counters, np.uint64)
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
    """Counts one more tuple of this key; returns its count."""
    first = (((key & np.uint64(0xFFFFFFFF)) * (np.uint64(len(keys)) // _WAYS)) >> _HALF) * _WAYS
    at = _WAYS
    for way in range(_WAYS):
        at = way if keys[first + way] == key else at
    if at == _WAYS or counts[first + at] == 0:
        at, least = np.uint64(0), counts[first]
        for way in range(_WAYS):
            count = counts[first + way]
            at = way if count < least else at
            least = min(count, least)
        keys[first + at] = key
    counts[first + at] += 1
    return counts[first + at]


@njit(cache=True, nogil=True)
def _count_all(hashes: Any, keys: Any, counts: Any) -> None:
    for i in range(len(hashes)):
        count_key(hashes[i], keys, counts)
