"""The one streaming query of a topology: Structured Streaming gives offsets, replay and the rhythm; we run the batch."""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streamtopology.jobs.checkpoint.carried import SparkFolder
from streamtopology.jobs.driver import Driver
from streamtopology.jobs.failures import TopologyFailed
from streamtopology.jobs.sources import spark_source
from streamtopology.jobs.sources.descriptors import SourceSpec
from streamtopology.jobs.sources.group_offsets import GroupOffsets
from streamtopology.jobs.sources.stream import DescriptorLog, descriptor_stream
from streamtopology.routing.topology import Source, Topology

_DESCRIPTORS = "__descriptors"
_LOOK_SECONDS = 0.2
_RECENT_BATCHES = 8
_MARGIN_SECONDS = 0.02
_MOST_STARTS = 3
_ERROR_CLASS = re.compile(r"\[[A-Z_]+(?:\.[A-Z_]+)*\] [^\n]*")
_SQL_FRAGMENT = re.compile(r"== SQL[^\n]*==\n([^\n]+)\n\s*\^")
_SLOW_START = "Python worker failed to connect back"


@dataclass(frozen=True)
class Until:
    """When to stop: after `batches`, after `seconds`, or (both None) when told or when the input has ended.

    `drain`: when it has ended it will not go on; windows close for good.
    """

    batches: int | None = None
    seconds: float | None = None
    drain: bool = False


class _Enough(Exception):
    pass


class TopologyQuery:
    """Feeds a driver with batches. `stop()` may be called from any thread; the batch at work is finished first.

    Where all sources give descriptors, Spark's bookkeeping between two batches runs beside the end of the first: Spark
    counts it as done a little early, and plans the next meanwhile. So after a crash or a failure Spark may be a batch or two
    ahead of our checkpoint; these are run again from Spark's offset log before the query goes on.
    """

    def __init__(
        self, spark: SparkSession, topology: Topology, frames: Mapping[str, DataFrame], folder: SparkFolder, driver: Driver
    ) -> None:
        self._spark = spark
        self._trigger = topology.trigger
        self._folder = folder
        self._driver = driver
        self._read_by_spark = [source for source in topology.sources if not source.reads_descriptors]
        self._reads_rows = bool(frames)
        described = [SourceSpec.of(source, topology.name) for source in topology.sources if source.reads_descriptors]
        self._descriptors: DescriptorLog | None = None
        self._group_offsets: GroupOffsets | None = None
        if described:  # the last of the query's sources, see `_together`
            self._descriptors = DescriptorLog(described, folder.path / "files", folder.path / "spark", position=len(frames))
            self._group_offsets = GroupOffsets(described, self._descriptors, driver.tell)
        self._frame = _together(spark, described, frames, folder.path / "files")
        self._stopping = threading.Event()
        self._for_good = False
        self._prepared = threading.Event()
        self._ending = threading.Event()
        self._in_callback = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="batches")
        self._at_work: Future[None] | None = None
        self._took: deque[float] = deque(maxlen=_RECENT_BATCHES)
        self._between: deque[float] = deque(maxlen=_RECENT_BATCHES)
        self._let_go_at: float | None = None
        self._batches_left: int | None = None

    def stop(self, for_good: bool = False) -> None:
        """`for_good`: after the batch at work one more, in which partials hand over and windows close."""
        self._for_good = self._for_good or for_good
        self._stopping.set()

    def run(self, until: Until, prepare: Callable[[], None], clock: Callable[[], float] = time.monotonic) -> None:
        """Process the stream until `until`; raises what the driver raised. At the end of the input partials hand over.

        `prepare` makes the driver ready for its first batch while Spark starts the query, which takes seconds, too.
        """
        self._batches_left = until.batches
        counted = self._descriptors.newest_counted() if self._descriptors and not self._reads_rows else -1
        with ExitStack() as undo:
            if self._group_offsets is not None:
                undo.callback(self._group_offsets.close)
            undo.enter_context(self._thread)
            query = self._start()
            try:
                prepare()
                self._tell_groups(self._driver.last_spark_batch)  # the run before may have died on its way to this
                for number in range(self._driver.last_spark_batch + 1, counted + 1):
                    self._run_batch(None, number)  # Spark counts it as done, and the newest commit does not know it
                self._prepared.set()
                query = self._follow(query, until.seconds, clock)
            finally:
                ended = not query.isActive and not self._stopping.is_set()
                self._stopping.set()
                self._prepared.set()
                self._end(query)
            self._finish_batch()
            if ended:
                failure = query.exception()
                if failure is not None:
                    raise TopologyFailed(_plainly(failure))
            if ended or self._for_good:
                self._driver.drain(for_good=until.drain or self._for_good)

    def _follow(self, query: StreamingQuery, seconds: float | None, clock: Callable[[], float]) -> StreamingQuery:
        """Let Spark's query run until there is a reason to stop; returns the query that ran last."""
        deadline = None if seconds is None else clock() + seconds
        starts_left = _MOST_STARTS - 1
        while not self._stopping.is_set() and not self._has_failed() and (deadline is None or clock() < deadline):
            if not query.isActive:
                if not starts_left or self._at_work is not None or not _was_slow_to_start(query):
                    break
                starts_left -= 1
                self._driver.tell("a source's Python process did not start within the ten seconds that Spark gives it; again")
                query = self._start()
            self._stopping.wait(_LOOK_SECONDS)
        return query

    def _start(self) -> StreamingQuery:
        writer = self._frame.writeStream.foreachBatch(self._batch).option(
            "checkpointLocation", str(self._folder.path / "spark")
        )
        if self._trigger.available_now:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{self._trigger.interval_seconds} seconds")
        return writer.start()

    def _batch(self, frame: DataFrame, spark_batch: int) -> None:
        """Called by Spark, which counts the batch as done unless this raises."""
        if self._let_go_at is not None:
            self._between.append(time.monotonic() - self._let_go_at)
        with self._in_callback:
            self._prepared.wait()
            self._read_ahead(spark_batch)
            self._await_batch()
            if not self._stopping.is_set() and not self._has_failed():
                self._at_work = self._thread.submit(self._run_batch, self._rows(frame), spark_batch)
                if self._reads_rows:
                    self._await_batch()
                else:
                    wait([self._at_work], self._until_spark_is_let_go())
                self._let_go_at = time.monotonic()
                if not (self._reads_rows and self._has_failed()):  # Spark replays rows only of a batch that is not done for it
                    return
        self._turn_away()

    def _turn_away(self) -> None:
        """Leave a batch to the next run: Spark begins it while we stop, or one has failed.

        Spark logs whatever is raised here at length, so where it can be avoided we return while it is being stopped:
        should it count the batch as done all the same, the next run takes it from the offset log.
        """
        if self._reads_rows:
            raise _Enough
        self._ending.wait()
        time.sleep(_MARGIN_SECONDS)

    def _read_ahead(self, spark_batch: int) -> None:
        """Have `spark_batch` read while the batch before it ends, if it will be run at all."""
        ends_soon = self._stopping.is_set() or self._batches_left == 1 or self._has_failed()
        if self._descriptors is not None and not self._reads_rows and self._is_at_work() and not ends_soon:
            self._driver.read_ahead(self._descriptors.of_batch(spark_batch))

    def _until_spark_is_let_go(self) -> float | None:
        """Seconds after which Spark has just the time for its bookkeeping, and executors for reading the next batch, before
        this one ends; None: not before its end.

        Let go earlier, Spark would fix the offsets of the next batch before rows came that could be in it.
        """
        if not self._took or not self._between:
            return None
        ahead = min(self._between) + self._driver.reading_seconds + _MARGIN_SECONDS
        return max(min(self._took) - ahead, 0.0)

    def _run_batch(self, rows: DataFrame | None, spark_batch: int) -> None:
        started = time.monotonic()
        self._folder.save()
        descriptors = self._descriptors.of_batch(spark_batch) if self._descriptors else ()
        try:
            self._driver.batch(descriptors, rows, spark_batch)
        except (Py4JJavaError, PySparkException) as failure:
            if rows is None:
                raise
            raise TopologyFailed(unreadable(self._read_by_spark, self._driver.next_batch, str(failure))) from failure
        self._tell_groups(spark_batch)
        self._took.append(time.monotonic() - started)
        if self._batches_left is not None:
            self._batches_left -= 1
            if self._batches_left == 0:
                self._stopping.set()

    def _tell_groups(self, spark_batch: int) -> None:
        if self._group_offsets is not None and spark_batch >= 0:
            self._group_offsets.committed(spark_batch)

    def _await_batch(self) -> None:
        if self._at_work is not None:
            wait([self._at_work])

    def _finish_batch(self) -> None:
        """Wait for the batch at work; raises what it raised."""
        if self._at_work is not None:
            self._at_work.result()

    def _is_at_work(self) -> bool:
        return self._at_work is not None and not self._at_work.done()

    def _has_failed(self) -> bool:
        return self._at_work is not None and self._at_work.done() and self._at_work.exception() is not None

    def _rows(self, frame: DataFrame) -> DataFrame | None:
        """The rows of one batch that Spark reads itself."""
        if not self._reads_rows:
            return None
        if self._descriptors is None:
            return frame
        return frame.where(frame[spark_source.TAG] != _DESCRIPTORS).drop(_DESCRIPTORS)

    def _end(self, query: StreamingQuery) -> None:
        with self._in_callback:
            pass  # a callback at work is not cut short; one that comes now finds us stopping, and Spark's stop waits for it
        self._ending.set()
        if query.isActive:
            query.stop()


def _was_slow_to_start(query: StreamingQuery) -> bool:
    """Whether Spark gave a source's Python process up; a busy machine takes longer than its fixed ten seconds."""
    failure = query.exception()
    return failure is not None and _SLOW_START in str(failure)


def _plainly(failure: StreamingQueryException) -> str:
    """Spark's message without the plan that follows it."""
    return f"the streaming query failed: {str(failure).split('=== Streaming Query ===')[0].strip()}"


def unreadable(sources: Sequence[Source], batch: int, failure: str) -> str:
    """What went wrong where Spark reads `sources`, select and where included: Spark's own sentence, and the source it is of."""
    reason = _ERROR_CLASS.search(failure)
    expression = _SQL_FRAGMENT.search(failure)
    culprits = [s for s in sources if expression and any(expression[1] in text for text in (*s.select, s.where or ""))]
    names = " or ".join(repr(source.name) for source in culprits or sources)
    where = f", expression {expression[1]!r}" if expression else ""
    return (
        f"source {names} failed in batch {batch}{where}: {(reason[0] if reason else failure.splitlines()[0]).rstrip('.')}. "
        "Nothing of this batch was committed. Spark reads this format itself and tells no single row, so none can be set "
        "aside: correct the source's select or where (try_cast gives NULL instead of an error) and start again."
    )


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
