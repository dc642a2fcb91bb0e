"""The planning processes, apart from the event loop: a reader of drivers' answers, and planners.

Plans take up to seconds of CPU, in which an event loop would miss its Lease and its watches. numba and METIS also take
memory that the event loop's process does not need. So planning has processes of its own. They are forked from one that has
loaded both, so that each is there at once and shares its pages.

The reader keeps all windows and does what takes milliseconds. The planners do what takes longer, one topology's plan at a
time each. A call that takes too long ends its process, and its topology is left alone for a while: no topology can take
planning from the others. A reader that dies is started again and fills its windows from the drivers' answers.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from streamtopology.contract.errors import Unavailable
from streamtopology.contract.stats_question import Question
from streamtopology.k8s.decide.answers import FIRST_QUESTION, Judged, PlanningRequest

if TYPE_CHECKING:
    from streamtopology.k8s.planning.judge import Assessment, Judge, Remedies

log = logging.getLogger(__name__)

# The timeout of reading one answer, which takes milliseconds; seconds where numba compiles on a node without free CPU.
READ_SECONDS = 120.0

# The timeout of one plan, which takes a second for a million keys, and on such a node a minute.
PLAN_SECONDS = 300.0

# The time for which no answer is read of a topology whose answer or plan took too long; doubled each time in a row.
LEFT_ALONE_SECONDS, LONGEST_ALONE_SECONDS = 60.0, 3600.0

PLANNERS = 2


class PlannerDied(Unavailable):
    """A planning process died or took too long, so there is no judgement. It is started again with the next call."""


class _TookTooLong(Unavailable):
    """A call was ended with its process."""


@dataclass(frozen=True)
class _LeftAlone:
    """A topology is left alone for `seconds`, until a time of the monotonic clock."""

    seconds: float
    until: float

    @staticmethod
    def after(former: _LeftAlone | None) -> _LeftAlone:
        seconds = LEFT_ALONE_SECONDS if former is None else min(2 * former.seconds, LONGEST_ALONE_SECONDS)
        return _LeftAlone(seconds, time.monotonic() + seconds)


class Planner(Protocol):
    """Judges drivers' answers. StatsFormatError: the answer cannot be read. PlannerDied: no result."""

    async def judge(self, uid: str, answer: bytes, request: PlanningRequest) -> Judged: ...
    def known(self, uid: str) -> Question: ...
    async def forget(self, uid: str) -> None: ...


class PlanningProcess:
    """A Planner whose judge runs in processes of their own; a context manager. The timeouts are those above but for tests."""

    def __init__(self, read_seconds: float = READ_SECONDS, plan_seconds: float = PLAN_SECONDS) -> None:
        self._reader = _Worker("reader", read_seconds)
        self._planners = [_Worker(f"planner {number}", plan_seconds) for number in range(PLANNERS)]
        self._known: dict[str, Question] = {}
        self._left_alone: dict[str, _LeftAlone] = {}

    def __enter__(self) -> PlanningProcess:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in (self._reader, *self._planners):
            worker.close()

    async def judge(self, uid: str, answer: bytes, request: PlanningRequest) -> Judged:
        alone = self._left_alone.get(uid)
        if alone is not None and alone.until > time.monotonic():
            raise PlannerDied(f"judging took too long, so no answer is read for {alone.seconds:.0f} s")
        try:
            judged = await self._judged(uid, answer, request)
        except _TookTooLong as slow:
            self._left_alone[uid] = _LeftAlone.after(alone)
            raise PlannerDied(str(slow)) from slow
        self._left_alone.pop(uid, None)
        self._known[uid] = judged.known
        return judged

    async def _judged(self, uid: str, answer: bytes, request: PlanningRequest) -> Judged:
        read: Judged | Assessment = await self._read(_read, uid, answer, request)
        while not isinstance(read, Judged):
            remedies = await min(self._planners, key=lambda planner: planner.waiting).call(_plan, read)
            try:
                read = await self._read(_conclude, uid, remedies)
            except KeyError as forgotten:
                raise PlannerDied("the reader was started again while a plan was made") from forgotten
        return read

    async def _read(self, function: Callable[..., Any], *arguments: object) -> Any:
        """Call it in the reader; once more if that dies, which forgets all batches."""
        reader = self._reader
        lives = reader.lives
        try:
            return await reader.call(function, *arguments)
        except PlannerDied:
            self._forget_all(lives)
        except _TookTooLong:
            self._forget_all(lives)
            raise
        return await reader.call(function, *arguments)

    def _forget_all(self, lives: int) -> None:
        """Ask drivers for everything again, once for each process that ended."""
        if self._reader.lives == lives + 1:
            self._known = {}

    def known(self, uid: str) -> Question:
        """The next question to the driver of a topology: for all that the judge has not seen."""
        return self._known.get(uid, FIRST_QUESTION)

    async def forget(self, uid: str) -> None:
        self._known.pop(uid, None)
        self._left_alone.pop(uid, None)
        with suppress(_TookTooLong):  # the reader was ended, and with it all that it knew
            await self._read(_forget, uid)


class _Worker:
    """One process, which does one call at a time within `seconds`. `waiting`: calls that are not done; `lives`: processes."""

    def __init__(self, name: str, seconds: float) -> None:
        self._name = name
        self._seconds = seconds
        self._pool = _start()
        self._free = asyncio.Lock()
        self._closed = False
        self._is_warm = False
        self.waiting = 0
        self.lives = 1

    async def call(self, function: Callable[..., Any], *arguments: object) -> Any:
        """PlannerDied: the process died, or is closed; _TookTooLong: it was ended. Either way the next call has a new one.

        One whose caller is cancelled continues, as the process does: its time is not the next call's.
        """
        self.waiting += 1
        return await asyncio.shield(asyncio.ensure_future(self._in_turn(function, *arguments)))

    async def _in_turn(self, function: Callable[..., Any], *arguments: object) -> Any:
        try:
            async with self._free:
                return await self._call(function, *arguments)
        finally:
            self.waiting -= 1

    async def _call(self, function: Callable[..., Any], *arguments: object) -> Any:
        loop = asyncio.get_running_loop()
        try:
            if not self._is_warm:  # the start of a process is no call's time
                await loop.run_in_executor(self._pool, _nothing)
                self._is_warm = True
            async with asyncio.timeout(self._seconds):
                return await loop.run_in_executor(self._pool, function, *arguments)
        except BrokenProcessPool as died:
            if not self._closed:
                log.error("the %s has died; starting it again", self._name)
                self._start_again()
            raise PlannerDied(f"the {self._name} has died") from died
        except TimeoutError as late:
            log.error("the %s took longer than %.0f s for one call; ended", self._name, self._seconds)
            self._end()
            self._start_again()
            raise _TookTooLong(f"judging took longer than {self._seconds:.0f} s") from late

    def _start_again(self) -> None:
        self._pool, self._is_warm = _start(), False
        self.lives += 1

    def _end(self) -> None:
        processes = list((self._pool._processes or {}).values())
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.kill()

    def close(self) -> None:
        self._closed = True
        self._end()


def _start() -> ProcessPoolExecutor:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["streamtopology.k8s.planning.judge"])
    return ProcessPoolExecutor(1, mp_context=context, initializer=_begin)


# In a planning process. Only there may `judge` be imported, for it loads numba.

_judge: Judge | None = None


def _begin() -> None:
    from streamtopology.k8s.planning.judge import Judge

    global _judge
    threading.Thread(target=_end_with_the_operator, daemon=True).start()
    _judge = Judge(time.monotonic)


def _end_with_the_operator() -> None:
    """End when the operator's process has ended: if killed, it cannot end this one."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _nothing() -> None:
    """Return once the process is there."""


def _read(uid: str, answer: bytes, request: PlanningRequest) -> Judged | Assessment:
    assert _judge is not None
    return _judge.read(uid, answer, request)


def _plan(assessment: Assessment) -> Remedies:
    from streamtopology.k8s.planning.judge import plan

    return plan(assessment)


def _conclude(uid: str, remedies: Remedies) -> Judged | Assessment:
    assert _judge is not None
    return _judge.conclude(uid, remedies)


def _forget(uid: str) -> None:
    assert _judge is not None
    _judge.forget(uid)
