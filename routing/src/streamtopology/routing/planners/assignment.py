"""The assignment of least cost, one part each (Kuhn's Hungarian method by shortest augmenting paths)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@njit(cache=True, nogil=True)
def assigned(costs: Any) -> Any:
    """int64[k]: the column of every row of the square `costs` (float64[k, k], finite) such that their sum is least. O(k^3).

    Jonker and Volgenant's form: rows are added one by one, each along the cheapest path of reassignments.
    """
    k = len(costs)
    row_price, column_price = np.zeros(k + 1), np.zeros(k + 1)
    row_of = np.full(k + 1, -1)  # column k stands for the row that is being added
    for row in range(k):
        row_of[k] = row
        column = k
        distance, came_from = np.full(k, np.inf), np.full(k, k)
        done = np.zeros(k + 1, np.bool_)
        while row_of[column] >= 0:
            done[column] = True
            here, step, following = row_of[column], np.inf, -1
            for other in range(k):
                if done[other]:
                    continue
                reduced = costs[here, other] - row_price[here] - column_price[other]
                if reduced < distance[other]:
                    distance[other], came_from[other] = reduced, column
                if distance[other] < step:
                    step, following = distance[other], other
            for other in range(k + 1):
                if done[other]:
                    row_price[row_of[other]] += step
                    column_price[other] -= step
                elif other < k:
                    distance[other] -= step
            column = following
        while column != k:
            row_of[column] = row_of[came_from[column]]
            column = came_from[column]
    columns = np.empty(k, np.int64)
    for column in range(k):
        columns[row_of[column]] = column
    return columns
