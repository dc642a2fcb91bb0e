"""POSG's greedy online scheduler (Rivetti et al., section III-A and Listing III.2): the least loaded instance is next.

Two packings make a tuple cheap, some 20 ns with four sketch rows and 16 instances:

- A load (the estimated cumulated execution time, C-hat) and its instance's position are one whole number, the load in
  nanoseconds above the position: the least of them names its instance, and to find it is a vector minimum.
- A sketch cell's rank by frequency and its cost W / F are one whole number, the rank above the cost: the least of a
  key's cells is the one with the least F, and has the cost in it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from streamtopology.routing.load.sketches.count_min import column_of
from streamtopology.routing.table.kernel import njit

Loads = npt.NDArray[np.int64]
Cells = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

MOST_INSTANCES = 1 << 10
# Loads differ by less than this: 52 days.
MOST_SECONDS = 2.0**62 / (1e9 * MOST_INSTANCES)
MOST_CELLS = 1 << 22
_POSITION_BITS = np.int64(10)
_POSITION = np.int64(MOST_INSTANCES - 1)
# A cost is up to 2^41 ns, 36 minutes; a dearer tuple counts as that.
_COST_BITS = np.int64(41)
_COST = np.int64((1 << 41) - 1)


def packed(seconds: Floats) -> Loads:
    """Pack seconds of work (float64[k]) into loads int64[k]. Raises ValueError beyond the limits above."""
    if len(seconds) > MOST_INSTANCES or np.abs(seconds).max(initial=0.0) > MOST_SECONDS:
        raise ValueError(f"POSG schedules up to {MOST_INSTANCES} instances with loads of up to {MOST_SECONDS:.0f} seconds")
    return to_ticks(seconds) + np.arange(len(seconds))


def to_ticks(seconds: npt.ArrayLike) -> Loads:
    """Convert seconds of work to the amount that is added to a load, rounded to nanoseconds."""
    return np.rint(np.asarray(seconds) * 1e9).astype(np.int64) * MOST_INSTANCES


def to_seconds(loads: Loads) -> Floats:
    """float64[k]: the work in packed loads."""
    return (loads >> _POSITION_BITS).astype(np.float64) * 1e-9


def priced_cells(frequencies: Floats, costs: Floats) -> Cells:
    """int64[r, c] of a sketch's F and W / F in seconds, both float64[r, c]; of equal F the first row goes before."""
    if frequencies.size > MOST_CELLS:
        raise ValueError(f"POSG: a sketch has up to {MOST_CELLS} cells; this one has {frequencies.size}: take a larger eps")
    ranks = np.empty(frequencies.size, np.int64)
    # Of cells in different rows with equal F the first row's is the least, and so it is by position in row-major order.
    ranks[np.argsort(frequencies.ravel(), kind="stable")] = np.arange(frequencies.size)
    nanoseconds = np.minimum(np.rint(costs * 1e9), float(_COST)).astype(np.int64)
    return (ranks.reshape(frequencies.shape) << _COST_BITS) | nanoseconds


@njit(cache=True, nogil=True, inline="always")
def least_loaded(loads: Any) -> Any:
    """SUBMIT of Listing III.2: the position with the least load, the first of several."""
    least = loads[0]
    for i in range(1, len(loads)):
        least = min(least, loads[i])
    return least & _POSITION


@njit(cache=True, nogil=True, inline="always")
def nanoseconds_in(item: Any, cells: Any, sketch: Any) -> Any:
    """W / F of an item (its uint64 hash) by `cells[sketch]`, of int64[g, r, c]."""
    rows, columns = np.uint64(cells.shape[1]), np.uint64(cells.shape[2])
    least = cells[sketch, np.uint64(0), column_of(item, np.uint64(0), columns)]
    for row in range(np.uint64(1), rows):
        least = min(least, cells[sketch, np.uint64(row), column_of(item, np.uint64(row), columns)])
    return least & _COST


@njit(cache=True, nogil=True)
def submit(hashes: Any, cells: Any, loads: Any, chosen: Any) -> None:
    """chosen[i] = position for tuple i; SUBMIT and UPDATE of Listing III.2 in one, `loads` carried on.

    cells int64[g, r, c]: priced cells of a sketch for each of g = k instances, or of one for all (g = 1).
    """
    per_instance = np.uint64(len(cells) > 1)
    for i in range(len(hashes)):
        position = np.uint64(least_loaded(loads))
        loads[position] += nanoseconds_in(hashes[i], cells, position * per_instance) << _POSITION_BITS
        chosen[i] = position
