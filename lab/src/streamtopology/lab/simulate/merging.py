"""The merge step behind a policy that splits keys: each instance hands over one part per key, and the parts are combined.

In a stage of their own after the rows'. As on Spark the parts of a policy without homes go by hashing to the operator's own
instances; of a key with a home, to that, but for the part that is there already.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from streamtopology.lab.simulate.site import Batch, Site
from streamtopology.routing.table.table import RoutingTable

# A part costs as much to merge as a row to process, on one core, but no more than this: what a row's own work costs beyond its
# operator's bookkeeping is not done again.
MOST_SECONDS_PER_PART = 10e-6


class Merging:
    """The parts that wait at the instances of `site`, and the time that merging them takes."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._hashed = RoutingTable.uniform(range(site.parallelism))
        self._batches = 0
        self._keys = np.empty(0, np.uint64)
        self._held = np.empty((0, site.parallelism), np.bool_)

    def run_on(self, cpu: tuple[float, ...]) -> None:
        """The slots have other cores from the next batch on."""
        self._site = replace(self._site, cpu=cpu)

    def take(self, batch: Batch, held: npt.NDArray[np.bool_], home: RoutingTable | None = None) -> float:
        """One more batch, whose keys went to the instances `held` (bool[keys, instances]). Returns the seconds of its merge.

        `home`: the owner of each key's state, None where there is none.
        """
        self._batches += 1
        keys = np.union1d(self._keys, batch.keys)
        waiting = np.zeros((len(keys), self._site.parallelism), np.bool_)
        waiting[np.searchsorted(keys, self._keys)] = self._held
        waiting[np.searchsorted(keys, batch.keys)] |= held
        self._keys, self._held = keys, waiting
        if self._batches % self._site.aggregate_every:
            return 0.0
        self._keys, self._held = np.empty(0, np.uint64), np.empty((0, self._site.parallelism), np.bool_)
        merged_at = (home or self._hashed).lookup(keys)
        if home is not None:
            waiting[np.arange(len(keys)), merged_at] = False
        each = min(float(batch.seconds.mean()), self._site.most_part_seconds)
        parts = np.bincount(merged_at, waiting.sum(axis=1), self._site.parallelism).astype(np.float64)
        return self._site.stage_seconds(parts * each, runs=parts > 0)
