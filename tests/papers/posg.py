"""POSG's machines without what keeps them from the paper's figures: what an estimate knows, and what C-hat counts."""

from __future__ import annotations

import numpy as np

from streamtopology.lab.reproduce.experiment import Parameters
from streamtopology.lab.reproduce.experiments.posg.queues import NOBODY, Stream, advance_greedy
from streamtopology.lab.reproduce.experiments.posg.scheduler_machine import SchedulerState
from streamtopology.lab.reproduce.experiments.posg.scheduling import PosgRun
from streamtopology.routing.groupings.posg.greedy import packed, to_ticks
from streamtopology.routing.load.sketches.cost_sketch import CostSketch
from streamtopology.routing.load.sketches.count_min import dimensions


class Relieved(PosgRun):
    """`exact`: an estimate is the tuple's execution time. `idle`: C and C-hat are when an instance is done, not its work."""

    def __init__(self, stream: Stream, given: Parameters, exact: bool, idle: bool) -> None:
        shape = dimensions(given["eps"], given["delta"])
        super().__init__(stream, shape, int(given["window"]), given["tolerance"], merged=False)
        self.exact, self.idle = exact, idle

    def cumulated(self, instance: int) -> float:
        return float(self.queues.free[instance]) if self.idle else super().cumulated(instance)

    def _receive(self, instance: int, pair: CostSketch) -> None:
        super()._receive(instance, pair)
        if self.exact:
            self.costs[:, instance] = self.stream.costs * self.stream.slowness[-1, instance]
            self.ticks[:, instance] = to_ticks(self.costs[:, instance])

    def _advance(self, last: int) -> int:
        scheduler = self.scheduler
        if not self.idle or scheduler.state is SchedulerState.ROUND_ROBIN:
            return super()._advance(last)
        now = self.next * self.stream.interval
        scheduler.loads = np.maximum(scheduler.loads, packed(np.full(self.k, now)))
        if scheduler.state is SchedulerState.SEND_ALL:
            return super()._advance(last)
        if now >= self.inbox.due:
            return NOBODY
        self.next, reporter = advance_greedy(
            self.stream, self.queues, self.unreported, self.ticks, scheduler.loads, self.next, self.next + 1, self.inbox.due
        )
        return reporter
