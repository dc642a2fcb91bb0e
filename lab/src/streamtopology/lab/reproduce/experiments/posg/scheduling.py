"""The schedulers of POSG's evaluation on the queues: round robin, Full Knowledge, POSG, and the project's own.

The machines, sketches and kernels are the groupings'; this module has the messages and their times. An instance's message is
sent when it is done with a tuple and reaches the scheduler before the next tuple that arrives.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from streamtopology.lab.reproduce.experiments.posg.queues import (
    NOBODY,
    FinishEstimates,
    Queues,
    Stream,
    Unreported,
    advance_earliest_finish,
    advance_greedy,
    advance_round_robin,
)
from streamtopology.lab.reproduce.experiments.posg.scheduler_machine import PosgScheduler, SchedulerState
from streamtopology.routing.groupings.earliest_finish import CostObserver, CostReport, nothing_known
from streamtopology.routing.groupings.posg import PosgInstance
from streamtopology.routing.groupings.posg.greedy import packed, to_ticks
from streamtopology.routing.load.sketches.cost_sketch import CostSketch
from streamtopology.routing.load.sketches.count_min import dimensions
from streamtopology.topology import groupings

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_NEVER = math.inf
# Tuples whose items are estimated at once: about as many as come between two messages.
_AHEAD = 256
_UNLIMITED = 2**62


@dataclass(frozen=True, eq=False)
class Schedule:
    """completion_times float64[m], seconds; messages other than tuples; of POSG, the tuples before which its scheduler got
    to RUN (`runs_from`), and before which, from which instance, it received a pair of matrices (`pairs`)."""

    completion_times: Floats
    messages: int = 0
    runs_from: tuple[int, ...] = ()
    pairs: tuple[tuple[int, int], ...] = ()

    @property
    def mean(self) -> float:
        """The paper's L, seconds."""
        return float(self.completion_times.mean())


@dataclass(eq=False)
class _Inbox:
    """Messages under way to the scheduler, delivered by time and, at the same time, in the order of sending."""

    waiting: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list[tuple[float, int, Callable[[], None]]])
    sent: int = 0

    def send(self, time: float, deliver: Callable[[], None]) -> None:
        heapq.heappush(self.waiting, (time, self.sent, deliver))
        self.sent += 1

    @property
    def due(self) -> float:
        return self.waiting[0][0] if self.waiting else _NEVER

    def deliver_until(self, now: float) -> None:
        while self.due <= now:
            heapq.heappop(self.waiting)[2]()


def round_robin(stream: Stream) -> Schedule:
    queues = Queues.idle(stream)
    advance_round_robin(stream, queues, _silent(len(queues.free)), 0, len(stream.items), _NEVER)
    return Schedule(queues.completion_times(stream))


def full_knowledge(stream: Stream) -> Schedule:
    """The paper's bound: its greedy scheduler with the exact execution time of each tuple on each instance."""
    queues = Queues.idle(stream)
    loads, silent = packed(np.zeros(len(queues.free))), _silent(len(queues.free))
    ends = [*stream.starts[1:].tolist(), len(stream.items)]
    for start, end, slowness in zip(stream.starts.tolist(), ends, stream.slowness, strict=True):
        ticks = to_ticks(stream.costs[:, None] * slowness)
        advance_greedy(stream, queues, silent, ticks, loads, start, end, _NEVER)
    return Schedule(queues.completion_times(stream))


def posg(stream: Stream, eps: float, delta: float, window: int, tolerance: float, merged: bool = False) -> Schedule:
    """POSG as published or, `merged`, with the sum of all instances' sketches."""
    return PosgRun(stream, dimensions(eps, delta), window, tolerance, merged).run()


class PosgRun:
    """POSG on one stream; `shape`: rows and columns of the sketches, `tolerance`: mu."""

    def __init__(self, stream: Stream, shape: tuple[int, int], window: int, tolerance: float, merged: bool) -> None:
        self.stream = stream
        self.queues = Queues.idle(stream)
        self.k = len(self.queues.free)
        self.instances = [PosgInstance(*shape, window, tolerance) for _ in range(self.k)]
        self.scheduler = PosgScheduler(self.k, merged)
        self.unreported = _silent(self.k)
        self.unreported.limits.fill(window)
        self.fed = [0] * self.k
        self.inbox = _Inbox()
        self.costs = np.zeros((len(stream.hashes), 1 if merged else self.k))
        self.ticks = to_ticks(self.costs)
        self.runs_from: list[int] = []
        self.pairs: list[tuple[int, int]] = []
        self.next = 0

    def run(self) -> Schedule:
        m, scheduler = len(self.stream.items), self.scheduler
        while self.next < m:
            before = scheduler.state
            self.inbox.deliver_until(self.next * self.stream.interval)
            if scheduler.state is SchedulerState.RUN is not before:
                self.runs_from.append(self.next)
            reporter = self._advance(m)
            if reporter != NOBODY:
                self._feed(reporter)
        completion_times = self.queues.completion_times(self.stream)
        return Schedule(completion_times, scheduler.messages, tuple(self.runs_from), tuple(self.pairs))

    def _advance(self, last: int) -> int:
        """As far as the state and the messages allow; returns who reports."""
        scheduler, due = self.scheduler, self.inbox.due
        if scheduler.state is SchedulerState.SEND_ALL:
            return self._send_with_request(self.next)
        if scheduler.state is SchedulerState.ROUND_ROBIN:
            self.next, reporter = advance_round_robin(self.stream, self.queues, self.unreported, self.next, last, due)
        else:
            self.next, reporter = advance_greedy(
                self.stream, self.queues, self.unreported, self.ticks, scheduler.loads, self.next, last, due
            )
        return reporter

    def _send_with_request(self, i: int) -> int:
        """One tuple in turn; its instance answers when it is done with it."""
        self.next, reporter = advance_round_robin(self.stream, self.queues, self.unreported, i, i + 1, _NEVER)
        instance = int(self.queues.chosen[i])
        estimated = self.costs[self.stream.items[i], min(instance, self.costs.shape[1] - 1)]
        request = self.scheduler.request(instance, float(estimated))
        reply = request.answered(self.cumulated(instance))
        self.inbox.send(self.queues.done[i], lambda: self.scheduler.receive_reply(instance, reply))
        return reporter

    def cumulated(self, instance: int) -> float:
        """C: seconds that the tuples given to an instance so far take it in all."""
        return float(self.queues.busy[instance])

    def _feed(self, instance: int) -> None:
        """The instance machine executes a window's tuples; what it sends goes out when the last of them is done."""
        tuples = np.flatnonzero(self.queues.chosen[self.fed[instance] : self.next] == instance) + self.fed[instance]
        self.fed[instance] = self.next
        self.unreported.tuples[instance] = 0
        hashes = self.stream.hashes[self.stream.items[tuples]]
        for pair in self.instances[instance].execute(hashes, self.queues.took[tuples]):
            self.inbox.send(float(self.queues.done[tuples[-1]]), lambda pair=pair: self._receive(instance, pair))
        self.unreported.limits[instance] = self.instances[instance].until_check

    def _receive(self, instance: int, pair: CostSketch) -> None:
        self.pairs.append((self.next, instance))
        self.scheduler.receive_pair(instance, pair)
        column = instance
        if self.scheduler.merged:
            column, pair = 0, CostSketch.merged(self.scheduler.pairs.values())
        self.costs[:, column] = pair.estimate(self.stream.hashes)
        self.ticks[:, column] = to_ticks(self.costs[:, column])


def earliest_finish(stream: Stream, keys: int, eps: float, delta: float, window: int, tolerated_drift: float) -> Schedule:
    """The project's own. What the scheduler expects rides on each tuple, as POSG's requests do. An instance reports once its
    tuples took so much longer or shorter that the next one's wait is misjudged by `tolerated_drift` tuples (`Unreported`),
    and after `window` tuples at the latest.
    """
    options = groupings.get("earliest-finish").check_options({"keys": keys, "eps": eps, "delta": delta})
    return _EarliestFinish(stream, options, window, tolerated_drift).run()


class _EarliestFinish:
    def __init__(self, stream: Stream, options: Mapping[str, object], window: int, tolerated_drift: float) -> None:
        self.stream = stream
        self.queues = Queues.idle(stream)
        self.k = k = len(self.queues.free)
        self.knowledge = nothing_known(options)
        self.observers = [CostObserver(instance, options) for instance in range(k)]
        self.unreported = Unreported(np.zeros(k, np.int64), np.full(k, window), np.zeros(k), tolerated_drift)
        self.estimates = FinishEstimates(
            np.zeros(len(stream.hashes)), np.ones(k), np.zeros(k), np.zeros(k), np.zeros(len(stream.items))
        )
        self.estimated = 0  # the items of tuples from `next` to here have current costs
        self.fed = [0] * k
        self.inbox = _Inbox()
        self.messages = 0
        self.next = 0

    def run(self) -> Schedule:
        while self.next < len(self.stream.items):
            self.inbox.deliver_until(self.next * self.stream.interval)
            until = self._estimated_until(self.inbox.due)
            self.next, reporter = advance_earliest_finish(
                self.stream, self.queues, self.unreported, self.estimates, self.next, until
            )
            if reporter != NOBODY:
                self._report(reporter)
        return Schedule(self.queues.completion_times(self.stream), self.messages)

    def _estimated_until(self, due: float) -> float:
        """The time, `due` at the latest, up to which all items that come have an estimate.

        They are few of all, and after the next message they are estimated again.
        """
        if self.next >= self.estimated:
            self.estimated = min(self.next + _AHEAD, len(self.stream.items))
            items = self.stream.items[self.next : self.estimated]
            self.estimates.costs[items] = self.knowledge.costs.estimate(self.stream.hashes[items])
        return min(due, self.estimated * self.stream.interval)

    def _report(self, instance: int) -> None:
        """The instance's report on its tuples up to the one before `next`, sent when that one is done."""
        last = self.next - 1
        tuples = np.flatnonzero(self.queues.chosen[self.fed[instance] : self.next] == instance) + self.fed[instance]
        self.fed[instance] = self.next
        self.unreported.tuples[instance] = 0
        self.unreported.drift[instance] = 0.0
        self.observers[instance].observe(self.stream.hashes[self.stream.items[tuples]], self.queues.took[tuples])
        report, executed = self.observers[instance].report(), self.estimates.carried[last]
        self.inbox.send(self.queues.done[last], lambda: self._receive(instance, report, executed, self.queues.done[last]))

    def _receive(self, instance: int, report: CostReport | None, executed: float, now: float) -> None:
        """New costs and speeds; and the instance will be done with what it has not yet executed, counted from now."""
        self.messages += 1
        if report is not None:
            self.knowledge = self.knowledge.after([report])
        self.estimated = self.next
        self.estimates.slowness[:] = [self.knowledge.slowness(other) for other in range(self.k)]
        self.estimates.finish[instance] = now + (self.estimates.sent[instance] - executed)


def _silent(k: int) -> Unreported:
    """Instances that never report."""
    return Unreported(np.zeros(k, np.int64), np.full(k, _UNLIMITED), np.zeros(k), _NEVER)
