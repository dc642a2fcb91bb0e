"""Which executors there are, as a watch says: the part that runners of attempts have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from streamtopology.jobs import log_tags
from streamtopology.jobs.driver.attempt_runner import Executor
from streamtopology.jobs.spark.executor_watch import ExecutorWatch, nothing
from streamtopology.jobs.spark.executors import ExecutorInfo


class WatchedExecutors:
    """`slot_of` names an executor's slot."""

    def __init__(self, watch: ExecutorWatch, slot_of: Callable[[ExecutorInfo], str]) -> None:
        self._watch = watch
        self._slot_of = slot_of

    def executors(self) -> list[Executor]:
        return [self._executor(info) for info in self._watch.admitted()]

    def await_executors(self, wanted: Callable[[Executor], bool]) -> list[Executor]:
        admitted = self._watch.await_admitted(wanted=lambda info: wanted(self._executor(info)))
        return [self._executor(info) for info in admitted]

    def begin_batch(self, batch: int) -> None:
        log_tags.begin_batch(batch)

    @contextmanager
    def rehearsing(self, rehearse: Callable[[Executor], None]) -> Iterator[None]:
        """While entered, a new executor is admitted only when `rehearse` has returned."""
        self._watch.rehearsal = lambda info: rehearse(self._executor(info))
        try:
            yield
        finally:
            self._watch.rehearsal = nothing

    def _executor(self, info: ExecutorInfo) -> Executor:
        return Executor(info.id, info.host, self._slot_of(info))
