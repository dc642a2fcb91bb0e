"""Load as choosers compare it: the tick at which each instance finishes the tuples it has.

Load is measured in the time that an instance needs for it, rows over capacity, counted in ticks: whole numbers compare
and add in a cycle each, and every tuple waits for the sums of the one before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from streamtopology.routing.groupings.chooser import Chooser, Floats, Instances
from streamtopology.routing.table.kernel import njit

_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
# Ticks that a row takes on the fastest instance: capacities are resolved to 1 in 65,536.
_TICKS_PER_ROW = 1 << 16
_MOST_TICKS_PER_ROW = 1 << 40

# Rows that an instance begins ahead of the others at most, as they make up for rounding in small batches. A batch lasts until
# its last instance is done, so that more would only lengthen it.
MOST_ROWS_AHEAD = 16


class TickChooser(Chooser):
    """A chooser that goes by when each instance would be done.

    `cost` int64[k]: ticks a row takes. `finish` int64[k]: the tick at which each is done with what it has; carried on from
    batch to batch up to `MOST_ROWS_AHEAD`.
    """

    def __init__(self, instances: Instances, loads: Floats, seed: int, options: Mapping[str, object]) -> None:
        super().__init__(instances, loads, seed, options)
        slowness = self.capacities.max() / self.capacities
        cost = np.minimum(_TICKS_PER_ROW * slowness, _MOST_TICKS_PER_ROW)
        finish = self.loads * cost
        self.cost = np.rint(cost).astype(np.int64)
        self.finish = np.minimum(finish - finish.min(), MOST_ROWS_AHEAD * cost).astype(np.int64)


@njit(cache=True, nogil=True, inline="always")
def earlier_of_two(mixed: Any, k: Any, finish: Any) -> Any:
    """Of two distinct positions in 0..k-1 (k >= 2) drawn from the halves of `mixed`, the one that is done earlier."""
    first = ((mixed >> _HALF) * k) >> _HALF
    second = ((mixed & _LOW) * (k - np.uint64(1))) >> _HALF
    second += np.uint64(second >= first)
    # All ones where the second is done earlier; a jump here could not be predicted.
    prefers_second = np.uint64((finish[second] - finish[first]) >> np.int64(63))
    return first ^ ((first ^ second) & prefers_second)
