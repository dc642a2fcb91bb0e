"""Planning, beside the event loop: a process of its own that reads drivers' answers and judges them.

It keeps one controller for each topology. A process, for plans take up to seconds of CPU and numba and METIS a lot of
memory that the event loop's process need not have; and if it dies, it is started again and its windows fill again.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from streamtopology.operator.stats import Stats, StatsFormatError, read_stats
from streamtopology.routing.topology import Rebalance

if TYPE_CHECKING:
    from streamtopology.routing.controller import Controller, Proposal

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PlanningRequest:
    """What the planner must know of a topology. `by_share`: source rows can be placed; `may_judge`: nothing is pending."""

    topology: str
    rebalance: Rebalance
    by_share: bool
    may_judge: bool


@dataclass(frozen=True)
class Judgement:
    """What the controller says. For a proposal: the epoch as gzip of its JSON, its figures; gain in s/batch, cost in s."""

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


class Planner(Protocol):
    """Reads a driver's answer and judges it. StatsFormatError: the answer is not to be read."""

    async def take(self, uid: str, answer: bytes, request: PlanningRequest) -> tuple[Stats, Judgement | None]: ...
    def seen(self, uid: str) -> int: ...
    async def forget(self, uid: str) -> None: ...


class Desk:
    """The controllers of all topologies, where planning happens: pure but for the clock, which is passed in."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._controllers: dict[str, Controller] = {}
        self._seen: dict[str, int] = {}

    def take(self, uid: str, answer: bytes, request: PlanningRequest) -> tuple[Stats, Judgement | None]:
        """Takes note of the batches in the answer that are new, then judges, if it may."""
        try:
            told = json.loads(answer)
        except ValueError as error:
            raise StatsFormatError(f"the answer is not JSON: {error}") from error
        stats = read_stats(told, request.topology)
        controller = self._controller(uid, request.rebalance)
        for batch in told.get("batches") or ():
            self._observe(uid, controller, batch)
        if not request.may_judge or not stats.settled or told.get("routing") is None:
            return stats, None
        return stats, self._judge(controller, told, stats, request)

    def forget(self, uid: str) -> None:
        self._controllers.pop(uid, None)
        self._seen.pop(uid, None)

    def _controller(self, uid: str, rebalance: Rebalance) -> Controller:
        from streamtopology.routing.controller import Controller  # numba, which only this process shall load

        controller = self._controllers.get(uid)
        if controller is None:
            controller = self._controllers[uid] = Controller(rebalance, self._clock)
        controller.configure(rebalance)
        return controller

    def _observe(self, uid: str, controller: Controller, batch: dict[str, Any]) -> None:
        from streamtopology.routing.report import LoadReport, ReportFormatError, SourceReport

        number = int(batch["number"])
        if number <= self._seen.get(uid, -1):
            return
        try:
            reports = [LoadReport.from_wire(report) for report in batch["reports"]]
            sources = [SourceReport.from_wire(report) for report in batch["source_reports"]]
        except (ReportFormatError, KeyError) as damage:
            raise StatsFormatError(f"batch {number}: {damage}") from damage
        controller.observe(number, float(batch["seconds"]), reports, [s for s in sources if s.slot >= 0], int(batch["epoch"]))
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
            return Judgement("nothing", decision.reason, stats.generation)
        kind = "recommend" if isinstance(decision, Recommend) else "reroute"
        return _proposed(kind, decision, stats.generation, self._clock() - started)


def _proposed(kind: Literal["recommend", "reroute"], proposal: Proposal, generation: int, seconds: float) -> Judgement:
    plans = proposal.plans.values()
    return Judgement(
        kind=kind,
        reason=proposal.reason,
        generation=generation,
        number=proposal.epoch.number,
        packed=gzip.compress(proposal.epoch.to_json().encode(), mtime=0),
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
    _desk = Desk(time.monotonic)


def _take(uid: str, answer: bytes, request: PlanningRequest) -> tuple[Stats, Judgement | None]:
    assert _desk is not None
    return _desk.take(uid, answer, request)


def _forget(uid: str) -> None:
    assert _desk is not None
    _desk.forget(uid)


class PlanningProcess:
    """A Planner whose desk stands in a process of its own; use it as a context manager."""

    def __init__(self) -> None:
        self._pool = self._start()
        self._seen: dict[str, int] = {}

    def __enter__(self) -> PlanningProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in list((self._pool._processes or {}).values()):  # it may be amid a plan that nobody waits for
            process.terminate()

    async def take(self, uid: str, answer: bytes, request: PlanningRequest) -> tuple[Stats, Judgement | None]:
        stats, judgement = await self._run(_take, uid, answer, request)
        if stats.batches:
            self._seen[uid] = max(batch.number for batch in stats.batches)
        return stats, judgement

    def seen(self, uid: str) -> int:
        """The newest batch that the planner knows of a topology, -1 if it knows none."""
        return self._seen.get(uid, -1)

    async def forget(self, uid: str) -> None:
        self._seen.pop(uid, None)
        await self._run(_forget, uid)

    async def _run(self, function: Callable[..., Any], *arguments: object) -> Any:
        loop = asyncio.get_running_loop()
        pool = self._pool
        try:
            return await loop.run_in_executor(pool, function, *arguments)
        except BrokenProcessPool:
            if self._pool is pool:  # the first to notice starts it again; it knows nothing any more
                log.error("the planning process has died; starting it again, its windows fill from the drivers' answers")
                self._pool, self._seen = self._start(), {}
            raise

    @staticmethod
    def _start() -> ProcessPoolExecutor:
        return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), initializer=_begin)
