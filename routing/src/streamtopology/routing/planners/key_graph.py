"""The graph of keys that are used together (locality-aware routing, section 3.3): what METIS divides among servers.

Each key of each operator is a vertex, a pair of keys of two consecutive operators an edge that weighs the rows counted.
For two operators it is bipartite, for a chain or a DAG it has as many parts as operators. Building it is linear in the
pairs: keys are numbered by a hash table and edges laid out by a counting sort, as sorting would cost as much as METIS.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pymetis

from streamtopology.routing.load.load_report import KeyPairs
from streamtopology.routing.planners.joint import Edge
from streamtopology.routing.table.hashing import kernel_input
from streamtopology.routing.table.kernel import njit

Floats = npt.NDArray[np.float64]
Hashes = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
Adjacency = tuple[Ints, Ints, npt.NDArray[Any]]

# METIS takes whole numbers: vertex weights are scaled to about this sum.
TOTAL_WEIGHT = 1 << 40

_SLOT_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


class KeyNumbers:
    """Numbers the distinct hashes of one operator in the order in which they are first met: open addressing."""

    def __init__(self, most: int) -> None:
        """`most`: how many hashes will be numbered at most."""
        bits = max((2 * most).bit_length(), 3)
        self._shift = np.uint64(64 - bits)
        self._slots = np.full(1 << bits, -1, np.int32)
        self._met = np.empty(most, np.uint64)
        self._count = 0

    @property
    def hashes(self) -> Hashes:
        """uint64[n]: the hash of every number."""
        return self._met[: self._count]

    def number(self, hashes: Hashes) -> Ints:
        """int64[len(hashes)]: their numbers; new ones get the next."""
        numbers = np.empty(len(hashes), np.int64)
        keys = kernel_input(hashes, np.uint64, "hashes")
        self._count = _number(keys, self._slots, self._shift, self._met, self._count, numbers)
        return numbers

    def find(self, hashes: Hashes) -> Ints:
        """int64[len(hashes)]: their numbers, -1 where a hash has none."""
        numbers = np.empty(len(hashes), np.int64)
        _find(kernel_input(hashes, np.uint64, "hashes"), self._slots, self._shift, self._met, numbers)
        return numbers


@dataclass(frozen=True, eq=False)
class KeyGraph:
    """Vertices are numbered operator by operator: those of operator i from `starts[i]` to `starts[i + 1]`.

    `sources`, `targets`, `rows`: int64[e] each, the edges. `busiest`: int64[v], the rows of a key along the edge (of
    the topology) that shows most of them: its frequency, where nothing else gives it.
    """

    operators: Sequence[str]
    numbers: Sequence[KeyNumbers]
    starts: Ints
    sources: Ints
    targets: Ints
    rows: Ints
    busiest: Ints

    @staticmethod
    def of(operators: Sequence[str], pairs: Mapping[Edge, KeyPairs]) -> KeyGraph:
        """The graph of all pairs with rows: METIS asks for weights > 0."""
        pairs = {edge: _with_rows(counted) for edge, counted in pairs.items()}
        most = dict.fromkeys(operators, 0)
        for (upstream, downstream), counted in pairs.items():
            most[upstream] += 1 + int(np.count_nonzero(counted.upstream[1:] != counted.upstream[:-1]))  # pairs are sorted by it
            most[downstream] += len(counted.rows)
        numbers = {name: KeyNumbers(count) for name, count in most.items()}
        edges = [
            (edge, numbers[edge[0]].number(counted.upstream), numbers[edge[1]].number(counted.downstream), counted.rows)
            for edge, counted in pairs.items()
        ]
        sizes = [len(numbers[name].hashes) for name in operators]
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        start = dict(zip(operators, starts.tolist(), strict=False))
        busiest = np.zeros(starts[-1], np.int64)
        for (upstream, downstream), first, second, rows in edges:
            for name, ends in ((upstream, first), (downstream, second)):
                _busier(ends, rows, busiest[start[name] : start[name] + len(numbers[name].hashes)])
        none = [np.empty(0, np.int64)]
        sources = np.concatenate([first + start[edge[0]] for edge, first, _, _ in edges] or none)
        targets = np.concatenate([second + start[edge[1]] for edge, _, second, _ in edges] or none)
        rows = np.concatenate([rows for *_, rows in edges] or none)
        return KeyGraph(tuple(operators), tuple(numbers[name] for name in operators), starts, sources, targets, rows, busiest)

    def __len__(self) -> int:
        return len(self.busiest)

    def of_operator(self, position: int) -> slice:
        """The vertices of the operator at this position."""
        return slice(int(self.starts[position]), int(self.starts[position + 1]))

    def within(self, owner: npt.NDArray[np.int32]) -> float:
        """The share of rows whose two keys have one owner (int32[v], negative for none); 1 when no row was counted."""
        local, total = _within(self.sources, self.targets, self.rows, owner)
        return local / total if total else 1.0

    def divided(self, weights: Floats, shares: Floats, alpha: float, seed: int) -> npt.NDArray[np.int32]:
        """int32[v]: the part of each vertex, such that few rows are cut and no part weighs more than alpha times its share.

        weights: float64[v] >= 0. shares: float64[parts] > 0, METIS's target weights. By multilevel recursive bisection
        up to 8 parts, k-way beyond (Karypis and Kumar, METIS), where a single key does not outweigh alpha times a share.
        """
        return divided(laid_out(self.sources, self.targets, self.rows, len(self)), weights, shares, alpha, seed)


def divided(adjacency: Adjacency, weights: Floats, shares: Floats, alpha: float, seed: int) -> npt.NDArray[np.int32]:
    """As `KeyGraph.divided`, of any graph: `adjacency` is as `laid_out` returns it, with whole weights > 0."""
    if len(shares) == 1 or not len(weights):
        return np.zeros(len(weights), np.int32)
    first, others, edge_weights = adjacency
    weights = weights if weights.any() else np.ones(len(weights))
    partition = pymetis.part_graph(
        len(shares),
        pymetis.CSRAdjacency(first, others),
        vweights=np.rint(weights * (TOTAL_WEIGHT / float(weights.sum()))).astype(np.int64),
        eweights=edge_weights,
        tpwgts=(shares / shares.sum()).tolist(),
        options=pymetis.Options(ufactor=max(round(1000 * (alpha - 1)), 1), seed=seed),
    )
    return np.array(partition.vertex_part, np.int32)


def _with_rows(pairs: KeyPairs) -> KeyPairs:
    kept = pairs.rows > 0
    return pairs if kept.all() else KeyPairs(pairs.upstream[kept], pairs.downstream[kept], pairs.rows[kept], pairs.seen)


@njit(cache=True, nogil=True)
def _busier(ends: Any, rows: Any, busiest: Any) -> None:
    """busiest[v] = the rows of the pairs that end at v, where these are more."""
    sums = np.zeros(len(busiest), np.int64)
    for i in range(len(ends)):
        sums[ends[i]] += rows[i]
    for v in range(len(busiest)):
        busiest[v] = max(busiest[v], sums[v])


@njit(cache=True, nogil=True)
def _within(sources: Any, targets: Any, rows: Any, owner: Any) -> Any:
    """(rows whose two keys have one owner, all rows)."""
    local, total = 0, 0
    for i in range(len(rows)):
        first = owner[sources[i]]
        local += rows[i] if first >= 0 and first == owner[targets[i]] else 0
        total += rows[i]
    return local, total


@njit(cache=True, nogil=True)
def laid_out(sources: Any, targets: Any, rows: Any, n_vertices: int) -> Any:
    """Every edge from both its ends, by vertex, as METIS wants it: (first int64[v + 1], other end int64[2e], rows [2e])."""
    first = np.zeros(n_vertices + 1, np.int64)
    for i in range(len(rows)):
        first[sources[i] + 1] += 1
        first[targets[i] + 1] += 1
    for vertex in range(n_vertices):
        first[vertex + 1] += first[vertex]
    free = first[:-1].copy()
    others, weights = np.empty(first[-1], np.int64), np.empty(first[-1], rows.dtype)
    for i in range(len(rows)):
        source, target, weight = sources[i], targets[i], rows[i]
        at = free[source]
        free[source] = at + 1
        others[at], weights[at] = target, weight
        position = free[target]
        free[target] = position + 1
        others[position], weights[position] = source, weight
    return first, others, weights


@njit(cache=True, nogil=True)
def _number(keys: Any, slots: Any, shift: Any, met: Any, count: int, numbers: Any) -> int:
    mask = len(slots) - 1
    for i in range(len(keys)):
        slot = np.int64((keys[i] * _SLOT_MULTIPLIER) >> shift)
        while slots[slot] >= 0 and met[slots[slot]] != keys[i]:
            slot = (slot + 1) & mask
        if slots[slot] < 0:
            slots[slot] = count
            met[count] = keys[i]
            count += 1
        numbers[i] = slots[slot]
    return count


@njit(cache=True, nogil=True)
def _find(keys: Any, slots: Any, shift: Any, met: Any, numbers: Any) -> None:
    mask = len(slots) - 1
    for i in range(len(keys)):
        slot = np.int64((keys[i] * _SLOT_MULTIPLIER) >> shift)
        while slots[slot] >= 0 and met[slots[slot]] != keys[i]:
            slot = (slot + 1) & mask
        numbers[i] = slots[slot]
