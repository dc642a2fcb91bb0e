"""Heavy hitters of an unbounded stream in bounded memory: SpaceSaving over whole batches, mergeable.

A batch is summed per item first; then the summary is cut back to the `capacity` largest estimates and remembers the
largest one cut off. That is the merge of Agarwal et al., "Mergeable Summaries" (PODS 2012), in SpaceSaving's terms
(Metwally et al., ICDT 2005), so that a batch costs a sort instead of a heap operation per tuple.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]
Weights = npt.NDArray[np.float64]


@dataclass(eq=False)
class SpaceSaving:
    """The heaviest of the items seen, by weight. With N the weight of all updates and c the capacity:

    - estimate - error <= true weight <= estimate for every item kept;
    - true weight <= `floor` <= N / (c + 1) for every item not kept, so each item heavier than N / c is kept;
    - error <= floor.

    Integer weights stay exact up to 2^53.
    """

    capacity: int
    # Items kept, sorted: uint64[<= capacity].
    hashes: Hashes = field(default_factory=lambda: np.empty(0, np.uint64))
    estimates: Weights = field(default_factory=lambda: np.empty(0))
    errors: Weights = field(default_factory=lambda: np.empty(0))
    floor: float = 0.0
    total: float = 0.0

    def __post_init__(self) -> None:
        if self.capacity < 1:
            raise ValueError(f"SpaceSaving: capacity {self.capacity}: it must keep at least one item")

    def __len__(self) -> int:
        return len(self.hashes)

    def update(self, hashes: Hashes, weights: npt.NDArray[np.int64] | Weights | None = None) -> None:
        """Adds a batch: uint64[n] items, each with its weight >= 0 (int64 or float64 [n]; None: 1 each)."""
        if weights is not None and len(weights) != len(hashes):
            raise ValueError(f"SpaceSaving: {len(hashes)} items with {len(weights)} weights")
        if weights is not None and len(weights) and weights.min() < 0:
            raise ValueError("SpaceSaving: a weight is negative")
        items, item_of = np.unique(hashes, return_inverse=True)
        sums = np.bincount(item_of, weights, minlength=len(items)).astype(np.float64)
        self._absorb(items, sums, np.zeros(len(items)), floor=0.0, total=float(sums.sum()))

    def merge(self, other: SpaceSaving) -> None:
        """Adds what another summary saw; the guarantees hold for both streams together, at this one's capacity."""
        self._absorb(other.hashes, other.estimates, other.errors, other.floor, other.total)

    def top(self, count: int) -> tuple[Hashes, Weights, Weights]:
        """The `count` items with the largest estimates, largest first: (hashes, estimates, errors)."""
        order = np.argsort(-self.estimates, kind="stable")[:count]
        return self.hashes[order], self.estimates[order], self.errors[order]

    def _absorb(self, hashes: Hashes, estimates: Weights, errors: Weights, floor: float, total: float) -> None:
        union = np.union1d(self.hashes, hashes)
        mine, theirs = np.searchsorted(union, self.hashes), np.searchsorted(union, hashes)
        # An item that one side does not hold may have had up to that side's floor there.
        sums, doubts = np.full(len(union), self.floor + floor), np.full(len(union), self.floor + floor)
        sums[mine] += self.estimates - self.floor
        doubts[mine] += self.errors - self.floor
        sums[theirs] += estimates - floor
        doubts[theirs] += errors - floor
        self.floor += floor
        self.total += total
        if len(union) > self.capacity:
            largest_first = np.argsort(-sums, kind="stable")
            self.floor = float(sums[largest_first[self.capacity]])
            kept = np.sort(largest_first[: self.capacity])
            union, sums, doubts = union[kept], sums[kept], doubts[kept]
        self.hashes, self.estimates, self.errors = union, sums, doubts
