"""`posg` and `posg-merged`: Proactive Online Shuffle Grouping (Rivetti, Anceaume, Busnel, Querzoni, Sericola).

Instances measure what tuples of a key cost and send sketches; the scheduler adds up what it gave to whom and gives each
tuple to the instance with the least. On micro-batches the batch boundary is the paper's synchronisation: reports say how
long each instance has really worked (C) when all its tuples are done, so that every chooser starts in RUN with C-hat = C
once all instances have sent their sketches, and in ROUND_ROBIN before. Simulated continuously, tuple by tuple, it has all
four states (`PosgScheduler`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from streamtopology.routing.groupings.knowledge import Knowledge, Learning, LearningChooser, Observer, reading
from streamtopology.routing.groupings.posg.greedy import Cells, packed, priced_cells, submit
from streamtopology.routing.groupings.posg.instance import PosgInstance
from streamtopology.routing.groupings.posg.scheduler import PosgScheduler, SchedulerState
from streamtopology.routing.groupings.spec import (
    CAPACITIES,
    Floats,
    GroupingError,
    GroupingSpec,
    Hashes,
    Instances,
    Option,
    OptionError,
    read_number,
)
from streamtopology.routing.hashing import kernel_input
from streamtopology.routing.sketches.cost_sketch import CostSketch
from streamtopology.routing.sketches.count_min import dimensions

__all__ = [
    "POSG",
    "POSG_MERGED",
    "SKETCH_OPTIONS",
    "PosgInstance",
    "PosgKnowledge",
    "PosgReport",
    "PosgScheduler",
    "SchedulerState",
]


@dataclass(frozen=True, eq=False)
class PosgReport:
    """`busy_seconds`: what the instance has worked since its last report. `pair`: F and W, if it has sent them since."""

    instance: int
    busy_seconds: float
    pair: CostSketch | None

    def to_wire(self) -> dict[str, Any]:
        pair = None if self.pair is None else self.pair.to_wire()
        return {"instance": self.instance, "busy_seconds": self.busy_seconds, "pair": pair}

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> PosgReport:
        pair = None if wire["pair"] is None else CostSketch.from_wire(wire["pair"])
        return cls(int(wire["instance"]), float(wire["busy_seconds"]), pair)


@dataclass(frozen=True, eq=False)
class PosgKnowledge(Knowledge[PosgReport]):
    """By instance: the newest pair it sent, and the cumulated execution time C that it reported.

    One that reports for the first time when others have before begins at their least C: it has not been idle, it was not
    there, and would else be given all tuples until it has caught up.
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

    def to_wire(self) -> dict[str, Any]:
        return {
            "pairs": {str(instance): pair.to_wire() for instance, pair in self.pairs.items()},
            "busy_seconds": {str(instance): seconds for instance, seconds in self.busy_seconds.items()},
        }

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> PosgKnowledge:
        return cls(
            {int(instance): CostSketch.from_wire(pair) for instance, pair in wire["pairs"].items()},
            {int(instance): float(seconds) for instance, seconds in wire["busy_seconds"].items()},
        )


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


class PosgChooser(LearningChooser):
    """Round robin until every instance's pair is known; then the least estimated cumulated execution time."""

    merged = False

    def __init__(self, instances: Instances, loads: Floats, seed: int, options: Mapping[str, object] | None = None) -> None:
        super().__init__(instances, loads, seed, options)
        self._loads = packed(np.zeros(len(self.instances)))
        self._turn = seed % len(self.instances)
        self._cells: Cells | None = None

    def learn(self, knowledge: PosgKnowledge, schedulers: int = 1) -> None:
        """Start from its part of the knowledge's C. Its pairs are used once there is one of each active instance."""
        active = self.instances.tolist()
        at_first = min(knowledge.busy_seconds.values(), default=0.0)
        busy = np.array([knowledge.busy_seconds.get(instance, at_first) for instance in active])
        self._loads = packed((busy - busy.min()) / schedulers)
        if all(instance in knowledge.pairs for instance in active):
            pairs = [knowledge.pairs[instance] for instance in active]
            if self.merged:
                pairs = [CostSketch.merged(pairs)]
            self._cells = np.stack([priced_cells(pair.frequencies.cells, pair.cell_costs()) for pair in pairs])

    def choose(self, hashes: Hashes | None, n: int) -> Instances:
        if hashes is None or len(hashes) != n:
            found = "none" if hashes is None else len(hashes)
            raise GroupingError(f"posg estimates cost by key: {n} tuples need {n} key hashes, found {found}")
        k = len(self.instances)
        if self._cells is None:
            positions = (self._turn + np.arange(n)) % k
            self._turn = (self._turn + n) % k
        else:
            positions = np.empty(n, np.int64)
            submit(kernel_input(hashes, np.uint64, "hashes"), self._cells, self._loads, positions)
        return self.instances[positions]


class PosgMergedChooser(PosgChooser):
    """Costs are looked up in the sum of all instances' pairs."""

    merged = True


def read_share(value: object) -> float:
    """A number between 0 and 1, 0 excluded."""
    number = read_number(value)
    if not 0 < number <= 1:
        raise OptionError(f"found {value!r}, expected a number with 0 < number <= 1")
    return number


def read_count(value: object) -> int:
    """A whole number from 1 on."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise OptionError(f"found {value!r}, expected a whole number >= 1")
    return value


SKETCH_OPTIONS = {
    "eps": Option(0.05, read_share, "sketches have ceil(e / eps) columns"),
    "delta": Option(0.1, read_share, "sketches have ceil(log2(1 / delta)) rows"),
}

_OPTIONS = {
    **SKETCH_OPTIONS,
    "window": Option(1024, read_count, "N: tuples of an instance between two looks whether its sketches are stable"),
    "tolerance": Option(0.05, read_number, "mu: relative error of the sketches up to which they are stable"),
    "capacities": CAPACITIES,
}

_LEARNING = Learning(
    make_observer=PosgObserver,
    nothing_known=lambda options: PosgKnowledge(),
    read_report=reading("posg report", PosgReport.from_wire),
    read_knowledge=reading("posg knowledge", PosgKnowledge.from_wire),
)

POSG = GroupingSpec(
    name="posg",
    kind="chooser",
    splits_keys=True,
    needs_key=True,
    summary="each tuple goes to the instance with the least work so far, by sketches of what tuples cost there (as published)",
    options=_OPTIONS,
    make_chooser=PosgChooser,
    learning=_LEARNING,
)

POSG_MERGED = GroupingSpec(
    name="posg-merged",
    kind="chooser",
    splits_keys=True,
    needs_key=True,
    summary="as posg, with the sketches of all instances added up; for instances of like speed",
    options=_OPTIONS,
    make_chooser=PosgMergedChooser,
    learning=_LEARNING,
)
