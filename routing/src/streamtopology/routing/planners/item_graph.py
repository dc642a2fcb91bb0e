"""The items of several operators (keys, and buckets of the others) as one graph: the rows that go from item to item.

Of the rows of a pair of keys only those count that chance does not explain: of n rows counted, n - sqrt(n), less those that
two keys as frequent as these have in common if nothing is correlated. All others fall by chance, wherever the items are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from streamtopology.routing.planners.joint import JointPlanInput
from streamtopology.routing.planners.key_graph import KeyGraph
from streamtopology.routing.planners.pair_keys import with_keys_of_pairs
from streamtopology.routing.planners.plan import PlanInput
from streamtopology.routing.planners.problem import PlanningProblem
from streamtopology.routing.planners.split import ItemPlacement
from streamtopology.routing.table.kernel import njit
from streamtopology.routing.table.table import bucket_of

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Owners = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class ItemGraph:
    """The items of operator o (`problems[o]`) are the vertices from `starts[o]` to `starts[o + 1]`.

    Link i goes from vertex sources[i] to targets[i] (int64[e]), rows[i] (float64[e]) a batch beyond chance, along the edge
    edge[i] (int64[e]) of the topology. Edge j joins the operators ends[j] (int64[edges, 2]); chance[j] of its rows
    (float64[edges]) fall by chance.
    """

    problems: Sequence[PlanningProblem]
    starts: Ints
    sources: Ints
    targets: Ints
    rows: Floats
    edge: Ints
    ends: Ints
    chance: Floats

    @staticmethod
    def of(given: JointPlanInput, keys: KeyGraph) -> ItemGraph:
        """Keys of pairs become items as far as tables have room for them; the others count with their buckets."""
        problems: list[PlanningProblem] = []
        vertex, starts = np.full(len(keys), -1, np.int64), [0]
        for position, operator in enumerate(given.operators.values()):
            part, numbers = keys.of_operator(position), keys.numbers[position]
            room = max(operator.max_entries - len(operator.key_hashes), 0)
            complete, items = with_keys_of_pairs(operator, numbers, keys.busiest[part] / given.batches, room)
            problems.append(PlanningProblem.of(complete))
            items = _with_buckets(items, numbers.hashes, problems[-1], complete)
            vertex[part] = np.where(items >= 0, items + starts[-1], -1)
            starts.append(starts[-1] + len(problems[-1].loads))
        counts = [int(np.count_nonzero(pairs.rows > 0)) for pairs in given.pairs.values()]
        edge = np.repeat(np.arange(len(counts)), counts)
        seen = np.array([max(pairs.seen, int(pairs.rows.sum())) for pairs in given.pairs.values()], np.float64)
        rows = _beyond_chance(keys, counts, seen)
        sources, targets = vertex[keys.sources], vertex[keys.targets]
        real = (rows > 0) & (sources >= 0) & (targets >= 0)
        place = {name: position for position, name in enumerate(given.operators)}
        ends = np.array([[place[name] for name in names] for names in given.pairs], np.int64).reshape(-1, 2)
        rows = rows[real] / given.batches
        chance = seen / given.batches - np.bincount(edge[real], rows, len(counts))
        return ItemGraph(problems, np.array(starts), sources[real], targets[real], rows, edge[real], ends, chance)

    def without(self, split: npt.NDArray[np.bool_]) -> ItemGraph:
        """The graph in which the rows of these vertices (bool[v]) fall by chance: they have several owners."""
        kept = ~(split[self.sources] | split[self.targets])
        lost = np.bincount(self.edge[~kept], self.rows[~kept], len(self.chance))
        links = self.sources[kept], self.targets[kept], self.rows[kept], self.edge[kept]
        return ItemGraph(self.problems, self.starts, *links, self.ends, self.chance + lost)

    def part(self, position: int) -> slice:
        """The vertices of the operator at this position."""
        return slice(int(self.starts[position]), int(self.starts[position + 1]))

    def link_rows(self, placements: Sequence[ItemPlacement]) -> tuple[Floats, Floats]:
        """Rows a batch that each server sends to others along each edge, and receives: float64[edges, k] twice."""
        shape = len(self.ends), len(self.problems[0].given.instances)
        sent, received = np.zeros(shape), np.zeros(shape)
        owner = np.concatenate([placement.owner for placement in placements])
        _add_links(self.sources, self.targets, self.rows, self.edge, owner, sent, received)
        work = [placement.work(problem) for placement, problem in zip(placements, self.problems, strict=True)]
        share = np.array([rows / max(float(rows.sum()), 1e-300) for rows in work])
        up, down = share[self.ends[:, 0]], share[self.ends[:, 1]]
        by_chance = self.chance[:, None]
        return sent + by_chance * up * (1 - down), received + by_chance * down * (1 - up)

    def busiest_rows(self, placements: Sequence[ItemPlacement]) -> float:
        """Rows a batch of the busiest link of each edge, sent or received, summed over the edges."""
        sent, received = self.link_rows(placements)
        return float(np.maximum(sent.max(axis=1), received.max(axis=1)).sum())


def _with_buckets(items: Ints, hashes: npt.NDArray[np.uint64], problem: PlanningProblem, given: PlanInput) -> Ints:
    """The items of keys; of one that is none the bucket's, where buckets are items."""
    if not len(given.bucket_loads):
        return items
    return np.where(items >= 0, items, problem.n_keys + bucket_of(hashes, len(given.bucket_loads)))


def _beyond_chance(keys: KeyGraph, counts: Sequence[int], seen: Floats) -> Floats:
    """float64[pairs]: the rows of each pair that chance does not explain; `counts` of them are of each edge."""
    rows, first = keys.rows.astype(np.float64), 0
    expected = np.empty(len(rows))
    for count, total in zip(counts, seen, strict=True):
        pairs = slice(first, first + count)
        ends = keys.sources[pairs], keys.targets[pairs]
        up, down = (np.bincount(end, rows[pairs], len(keys))[end] for end in ends)
        expected[pairs] = up * down / max(float(total), 1.0)
        first += count
    return np.maximum(rows - np.sqrt(rows) - expected, 0.0)


@njit(cache=True, nogil=True)
def _add_links(sources: Any, targets: Any, rows: Any, edge: Any, owner: Any, sent: Any, received: Any) -> None:
    for i in range(len(rows)):
        before, after = owner[sources[i]], owner[targets[i]]
        if before != after:
            sent[edge[i], before] += rows[i]
            received[edge[i], after] += rows[i]
