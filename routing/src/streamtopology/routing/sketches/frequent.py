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
from numba import njit

Hashes = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.int64]

WAYS = 4
_WAYS = np.uint64(WAYS)
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
    """Counts one more tuple of this key; returns its count."""
    first = _set_of(key, np.uint64(len(keys)))
    mine, least_at, least = _WAYS, np.uint64(0), counts[first]
    for way in range(_WAYS):
        count = counts[first + way]
        mine = way if keys[first + way] == key else mine
        least_at = way if count < least else least_at
        least = min(count, least)
    at = least_at if mine == _WAYS else mine
    keys[first + at] = key
    counts[first + at] += 1
    return counts[first + at]


@njit(cache=True, nogil=True, inline="always")
def _set_of(key: Any, n_counters: Any) -> Any:
    """The first counter of the key's set."""
    return (((key & _LOW) * (n_counters // _WAYS)) >> _HALF) * _WAYS


@njit(cache=True, nogil=True)
def _count_all(hashes: Any, keys: Any, counts: Any) -> None:
    for i in range(len(hashes)):
        count_key(hashes[i], keys, counts)
