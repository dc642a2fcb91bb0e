"""`earliest-finish`: each tuple goes to the instance that finishes it first, by learnt costs and speeds.

The project's own estimator for POSG's problem (docs/decisions/0020). Against the paper's: costs of the keys seen most are
exact and shared by all instances, an unseen key costs what keys cost on average; an instance's speed is learnt apart from
the keys' costs; what counts is when an instance is done, max(now, C) + w, not a sum since the beginning. A tuple costs
some 40 ns with 16 instances.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from streamtopology.routing.groupings.chooser import Floats, Hashes, Instances, checked_hashes
from streamtopology.routing.groupings.learning import Knowledge, Learning, LearningChooser, Observer, Report, reading
from streamtopology.routing.groupings.posg.greedy import nanoseconds_in, priced_cells
from streamtopology.routing.load.sketches.count_min import dimensions
from streamtopology.routing.load.sketches.key_costs import KeyCosts
from streamtopology.routing.table.kernel import njit
from streamtopology.routing.table.perfect_hash import EntryIndex, entry_index, lookup_entries

# Tuples, about, over which an instance's speed is measured: its last ones.
SPEED_MEMORY = 512

# The single bucket that all keys without an entry fall into.
_UNKNOWN = np.array([-1], np.int32)


@dataclass(frozen=True)
class LearntPace:
    """The speed of an instance: `tuples` of known keys took `seconds`, on an average instance `expected_seconds`."""

    tuples: float = 0.0
    seconds: float = 0.0
    expected_seconds: float = 0.0

    def after(self, tuples: float, seconds: float, expected_seconds: float) -> LearntPace:
        weight = min(1.0, max(SPEED_MEMORY - tuples, 0.0) / self.tuples) if self.tuples else 0.0
        return LearntPace(
            self.tuples * weight + tuples,
            self.seconds * weight + seconds,
            self.expected_seconds * weight + expected_seconds,
        )


@dataclass(frozen=True, eq=False)
class CostReport(Report):
    """The cost of an instance's tuples since its last report, in its own seconds."""

    instance: int
    costs: KeyCosts


@dataclass(frozen=True, eq=False)
class CostKnowledge(Knowledge[CostReport]):
    """`costs` in seconds of an average instance; `paces` by instance."""

    costs: KeyCosts
    paces: Mapping[int, LearntPace] = field(default_factory=dict[int, LearntPace])

    def slowness(self, instance: int) -> float:
        """Return the time this instance takes relative to an average one; 1 if it is unknown."""
        mine = self.paces.get(instance, LearntPace())
        if not (mine.seconds > 0 and mine.expected_seconds > 0):
            return 1.0
        ratios = [pace.seconds / pace.expected_seconds for pace in self.paces.values() if pace.expected_seconds > 0]
        return mine.seconds / mine.expected_seconds / (sum(ratios) / len(ratios))

    def after(self, reports: Sequence[CostReport]) -> CostKnowledge:
        in_order = sorted(reports, key=lambda report: report.instance)
        paces = dict(self.paces)
        for report in in_order:
            paces[report.instance] = self._pace_after(report)
        costs = self.costs.copy()
        costs.forget()
        learnt = CostKnowledge(costs, paces)
        for report in in_order:
            costs.merge(report.costs, learnt.slowness(report.instance))
        return learnt

    def _pace_after(self, report: CostReport) -> LearntPace:
        """Measure the instance's speed by keys whose cost was known before; other keys only give their cost."""
        positions, known = self.costs.find(report.costs.hashes)
        tuples = report.costs.tuples[known]
        expected = float(tuples @ self.costs.costs[positions[known]])
        pace = self.paces.get(report.instance, LearntPace())
        return pace.after(float(tuples.sum()), float(report.costs.seconds[known].sum()), expected)


def nothing_known(options: Mapping[str, object]) -> CostKnowledge:
    """Return the knowledge before any report; `options` as checked."""
    return CostKnowledge(_no_costs(options))


def _no_costs(options: Mapping[str, object]) -> KeyCosts:
    rows, columns = dimensions(cast(float, options["eps"]), cast(float, options["delta"]))
    return KeyCosts.empty(cast(int, options["keys"]), rows, columns)


class CostObserver(Observer[CostReport]):
    """The cost of tuples since the last report."""

    def __init__(self, instance: int, options: Mapping[str, object]) -> None:
        self._instance = instance
        self._options = options
        self._costs = _no_costs(options)

    def observe(self, hashes: Hashes, seconds: Floats) -> None:
        self._costs.update(hashes, seconds)

    def report(self) -> CostReport | None:
        if not len(self._costs.hashes):
            return None
        report, self._costs = CostReport(self._instance, self._costs), _no_costs(self._options)
        return report


class EarliestFinishChooser(LearningChooser):
    """Starts at a batch's beginning, when all instances are idle; the clock stands still while a batch is routed.

    Every scheduler of a batch counts only its own tuples: each divides its share evenly, and so all of them do. Speeds
    are the learnt ones; before anything is learnt, the capacities given.
    """

    learning = Learning(
        make_observer=CostObserver,
        nothing_known=nothing_known,
        read_report=reading("earliest-finish report", CostReport),
        read_knowledge=reading("earliest-finish knowledge", CostKnowledge),
    )

    def __init__(self, instances: Instances, loads: Floats, seed: int, options: Mapping[str, object]) -> None:
        super().__init__(instances, loads, seed, options)
        k = len(self.instances)
        self._order = np.roll(np.arange(k), -(seed % k))
        self._finish = np.zeros(k)
        self._slowness = (self.capacities.mean() / self.capacities)[self._order]
        self._unseen = 1.0
        self._costs = np.zeros(0)
        self._index: EntryIndex | None = None
        self._light = np.zeros((0, 0, 0), np.int64)

    def learn(self, knowledge: CostKnowledge, schedulers: int = 1) -> None:
        """Use these costs and speeds from now on; work given so far keeps its old estimate."""
        costs = knowledge.costs
        if not len(costs.hashes):
            return
        self._costs, self._unseen = costs.costs, costs.unseen
        self._index = entry_index(costs.hashes, np.arange(len(costs.hashes), dtype=np.int32))
        light = costs.light
        self._light = priced_cells(light.frequencies.cells, light.cell_costs(costs.unseen))[None]
        if knowledge.paces:
            ordered = self.instances[self._order].tolist()
            self._slowness = np.array([knowledge.slowness(instance) for instance in ordered])

    def choose(self, hashes: Hashes | None, n: int) -> Instances:
        keys = checked_hashes(hashes, n, "earliest-finish")
        positions = np.empty(n, np.int64)
        _choose(self._estimate(keys), self._slowness, self._finish, positions)
        return self.instances[self._order[positions]]

    def _estimate(self, hashes: Hashes) -> Floats:
        """Return the cost of each tuple, float64[n], as `KeyCosts.estimate` does."""
        costs = np.full(len(hashes), self._unseen)
        if self._index is not None:
            found = np.empty(len(hashes), np.int32)
            lookup_entries(hashes, *self._index, _UNKNOWN, found)
            _price(hashes, found, self._costs, self._light, costs)
        return costs


@njit(cache=True, nogil=True, inline="always")
def earliest(finish: Any, slowness: Any, cost: Any, now: Any) -> Any:
    """The position that is done first with a tuple of this cost. Of several, the one that has been idle longest."""
    best = 0
    first = max(finish[0], now) + cost * slowness[0]
    for i in range(1, len(finish)):
        done = max(finish[i], now) + cost * slowness[i]
        earlier = done < first or (done == first and finish[i] < finish[best])
        best = i if earlier else best
        first = done if earlier else first
    return best


@njit(cache=True, nogil=True)
def _price(hashes: Any, found: Any, kept_costs: Any, light: Any, costs: Any) -> None:
    """costs[i] = that of the key kept at found[i]; -1 is none: the sketch's."""
    for i in range(len(hashes)):
        at = found[i]
        costs[i] = kept_costs[at] if at >= 0 else nanoseconds_in(hashes[i], light, np.uint64(0)) * 1e-9


@njit(cache=True, nogil=True)
def _choose(costs: Any, slowness: Any, finish: Any, chosen: Any) -> None:
    for i in range(len(costs)):
        position = earliest(finish, slowness, costs[i], 0.0)
        finish[position] += costs[i] * slowness[position]
        chosen[i] = position
