"""The cost of a tuple by key, in a fixed matrix: POSG's pair F and W (Rivetti et al., section III-B, Listing III.1).

F counts the tuples of each cell, W adds up their execution times. A key's cost is W / F in the one of its cells with the
smallest F (Listing III.2), as that one is shared with the fewest others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from streamtopology.routing.load.sketches.count_min import CountMin, column_of
from streamtopology.routing.table.hashing import kernel_input
from streamtopology.routing.table.kernel import njit

Hashes = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]


@dataclass(eq=False)
class CostSketch:
    """`frequencies` (F) and `times` (W, seconds): two Count-Min of one shape."""

    frequencies: CountMin
    times: CountMin

    @classmethod
    def empty(cls, rows: int, columns: int) -> CostSketch:
        return cls(CountMin.empty(rows, columns), CountMin.empty(rows, columns))

    @classmethod
    def merged(cls, sketches: Iterable[CostSketch]) -> CostSketch:
        """The sum of at least one sketch, in any order."""
        first, *others = sketches
        total = cls(first.frequencies.copy(), first.times.copy())
        for other in others:
            total.merge(other)
        return total

    def update(self, hashes: Hashes, seconds: Floats) -> None:
        """Add tuples: key hashes uint64[n] and the seconds each took, float64[n]."""
        self.add(hashes, np.ones(len(hashes)), seconds)

    def add(self, hashes: Hashes, tuples: Floats, seconds: Floats) -> None:
        """Add keys uint64[n] with their number of tuples and the seconds these took together (float64[n] each)."""
        self.frequencies.update(hashes, tuples)
        self.times.update(hashes, seconds)

    def merge(self, other: CostSketch) -> None:
        self.frequencies.merge(other.frequencies)
        self.times.merge(other.times)

    @property
    def mean(self) -> float:
        """Seconds per tuple over all; 0 when there was none."""
        tuples = self.frequencies.total
        return self.times.total / tuples if tuples else 0.0

    def cell_costs(self, empty: float | None = None) -> Floats:
        """W / F, float64[rows, columns]: the paper's snapshot S. A cell without tuples costs `empty`, or what the mean does.

        The paper leaves 0 / 0 open. Taken for 0, a key that an instance has not seen since its last reset would be free
        and the scheduler would heap such tuples on it.
        """
        counted = self.frequencies.cells
        return np.where(
            counted > 0, self.times.cells / np.where(counted > 0, counted, 1), self.mean if empty is None else empty
        )

    def estimate(self, hashes: Hashes, empty: float | None = None) -> Floats:
        """float64[n], seconds that a tuple of each key takes; `empty` as for `cell_costs`."""
        found = np.empty(len(hashes))
        _costs(kernel_input(hashes, np.uint64, "hashes"), self.frequencies.cells, self.cell_costs(empty), found)
        return found


@njit(cache=True, nogil=True)
def _cost_in(item: Any, frequencies: Any, costs: Any) -> Any:
    """W / F of an item in the row where F is least; the first of several such rows."""
    rows, columns = frequencies.shape
    column = column_of(item, 0, columns)
    least, cost = frequencies[0, column], costs[0, column]
    for row in range(1, rows):
        column = column_of(item, row, columns)
        count, here = frequencies[row, column], costs[row, column]
        cost = here if count < least else cost
        least = min(count, least)
    return cost


@njit(cache=True, nogil=True)
def _costs(items: Any, frequencies: Any, costs: Any, found: Any) -> None:
    for i in range(len(items)):
        found[i] = _cost_in(items[i], frequencies, costs)
