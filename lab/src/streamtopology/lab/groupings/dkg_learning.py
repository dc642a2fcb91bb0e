"""DKG's learning phase, before it builds (Rivetti et al., listing 3.1), mergeable: several routers learn in parallel.

The paper leaves parallel learning open (section 7). Here each learner sends its sketch once, when its part is learnt:
1 / eps items and k * mu counters. Counters of parts add up exactly, and merged sketches keep SpaceSaving's promise for
the whole stream, so in whatever order parts are merged and however the stream was dealt out, every item with at least
theta of the stream is found and none with less than theta - eps.

In batch mode a learner costs a sort of the batch's distinct items, not a heap operation per tuple as in the paper.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamtopology.routing.load.sketches.space_saving import SpaceSaving
from streamtopology.routing.planners.dkg import DkgSettings
from streamtopology.routing.planners.plan import PlanInput
from streamtopology.routing.table.table import RoutingTable, bucket_of

Hashes = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.int64]


@dataclass(eq=False)
class DkgLearning:
    """`sketch`: SpaceSaving with 1 / eps counters. `buckets` int64[k * mu]: v_h, tuples per bucket, heavy or not."""

    sketch: SpaceSaving
    buckets: Counts

    @staticmethod
    def of(eps: float, n_buckets: int) -> DkgLearning:
        """Nothing learnt yet; estimates will be off by at most eps of all tuples."""
        return DkgLearning(SpaceSaving(math.ceil(1 / eps)), np.zeros(n_buckets, np.int64))

    def learn(self, hashes: Hashes, counts: Counts) -> None:
        """A batch of tuples, summed by item or not: uint64[n] key hashes, int64[n] how many tuples each stands for."""
        self.sketch.update(hashes, counts)
        np.add.at(self.buckets, bucket_of(hashes, len(self.buckets)), counts)

    def merge(self, other: DkgLearning) -> None:
        """Adds what another learner saw of the same stream; ValueError when it counts another number of buckets."""
        if len(self.buckets) != len(other.buckets):
            raise ValueError(f"merge: {len(self.buckets)} buckets and {len(other.buckets)}; learners have the same k and mu")
        self.sketch.merge(other.sketch)
        self.buckets += other.buckets

    def heavy_hitters(self, theta: float) -> tuple[Hashes, npt.NDArray[np.float64]]:
        """SpaceSaving's QUERY: items estimated at theta of all tuples or more, and their estimates, sorted by hash."""
        heavy = self.sketch.estimates >= theta * self.sketch.total
        return self.sketch.hashes[heavy], self.sketch.estimates[heavy]

    def plan_input(self, k: int, settings: DkgSettings) -> PlanInput:
        """Return the input of `build` (listing 3.2, lines 13 to 16) for k equal instances and a table of these buckets.

        Estimates are never too low, so a bucket may be left with less than nothing: it counts as empty.
        """
        hashes, estimates = self.heavy_hitters(settings.theta)
        sparse = self.buckets.astype(np.float64)
        np.subtract.at(sparse, bucket_of(hashes, len(sparse)), estimates)
        return PlanInput(
            current=RoutingTable.uniform(range(k), len(sparse)),
            instances=tuple(range(k)),
            capacities=np.ones(k),
            fixed_seconds=np.zeros(k),
            key_hashes=hashes,
            key_loads=estimates,
            key_state=np.zeros(len(hashes)),
            bucket_loads=np.maximum(sparse, 0.0),
            bucket_state=np.zeros(len(sparse)),
            options={"theta": settings.theta, "eps": settings.eps, "mu": settings.mu},
        )
