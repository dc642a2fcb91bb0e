"""The most frequent pairs of keys of two consecutive keyed edges, in bounded memory (locality-aware routing, section 3.2).

An instance that receives a tuple by key k and sends it by key k' counts the pair (k, k'). SpaceSaving knows items by
one 64-bit name; the pair's two hashes are kept beside it, so that a key graph can be made of what is left. 40 bytes a
pair (10^6 pairs, the paper's bound, are 40 MB; 25,000 are one MB). A tuple costs a look into a hash table; only the
distinct pairs of a batch are sorted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from streamtopology.routing.load.sketches.space_saving import Hashes, SpaceSaving, Weights
from streamtopology.routing.table.hashing import kernel_input, mix64
from streamtopology.routing.table.kernel import njit

Positions = npt.NDArray[np.int64]


@dataclass(eq=False)
class KeyPairSummary:
    """SpaceSaving over pairs; its guarantees (`SpaceSaving`) hold for pairs as items.

    A pair is identified by a 64-bit hash of both hashes: two pairs that share it (one in 10^7 among 10^6 pairs) would
    count as one. Statistics start over with every re-routing: make a new summary.
    """

    capacity: int
    # First hash of every pair kept, in the order of `counts.hashes`: uint64[<= capacity].
    upstream: Hashes = field(default_factory=lambda: np.empty(0, np.uint64))
    downstream: Hashes = field(default_factory=lambda: np.empty(0, np.uint64))

    def __post_init__(self) -> None:
        self.counts = SpaceSaving(self.capacity)

    def __len__(self) -> int:
        return len(self.counts)

    def update(self, upstream: Hashes, downstream: Hashes, weights: npt.NDArray[np.int64] | None = None) -> None:
        """Add a batch: tuple i has the input key `upstream[i]` and the output key `downstream[i]` (hashes uint64[n]).

        weights: int64[n] >= 0; None means 1 each. Raises ValueError if lengths differ or a weight is negative.
        """
        if len(upstream) != len(downstream):
            raise ValueError(f"KeyPairSummary: {len(upstream)} upstream keys with {len(downstream)} downstream ones")
        if weights is not None and (len(weights) != len(upstream) or (len(weights) and weights.min() < 0)):
            raise ValueError(f"KeyPairSummary: {len(upstream)} pairs need a weight >= 0 each; found {len(weights)} weights")
        first, sums = grouped(upstream, downstream, np.ones(len(upstream), np.int64) if weights is None else weights)
        names = pair_hashes(upstream[first], downstream[first])
        order = np.argsort(names)
        self.counts.update(names[order], sums[order])
        self._recover(names[order], upstream[first][order], downstream[first][order])

    def merge(self, other: KeyPairSummary) -> None:
        """Adds what another summary saw, as `SpaceSaving.merge`."""
        self.counts.merge(other.counts)
        self._recover(other.counts.hashes, other.upstream, other.downstream)

    def top(self, count: int) -> tuple[Hashes, Hashes, Weights, Weights]:
        """The `count` pairs with the largest estimates, largest first: (upstream, downstream, estimates, errors)."""
        order = np.argsort(-self.counts.estimates, kind="stable")[:count]
        return self.upstream[order], self.downstream[order], self.counts.estimates[order], self.counts.errors[order]

    def _recover(self, names: Hashes, upstream: Hashes, downstream: Hashes) -> None:
        """Both hashes of every pair kept, from those kept before and the pairs just added (`names` sorted, distinct)."""
        kept = self.counts.hashes
        known = np.concatenate([self._names, names])
        order = np.argsort(known, kind="stable")
        at = order[np.searchsorted(known, kept, sorter=order)]
        self.upstream = np.concatenate([self.upstream, upstream])[at]
        self.downstream = np.concatenate([self.downstream, downstream])[at]
        self._names = kept

    _names: Hashes = field(default_factory=lambda: np.empty(0, np.uint64), init=False, repr=False)


def pair_hashes(upstream: Hashes, downstream: Hashes) -> Hashes:
    """uint64[n]: one hash for each ordered pair of hashes."""
    names = np.empty(len(upstream), np.uint64)
    _pair_hashes(kernel_input(upstream, np.uint64, "upstream"), kernel_input(downstream, np.uint64, "downstream"), names)
    return names


@njit(cache=True, nogil=True)
def _pair_hashes(upstream: Any, downstream: Any, names: Any) -> None:
    for i in range(len(names)):
        names[i] = mix64(mix64(upstream[i]) ^ downstream[i])


def grouped(upstream: Hashes, downstream: Hashes, rows: npt.NDArray[np.int64]) -> tuple[Positions, npt.NDArray[np.int64]]:
    """(first int64[d], sums int64[d]): where each distinct pair is met first, and the rows of all that are like it."""
    ends = kernel_input(upstream, np.uint64, "upstream"), kernel_input(downstream, np.uint64, "downstream")
    return _grouped(*ends, kernel_input(rows, np.int64, "rows"))


@njit(cache=True, nogil=True)
def _grouped(upstream: Any, downstream: Any, rows: Any) -> Any:
    bits = 3
    while (1 << bits) < 2 * len(rows):
        bits += 1
    shift, last = np.uint64(64 - bits), np.int64((1 << bits) - 1)
    slots = np.full(1 << bits, -1, np.int32)
    first, sums = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
    met = 0
    for i in range(len(rows)):
        slot = np.int64(mix64(mix64(upstream[i]) ^ downstream[i]) >> shift)
        while slots[slot] >= 0:
            at = first[slots[slot]]
            if upstream[at] == upstream[i] and downstream[at] == downstream[i]:
                break
            slot = (slot + 1) & last
        if slots[slot] < 0:
            slots[slot] = met
            first[met] = i
            sums[met] = 0
            met += 1
        sums[slots[slot]] += rows[i]
    return first[:met].copy(), sums[:met].copy()
