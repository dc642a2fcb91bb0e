"""Items in the order in which planners take them, the same on every machine."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from streamtopology.routing.table.kernel import njit

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def descending(values: Floats) -> Ints:
    """int64[n]: positions of float64[n] by descending value, equal ones in their order.

    numpy's vectorised sort and then a counting sort within equal values take a third of its stable sort's time; the
    vectorised sort alone orders equal values as the processor's instructions have it.
    """
    return _stable(np.argsort(-values), values)


@njit(cache=True, nogil=True)
def _stable(order: Ints, values: Floats) -> Ints:
    """The same order, but for equal values, which come in the order of their positions."""
    group, free = np.empty(len(order), np.int32), np.empty(len(order), np.int64)
    groups = 0
    for i in range(len(order)):
        if i == 0 or values[order[i]] != values[order[i - 1]]:
            free[groups] = i
            groups += 1
        group[order[i]] = groups - 1
    stable = np.empty(len(order), np.int64)
    for position in range(len(order)):
        stable[free[group[position]]] = position
        free[group[position]] += 1
    return stable
