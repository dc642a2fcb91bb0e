"""`auto` for several operators at once: stages are balanced as far as rows that stay on their server are worth it.

Seconds a batch, all added up: of each stage until its last instance has worked and its last home has merged; of each edge,
until the busiest server has sent its rows to others, or received theirs; and of moving state, spread over the batches of
the horizon. Each operator alone (`auto`) is one alternative, and taken unless another one is clearly better. Split keys
stay as `auto` has them, and take no part in the search: their rows are on several servers anyway.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from streamtopology.routing.planners.auto import KEEP, Alternative, auto, kept, realised
from streamtopology.routing.planners.balance import finish_seconds
from streamtopology.routing.planners.item_graph import Floats, Ints, ItemGraph, Owners
from streamtopology.routing.planners.joint import ALONE, JointPlan, JointPlanInput
from streamtopology.routing.planners.key_graph import KeyGraph, divided, laid_out
from streamtopology.routing.planners.key_search import Search
from streamtopology.routing.planners.llfd import CANDIDATE
from streamtopology.routing.planners.locality import LEAST_SHARE, SEED, least_moved
from streamtopology.routing.planners.order import descending
from streamtopology.routing.planners.plan import Plan
from streamtopology.routing.planners.problem import PlanningProblem
from streamtopology.routing.planners.split import ItemPlacement, dealt_by, line_of, repoured
from streamtopology.routing.planners.switch_costs import MOVED_BYTES_PER_SECOND, switch_seconds

# The share of a batch's seconds that another plan must save to be preferred to each operator alone.
LEAST_GAIN = 0.005

# Shares of its perfect division by which a stage may last longer for the sake of the network: each is tried.
SLACKS = (0.02, 0.08, 0.25)

# Those of the search from a placement that is balanced already.
FEW_SLACKS = SLACKS[:2]

# Beyond these METIS takes as long as all else, and finds no better plan than the search alone.
METIS_LINKS, METIS_SERVERS = 150_000, 128

# METIS takes whole weights: of a row, this many.
FINE = 16

# The busiest link over the mean one, as far as it counts in the price of a row.
MOST_PEAK = 4.0


@dataclass(frozen=True, eq=False)
class Combined:
    """A placement of each operator, and the seconds of a batch by stage (`parts`), for remote rows and for the change."""

    name: str
    parts: Sequence[Alternative]
    remote: float
    move: float

    @property
    def placements(self) -> list[ItemPlacement]:
        return [part.placement for part in self.parts]

    @property
    def seconds(self) -> float:
        """Of a batch, the cost of the change included."""
        return sum(part.seconds for part in self.parts) + self.remote + self.move


def auto_together(given: JointPlanInput) -> JointPlan:
    """The plans of least seconds. Those of each operator alone if remote rows cost nothing, or their pairs are chance."""
    alone = {name: auto(operator) for name, operator in given.operators.items()}
    keys = KeyGraph.of(tuple(given.operators), given.pairs)
    if not given.remote_seconds or len(given.instances) == 1 or not len(keys):
        return _joint_plan(given, keys, alone)
    scene = _Scene.of(given, keys, alone)
    if not len(scene.graph.rows):
        return _joint_plan(given, keys, alone)
    weighed = list(scene.alternatives())
    of_alone = next(one for one in weighed if one.name == ALONE)
    keeping = weighed[0] if weighed[0].name == KEEP else None
    best = min(weighed, key=lambda one: one.seconds)
    if best.seconds >= (1 - LEAST_GAIN) * of_alone.seconds:
        best = of_alone
    plans = alone if best is of_alone else scene.realised(best, keeping)
    before = keeping.remote if keeping else best.remote
    return replace(_joint_plan(given, keys, plans), remote_before=before, remote_after=best.remote, chosen=best.name)


def _joint_plan(given: JointPlanInput, keys: KeyGraph, plans: Mapping[str, Plan]) -> JointPlan:
    before, after = np.empty(len(keys), np.int32), np.empty(len(keys), np.int32)
    for position, (name, operator) in enumerate(given.operators.items()):
        hashes, part = keys.numbers[position].hashes, keys.of_operator(position)
        before[part] = operator.current.lookup(hashes)
        after[part] = plans[name].table.lookup(hashes)
    before[~np.isin(before, given.instances)] = CANDIDATE
    return JointPlan(plans, keys.within(before), keys.within(after), chosen=ALONE)


@dataclass(frozen=True, eq=False)
class _Scene:
    """The operators as they may be planned. kept: their present placements, None if an instance is gone. alone: those of the
    plans of each. split bool[v]: the items that either splits."""

    given: JointPlanInput
    graph: ItemGraph
    kept: Sequence[ItemPlacement] | None
    alone: Sequence[ItemPlacement]
    split: np.ndarray

    @staticmethod
    def of(given: JointPlanInput, keys: KeyGraph, plans: Mapping[str, Plan]) -> _Scene:
        graph = ItemGraph.of(given, keys)
        present = [kept(problem) for problem in graph.problems]
        alone: list[ItemPlacement] = []
        split = np.zeros(int(graph.starts[-1]), np.bool_)
        for position, (name, problem) in enumerate(zip(given.operators, graph.problems, strict=True)):
            table, here = plans[name].table, present[position]
            unchanged = here is not None and table == given.operators[name].current
            alone.append(here if here and unchanged else dealt_by(problem, table, problem.owners_by(table)))
            for placement in (alone[-1], *([here] if here else [])):
                split[placement.items + graph.starts[position]] = True
        everywhere = [placement for placement in present if placement is not None]
        whole = everywhere if len(everywhere) == len(present) else None
        return _Scene(given, graph.without(split), whole, alone, split)

    def alternatives(self) -> Iterator[Combined]:
        """All that is worth weighing, keeping first where that can be. A large graph is searched once, from the best start."""
        small = len(self.graph.rows) <= METIS_LINKS and len(self.given.instances) <= METIS_SERVERS
        starts = [self._weighed(KEEP, self.kept)] if self.kept is not None else []
        starts.append(self._weighed(ALONE, self.alone))
        yield from starts
        slacks = FEW_SLACKS if small else SLACKS[:1]
        for start in starts if small else [min(starts, key=lambda one: one.seconds)]:
            yield from self._searched(f"search from {start.name}", start.placements, start.placements, slacks)
        if small and self._loads[self._search.order].any():
            parts = self._placed(self._divided(), self.alone)
            yield from self._searched("METIS and search", parts, self.alone, SLACKS)

    def realised(self, best: Combined, keeping: Combined | None) -> dict[str, Plan]:
        """The plans of an alternative, compared with keeping the tables."""
        before = keeping.parts if keeping else [None] * len(best.parts)
        each = zip(self.graph.problems, best.parts, before, strict=True)
        return dict(zip(self.given.operators, (realised(*one) for one in each), strict=True))

    def _searched(
        self, name: str, start: Sequence[ItemPlacement], splits: Sequence[ItemPlacement], slacks: Sequence[float]
    ) -> Iterator[Combined]:
        """Placements found from `start`, with the split keys as they are in `splits`."""
        sent, received = self.graph.link_rows(start)
        mean = max(float(sent.mean() + received.mean()) / 2, 1e-300)
        peak = max(float(sent.max()), float(received.max())) / mean
        price = self.given.remote_seconds * min(peak, MOST_PEAK) / len(self.given.instances)
        done = np.array([_done(problem, at) for problem, at in zip(self.graph.problems, start, strict=True)])
        owner = np.concatenate([placement.owner for placement in start])
        for slack in slacks:
            limits = np.maximum((1 + slack) * self._lines, self._latest_alone)
            found = self._search.improved(owner, done, limits, price)
            yield self._weighed(f"{name}, {slack:.0%} slack", self._placed(found, splits))

    def _placed(self, owner: Owners, splits: Sequence[ItemPlacement]) -> list[ItemPlacement]:
        """The items with these owners, as far as tables may grow; split keys are those of `splits`, poured for the rest."""
        placements: list[ItemPlacement] = []
        for position, (problem, split) in enumerate(zip(self.graph.problems, splits, strict=True)):
            mine = owner[self.graph.part(position)].copy()
            mine[split.items] = split.owner[split.items]
            bounded = problem.cut_to_bound(mine, len(split.items))
            placements.append(repoured(problem, bounded, split.items, split.first, split.owners))
        return placements

    def _weighed(self, name: str, placements: Sequence[ItemPlacement]) -> Combined:
        parts: list[Alternative] = []
        moved, changed = 0.0, False
        for problem, placement in zip(self.graph.problems, placements, strict=True):
            splitting = problem.given.splitting
            merge = placement.merge_seconds(problem, splitting) if splitting is not None else 0.0
            parts.append(Alternative(name, placement, placement.work_seconds(problem), merge, 0.0))
            moved += problem.moved_state(placement.owner)
        changed = self.kept is None or any(now is not kept for now, kept in zip(placements, self.kept, strict=True))
        move = switch_seconds(moved) / self._batches if changed else 0.0
        return Combined(name, parts, self.given.remote_seconds * self.graph.busiest_rows(placements), move)

    def _divided(self) -> Owners:
        """int32[v]: METIS's parts, each given to the server with most of its state.

        Each server is a vertex, too, tied to the items whose state it has by the rows that moving this state is worth.
        """
        graph, k, v = self.graph, len(self.given.instances), len(self._loads)
        tied = np.flatnonzero((self._origin != CANDIDATE) & (self._search.anchor > 0))
        worth = self._search.anchor[tied] / self.given.remote_seconds * k
        sources = np.concatenate([graph.sources, tied])
        targets = np.concatenate([graph.targets, v + self._origin[tied].astype(np.int64)])
        rows = np.maximum(np.rint(np.concatenate([graph.rows, worth]) * FINE), 1).astype(np.int64)
        load, shares = self._work_and_room()
        weights = np.concatenate([load, np.zeros(k)])
        parts = divided(laid_out(sources, targets, rows, v + k), weights, shares, 1 + SLACKS[0], SEED)[:v]
        state = np.concatenate([problem.state for problem in graph.problems])
        owner = self._alone_owner.copy()
        movable = self._search.order
        owner[movable] = least_moved(parts, load, shares, state, self._origin)[movable]
        return owner

    def _work_and_room(self) -> tuple[Floats, Floats]:
        """float64[v], the share of its stage that an item is, 0 of those that stay; float64[k], what is left to each server."""
        load, shares = np.zeros(len(self._loads)), np.zeros(len(self.given.instances))
        load[self._search.order] = self._loads[self._search.order]
        for position, (problem, alone) in enumerate(zip(self.graph.problems, self.alone, strict=True)):
            given, part, rows = problem.given, self.graph.part(position), max(float(problem.loads.sum()), 1e-300)
            stays = alone.work(problem) - np.bincount(alone.owner, load[part], len(shares))
            room = given.capacities * np.maximum(self._lines[position] - given.fixed_seconds, 0.0) - stays
            shares += room / rows
            load[part] /= rows
        return load, np.maximum(shares, LEAST_SHARE * max(float(load.sum()), float(shares.max())) / len(shares))

    @cached_property
    def _search(self) -> Search:
        graph = self.graph
        anchor = np.concatenate([problem.state for problem in graph.problems]) / MOVED_BYTES_PER_SECOND / self._batches
        return Search(
            stage=np.repeat(np.arange(len(graph.problems), dtype=np.int32), np.diff(graph.starts)),
            order=self._order(),
            loads=self._loads,
            capacities=np.array([problem.given.capacities for problem in graph.problems]),
            adjacency=laid_out(graph.sources, graph.targets, graph.rows, len(self._loads)),
            origin=np.where(self._origin == CANDIDATE, self._alone_owner, self._origin),
            anchor=np.where(self._origin == CANDIDATE, 0.0, anchor),
        )

    def _order(self) -> Ints:
        """Heaviest first; split items and those that weigh nothing and are linked to none stay."""
        linked = np.zeros(len(self._loads), np.bool_)
        linked[self.graph.sources] = linked[self.graph.targets] = True
        order = descending(self._seconds)
        return order[~self.split[order] & (linked[order] | (self._loads[order] > 0))]

    @cached_property
    def _loads(self) -> Floats:
        return np.concatenate([problem.loads for problem in self.graph.problems])

    @cached_property
    def _seconds(self) -> Floats:
        return np.concatenate([problem.loads / problem.given.capacities.mean() for problem in self.graph.problems])

    @cached_property
    def _origin(self) -> Owners:
        return np.concatenate([problem.owner_before for problem in self.graph.problems])

    @cached_property
    def _alone_owner(self) -> Owners:
        return np.concatenate([placement.owner for placement in self.alone])

    @cached_property
    def _lines(self) -> Floats:
        """float64[operators]: seconds of the perfect division of each."""
        return np.array([line_of(problem.given, problem.loads) for problem in self.graph.problems])

    @cached_property
    def _latest_alone(self) -> Floats:
        return np.array([at.work_seconds(problem) for at, problem in zip(self.alone, self.graph.problems, strict=True)])

    @property
    def _batches(self) -> float:
        """Batches of the horizon."""
        return next(iter(self.given.operators.values())).switch.batches


def _done(problem: PlanningProblem, placement: ItemPlacement) -> Floats:
    given = problem.given
    return finish_seconds(placement.work(problem), given.capacities, given.fixed_seconds)
