"""Asks each driver for its `/stats` at its own pace, and keeps the last answer; a driver that is slow or gone harms nobody."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, field

import aiohttp

from streamtopology.operator.planning import Gain, Judgement, Planner, PlanningRequest, Scaling
from streamtopology.operator.queue import Key
from streamtopology.operator.stats import Stats, StatsFormatError

log = logging.getLogger(__name__)

ANSWER_SECONDS = 5.0
LARGEST_ANSWER = 64 * 2**20


@dataclass(frozen=True)
class Target:
    """Whom to ask, how often, and what the planner must know. `uid`: of the topology; `pod`: whose answer it is."""

    uid: str
    pod: str
    url: str
    interval_seconds: float
    request: PlanningRequest


@dataclass(frozen=True)
class Silence:
    """Why there is no answer, since when (seconds since 1970) and how often in a row."""

    why: str
    since: float
    count: int = 1


@dataclass(frozen=True)
class Answer:
    """The last answer of the pod that is asked now, if any, and why there is none since."""

    pod: str
    stats: Stats | None = None
    judgement: Judgement | None = None
    scaling: Scaling | None = None
    silence: Silence | None = None
    gains: tuple[Gain, ...] = ()


@dataclass
class _Asking:
    target: Target
    task: asyncio.Task[None]
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class Scraper:
    """One asking task for each topology. `answered` is called with the topology after each answer or failure."""

    def __init__(
        self, session: aiohttp.ClientSession, planner: Planner, answered: Callable[[Key], None], clock: Callable[[], float]
    ) -> None:  # fmt: skip
        """`clock`: seconds since 1970."""
        self._session = session
        self._planner = planner
        self._answered = answered
        self._clock = clock
        self._asking: dict[Key, _Asking] = {}
        self._answers: dict[Key, Answer] = {}

    def answer(self, key: Key) -> Answer | None:
        return self._answers.get(key)

    def want(self, key: Key, target: Target | None) -> None:
        """Ask this driver from now on; None: there is no driver to ask."""
        asking = self._asking.get(key)
        if target is None:
            self._stop(key)
        elif asking is None or asking.task.done():
            known = self._answers.get(key)
            if known is None or known.pod != target.pod:
                self._answers[key] = Answer(target.pod)
            task = asyncio.create_task(self._ask(key), name=f"scrape {key}")
            self._asking[key] = _Asking(target, task)
        elif asking.target != target:
            if asking.target.pod != target.pod:
                self._answers[key] = Answer(target.pod)
            sooner = target.interval_seconds < asking.target.interval_seconds or asking.target.pod != target.pod
            asking.target = target
            if sooner:
                asking.changed.set()

    async def forget(self, key: Key) -> None:
        """The topology is gone."""
        asking = self._asking.get(key)
        self._stop(key)
        if asking is None:
            return
        try:
            await self._planner.forget(asking.target.uid)
        except BrokenProcessPool:
            return  # a new process knows nothing of it either

    def close(self) -> None:
        for key in list(self._asking):
            self._stop(key)

    def _stop(self, key: Key) -> None:
        asking = self._asking.pop(key, None)
        if asking is not None:
            asking.task.cancel()
        self._answers.pop(key, None)

    async def _ask(self, key: Key) -> None:
        while True:
            asking = self._asking[key]
            target = asking.target
            asking.changed.clear()
            answer = await self._one(target, self._answers[key])
            if self._asking.get(key) is not asking:
                return
            if asking.target.pod == target.pod:
                self._answers[key] = answer
                self._answered(key)
            with suppress(TimeoutError):
                async with asyncio.timeout(asking.target.interval_seconds):  # not wait_for: see Queue.take
                    await asking.changed.wait()

    async def _one(self, target: Target, before: Answer) -> Answer:
        try:
            payload = await self._get(target)
            told = await self._planner.take(target.uid, payload, target.request)
            return Answer(target.pod, told.stats, told.judgement, told.scaling, gains=told.gains)
        except (aiohttp.ClientError, TimeoutError, OSError, StatsFormatError, BrokenProcessPool) as error:
            log.info("%s of %s: %s", target.pod, target.request.topology, error)
            return self._silent(before, target, str(error) or type(error).__name__)
        except Exception as error:  # a mistake of ours, in judging most likely: this topology goes on being asked
            log.exception("%s of %s: please report this", target.pod, target.request.topology)
            return self._silent(before, target, f"the operator cannot judge the answer: {type(error).__name__}: {error}")

    def _silent(self, before: Answer, target: Target, why: str) -> Answer:
        known = before.silence
        silence = Silence(why, known.since, known.count + 1) if known else Silence(why, self._clock())
        return Answer(target.pod, before.stats, silence=silence)

    async def _get(self, target: Target) -> bytes:
        url = f"{target.url}/stats?since={self._planner.seen(target.uid)}"
        async with self._session.get(url, timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS)) as response:
            if response.status != 200:
                raise StatsFormatError(f"{url} answered {response.status} {response.reason}")
            payload = await response.content.read(LARGEST_ANSWER + 1)
            while not response.content.at_eof():
                payload += await response.content.read(LARGEST_ANSWER + 1)
                if len(payload) > LARGEST_ANSWER:
                    raise StatsFormatError(f"{url} answered more than {LARGEST_ANSWER >> 20} MiB")
            return payload
