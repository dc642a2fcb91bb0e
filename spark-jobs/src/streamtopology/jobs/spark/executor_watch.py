"""The watch over executors: cancels jobs of a lost one, admits a new one once it is warm, keeps the workers of quiet ones.

Everything is level-triggered: each tick looks at the current state and repeats what is still needed, so that no missed
event leaves a batch hanging.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Self

from streamtopology.contract.errors import Unavailable
from streamtopology.jobs.driver.attempt_runner import AttemptLost, ExecutorLost, PythonWorkerDied, ShuffleLost
from streamtopology.jobs.errors import TopologyFailed
from streamtopology.jobs.spark.executors import ExecutorInfo, ExecutorRef, in_order
from streamtopology.jobs.spark.keep_alive import KeepAlive
from streamtopology.jobs.spark.scheduler import Scheduler

TICK_SECONDS = 0.05
LOSS_SECONDS = 1.0  # by when the scheduler knows that an executor is gone whose loss made a job fail
ADMISSION_SECONDS = 300.0
CLOSING_SECONDS = 10.0
WARM_UP_PAUSES = (0.0, 0.2, 0.5, 1.0, 2.0)  # between tries on one living executor: each of its dead Python workers may cost one

# Spark's messages when the socket to a task's Python process ends before the task does, while reading or writing, and when
# the process that forks them is dead.
_SIGNS_OF_A_DEAD_WORKER = ("Python worker exited unexpectedly", "Broken pipe", "Connection reset by peer", "Stream closed")

# Spark's messages when a task cannot fetch another's output: no answer, or the driver knows of no such output.
_SIGNS_OF_A_LOST_SHUFFLE = ("shuffle.FetchFailedException", "shuffle.MetadataFetchFailedException")

# The system's message when Spark's own files (shuffles, unpacked libraries) do not fit on their file system.
_FULL_DISK = "No space left on device"

_tags = itertools.count(1)


class ExecutorsUnusable(Unavailable):
    """Executors do not arrive, or they live but cannot run a warm-up job."""


def nothing(executor: ExecutorInfo) -> None:
    return


def _no_check() -> None:
    return


def _any(executor: ExecutorInfo) -> bool:
    return True


def _its_host(executor: ExecutorInfo) -> str:
    return executor.host


class ExecutorWatch:
    """Watches the executors of `scheduler` from a thread of its own between `__enter__` and `__exit__`.

    `warm_up(executor)` runs jobs pinned to a new executor, in a thread of its own; only then is it admitted. `notify` gets
    a sentence for each change. `lost` and `admitted` are called with the executor from the watch's threads. `check`
    raises when no executor can ever come (one cannot even start). `slot_of` names what an executor fills: of two in
    the same slot the one that came first is as good as lost. One that was `released` may go without a word.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        warm_up: Callable[[ExecutorInfo], None],
        notify: Callable[[str], None],
        lost: Callable[[ExecutorInfo], None] = nothing,
        admitted: Callable[[ExecutorInfo], None] = nothing,
        check: Callable[[], None] = _no_check,
        slot_of: Callable[[ExecutorInfo], str] = _its_host,
    ) -> None:
        self._scheduler = scheduler
        self._warm_up = warm_up
        self._notify = notify
        self._on_lost = lost
        self._on_admitted = admitted
        self._check = check
        self._slot_of = slot_of
        self.rehearsal: Callable[[ExecutorInfo], None] = nothing
        """Further rehearsal of a new executor before it is admitted, set by the running topology."""
        self._changed = threading.Condition()
        self._present: dict[str, ExecutorInfo] = {}
        self._names: dict[str, str] = {}
        self._admitted: dict[str, ExecutorInfo] = {}
        self._replaced: frozenset[str] = frozenset()
        self._released: frozenset[str] = frozenset()
        self._guarded: dict[str, frozenset[str]] = {}
        self._keep_alive = KeepAlive(scheduler.ping)
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
        """Return the executors that may be given work now, in the order of their hosts."""
        with self._changed:
            return in_order(self._admitted.values())

    def present(self) -> list[ExecutorInfo]:
        """Return the executors that live, admitted or not, in the order of their hosts."""
        with self._changed:
            return in_order(self._present.values())

    def release(self, slots: Collection[str]) -> None:
        """Expect the end of the executors that fill these slots now: it is reported as no loss."""
        with self._changed:
            self._released |= {id for id in self._present if self._names[id] in slots}

    def retain(self, slots: Collection[str]) -> None:
        """Undo `release` for executors that still fill these slots."""
        with self._changed:
            self._released -= {id for id in self._present if self._names[id] in slots}

    def raise_failure(self) -> None:
        """Raise `ExecutorsUnusable` if a living executor could not be warmed up."""
        with self._changed:
            if self._failure:
                raise ExecutorsUnusable(str(self._failure)) from self._failure

    def await_admitted(self, count: int = 1, wanted: Callable[[ExecutorInfo], bool] = _any) -> list[ExecutorInfo]:
        """Wait until at least `count` of the executors `wanted` are admitted; return all of those, as `admitted` does.

        Raises `ExecutorsUnusable`.
        """
        deadline = time.monotonic() + ADMISSION_SECONDS
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
                    f"{len(admitted)} of {count} executors arrived within {ADMISSION_SECONDS:.0f} s; see the cluster's logs"
                )

    @contextmanager
    def resident(self, executor: ExecutorRef) -> Iterator[None]:
        """As `guard` of one executor, for a task that does not end before its executor does."""
        own = frozenset({executor.executor_id})
        with self._changed:
            self._keep_alive.residents |= own
        try:
            with self.guard([executor]):
                yield
        finally:
            with self._changed:
                self._keep_alive.residents -= own

    @contextmanager
    def guard(self, executors: Sequence[ExecutorRef]) -> Iterator[str]:
        """Run a Spark action on `executors` from the calling thread; cancel it when one of them is lost.

        Raises `AttemptLost` in place of the exception that a loss made the action raise. Yields the job tag, which is added to
        the thread's own, so that the action may be part of a streaming query's batch.
        """
        tag = f"streamtopology-{next(_tags)}"
        watched = frozenset(executor.executor_id for executor in executors)
        self._scheduler.add_tag(tag)
        with self._changed:
            self._guarded[tag] = watched
        try:
            yield tag
        except self._scheduler.failures as failure:
            if loss := self._loss_behind(str(failure), watched):
                raise loss from failure
            if _FULL_DISK in str(failure):
                raise TopologyFailed(
                    f"Spark cannot write its files: {_FULL_DISK}; free space on the file system of the work folder "
                    "(--work-dir; in a pod: its own storage) and start again: nothing is lost"
                ) from failure
            raise
        finally:
            self._keep_alive.worked(watched)
            with self._changed:
                del self._guarded[tag]
            self._scheduler.remove_tag(tag)

    def _loss_behind(self, failure: str, watched: frozenset[str]) -> AttemptLost | None:
        """Map Spark's failure text, of an action on `watched`, to the loss behind it; None if the fault is the action's own."""
        fetch_failed = any(sign in failure for sign in _SIGNS_OF_A_LOST_SHUFFLE)
        if not fetch_failed and any(sign in failure for sign in _SIGNS_OF_A_DEAD_WORKER):
            return PythonWorkerDied()
        if lost := self._lost_among(watched):
            with self._changed:  # the next attempt may be quicker than the next tick
                for executor_id in lost:
                    self._admitted.pop(executor_id, None)
            return ExecutorLost([self._names.get(id, id) for id in lost])
        return ShuffleLost() if fetch_failed else None

    def _lost_among(self, watched: frozenset[str]) -> list[str]:
        """Return those of `watched` that are gone; the job may fail a moment before the scheduler knows why."""
        deadline = time.monotonic() + LOSS_SECONDS
        while not (lost := watched - self._alive()) and time.monotonic() < deadline:
            time.sleep(TICK_SECONDS)
        return sorted(lost)

    def _run(self) -> None:
        while not self._closing.wait(TICK_SECONDS):
            try:
                self._look()
                self._keep_alive.look(self.admitted())
            except Exception as failure:  # noqa: BLE001 - without this thread a batch would wait for lost executors for ever
                self._fail(failure)
                return

    def _alive(self) -> frozenset[str]:
        """Return the executors that the scheduler believes alive and that no other has replaced."""
        return self._scheduler.alive() - self._replaced

    def _look(self) -> None:
        alive = self._alive()
        with self._changed:
            gone = [self._present.pop(id) for id in self._present.keys() - alive]
            for executor in gone:
                self._admitted.pop(executor.id, None)
            doomed = [tag for tag, watched in self._guarded.items() if not watched <= alive]
        for tag in doomed:
            self._scheduler.cancel(tag)
        for executor in gone:
            if executor.id not in self._released:
                self._notify(f"executor {self._names[executor.id]} was lost")
            self._on_lost(executor)
        if alive - self._present.keys():
            self._welcome(alive)

    def _welcome(self, alive: frozenset[str]) -> None:
        for executor in sorted(self._scheduler.executors(), key=lambda executor: int(executor.id)):  # as Spark numbered them
            if executor.id in alive and executor.id not in self._present:
                # The old one must be gone for the new one to be there; the scheduler may learn that seconds later.
                self._replaced |= {old.id for old in self._present.values() if self._slot_of(old) == self._slot_of(executor)}
                self._names[executor.id] = self._slot_of(executor)
                with self._changed:
                    self._present[executor.id] = executor
                thread = self._scheduler.thread(partial(self._admit, executor), f"warm-up-{executor.id}")
                self._warm_ups = [*filter(threading.Thread.is_alive, self._warm_ups), thread]
                thread.start()

    def _end_warm_ups(self) -> None:
        """End running warm-ups: the caller may stop the session next."""
        deadline = time.monotonic() + CLOSING_SECONDS
        while (running := [thread for thread in self._warm_ups if thread.is_alive()]) and time.monotonic() < deadline:
            with self._changed:
                tags = list(self._guarded)
            try:
                for tag in tags:
                    self._scheduler.cancel(tag)
            except (*self._scheduler.failures, OSError):
                return  # the JVM is gone, and all jobs with it: these threads end by themselves
            running[0].join(TICK_SECONDS)

    def _admit(self, executor: ExecutorInfo) -> None:
        for pause in (*WARM_UP_PAUSES, None):
            try:
                with self.guard([executor.ref]):
                    self._warm_up(executor)
                    self.rehearsal(executor)
                self._on_admitted(executor)
                break
            except ExecutorLost:
                return
            except Exception as failure:  # noqa: BLE001 - also a checkpoint out of reach: this thread alone knows of it
                if self._closing.wait(pause or 0.0):
                    return
                if pause is None:
                    self._fail(_never_warm(self._names[executor.id], failure))
                    return
        with self._changed:
            if executor.id not in self._present:
                return
            self._admitted[executor.id] = executor
            self._changed.notify_all()
        self._notify(f"executor {self._names[executor.id]} is warm and admitted")

    def _fail(self, failure: Exception) -> None:
        with self._changed:
            self._failure = failure
            self._changed.notify_all()


def _never_warm(name: str, failure: Exception) -> ExecutorsUnusable:
    why = f"{failure}. Too little memory? See its log" if isinstance(failure, AttemptLost) else str(failure)
    tries = len(WARM_UP_PAUSES) + 1
    return ExecutorsUnusable(f"executor {name} could not be warmed up in {tries} attempts: {why}")
