"""Local search over the items of several operators: an item moves to where its neighbours are, as far as there is room.

Sweep after sweep, heaviest first; after the first one only items whose neighbours moved, or whose instance is too full.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from streamtopology.routing.planners.key_graph import Adjacency
from streamtopology.routing.table.kernel import njit

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Owners = npt.NDArray[np.int32]

SWEEPS = 6

# The share of the items that moved in a sweep below which another one is not worth its time.
FEW_MOVES = 1e-3


@dataclass(frozen=True, eq=False)
class Search:
    """The moves of items and their cost; v items, s operators, k servers.

    stage int32[v]: the operator of each; order int64[m]: those that may move, heaviest first; loads float64[v] rows.
    capacities float64[s, k] in rows/s. adjacency: the links of each item. origin int32[v]: where its state is now, and
    anchor float64[v]: seconds a batch if it is elsewhere.
    """

    stage: Owners
    order: Ints
    loads: Floats
    capacities: Floats
    adjacency: Adjacency
    origin: Owners
    anchor: Floats

    def improved(self, start: Owners, done: Floats, limits: Floats, price: float) -> Owners:
        """int32[v]: the owners after the search.

        done float64[s, k]: seconds of each instance at the start; limits float64[s]: those an operator may take; price:
        seconds a batch that a row costs that is sent from server to server.
        """
        owner, done = start.copy(), done.copy()
        active = np.ones(len(owner), np.bool_)
        for _ in range(SWEEPS):
            moves = _sweep(
                self.order, *self.adjacency, self.stage, self.loads, self.capacities, done, limits, price, self.anchor,
                self.origin, owner, active,
            )  # fmt: skip
            if moves <= FEW_MOVES * len(owner):
                break
        return owner


@njit(cache=True, nogil=True)
def _sweep(
    order: Any,
    first: Any,
    others: Any,
    rows: Any,
    stage: Any,
    loads: Any,
    capacities: Any,
    done: Any,
    limits: Any,
    price: float,
    anchor: Any,
    origin: Any,
    owner: Any,
    active: Any,
) -> int:
    """The number of items that moved; `done`, `owner` and `active` are kept up to date.

    An item moves where that lowers price * rows to other servers + seconds beyond the limit + anchor. Candidates: servers
    of its neighbours, the one that its operator fills least, its origin.
    """
    k = capacities.shape[1]
    near, met = np.zeros(k), np.empty(k + 2, np.int64)
    least = np.empty(len(done), np.int64)
    for s in range(len(done)):
        least[s] = np.argmin(done[s])
    moves = 0
    for v in order:
        s, here, load = stage[v], owner[v], loads[v]
        if not active[v] and done[s, here] <= limits[s]:
            continue
        active[v] = False
        n = _meet(v, first, others, rows, owner, near, met)
        met[n], met[n + 1] = least[s], origin[v]
        full = done[s, here]
        relief = max(full - limits[s], 0.0) - max(full - load / capacities[s, here] - limits[s], 0.0)
        best, best_saved = here, 1e-12
        for c in range(n + 2):
            at = met[c]
            if at == here:
                continue
            after = done[s, at] + load / capacities[s, at]
            saved = price * (near[at] - near[here]) + relief - max(after - limits[s], 0.0) + max(done[s, at] - limits[s], 0.0)
            saved += anchor[v] * ((here != origin[v]) - (at != origin[v]))
            if saved > best_saved:
                best, best_saved = at, saved
        for c in range(n):
            near[met[c]] = 0.0
        if best != here:
            done[s, here] -= load / capacities[s, here]
            done[s, best] += load / capacities[s, best]
            owner[v] = best
            moves += 1
            for i in range(first[v], first[v + 1]):
                active[others[i]] = True
            if best == least[s]:
                least[s] = np.argmin(done[s])
            elif done[s, here] < done[s, least[s]]:
                least[s] = here
    return moves


@njit(cache=True, nogil=True, inline="always")
def _meet(v: int, first: Any, others: Any, rows: Any, owner: Any, near: Any, met: Any) -> int:
    """The number of servers that neighbours of `v` are on: these are in `met`, and the rows from and to each in `near`."""
    n = 0
    for i in range(first[v], first[v + 1]):
        at = owner[others[i]]
        if near[at] == 0.0:
            met[n] = at
            n += 1
        near[at] += rows[i]
    return n
