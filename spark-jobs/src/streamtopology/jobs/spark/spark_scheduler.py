"""The scheduler of a Spark session."""

from __future__ import annotations

import threading
from collections.abc import Callable

from py4j.protocol import Py4JError
from pyspark import InheritableThread
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from streamtopology.jobs.spark.executors import ExecutorInfo
from streamtopology.jobs.spark.keep_alive import HasEnded
from streamtopology.jobs.spark.pinned_rdd import executor_ids, executors, placed, stage, started
from streamtopology.jobs.worker.stage_tasks import idle_stage


class SparkScheduler:
    """Implements `Scheduler` on a session."""

    failures = (Py4JError, PySparkException)

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
