"""Keeps Python workers, and the state in them: Spark ends those of an executor after a minute without Python tasks."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable

from streamtopology.jobs.spark.executors import ExecutorInfo

QUIET_SECONDS = 20.0

HasEnded = Callable[[], bool]


class KeepAlive:
    """`ping` starts a Python task on an executor, without waiting, and returns what says whether it has ended."""

    def __init__(self, ping: Callable[[ExecutorInfo], HasEnded], clock: Callable[[], float] = time.monotonic) -> None:
        self._ping = ping
        self._clock = clock
        self._worked_at: dict[str, float] = {}
        self._pings: dict[str, HasEnded] = {}
        self.residents: frozenset[str] = frozenset()
        """Executors (ids) with a task that does not end: their workers are never idle, and no other task can start."""

    def worked(self, executors: Iterable[str]) -> None:
        """Note that these executors (ids) have just run tasks. May be called from any thread."""
        self._worked_at.update(dict.fromkeys(executors, self._clock()))

    def look(self, executors: Collection[ExecutorInfo]) -> None:
        """Ping those of `executors` that were quiet for `QUIET_SECONDS`: also during a batch, as some wait for others."""
        now = self._clock()
        for executor in executors:
            if executor.id in self.residents:
                continue
            if now - self._worked_at.setdefault(executor.id, now) >= QUIET_SECONDS:
                self._worked_at[executor.id] = now
                ended = self._pings.get(executor.id)
                if ended is None or ended():  # one that has not ended waits for a task that runs
                    self._pings[executor.id] = self._ping(executor)
        ids = {executor.id for executor in executors}
        self._pings = {id: ended for id, ended in self._pings.items() if id in ids}
