"""The partitioning schemes of Consistent Grouping under the paper's symbols, on the project's own groupings."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from streamtopology.routing.groupings import Chooser, VirtualChooser, make_chooser
from streamtopology.routing.table.table import RoutingTable

Hashes = npt.NDArray[np.uint64]
Workers = npt.NDArray[np.int32]

# The workers of the next messages, given their key hashes; remembers what it needs.
Route = Callable[[Hashes], Workers]


def key_grouping(n_workers: int) -> Route:
    """KG: one bucket per worker, the key's hash decides."""
    return RoutingTable.uniform(range(n_workers), n_workers).lookup


def chosen(policy: str, n_workers: int, seed: int, epsilon: float | None = None) -> Route:
    """A chooser straight over the workers: PKG, PoTC, PoRC, SG."""
    return _messages(_chooser(policy, n_workers, seed, epsilon))


def over_virtual_workers(policy: str, n_workers: int, each: int, seed: int, epsilon: float | None = None) -> Route:
    """A chooser over `each` virtual workers per worker, which stay where they are dealt."""
    return _messages(virtual_chooser(policy, n_workers, each, seed, epsilon))


def virtual_chooser(policy: str, n_workers: int, each: int, seed: int, epsilon: float | None = None) -> VirtualChooser:
    """The chooser behind `over_virtual_workers`; with "porc", consistent grouping."""
    table = RoutingTable.uniform(range(n_workers), each * n_workers)
    virtual = _chooser(policy, len(table.buckets), seed, epsilon)
    return VirtualChooser(virtual, table, np.arange(n_workers, dtype=np.int32), np.zeros(n_workers))


def schemes(n_workers: int, each: int, epsilon: float, seed: int) -> Mapping[str, Route]:
    """The schemes of figure 6 by symbol: CH and CG go over `each` virtual workers per worker, with this epsilon."""
    return {
        "KG": key_grouping(n_workers),
        "PKG": chosen("partial-key", n_workers, seed),
        "PoTC": chosen("potc", n_workers, seed),
        "CH": over_virtual_workers("bounded-hash", n_workers, each, seed, epsilon),
        "SG": chosen("shuffle", n_workers, seed),
        "CG": over_virtual_workers("porc", n_workers, each, seed, epsilon),
    }


def from_sources(routes: list[Route]) -> Route:
    """Several sources, each with a route of its own, that get messages in turn (shuffled to them, as in figure 9)."""
    first = 0

    def route(hashes: Hashes) -> Workers:
        nonlocal first
        workers = np.empty(len(hashes), np.int32)
        for number, of_source in enumerate(routes):
            turn = slice((number - first) % len(routes), None, len(routes))
            workers[turn] = of_source(hashes[turn])
        first = (first + len(hashes)) % len(routes)
        return workers

    return route


def _chooser(policy: str, k: int, seed: int, epsilon: float | None) -> Chooser:
    options = {} if epsilon is None else {"epsilon": epsilon}
    return make_chooser(policy, np.arange(k, dtype=np.int32), np.zeros(k), seed, options)


def _messages(chooser: Chooser) -> Route:
    return lambda hashes: chooser.choose(hashes, len(hashes))
