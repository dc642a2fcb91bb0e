"""The window w of mixed-routing (section 2.1): a key's state is what the last w intervals left of it.

S_i(k, w) = s_{i-w+1}(k) + ... + s_i(k). Older intervals are erased, as an instance erases them. What this sums is the
`key_state` of a planner; a key that was silent in the newest interval still has state to be moved.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class StateWindow:
    """The newest `intervals` (w) intervals, oldest first, each (keys uint64[m], distinct and sorted; state float64[m])."""

    intervals: int
    recent: tuple[tuple[Hashes, Floats], ...] = ()

    def __post_init__(self) -> None:
        if self.intervals < 1:
            raise ValueError(f"window: {self.intervals} intervals: the newest one at least has state")

    def followed_by(self, hashes: Hashes, state: Floats) -> StateWindow:
        """The window one interval later; `state` float64[m] is what that interval added per key, in bytes."""
        if len(hashes) != len(state):
            raise ValueError(f"window: {len(state)} sizes of state for {len(hashes)} keys")
        if np.all(hashes[1:] > hashes[:-1]):
            interval = hashes, state
        else:
            keys, key_of = np.unique(hashes, return_inverse=True)
            interval = keys, np.bincount(key_of, state, len(keys)).astype(np.float64)
        return StateWindow(self.intervals, (*self.recent, interval)[-self.intervals :])

    def keys(self) -> Hashes:
        """Every key with state, sorted: uint64[n]."""
        return np.unique(np.concatenate([np.empty(0, np.uint64), *(keys for keys, _ in self.recent)]))

    def state_of(self, hashes: Hashes) -> Floats:
        """Bytes of state per key, float64[n]; 0 for a key that no interval of the window saw."""
        total = np.zeros(len(hashes))
        for keys, state in self.recent:
            if keys is hashes:  # the same keys in every interval, as streams of the lab have them
                total += state
            elif len(keys):
                at = np.minimum(np.searchsorted(keys, hashes), len(keys) - 1)
                total += np.where(keys[at] == hashes, state[at], 0.0)
        return total
