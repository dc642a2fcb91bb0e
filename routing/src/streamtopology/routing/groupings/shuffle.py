"""`shuffle`: round robin, in proportion to the instances' capacities. It looks at no key and at no load."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from streamtopology.routing.groupings.chooser import Chooser, Floats, Hashes, Instances

_TURNS_PER_INSTANCE = 512


class ShuffleChooser(Chooser):
    """Goes round a fixed cycle of instances, from a place that depends on the seed."""

    def __init__(self, instances: Instances, loads: Floats, seed: int, options: Mapping[str, object]) -> None:
        super().__init__(instances, loads, seed, options)
        self._cycle = self.instances[_fair_cycle(self.capacities)]
        self._position = seed % len(self._cycle)

    def choose(self, hashes: Hashes | None, n: int) -> Instances:
        ahead = np.roll(self._cycle, -self._position)
        self._position = (self._position + n) % len(self._cycle)
        return np.resize(ahead, n)


def _fair_cycle(capacities: Floats) -> npt.NDArray[np.int64]:
    """Positions of instances, each as often as its capacity asks for and as evenly spread as can be.

    Turn c of an instance with share s is due at (c + 1/2) / s, and the cycle is all turns by when they are due. With
    equal capacities this is 0, 1, ..., k - 1, 0, 1, ...
    """
    shares = capacities / capacities.sum()
    length = _TURNS_PER_INSTANCE * len(capacities)
    turns = np.floor(shares * length + 1e-9).astype(np.int64)
    remainders = shares * length - turns
    turns[np.argsort(-remainders, kind="stable")[: length - int(turns.sum())]] += 1
    instance = np.repeat(np.arange(len(capacities)), turns)
    turn = np.arange(length) - np.repeat(np.cumsum(turns) - turns, turns)
    return instance[np.argsort((turn + 0.5) / turns[instance], kind="stable")]
