"""`potc`: the power of two choices. Each tuple, whatever its key, takes the less loaded of two random instances.

Consistent Grouping, section V-A.1: as partial-key, but "two hashes are applied to the messages, rather than the keys"
(Azar et al., Balanced Allocations, 1999), so a frequent key ends up on every instance.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from streamtopology.routing.groupings.chooser import Floats, Hashes, Instances
from streamtopology.routing.groupings.partial_key import PartialKeyChooser
from streamtopology.routing.table.hashing import hash_int64, kernel_input


class PotcChooser(PartialKeyChooser):
    """Numbers the tuples it routes, from a number that depends on the seed, and hashes these."""

    def __init__(self, instances: Instances, loads: Floats, seed: int, options: Mapping[str, object]) -> None:
        super().__init__(instances, loads, seed, options)
        self._next = hash_int64(np.array([seed], np.int64))[0]

    def choose(self, hashes: Hashes | None, n: int) -> Instances:
        numbers = np.arange(n, dtype=np.uint64)
        numbers += self._next  # wraps around
        self._next = (numbers[-1:] + np.uint64(1))[0] if n else self._next
        return self.choose_of_two(kernel_input(numbers, np.uint64, "numbers"))
