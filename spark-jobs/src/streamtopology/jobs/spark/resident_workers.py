"""Workers of real time on Spark's executors: on each a job of one task, which ends with the run or with its executor.

Spark places and pins the task, and its executor's end fails the job at once. The task has the executor's only slot, so
nothing else runs there: no ping keeps the worker alive, and no source is read by Spark.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from pyspark import InheritableThread
from pyspark.sql import SparkSession

from streamtopology.contract.environment import SPARK_AUTH_SECRET
from streamtopology.contract.errors import Unavailable
from streamtopology.jobs.driver.attempt_runner import AttemptLost, Executor, PythonWorkerDied
from streamtopology.jobs.realtime.secure import Keys
from streamtopology.jobs.realtime.worker_sockets import Post, serving
from streamtopology.jobs.spark.attempt_runner import SparkExecutors
from streamtopology.jobs.spark.executor_watch import ExecutorWatch
from streamtopology.jobs.spark.executors import ExecutorInfo, ExecutorRef
from streamtopology.jobs.spark.pinned_rdd import placed, stage

_END_SECONDS = 10.0


class ResidentWorkers(SparkExecutors):
    """Implements `Workers`. `run` names the run, `driver` is the address of its desk, `port` that of workers; 0: any."""

    def __init__(
        self,
        spark: SparkSession,
        watch: ExecutorWatch,
        slot_of: Callable[[ExecutorInfo], str],
        run: str,
        driver: str,
        port: int,
    ) -> None:
        super().__init__(spark, watch, slot_of)
        self._run = run
        self._driver = driver
        self._port = port
        self._threads: list[InheritableThread] = []
        self._given_up: set[str] = set()

    def start(self, executor: Executor, name: str, ended: Callable[[Exception], None]) -> None:
        post = Post(self._run, self._driver, name, f"{executor.host}:{self._port}")
        ref, context = ExecutorRef(executor.id, executor.host), self._spark.sparkContext

        def serve() -> None:
            context.addJobTag(_tag(name))
            try:
                with self._watch.resident(ref):
                    hindered = stage(placed(self._spark, [ref]), serving(post, executor_keys)).collect()
            except AttemptLost as loss:
                ended(loss)
            except Exception as failure:  # noqa: BLE001 - who waits for this worker raises it
                ended(PythonWorkerDied() if name in self._given_up else failure)
            else:
                ended(Unavailable(hindered[0].decode()) if hindered else PythonWorkerDied())

        thread = InheritableThread(target=serve, name=f"worker {name}", daemon=True)
        self._threads = [*(known for known in self._threads if known.is_alive()), thread]
        thread.start()

    def give_up(self, name: str) -> None:
        """Cancel the worker's job: Spark then kills its Python process, also one that is stopped."""
        self._given_up.add(name)
        self._spark.sparkContext.cancelJobsWithTag(_tag(name))

    def await_ends(self) -> None:
        """Wait for the workers that have been told to end."""
        until = time.monotonic() + _END_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))


def _tag(worker: str) -> str:
    return f"worker {worker}"


def executor_keys(run: str) -> Keys:
    """The keys of `run`, in a Python worker: Spark gives its executors their secret as a variable."""
    return Keys.of_run(os.environ[SPARK_AUTH_SECRET], run)
