"""The cost of a tuple by key: exact for the keys seen most, a merged `CostSketch` for the others, a mean for the unseen.

The project's own answer to POSG's sketches (docs/decisions/0020): in cells shared by dozens of keys, W / F says little
more than the mean of all tuples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamtopology.routing.load.array_codec import Floats, Hashes
from streamtopology.routing.load.sketches.cost_sketch import CostSketch

# A key's cost is the mean of about as many of its last tuples: later ones count as much as all before them.
MEMORY = 64


@dataclass(eq=False)
class KeyCosts:
    """Parallel arrays of at most `capacity` keys, sorted by hash; `light` has the tuples of keys that had to go.

    hashes: uint64[h]. tuples, seconds: float64[h]; seconds / tuples is the key's cost.
    """

    capacity: int
    hashes: Hashes
    tuples: Floats
    seconds: Floats
    light: CostSketch

    def __post_init__(self) -> None:
        sizes = len(self.hashes), len(self.tuples), len(self.seconds)
        if not sizes[0] == sizes[1] == sizes[2] <= self.capacity:
            raise ValueError("{} keys with {} counts and {} times of {}".format(*sizes, self.capacity))

    @classmethod
    def empty(cls, capacity: int, rows: int, columns: int) -> KeyCosts:
        if capacity < 1:
            raise ValueError(f"KeyCosts: capacity {capacity}: it must keep at least one key")
        return cls(capacity, np.empty(0, np.uint64), np.empty(0), np.empty(0), CostSketch.empty(rows, columns))

    @property
    def costs(self) -> Floats:
        """float64[h]: seconds per tuple of the keys kept."""
        return self.seconds / self.tuples

    @property
    def unseen(self) -> float:
        """The best guess for a key never seen: the mean over keys, each counted once, as a new key is one more of them.

        The mean over tuples would be that of the frequent keys. 0 while nothing is known.
        """
        if not len(self.hashes):
            return 0.0
        return float(self.costs.mean())

    def update(self, hashes: Hashes, seconds: Floats) -> None:
        """Add tuples: key hashes uint64[n] and the seconds each took, float64[n]."""
        keys, key_of = np.unique(hashes, return_inverse=True)
        tuples = np.bincount(key_of, minlength=len(keys)).astype(np.float64)
        self._absorb(keys, tuples, np.bincount(key_of, seconds, minlength=len(keys)).astype(np.float64))

    def merge(self, other: KeyCosts, slowness: float = 1.0) -> None:
        """Adds what another one saw on an instance that takes `slowness` times as long."""
        self._absorb(other.hashes, other.tuples, other.seconds / slowness)
        if other.light.frequencies.total:
            self.light.merge(CostSketch(other.light.frequencies, other.light.times.scaled(1 / slowness)))

    def find(self, hashes: Hashes) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """(positions int64[n], bool[n] whether there is such a key at that position)."""
        if not len(self.hashes):
            return np.zeros(len(hashes), np.int64), np.zeros(len(hashes), np.bool_)
        positions = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        return positions, self.hashes[positions] == hashes

    def estimate(self, hashes: Hashes) -> Floats:
        """float64[n]: seconds that a tuple of each key takes."""
        positions, known = self.find(hashes)
        found = np.full(len(hashes), self.unseen)
        found[known] = self.costs[positions[known]]
        if not known.all() and self.light.frequencies.total:
            found[~known] = self.light.estimate(hashes[~known], self.unseen)
        return found

    def forget(self) -> None:
        """Lets a key's past weigh as much as `MEMORY` tuples at most, so that its cost follows what it costs now.

        When the keys kept stand for more tuples than eight times the capacity, all halve, or keys of long ago would
        leave no room for new ones.
        """
        weight = np.minimum(1.0, MEMORY / np.maximum(self.tuples, 1.0))
        if float(self.tuples @ weight) > 8 * self.capacity:
            weight /= 2
            self.light = CostSketch(self.light.frequencies.scaled(0.5), self.light.times.scaled(0.5))
        self.tuples, self.seconds = self.tuples * weight, self.seconds * weight

    def copy(self) -> KeyCosts:
        light = CostSketch(self.light.frequencies.copy(), self.light.times.copy())
        return KeyCosts(self.capacity, self.hashes, self.tuples.copy(), self.seconds.copy(), light)

    def _absorb(self, keys: Hashes, tuples: Floats, seconds: Floats) -> None:
        """Adds sorted, distinct keys; over the capacity, those with fewest tuples go to the sketch."""
        positions, known = self.find(keys)
        self.tuples[positions[known]] += tuples[known]
        self.seconds[positions[known]] += seconds[known]
        at = np.searchsorted(self.hashes, keys[~known])
        self.hashes = np.insert(self.hashes, at, keys[~known])
        self.tuples = np.insert(self.tuples, at, tuples[~known])
        self.seconds = np.insert(self.seconds, at, seconds[~known])
        if len(self.hashes) > self.capacity:
            self._cut()

    def _cut(self) -> None:
        most_first = np.argsort(-self.tuples, kind="stable")
        kept, dropped = np.sort(most_first[: self.capacity]), most_first[self.capacity :]
        self.light.add(self.hashes[dropped], self.tuples[dropped], self.seconds[dropped])
        self.hashes, self.tuples, self.seconds = self.hashes[kept], self.tuples[kept], self.seconds[kept]
