"""Water-filling: work poured over instances that are busy for some time already, so that all that get any finish together."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamtopology.routing.table.kernel import njit


@njit(cache=True, nogil=True)
def water_line(done: Any, capacities: Any, work: Any) -> Any:
    """The time at which all that get a part of `work` finish, where instance j is busy until done[j] (float64[k]).

    capacities float64[k]: work a unit of time. Infinite where none has any.
    """
    order, capacity, started = np.argsort(done), 0.0, work
    line = np.inf
    for j in order:
        if capacities[j] <= 0 or done[j] >= line:
            continue
        capacity += capacities[j]
        started += capacities[j] * done[j]
        line = started / capacity
    return line


@njit(cache=True, nogil=True)
def poured(given: Any, capacities: Any, amounts: Any, first: Any, owners: Any) -> Any:
    """Pour the amount of each split key over its owners, the smallest first: float64[o], the part of each owner.

    given float64[k]: work of each instance, to which the parts are added in place. Key i may go to
    owners[first[i]:first[i + 1]], distinct instances.
    """
    parts = np.zeros(len(owners))
    for key in np.argsort(amounts):
        mine = owners[first[key] : first[key + 1]]
        there = capacities[mine]
        done = np.where(there > 0, given[mine] / np.maximum(there, 1e-300), np.inf)
        line = water_line(done, there, amounts[key])
        for position in range(len(mine)):
            if done[position] < line < np.inf:
                part = (line - done[position]) * there[position]
                parts[first[key] + position] = part
                given[mine[position]] += part
    return parts
