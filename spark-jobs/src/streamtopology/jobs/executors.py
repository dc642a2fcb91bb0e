"""Knows which executors may be given work: it cancels the job of one that is lost, and admits a new one once it is warm.

Everything is level-triggered: each tick looks at what is there and does again what is still called for, so that no
missed event leaves a batch hanging.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from py4j.protocol import Py4JError
from pyspark import InheritableThread
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from streamtopology.jobs.pinning import ExecutorInfo, Slot, executor_ids, executors, in_order

TICK_SECONDS = 0.05
LOSS_SECONDS = 1.0  # by when the scheduler knows that an executor is gone whose loss made a job fail
ADMISSION_SECONDS = 300.0
CLOSING_SECONDS = 10.0
WARM_UP_PAUSES = (0.0, 0.2, 0.5, 1.0, 2.0)  # between tries on one living executor: each of its dead Python workers may cost one

# What Spark says when the socket to a task's Python process ends before the task does: it had been read from, or written to.
_SIGNS_OF_A_DEAD_WORKER = ("Python worker exited unexpectedly", "Broken pipe", "Connection reset by peer")

# What Spark says when a task cannot get what another sent it: nobody answered there, or the driver knows of no such output.
_SIGNS_OF_A_LOST_SHUFFLE = ("shuffle.FetchFailedException", "shuffle.MetadataFetchFailedException")

_tags = itertools.count(1)


class AttemptLost(Exception):
    """Work came to nothing by no fault of its own: the same can be tried again on the executors that are there then."""


class ExecutorLost(AttemptLost):
    """An executor of the attempt has died."""

    def __init__(self, ids: Sequence[str]) -> None:
        super().__init__(f"lost executor{'s' if len(ids) > 1 else ''} {', '.join(ids)}")
        self.ids = tuple(ids)


class PythonWorkerDied(AttemptLost):
    """A task's Python process was killed; its executor lives on and starts another."""

    def __init__(self) -> None:
        super().__init__("a Python worker died")


class ShuffleLost(AttemptLost):
    """What one task sent did not reach the next, although the executors of both live."""

    def __init__(self) -> None:
        super().__init__("an executor could not fetch what another had sent it")


class ExecutorsUnusable(Exception):
    """Executors do not come, or they live but cannot run a warm-up job."""


def nothing(executor: ExecutorInfo) -> None:
    return


def _well() -> None:
    return


def _any(executor: ExecutorInfo) -> bool:
    return True


def _its_host(executor: ExecutorInfo) -> str:
    return executor.host


class ExecutorWatch:
    """Watches the executors of `spark` from a thread of its own between `__enter__` and `__exit__`.

    `warm_up(executor)` runs jobs pinned to a new executor, in a thread of its own; only then is it admitted. `tell` gets
    a sentence for each change. `lost` and `admitted` are called with the executor from the watch's threads. `check`
    raises when no executor can ever come (the cluster's master is dead). `slot_of` names what an executor fills: of two in
    the same slot the one that came first is as good as lost.
    """

    def __init__(
        self,
        spark: SparkSession,
        warm_up: Callable[[ExecutorInfo], None],
        tell: Callable[[str], None],
        lost: Callable[[ExecutorInfo], None] = nothing,
        admitted: Callable[[ExecutorInfo], None] = nothing,
        check: Callable[[], None] = _well,
        slot_of: Callable[[ExecutorInfo], str] = _its_host,
    ) -> None:
        self._spark = spark
        self._warm_up = warm_up
        self._tell = tell
        self._on_lost = lost
        self._on_admitted = admitted
        self._check = check
        self._slot_of = slot_of
        self.rehearsal = nothing
        """What else a new executor goes through before it is admitted, as the topology at work has it."""
        self._changed = threading.Condition()
        self._present: dict[str, ExecutorInfo] = {}
        self._admitted: dict[str, ExecutorInfo] = {}
        self._replaced: frozenset[str] = frozenset()
        self._guarded: dict[str, frozenset[str]] = {}
        self._failure: Exception | None = None
        self._closing = threading.Event()
        self._warm_ups: list[threading.Thread] = []
        self._thread = threading.Thread(target=self._run, name="executor-watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._closing.set()
        self._thread.join()
        self._end_warm_ups()

    def admitted(self) -> list[ExecutorInfo]:
        """The executors that may be given work now, in the order of their hosts."""
        with self._changed:
            return in_order(self._admitted.values())

    def present(self) -> list[ExecutorInfo]:
        """The executors that live, admitted or not, in the order of their hosts."""
        with self._changed:
            return in_order(self._present.values())

    def raise_failure(self) -> None:
        """Raises `ExecutorsUnusable` when a living executor could not be warmed up."""
        with self._changed:
            if self._failure:
                raise ExecutorsUnusable(str(self._failure)) from self._failure

    def await_admitted(
        self, count: int = 1, timeout_seconds: float = ADMISSION_SECONDS, wanted: Callable[[ExecutorInfo], bool] = _any
    ) -> list[ExecutorInfo]:
        """Wait until at least `count` of the executors `wanted` are admitted; all of them, as `admitted`.

        Raises `ExecutorsUnusable`.
        """
        deadline = time.monotonic() + timeout_seconds
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._failure or sum(map(wanted, self.admitted())) >= count, timeout=1.0)
            self.raise_failure()
            admitted = [executor for executor in self.admitted() if wanted(executor)]
            if len(admitted) >= count:
                return admitted
            self._check()
            if time.monotonic() > deadline:
                raise ExecutorsUnusable(
                    f"{len(admitted)} of {count} executors came within {timeout_seconds:.0f} s; see the cluster's logs"
                )

    @contextmanager
    def guard(self, slots: Sequence[Slot], tag: str | None = None) -> Iterator[None]:
        """Run a Spark action on `slots` from the calling thread; it is cancelled when one of their executors is lost.

        Raises `AttemptLost` in place of whatever a loss made the action raise. The job tag is added to the thread's own, so
        that the action may be part of a streaming query's batch.
        """
        tag = tag or f"streamtopology-{next(_tags)}"
        watched = frozenset(slot.executor_id for slot in slots)
        context = self._spark.sparkContext
        context.addJobTag(tag)
        with self._changed:
            self._guarded[tag] = watched
        try:
            yield
        except (Py4JError, PySparkException) as failure:
            if loss := self._loss_behind(str(failure), watched):
                raise loss from failure
            raise
        finally:
            with self._changed:
                del self._guarded[tag]
            context.removeJobTag(tag)

    def _loss_behind(self, failure: str, watched: frozenset[str]) -> AttemptLost | None:
        """What an action that ran on `watched` has lost, by what Spark says of its failure; None: the fault is its own."""
        fetch_failed = any(sign in failure for sign in _SIGNS_OF_A_LOST_SHUFFLE)
        if not fetch_failed and any(sign in failure for sign in _SIGNS_OF_A_DEAD_WORKER):
            return PythonWorkerDied()
        if lost := self._lost_among(watched):
            with self._changed:  # the next attempt may be quicker than the next tick
                for executor_id in lost:
                    self._admitted.pop(executor_id, None)
            return ExecutorLost(lost)
        return ShuffleLost() if fetch_failed else None

    def _lost_among(self, watched: frozenset[str]) -> list[str]:
        """Which of `watched` are gone; the job's failure may be here a moment before the scheduler knows why."""
        deadline = time.monotonic() + LOSS_SECONDS
        while not (lost := watched - self._alive()) and time.monotonic() < deadline:
            time.sleep(TICK_SECONDS)
        return sorted(lost)

    def _run(self) -> None:
        while not self._closing.wait(TICK_SECONDS):
            try:
                self._look()
            except (Py4JError, PySparkException, OSError) as failure:
                self._fail(failure)
                return

    def _alive(self) -> frozenset[str]:
        """Executors that the scheduler believes alive, and that no other has come in the place of."""
        return executor_ids(self._spark) - self._replaced

    def _look(self) -> None:
        alive = self._alive()
        with self._changed:
            gone = [self._present.pop(id) for id in self._present.keys() - alive]
            for executor in gone:
                self._admitted.pop(executor.id, None)
            doomed = [tag for tag, watched in self._guarded.items() if not watched <= alive]
        for tag in doomed:
            self._spark.sparkContext.cancelJobsWithTag(tag)
        for executor in gone:
            self._tell(f"executor {executor.id} at {executor.host} is lost")
            self._on_lost(executor)
        if alive - self._present.keys():
            self._welcome(alive)

    def _welcome(self, alive: frozenset[str]) -> None:
        for executor in sorted(executors(self._spark), key=lambda executor: int(executor.id)):  # as Spark numbered them
            if executor.id in alive and executor.id not in self._present:
                # The old one must be gone for the new one to be there; the scheduler may learn that seconds later.
                self._replaced |= {old.id for old in self._present.values() if self._slot_of(old) == self._slot_of(executor)}
                self._present[executor.id] = executor
                name = f"warm-up-{executor.id}"
                thread = InheritableThread(target=self._admit, args=(executor,), name=name, daemon=True)
                self._warm_ups = [*filter(threading.Thread.is_alive, self._warm_ups), thread]
                thread.start()

    def _end_warm_ups(self) -> None:
        """Whoever closes us may stop the session next: nobody is to use it then."""
        deadline = time.monotonic() + CLOSING_SECONDS
        while (at_work := [thread for thread in self._warm_ups if thread.is_alive()]) and time.monotonic() < deadline:
            with self._changed:
                tags = list(self._guarded)
            try:
                for tag in tags:
                    self._spark.sparkContext.cancelJobsWithTag(tag)
            except (Py4JError, OSError):
                return  # the JVM is gone, and all jobs with it: these threads end by themselves
            at_work[0].join(TICK_SECONDS)

    def _admit(self, executor: ExecutorInfo) -> None:
        for pause in (*WARM_UP_PAUSES, None):
            try:
                with self.guard([executor.slot]):
                    self._warm_up(executor)
                    self.rehearsal(executor)
                break
            except ExecutorLost:
                return
            except (AttemptLost, Py4JError, PySparkException) as failure:
                if self._closing.wait(pause or 0.0):
                    return
                if pause is None:
                    self._fail(_never_warm(executor, failure))
                    return
        self._on_admitted(executor)
        with self._changed:
            if executor.id not in self._present:
                return
            self._admitted[executor.id] = executor
            self._changed.notify_all()
        self._tell(f"executor {executor.id} at {executor.host} is warm and admitted")

    def _fail(self, failure: Exception) -> None:
        with self._changed:
            self._failure = failure
            self._changed.notify_all()


def _never_warm(executor: ExecutorInfo, failure: Exception) -> ExecutorsUnusable:
    why = f"{failure}. Too little memory? See its log" if isinstance(failure, AttemptLost) else str(failure)
    tries = len(WARM_UP_PAUSES) + 1
    return ExecutorsUnusable(f"executor {executor.id} at {executor.host} could not be warmed up in {tries} attempts: {why}")
