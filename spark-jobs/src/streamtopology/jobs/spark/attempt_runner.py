"""Attempts as Spark actions: read, then one pinned stage per level, and the reports come back.

Between two stages the envelopes of each task are exchanged by partition, and the partition is pinned to its executor. One
action for all stages, because each action costs a fixed time on the driver, which short batches would feel.

Spark would retry a lost task on another executor, where the state is not. So a watch cancels the action as soon as an
executor is lost, and the driver begins a new attempt with a new placement.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from streamtopology.jobs.driver.attempt_runner import Executor
from streamtopology.jobs.exchange.blobs import Blob, addressed
from streamtopology.jobs.exchange.collect import collect
from streamtopology.jobs.plan.attempt import Attempt
from streamtopology.jobs.plan.results import Results
from streamtopology.jobs.spark.executor_watch import ExecutorWatch
from streamtopology.jobs.spark.executors import ExecutorInfo, ExecutorRef
from streamtopology.jobs.spark.fetch_waits import FetchWaits
from streamtopology.jobs.spark.pinned_rdd import (
    Sending,
    blob_counts_explained,
    blobs_of,
    delete_shuffles,
    exchanged,
    placed,
    stage,
)
from streamtopology.jobs.spark.watched_executors import WatchedExecutors
from streamtopology.jobs.worker.stage_tasks import node_stage, read_stage, route_rows, state_stage


class SparkExecutors(WatchedExecutors):
    """The part of `AttemptRunner` that says which executors there are."""

    def __init__(self, spark: SparkSession, watch: ExecutorWatch, slot_of: Callable[[ExecutorInfo], str]) -> None:
        super().__init__(watch, slot_of)
        self._spark = spark
        jvm: Any = spark.sparkContext._jvm
        self._jvm_system = jvm.java.lang.System  # looked up once: that is a request for each part of the name

    def begin_batch(self, batch: int) -> None:
        super().begin_batch(batch)
        self._spark.sparkContext.setLocalProperty("mdc.batch", str(batch))  # executors' JVMs, in tasks of the calling thread
        self._spark.sparkContext.setJobDescription(f"batch {batch}")
        self._jvm_system.setProperty("streamtopology.batch", str(batch))


class SparkAttemptRunner(SparkExecutors):
    """Implements `AttemptRunner`. `watch` cancels an action that has lost an executor.

    reads_rows: Spark itself reads sources of the topology. An executor has Python workers of their own for such rows.
    """

    def __init__(
        self, spark: SparkSession, watch: ExecutorWatch, slot_of: Callable[[ExecutorInfo], str], reads_rows: bool
    ) -> None:
        super().__init__(spark, watch, slot_of)
        self._reads_rows = reads_rows
        self._fetch_waits = FetchWaits(spark, time.monotonic)

    def run(
        self,
        attempt: Attempt,
        depth: int,
        executors: Sequence[Executor],
        rows: DataFrame | None = None,
        prefetched: Sending | None = None,
    ) -> Results:
        refs = _refs(executors)
        with self._watch.guard(refs) as tag:
            if prefetched is None:
                sending = self._first_stage(attempt, refs, rows)
            else:
                sending = self._with_state(attempt, refs, prefetched)
            for level in range(1, depth):
                sent = stage(exchanged(sending, refs), node_stage(attempt, level))
                sending = Sending(sent, attempt.partitions, attempt.blobs)
            last = stage(exchanged(sending, refs), node_stage(attempt, depth, is_last=True))
            with blob_counts_explained():
                results = collect(last.collect())
        self._fetch_waits.ended(tag, depth, results)
        results.remote_seconds = self._fetch_waits.seconds or 0.0
        delete_shuffles(last)  # of a lost attempt tasks may still be writing: Spark deletes its files later
        return results

    def prefetch(self, attempt: Attempt, executors: Sequence[Executor]) -> Sending:
        sending = self._first_stage(attempt, _refs(executors), None)
        sending.begin()
        return sending

    def close(self) -> None:
        """Nothing of it outlives an attempt."""

    def _first_stage(self, attempt: Attempt, executors: Sequence[ExecutorRef], rows: DataFrame | None) -> Sending:
        readers = [executors[partition] for partition in attempt.reading_partitions]
        sent = stage(placed(self._spark, readers), read_stage(attempt))
        if attempt.dry and self._reads_rows:
            rows, self._reads_rows = self._no_rows(len(executors)), False  # once: planning it takes longer than a dry attempt
        if rows is not None:
            sent = sent.union(blobs_of(rows.mapInArrow(rows_stage(attempt), BLOB_DDL)))
        return Sending(sent, attempt.partitions, attempt.blobs)

    def _no_rows(self, partitions: int) -> DataFrame:
        """A frame of so many empty partitions, which Spark does not know to be empty: it starts workers for them."""
        return self._spark.range(0, partitions, 1, partitions).where("id < 0")

    def _with_state(self, attempt: Attempt, executors: Sequence[ExecutorRef], prefetched: Sending) -> Sending:
        """Return the prefetched rows together with the state that this attempt hands over."""
        if not attempt.hands_over:
            return prefetched
        state = stage(placed(self._spark, executors), state_stage(attempt))
        return prefetched.union(Sending(state, attempt.partitions, attempt.blobs))


def _refs(executors: Sequence[Executor]) -> list[ExecutorRef]:
    return [ExecutorRef(executor.id, executor.host) for executor in executors]


BLOB_DDL = "blob binary"
_BLOB = pa.schema([("blob", pa.binary())])


def rows_stage(attempt: Attempt) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For `mapInArrow`: routes rows of the sources that Spark reads, and returns addressed blobs, one per row."""
    return partial(_route_rows, attempt)


def _route_rows(attempt: Attempt, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    assert context is not None
    for blob in addressed(route_rows(attempt, context.partitionId(), batches), attempt.blobs):
        yield pa.RecordBatch.from_arrays([_as_one_row(blob)], schema=_BLOB)


def _as_one_row(blob: Blob) -> pa.Array:
    """A binary column around `blob`, without a copy."""
    data = pa.py_buffer(blob)
    return pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(np.array([0, data.size], np.int32)), data])
