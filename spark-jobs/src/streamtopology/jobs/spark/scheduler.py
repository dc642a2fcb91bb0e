"""Spark's scheduler as the watch over executors uses it: a port."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from streamtopology.jobs.spark.executors import ExecutorInfo
from streamtopology.jobs.spark.keep_alive import HasEnded


class Scheduler(Protocol):
    """The executors that it believes alive, and jobs by their tags. `failures`: what a job raises, its cause in the text."""

    @property
    def failures(self) -> tuple[type[Exception], ...]: ...

    def alive(self) -> frozenset[str]:
        """Return the ids of the executors that are believed alive; one cheap call, for frequent use."""
        ...

    def executors(self) -> list[ExecutorInfo]:
        """Return the live executors with their hosts and attributes."""
        ...

    def ping(self, executor: ExecutorInfo) -> HasEnded:
        """Start an idle Python task on `executor`, without waiting."""
        ...

    def add_tag(self, tag: str) -> None:
        """Tag the jobs that the calling thread starts from now on."""
        ...

    def remove_tag(self, tag: str) -> None:
        """Undo `add_tag`."""
        ...

    def cancel(self, tag: str) -> None:
        """Cancel the jobs with this tag."""
        ...

    def thread(self, run: Callable[[], None], name: str) -> threading.Thread:
        """Return a daemon thread, not yet started, whose jobs have the tags of the calling one."""
        ...
