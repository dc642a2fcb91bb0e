"""Empty jobs on a new executor, before it is given work."""

from __future__ import annotations

from pyspark.sql import SparkSession

from streamtopology.jobs.spark.executors import ExecutorInfo, ExecutorRef
from streamtopology.jobs.spark.pinned_rdd import Sending, exchanged, placed, stage
from streamtopology.jobs.worker.stage_tasks import warm_stage

_WARM_UP_ROUNDS = 3


def warm_up(spark: SparkSession, executor: ExecutorInfo) -> None:
    """Start the executor's Python worker and its kernels, with what a batch will run, before it is given work."""
    executors: list[ExecutorRef] = [executor.ref]
    for _ in range(_WARM_UP_ROUNDS):
        sending = Sending(stage(placed(spark, executors), warm_stage(len(executors))), len(executors))
        stage(exchanged(sending, executors), warm_stage(len(executors))).collect()
