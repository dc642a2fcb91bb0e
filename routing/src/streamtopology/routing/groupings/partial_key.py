"""`partial-key`: of the two instances that a key's hash names, each tuple takes the one with less load.

Nasir et al., The Power of Both Choices (ICDE 2015); as PKG in Consistent Grouping, section II. 6.5 numpy
`take`s a tuple (`bench kernels`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streamtopology.routing.groupings.chooser import Hashes, Instances, checked_hashes
from streamtopology.routing.groupings.ticks import TickChooser, earlier_of_two
from streamtopology.routing.table.hashing import mix64
from streamtopology.routing.table.kernel import njit


class PartialKeyChooser(TickChooser):
    """Two choices per key, the same in every router; between them, the instance that would be done first."""

    def choose(self, hashes: Hashes | None, n: int) -> Instances:
        return self.choose_of_two(checked_hashes(hashes, n, "partial-key"))

    def choose_of_two(self, hashes: Hashes) -> Instances:
        """int32[n]: for each hash, the instance that is done first of the two that the hash names."""
        chosen = np.empty(len(hashes), np.int32)
        if len(self.instances) == 1:
            chosen.fill(self.instances[0])
        else:
            _choose(hashes, self.instances, self.finish, self.cost, chosen)
        return chosen


@njit(cache=True, nogil=True)
def _choose(hashes: Any, instances: Any, finish: Any, cost: Any, chosen: Any) -> None:
    """At least two instances; `finish` is carried on."""
    k = np.uint64(len(instances))
    for i in range(len(hashes)):
        choice = earlier_of_two(mix64(hashes[i]), k, finish)
        finish[choice] += cost[choice]
        chosen[i] = instances[choice]
