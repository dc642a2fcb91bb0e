"""Planning, beside the event loop: a process of its own that reads drivers' answers and judges them.

It keeps one controller for each topology. A process, for plans take up to seconds of CPU and numba and METIS a lot of
memory that the event loop's process need not have; and if it dies, it is started again and its windows fill again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import multiprocessing
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

from streamtopology.operator.stats import Stats, StatsFormatError, read_stats
from streamtopology.routing.routing_map import pack
from streamtopology.routing.topology import Autoscale, ManifestError, Rebalance, Topology, parse

if TYPE_CHECKING:
    from streamtopology.routing.autoscale import BatchLoad, History
    from streamtopology.routing.controller import Controller, Outcome, Proposal
    from streamtopology.routing.report import LoadReport, SourceReport

log = logging.getLogger(__name__)

SCALING_SECONDS = 60.0
"""Over how long the autoscaler looks at the load; at most `MOST_BATCHES` batches of it."""

MOST_BATCHES = 256


@dataclass(frozen=True)
class PlanningRequest:
    """What the planner must know of a topology. `by_share`: source rows can be placed; `may_judge`: nothing is pending.

    `autoscale`: where we decide how many executors there are; `scaled_to`: how many we decided on last.
    """

    topology: str
    rebalance: Rebalance
    by_share: bool
    may_judge: bool
    autoscale: Autoscale | None = None
    scaled_to: int = 0


@dataclass(frozen=True)
class Judgement:
    """What the controller says. For a proposal: the epoch as gzip of its JSON, its figures; gain in s/batch, cost in s.

    `verdict`, `imbalance`: of the last time that it judged, which `reason` may only be waiting after; None before.
    """

    kind: Literal["nothing", "recommend", "reroute"]
    reason: str
    generation: int
    number: int = 0
    packed: bytes = b""
    stages: tuple[str, ...] = ()
    predicted_gain_seconds: float = 0.0
    cost_seconds: float = 0.0
    moved_keys: int = 0
    moved_bytes: int = 0
    plan_seconds: float = 0.0
    verdict: str | None = None
    imbalance: float | None = None


@dataclass(frozen=True)
class Gain:
    """What a re-routing of ours brought, as shares of a batch's time before it."""

    epoch: int
    predicted: float
    measured: float


@dataclass(frozen=True)
class Scaling:
    """How many executors the scaled class should have, and why."""

    replicas: int
    reason: str


@dataclass(frozen=True)
class Told:
    """What an answer says, and what it led to. None: there was nothing to judge."""

    stats: Stats
    judgement: Judgement | None = None
    scaling: Scaling | None = None
    gains: tuple[Gain, ...] = ()


Reading = Topology | tuple[str, ...]
"""A topology, or a sentence for each problem of its manifest."""


class Planner(Protocol):
    """Reads manifests, reads drivers' answers and judges them. StatsFormatError: the answer is not to be read."""

    async def read(self, text: str) -> Reading: ...

    async def take(self, uid: str, answer: bytes, request: PlanningRequest) -> Told: ...
    def seen(self, uid: str) -> int: ...
    async def forget(self, uid: str) -> None: ...


def read_topology(text: str) -> Reading:
    """The topology in a manifest's JSON, or what is wrong with it. It is here for it needs the groupings, and they numba."""
    try:
        return parse(json.loads(text))
    except ManifestError as error:
        return tuple(str(problem) for problem in error.problems)
    except ValueError as error:
        return (f"this is not JSON: {error}",)


class Desk:
    """The controllers of all topologies, where planning happens: pure but for the clock, which is passed in."""

    def __init__(self, clock: Callable[[], float], wall_clock: Callable[[], float]) -> None:
        """`clock`: monotonic seconds; `wall_clock`: seconds since 1970, as drivers date their batches."""
        self._clock = clock
        self._wall_clock = wall_clock
        self._controllers: dict[str, Controller] = {}
        self._scalers: dict[str, Scaler] = {}
        self._seen: dict[str, int] = {}

    def take(self, uid: str, answer: bytes, request: PlanningRequest) -> Told:
        """Takes note of the batches in the answer that are new, then judges, if it may."""
        try:
            told = json.loads(answer)
        except ValueError as error:
            raise StatsFormatError(f"the answer is not JSON: {error}") from error
        stats = read_stats(told, request.topology)
        if stats.batch is not None and stats.batch < self._seen.get(uid, -1):
            self.forget(uid)  # another checkpoint, whose batches are counted anew
        controller = self._controller(uid, request.rebalance)
        for batch in told.get("batches") or ():
            self._observe(uid, controller, batch)
        gains = tuple(_gain(outcome) for outcome in controller.outcomes if outcome.batch_seconds_before > 0)
        if not request.may_judge or not stats.settled or told.get("routing") is None:
            return Told(stats, gains=gains)
        judgement = self._judge(controller, told, stats, request)
        return Told(stats, judgement, self._scaler(uid).judge(stats, request, self._wall_clock()), gains)

    def forget(self, uid: str) -> None:
        self._controllers.pop(uid, None)
        self._scalers.pop(uid, None)
        self._seen.pop(uid, None)

    def _controller(self, uid: str, rebalance: Rebalance) -> Controller:
        from streamtopology.routing.controller import Controller  # numba, which only this process shall load

        controller = self._controllers.get(uid)
        if controller is None:
            controller = self._controllers[uid] = Controller(rebalance, self._clock)
        controller.configure(rebalance)
        return controller

    def _scaler(self, uid: str) -> Scaler:
        return self._scalers.setdefault(uid, Scaler())

    def _observe(self, uid: str, controller: Controller, batch: dict[str, Any]) -> None:
        from streamtopology.routing.report import LoadReport, ReportFormatError, SourceReport

        number = int(batch["number"])
        if number <= self._seen.get(uid, -1) or batch.get("moving"):
            return  # seen, or no batch to judge by: it moved a portion of the state
        try:
            reports = [LoadReport.from_wire(report) for report in batch["reports"]]
            sources = [SourceReport.from_wire(report) for report in batch["source_reports"]]
        except (ReportFormatError, KeyError) as damage:
            raise StatsFormatError(f"batch {number}: {damage}") from damage
        placed = [report for report in sources if report.slot >= 0]
        seconds, committed_at = float(batch["seconds"]), float(batch["committed_at"])
        controller.observe(number, seconds, reports, placed, int(batch["epoch"]))
        self._scaler(uid).observe(committed_at, seconds, reports, placed)
        self._seen[uid] = number

    def _judge(self, controller: Controller, told: dict[str, Any], stats: Stats, request: PlanningRequest) -> Judgement:
        from streamtopology.routing.controller import Nothing, Recommend, TopologyFacts
        from streamtopology.routing.epoch import Epoch, EpochFormatError

        try:
            current = Epoch.from_wire(told["routing"])
        except EpochFormatError as damage:
            raise StatsFormatError(f"routing: {damage}") from damage
        facts = TopologyFacts.of(current.routes, stats.cpu, request.by_share)
        started = self._clock()
        decision = controller.step(started, current, facts)
        if isinstance(decision, Nothing):
            judged = Judgement("nothing", decision.reason, stats.generation)
            if request.rebalance.mode == "Off":
                return judged  # nothing is judged any more: the last verdict is of another time
        else:
            kind = "recommend" if isinstance(decision, Recommend) else "reroute"
            judged = _proposed(kind, decision, stats.generation, self._clock() - started)
        return replace(judged, verdict=controller.verdict, imbalance=controller.imbalance)


class Scaler:
    """The built-in autoscaler of one topology: its window of batches and its history."""

    def __init__(self) -> None:
        self._batches: deque[BatchLoad] = deque(maxlen=MOST_BATCHES)
        self._history: History = ()
        self._judged_at = 0.0

    def observe(
        self, committed_at: float, seconds: float, reports: Sequence[LoadReport], sources: Sequence[SourceReport]
    ) -> None:  # fmt: skip
        from streamtopology.routing.autoscale import BatchLoad
        from streamtopology.routing.capacity import turns

        self._batches.append(BatchLoad(committed_at, seconds, turns(reports, sources)))

    def judge(self, stats: Stats, request: PlanningRequest, now: float) -> Scaling | None:
        """At most once in the controller's interval; None in between, and where somebody else scales."""
        from streamtopology.routing import autoscale

        settings = request.autoscale
        if settings is None or settings.by != "Operator" or now - self._judged_at < request.rebalance.interval_seconds:
            return None
        recent = [batch for batch in self._batches if batch.committed_at > now - SCALING_SECONDS]
        if not recent or max((turn.slot for batch in recent for turn in batch.turns), default=0) >= len(stats.cpu):
            return None  # these batches ran on more executors than there are now
        self._judged_at = now
        classes = autoscale.loads(recent, stats.slot_classes, stats.cpu, now)
        observation = autoscale.Observation(now, request.scaled_to, classes, stats.rows_per_second or 0.0)
        decision = autoscale.decide(observation, settings, self._history)
        self._history = decision.history
        return Scaling(decision.replicas, decision.reason)


def _gain(outcome: Outcome) -> Gain:
    before = outcome.batch_seconds_before
    return Gain(outcome.epoch, outcome.predicted_gain_seconds / before, outcome.measured_gain_seconds / before)


def _proposed(kind: Literal["recommend", "reroute"], proposal: Proposal, generation: int, seconds: float) -> Judgement:
    plans = proposal.plans.values()
    return Judgement(
        kind=kind,
        reason=proposal.reason,
        generation=generation,
        number=proposal.epoch.number,
        packed=pack(proposal.epoch.to_json()),
        stages=tuple(sorted(proposal.plans)),
        predicted_gain_seconds=proposal.predicted_gain_seconds,
        cost_seconds=proposal.cost_seconds,
        moved_keys=round(sum(plan.moved_keys_estimate for plan in plans)),
        moved_bytes=round(sum(plan.moved_bytes for plan in plans)),
        plan_seconds=seconds,
    )


_desk: Desk | None = None


def _begin() -> None:
    global _desk
    threading.Thread(target=_end_with_the_operator, daemon=True).start()
    _desk = Desk(time.monotonic, time.time)


def _end_with_the_operator() -> None:
    """An operator that is killed cannot tell this process to end."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _take(uid: str, answer: bytes, request: PlanningRequest) -> Told:
    assert _desk is not None
    return _desk.take(uid, answer, request)


def _forget(uid: str) -> None:
    assert _desk is not None
    _desk.forget(uid)


class PlanningProcess:
    """A Planner whose desk stands in a process of its own; use it as a context manager."""

    def __init__(self) -> None:
        self._pool = self._start()
        self._closed = False
        self._seen: dict[str, int] = {}

    def __enter__(self) -> PlanningProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in list((self._pool._processes or {}).values()):  # it may be amid a plan that nobody waits for
            process.terminate()

    async def read(self, text: str) -> Reading:
        return await self._run(read_topology, text)

    async def take(self, uid: str, answer: bytes, request: PlanningRequest) -> Told:
        told = await self._run(_take, uid, answer, request)
        if told.stats.batch is not None:
            self._seen[uid] = told.stats.batch
        return told

    def seen(self, uid: str) -> int:
        """The newest batch that the planner knows of a topology, -1 if it knows none."""
        return self._seen.get(uid, -1)

    async def forget(self, uid: str) -> None:
        self._seen.pop(uid, None)
        await self._run(_forget, uid)

    async def _run(self, function: Callable[..., Any], *arguments: object) -> Any:
        """Once more if the process has died: BrokenProcessPool means that it died twice."""
        loop = asyncio.get_running_loop()
        pool = self._pool
        try:
            return await loop.run_in_executor(pool, function, *arguments)
        except BrokenProcessPool:
            if self._closed:
                raise
            if self._pool is pool:  # the first to notice starts it again; it knows nothing any more
                log.error("the planning process has died; starting it again, its windows fill from the drivers' answers")
                self._pool, self._seen = self._start(), {}
            return await loop.run_in_executor(self._pool, function, *arguments)

    @staticmethod
    def _start() -> ProcessPoolExecutor:
        return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), initializer=_begin)
