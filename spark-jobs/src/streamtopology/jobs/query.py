"""The one streaming query of a topology: Structured Streaming gives offsets, replay and the rhythm; we run the batch."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streamtopology.jobs.driver import Driver
from streamtopology.jobs.failures import TopologyFailed
from streamtopology.jobs.sources import spark_source
from streamtopology.jobs.sources.descriptors import SourceSpec
from streamtopology.jobs.sources.stream import DescriptorLog, descriptor_stream
from streamtopology.routing.topology import Topology

_DESCRIPTORS = "__descriptors"
_LOOK_SECONDS = 0.2


@dataclass(frozen=True)
class Until:
    """When to stop: after `batches`, after `seconds`, or (both None) when told or when the input has ended."""

    batches: int | None = None
    seconds: float | None = None


class _Enough(Exception):
    pass


class TopologyQuery:
    """Feeds a driver with batches. `stop()` may be called from any thread; the batch at work is finished first."""

    def __init__(
        self, spark: SparkSession, topology: Topology, frames: Mapping[str, DataFrame], folder: Path, driver: Driver
    ) -> None:
        self._spark = spark
        self._trigger = topology.trigger
        self._folder = folder
        self._driver = driver
        self._reads_rows = bool(frames)
        described = [SourceSpec.of(source) for source in topology.sources if source.reads_descriptors]
        self._descriptors: DescriptorLog | None = None
        if described:  # the last of the query's sources, see `_together`
            self._descriptors = DescriptorLog(described, folder / "files", folder / "spark", position=len(frames))
        self._frame = _together(spark, described, frames, folder / "files")
        self._stopping = threading.Event()
        self._at_work = threading.Lock()
        self._batches_left: int | None = None
        self._failure: BaseException | None = None

    def stop(self) -> None:
        self._stopping.set()

    def run(self, until: Until, clock: Callable[[], float] = time.monotonic) -> None:
        """Process the stream until `until`; raises what the driver raised. At the end of the input the topology drains."""
        self._batches_left = until.batches
        deadline = None if until.seconds is None else clock() + until.seconds
        query = self._start()
        while query.isActive and not self._stopping.is_set():
            if deadline is not None and clock() >= deadline:
                break
            self._stopping.wait(_LOOK_SECONDS)
        ended_by_itself = not query.isActive and not self._stopping.is_set()
        self._stopping.set()
        self._end(query)
        if self._failure is not None:
            raise self._failure
        if ended_by_itself:
            failure = query.exception()
            if failure is not None:
                raise TopologyFailed(_plainly(failure))
            self._driver.drain()

    def _start(self) -> StreamingQuery:
        writer = self._frame.writeStream.foreachBatch(self._batch).option("checkpointLocation", str(self._folder / "spark"))
        if self._trigger.available_now:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{self._trigger.interval_seconds} seconds")
        return writer.start()

    def _batch(self, frame: DataFrame, spark_batch: int) -> None:
        """Called by Spark. Every way out but a normal return keeps Spark from counting the batch as done."""
        with self._at_work:
            if self._stopping.is_set():
                raise _Enough
            try:
                descriptors = self._descriptors.of_batch(spark_batch) if self._descriptors else ()
                self._driver.batch(descriptors, self._rows(frame), spark_batch)
            except BaseException as error:
                self._failure = error
                raise
            if self._batches_left is not None:
                self._batches_left -= 1
                if self._batches_left == 0:
                    self._stopping.set()

    def _rows(self, frame: DataFrame) -> DataFrame | None:
        """The rows of one batch that Spark reads itself."""
        if not self._reads_rows:
            return None
        if self._descriptors is None:
            return frame
        return frame.where(frame[spark_source.TAG] != _DESCRIPTORS).drop(_DESCRIPTORS)

    def _end(self, query: StreamingQuery) -> None:
        with self._at_work:  # Spark's stop would cancel the batch at work; none begins once we are stopping
            if query.isActive:
                query.stop()


def _plainly(failure: StreamingQueryException) -> str:
    """Spark's message without the plan that follows it."""
    return f"the streaming query failed: {str(failure).split('=== Streaming Query ===')[0].strip()}"


def source_frames(spark: SparkSession, topology: Topology) -> dict[str, DataFrame]:
    """The frames of the sources that Spark reads itself."""
    return {s.name: spark_source.load(spark, s) for s in topology.sources if not s.reads_descriptors}


def _together(spark: SparkSession, described: Sequence[SourceSpec], frames: Mapping[str, DataFrame], log: Path) -> DataFrame:
    """One frame for all sources: plain when there is one, else their tagged union, the descriptors' stream last."""
    together = dict(frames)
    if described:
        together[_DESCRIPTORS] = descriptor_stream(spark, described, log)
    if len(together) == 1:
        return next(iter(together.values()))
    return spark_source.tagged_union(together)
