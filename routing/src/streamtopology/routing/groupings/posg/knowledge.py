"""POSG's reports (C, F and W) and the driver's knowledge of all instances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from streamtopology.routing.groupings.chooser import Floats, Hashes
from streamtopology.routing.groupings.learning import Knowledge, Observer, Report
from streamtopology.routing.groupings.posg.instance import PosgInstance
from streamtopology.routing.load.sketches.cost_sketch import CostSketch
from streamtopology.routing.load.sketches.count_min import dimensions


@dataclass(frozen=True, eq=False)
class PosgReport(Report):
    """The report of one instance: `busy_seconds` of work since its last report, and `pair` (F and W) if sent since."""

    instance: int
    busy_seconds: float
    pair: CostSketch | None


@dataclass(frozen=True, eq=False)
class PosgKnowledge(Knowledge[PosgReport]):
    """By instance: the newest pair it sent, and the cumulated execution time C that it reported.

    An instance that is new among others starts at their least C. Starting at 0 it would get all tuples until its C has
    caught up.
    """

    pairs: Mapping[int, CostSketch] = field(default_factory=dict[int, CostSketch])
    busy_seconds: Mapping[int, float] = field(default_factory=dict[int, float])

    def after(self, reports: Sequence[PosgReport]) -> PosgKnowledge:
        pairs, busy = dict(self.pairs), dict(self.busy_seconds)
        at_first = min(self.busy_seconds.values(), default=0.0)
        for report in reports:
            busy[report.instance] = busy.get(report.instance, at_first) + report.busy_seconds
            if report.pair is not None:
                pairs[report.instance] = report.pair
        return PosgKnowledge(pairs, busy)


class PosgObserver(Observer[PosgReport]):
    """The instance machine, and C since the last report."""

    def __init__(self, instance: int, options: Mapping[str, object]) -> None:
        rows, columns = dimensions(cast(float, options["eps"]), cast(float, options["delta"]))
        self._instance = instance
        self._machine = PosgInstance(rows, columns, cast(int, options["window"]), cast(float, options["tolerance"]))
        self._busy_seconds = 0.0
        self._sent: CostSketch | None = None

    def observe(self, hashes: Hashes, seconds: Floats) -> None:
        self._busy_seconds += float(seconds.sum())
        if sent := self._machine.execute(hashes, seconds):
            self._sent = sent[-1]

    def report(self) -> PosgReport | None:
        if not self._busy_seconds and self._sent is None:
            return None
        report = PosgReport(self._instance, self._busy_seconds, self._sent)
        self._busy_seconds, self._sent = 0.0, None
        return report
