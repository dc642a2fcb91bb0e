"""`prompt`: the keys of a micro-batch, counted before any is routed, are packed into blocks of equal size, and like many keys.

Abdelhamid et al., Prompt: Dynamic Data-Partitioning for Distributed Micro-batch Stream Processing Systems (SIGMOD 2020). Only
the abstract could be found: keys are sorted by frequency while a batch is buffered, and a greedy algorithm packs them for the
Map stage, splitting keys. The algorithm is from memory of the paper, unchecked:

1. Of each key with more tuples than a key has on average, that number goes to the next block; the rest is left over.
2. The other keys go to the blocks in turn, back and forth, the more frequent first.
3. What is left over goes, the most first, to its key's block if it fits, else to the block that it fits best, or fills the
   one with most room and then others.

Here a block is an instance, as large as its share of the capacity. Prompt's second part, which balances the Reduce stage, is
not built: partial results are merged where the key's hash says. Every router packs its own part of a batch.

No policy: several routers split one key each in its own way, so that W-Choices makes fewer partial results on Spark
(docs/internals/papers/beyond.md). With Zipf(1.2) keys on 8 instances a tuple costs 13 ns in batches of 50,000, and 31 ns in
one of 2 million (W-Choices: 21 ns).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numba import njit

from streamtopology.routing.groupings.chooser import Chooser, Floats, Hashes, Instances, checked_hashes

_HALF = np.uint64(32)


class PromptChooser(Chooser):
    """Packs the tuples of each call by themselves: what was sent before does not count."""

    def __init__(self, instances: Instances, loads: Floats, seed: int, options: Mapping[str, object]) -> None:
        super().__init__(instances, loads, seed, options)
        self._shares: Floats = self.capacities / self.capacities.sum()

    def choose(self, hashes: Hashes | None, n: int) -> Instances:
        keys = checked_hashes(hashes, n, "prompt")
        chosen = np.empty(n, np.int32)
        if n:
            items, counts = np.empty(n, np.int32), np.empty(n, np.int64)
            counts = counts[: _count(keys, items, counts)]
            most_first, rooms = np.argsort(-counts, kind="stable"), np.ceil(self._shares * n).astype(np.int64)
            first, following, blocks, tuples = _pack(counts, most_first, rooms)
            _send(items, first, following, blocks, tuples, self.instances, chosen)
        return chosen


@njit(cache=True, nogil=True)
def _count(hashes: Any, items: Any, counts: Any) -> int:
    """The number of distinct keys m; items int32[n]: the number of each tuple's key, in 0..m-1; counts int64[m]: its tuples."""
    size = 16
    while size < 2 * len(hashes):
        size *= 2
    mask = np.uint64(size - 1)
    found = np.full(size, -1, np.int32)
    keys = np.empty(len(hashes), np.uint64)
    m = 0
    for i in range(len(hashes)):
        at = (hashes[i] ^ (hashes[i] >> _HALF)) & mask
        while found[at] >= 0 and keys[found[at]] != hashes[i]:
            at = (at + np.uint64(1)) & mask
        item = found[at]
        if item < 0:
            item = np.int32(m)
            found[at], keys[m], counts[m] = item, hashes[i], 0
            m += 1
        counts[item] += 1
        items[i] = item
    return m


@njit(cache=True, nogil=True)
def _pack(counts: Any, most_first: Any, rooms: Any) -> Any:
    """Pieces of keys: (first piece of each key int64[m], the next piece of the same key or -1, its block, its tuples).

    counts int64[m]; most_first int64[m]: keys by count; rooms int64[k]: tuples that fit into each block, used up.
    """
    m, k = len(counts), len(rooms)
    cut = max(counts.sum() // m, 1)
    first, following = np.full(m, -1), np.empty(2 * m + k, np.int64)
    blocks, tuples = np.empty(2 * m + k, np.int64), np.empty(2 * m + k, np.int64)
    made = 0
    for place in range(m):
        key, turn, back = most_first[place], place % k, (place // k) % 2 == 1
        block = k - 1 - turn if back else turn
        size = min(counts[key], cut)
        if rooms[block] < size:
            block = np.argmax(rooms)
        following[made], blocks[made], tuples[made] = -1, block, size
        first[key] = made
        rooms[block] -= size
        made += 1
    for place in range(m):
        key = most_first[place]
        left = counts[key] - cut
        while left > 0:
            block = blocks[first[key]]
            if rooms[block] < left:
                block = _best_fit(rooms, left)
            size = min(left, rooms[block])
            following[made], blocks[made], tuples[made] = first[key], block, size
            first[key] = made
            rooms[block] -= size
            left -= size
            made += 1
    return first, following[:made], blocks[:made], tuples[:made]


@njit(cache=True, nogil=True)
def _best_fit(rooms: Any, size: Any) -> Any:
    """The block with the least room in which this fits, or the one with the most room."""
    best = np.argmax(rooms)
    for block in range(len(rooms)):
        if size <= rooms[block] < rooms[best]:
            best = block
    return best


@njit(cache=True, nogil=True)
def _send(items: Any, first: Any, following: Any, blocks: Any, tuples: Any, instances: Any, chosen: Any) -> None:
    """Each tuple to the piece of its key that is not full yet; `first` and `tuples` are used up."""
    for i in range(len(items)):
        piece = first[items[i]]
        chosen[i] = instances[blocks[piece]]
        tuples[piece] -= 1
        if tuples[piece] == 0:
            first[items[i]] = following[piece]
