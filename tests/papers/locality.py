"""Locality-aware routing as section 3.3 of its paper has it, over dictionaries; METIS is METIS, as in the paper.

Open in the text, and decided here as the planner's page says: vertices and edges come in the order in which the pairs,
sorted by key, first name them; of METIS's parts, which have no names, each is given to a server such that most state stays.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import permutations

import pymetis

Key = int
# A key of X or of Y, two consecutive stateful operators.
Vertex = tuple[str, Key]

ALPHA = 1.03
# METIS takes whole numbers for weights: they are scaled to this sum.
WHOLE = 1 << 40


@dataclass(frozen=True)
class Pairs:
    """The number of tuples that had key k at X and then k' at Y, and n servers."""

    counts: Mapping[tuple[Key, Key], int]
    n: int

    def vertices(self) -> list[Vertex]:
        in_order = sorted(self.counts)
        return [*dict.fromkeys(("X", x) for x, _ in in_order), *dict.fromkeys(("Y", y) for _, y in in_order)]

    def frequency(self) -> Counter[Vertex]:
        weights: Counter[Vertex] = Counter()
        for (x, y), count in self.counts.items():
            weights["X", x] += count
            weights["Y", y] += count
        return weights

    def partition(self) -> dict[Vertex, int]:
        """The part of every vertex: few tuples cut, at most alpha times an equal share of the frequency in each."""
        vertices, frequency = self.vertices(), self.frequency()
        if self.n == 1:
            return dict.fromkeys(vertices, 0)
        number = {vertex: i for i, vertex in enumerate(vertices)}
        neighbours: list[list[tuple[int, int]]] = [[] for _ in vertices]
        for x, y in sorted(self.counts):
            a, b, count = number["X", x], number["Y", y], self.counts[x, y]
            neighbours[a].append((b, count))
            neighbours[b].append((a, count))
        starts = [0]
        for around in neighbours:
            starts.append(starts[-1] + len(around))
        parts = pymetis.part_graph(
            self.n,
            pymetis.CSRAdjacency(starts, [other for around in neighbours for other, _ in around]),
            vweights=[round(frequency[vertex] * (WHOLE / frequency.total())) for vertex in vertices],
            eweights=[count for around in neighbours for _, count in around],
            tpwgts=[1 / self.n] * self.n,
            options=pymetis.Options(ufactor=round(1000 * (ALPHA - 1)), seed=1),
        ).vertex_part
        return dict(zip(vertices, parts, strict=True))

    def placed(self, at: Mapping[Vertex, int], state: Mapping[Vertex, int]) -> dict[Vertex, int]:
        """The server of every key, given where they and their state are now."""
        part = self.partition()
        names = [{vertex: server[part[vertex]] for vertex in part} for server in permutations(range(self.n))]
        return max(names, key=lambda placed: stays(placed, at, state))


def stays(placed: Mapping[Vertex, int], at: Mapping[Vertex, int], state: Mapping[Vertex, int]) -> int:
    """The state that need not be moved."""
    return sum(state[vertex] for vertex, server in placed.items() if server == at[vertex])


def together(placed: Mapping[Vertex, int]) -> set[frozenset[Vertex]]:
    """The keys of each server, without its name."""
    servers: defaultdict[int, set[Vertex]] = defaultdict(set)
    for vertex, server in placed.items():
        servers[server].add(vertex)
    return {frozenset(keys) for keys in servers.values()}
