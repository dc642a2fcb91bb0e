"""Spark's scheduler as the watch over executors uses it: a port, and its implementation on a session."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from pyspark import InheritableThread
from pyspark.sql import SparkSession

from streamtopology.jobs.spark.keep_alive import HasEnded
from streamtopology.jobs.spark.pinned_rdd import ExecutorInfo, executor_ids, executors, placed, stage, started
from streamtopology.jobs.worker.stage_tasks import idle_stage


class Scheduler(Protocol):
    """The executors that it believes alive, and jobs by their tags."""

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


class SparkScheduler:
    """Implements `Scheduler` on a session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def alive(self) -> frozenset[str]:
        return executor_ids(self._spark)

    def executors(self) -> list[ExecutorInfo]:
        return executors(self._spark)

    def ping(self, executor: ExecutorInfo) -> HasEnded:
        return started(stage(placed(self._spark, [executor.ref]), idle_stage()))

    def add_tag(self, tag: str) -> None:
        self._spark.sparkContext.addJobTag(tag)

    def remove_tag(self, tag: str) -> None:
        self._spark.sparkContext.removeJobTag(tag)

    def cancel(self, tag: str) -> None:
        self._spark.sparkContext.cancelJobsWithTag(tag)

    def thread(self, run: Callable[[], None], name: str) -> threading.Thread:
        return InheritableThread(target=run, name=name, daemon=True)
