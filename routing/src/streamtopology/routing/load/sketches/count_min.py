"""Count-Min: how much of each item a stream had, never too little, in a fixed matrix (Cormode, Muthukrishnan, 2005).

As POSG uses it (Rivetti et al., Proactive Online Scheduling, section III-A): `rows` x `columns` cells, one hash function
a row; an update adds its weight to one cell in each row, and the smallest of an item's cells is its estimate. About 2 ns
a row and tuple.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from streamtopology.routing.load.array_codec import pack, unpack
from streamtopology.routing.table.hashing import kernel_input, mix64
from streamtopology.routing.table.kernel import njit

Hashes = npt.NDArray[np.uint64]
Weights = npt.NDArray[np.float64]

MOST_ROWS = 64
_HALF = np.uint64(32)


# Odd multipliers: row i hashes an item by the high bits of its product (Dietzfelbinger et al., 1997: 2-universal).
_FACTORS = mix64.py_func(np.arange(MOST_ROWS, dtype=np.uint64)) | np.uint64(1)


def dimensions(eps: float, delta: float) -> tuple[int, int]:
    """(rows, columns) by which an estimate is too large by more than eps of the stream only with probability delta.

    rows = ceil(log2(1 / delta)), columns = ceil(e / eps) (POSG, III-A). The paper's own figures are one column short of
    that in places: 54 for eps = 0.05, where e / eps = 54.4.
    """
    if not 0 < eps <= 1 or not 2.0**-MOST_ROWS <= delta < 1:
        raise ValueError(f"Count-Min: eps is in 0 < eps <= 1 and delta in 2^-{MOST_ROWS} <= delta < 1; found {eps}, {delta}")
    return max(math.ceil(math.log2(1 / delta)), 1), math.ceil(math.e / eps)


@dataclass(eq=False)
class CountMin:
    """cells: float64[rows, columns]. With N the weight of all updates, true weight <= estimate always, and

    estimate - true weight >= e / columns * N with probability <= 2^-rows for an item. Integer weights are exact to 2^53.
    """

    cells: Weights

    def __post_init__(self) -> None:
        if self.cells.ndim != 2 or not self.cells.size or len(self.cells) > MOST_ROWS:
            raise ValueError(f"Count-Min: cells are 1..{MOST_ROWS} rows of at least one column; found {self.cells.shape}")

    @classmethod
    def empty(cls, rows: int, columns: int) -> CountMin:
        return cls(np.zeros((rows, columns)))

    @property
    def total(self) -> float:
        """The weight of all updates."""
        return float(self.cells[0].sum())

    def update(self, hashes: Hashes, weights: Weights | None = None) -> None:
        """Adds a batch: uint64[n] items, float64[n] weights >= 0 (None: 1 each)."""
        if weights is not None and len(weights) != len(hashes):
            raise ValueError(f"Count-Min: {len(hashes)} items with {len(weights)} weights")
        added = np.ones(len(hashes)) if weights is None else weights
        _update(kernel_input(hashes, np.uint64, "hashes"), kernel_input(added, np.float64, "weights"), self.cells)

    def merge(self, other: CountMin) -> None:
        """Adds what another sketch of the same shape saw."""
        if other.cells.shape != self.cells.shape:
            raise ValueError(f"Count-Min: sketches of {self.cells.shape} and {other.cells.shape} cells do not add up")
        self.cells += other.cells

    def estimate(self, hashes: Hashes) -> Weights:
        """float64[n]: at least the weight of each item."""
        found = np.empty(len(hashes))
        _estimate(kernel_input(hashes, np.uint64, "hashes"), self.cells, found)
        return found

    def copy(self) -> CountMin:
        return CountMin(self.cells.copy())

    def scaled(self, factor: float) -> CountMin:
        """A sketch of the same updates, each with `factor` times its weight."""
        return CountMin(self.cells * factor)

    def to_wire(self) -> dict[str, Any]:
        """JSON-able form, read back by `from_wire`."""
        return {"rows": len(self.cells), "cells": pack(self.cells)}

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> CountMin:
        """ValueError or KeyError when `wire` is damaged."""
        return cls(unpack(wire["cells"], np.float64).reshape(int(wire["rows"]), -1))


@njit(cache=True, nogil=True, inline="always")
def column_of(item: Any, row: Any, columns: Any) -> Any:
    """The column of an item (its uint64 hash) in a row."""
    return (((item * _FACTORS[row]) >> _HALF) * np.uint64(columns)) >> _HALF


@njit(cache=True, nogil=True)
def _update(items: Any, weights: Any, cells: Any) -> None:
    rows, columns = cells.shape
    for i in range(len(items)):
        for row in range(rows):
            cells[row, column_of(items[i], row, columns)] += weights[i]


@njit(cache=True, nogil=True)
def _estimate(items: Any, cells: Any, found: Any) -> None:
    rows, columns = cells.shape
    for i in range(len(items)):
        least = np.inf
        for row in range(rows):
            least = min(least, cells[row, column_of(items[i], row, columns)])
        found[i] = least
