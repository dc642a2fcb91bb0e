"""Poll each driver's `/stats` at its own interval and keep the last answer; a slow or missing driver delays no other.

Polls run beside the reconciliations, which read the last answer and never wait for a driver. A change that is under way is
polled more often, so that its next step comes soon. An answer is bounded in size, because a driver is not trusted to be
small.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace

import aiohttp

from streamtopology.contract.stats import StatsFormatError
from streamtopology.contract.stats_question import Question
from streamtopology.k8s.decide.answers import Answer, Judged, Silence, Target
from streamtopology.k8s.io.queue import TopologyKey
from streamtopology.k8s.planning.process import Planner, PlannerDied

log = logging.getLogger(__name__)

ANSWER_SECONDS = 5.0

# Bytes of an answer, decompressed. Drivers keep theirs below 256 KiB on the wire up to 100 executors; one of the release before
# has whole reports in it, which 100 executors can make too large for more than the last batch.
LARGEST_ANSWER = 4 << 20

# Bytes beyond which an answer takes one of `LARGE_AT_ONCE` places: whatever drivers send, memory stays bounded.
USUAL_ANSWER = 512 << 10

LARGE_AT_ONCE = 4

# Without `since` an answer has no batches but the last one.
NEWEST_ALONE = Question()

_GZIP = {"Accept-Encoding": "gzip"}


@dataclass
class _Asking:
    target: Target
    task: asyncio.Task[None]
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class Scraper:
    """One asking task for each topology. `answered` is called with the topology after each answer or failure."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        planner: Planner,
        answered: Callable[[TopologyKey], None],
        clock: Callable[[], float],
    ) -> None:
        """`clock`: seconds since 1970."""
        self._session = session
        self._planner = planner
        self._answered = answered
        self._clock = clock
        self._asking: dict[TopologyKey, _Asking] = {}
        self._answers: dict[TopologyKey, Answer] = {}
        self._large = asyncio.Semaphore(LARGE_AT_ONCE)

    def answer(self, key: TopologyKey) -> Answer | None:
        return self._answers.get(key)

    def want(self, key: TopologyKey, target: Target | None) -> None:
        """Ask this driver from now on; with None ask none."""
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

    async def forget(self, key: TopologyKey) -> None:
        """Stop asking for a topology that is gone."""
        asking = self._asking.get(key)
        self._stop(key)
        if asking is None:
            return
        try:
            await self._planner.forget(asking.target.uid)
        except PlannerDied:
            return  # a new process has no controller of it either

    def close(self) -> None:
        for key in list(self._asking):
            self._stop(key)

    def _stop(self, key: TopologyKey) -> None:
        asking = self._asking.pop(key, None)
        if asking is not None:
            asking.task.cancel()
        self._answers.pop(key, None)

    async def _ask(self, key: TopologyKey) -> None:
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
            judged = await self._judged(target, before)
            stats = judged.stats.dated_by(self._clock())
            return Answer(target.pod, stats, judged.judgement, judged.scaling, gains=judged.gains)
        except (aiohttp.ClientError, TimeoutError, OSError, StatsFormatError, PlannerDied) as error:
            log.info("%s of %s: %s", target.pod, target.request.topology, error)
            return self._silent(before, target, str(error) or type(error).__name__)
        except Exception as error:  # a programming error, most likely in judging: keep asking
            log.exception("%s of %s: please report this", target.pod, target.request.topology)
            return self._silent(before, target, f"the operator cannot judge the answer: {type(error).__name__}: {error}")

    async def _judged(self, target: Target, before: Answer) -> Judged:
        """The judgement of all that is not known yet, or of the newest batch alone where that is more than can be read."""
        asked = self._planner.known(target.uid)
        if before.stats is None:  # another process, perhaps of another checkpoint
            asked = replace(asked, routing=None)
        try:
            answer = await self._get(target, asked)
        except _TooLargeError:
            answer = await self._get(target, NEWEST_ALONE)
        return await self._planner.judge(target.uid, answer, target.request)

    def _silent(self, before: Answer, target: Target, why: str) -> Answer:
        known = before.silence
        silence = Silence(why, known.since, known.count + 1) if known else Silence(why, self._clock())
        return Answer(target.pod, before.stats, silence=silence)

    async def _get(self, target: Target, asked: Question) -> bytes:
        url = f"{target.url}/stats" + (f"?{asked.query}" if asked.query else "")
        timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
        async with self._session.get(url, timeout=timeout, headers=_GZIP, auto_decompress=False) as response:
            if response.status != 200:
                raise StatsFormatError(f"{url} answered {response.status} {response.reason}")
            async with AsyncExitStack() as place:
                answer = _Answer(response.headers.get("Content-Encoding", ""), url)
                async for chunk in response.content.iter_any():
                    if answer.add(chunk):
                        await place.enter_async_context(self._large)
                return bytes(answer.content)


class _TooLargeError(StatsFormatError):
    """An answer is larger than any that is read."""


class _Answer:
    """An answer that is being read, decompressed no further than it may be large."""

    def __init__(self, encoding: str, url: str) -> None:
        self.content = bytearray()
        self._unzip = zlib.decompressobj(zlib.MAX_WBITS | 16) if encoding == "gzip" else None
        self._url = url

    def add(self, chunk: bytes) -> bool:
        """Take the next bytes; True if with them the answer became larger than usual. StatsFormatError: not readable."""
        before = len(self.content)
        try:
            self.content += self._unzip.decompress(chunk, LARGEST_ANSWER + 1) if self._unzip else chunk
        except zlib.error as damage:
            raise StatsFormatError(f"{self._url} answered no gzip, though it says so: {damage}") from damage
        if len(self.content) > LARGEST_ANSWER:
            raise _TooLargeError(f"{self._url} answered more than {LARGEST_ANSWER >> 20} MiB")
        return before <= USUAL_ANSWER < len(self.content)
