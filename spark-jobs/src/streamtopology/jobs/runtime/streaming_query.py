"""The streaming query of a topology: Structured Streaming provides offsets, replay and the trigger; the driver runs batches.

Spark solves the hard part of sources: which offsets a batch has, and the same offsets again after a crash. We leave it to
Spark and take over from `foreachBatch` on. For files and Kafka the query carries descriptors instead of rows, so that our
pinned tasks, and not Spark's scheduler, decide where rows are read.
"""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streamtopology.jobs.checkpoint.spark_log import SparkFolder
from streamtopology.jobs.checkpoint.spark_offsets import SparkOffsets
from streamtopology.jobs.connectors.sources import source_tag
from streamtopology.jobs.connectors.sources.descriptor_stream import DescriptorLog, Positions, descriptor_stream
from streamtopology.jobs.connectors.sources.descriptors import SourceError, SourceSpec
from streamtopology.jobs.connectors.sources.files.survey import nothing_to_read
from streamtopology.jobs.connectors.sources.group_offsets import GroupOffsets
from streamtopology.jobs.connectors.sources.lag import SourceLag
from streamtopology.jobs.connectors.sources.spark import native as spark_native
from streamtopology.jobs.connectors.sources.spark.options import without_secrets
from streamtopology.jobs.driver.batch_loop import BatchLoop
from streamtopology.jobs.driver.watermarks import Poll
from streamtopology.jobs.errors import TopologyFailed
from streamtopology.jobs.runtime.part_prefetch import PartPrefetch
from streamtopology.jobs.runtime.planned_range import RangeReader
from streamtopology.topology import Source, Topology

# What Spark calls the query of a topology begins so.
QUERY_NAME = "streamtopology "
_DESCRIPTORS = "__descriptors"
_LOOK_SECONDS = 0.2
_UNREAD_SECONDS = 5.0  # between two looks at what is unread: a large folder takes time to list
_RECENT_BATCHES = 8
_MARGIN_SECONDS = 0.02
_MOST_STARTS = 3
_SLOW_START = "Python worker failed to connect back"


@dataclass(frozen=True)
class Until:
    """The end of a run: after `batches`, after `seconds`, or (both None) on `stop` or at the end of the input.

    `drain`: the input ends with what the sources hold at the start, and that end is final; windows close for good.
    """

    batches: int | None = None
    seconds: float | None = None
    drain: bool = False


class Drain(Enum):
    """The end of a run that closes all windows: `AFTER_READING` what the sources hold, or `AT_ONCE`."""

    AFTER_READING = "after reading"
    AT_ONCE = "at once"


class _Enough(Exception):
    pass


class TopologyQuery:
    """Feeds a driver with batches. `stop()` may be called from any thread; the running batch is finished first.

    If all sources give descriptors, Spark's bookkeeping between two batches overlaps the end of the first: Spark counts it
    as done a little early, and plans the next meanwhile. So after a crash or a failure Spark may be a batch or two ahead of
    our checkpoint; these are run again from Spark's offset log before the query continues.
    """

    def __init__(
        self,
        spark: SparkSession,
        topology: Topology,
        frames: Mapping[str, DataFrame],
        folder: SparkFolder,
        driver: BatchLoop,
        input_waits: Callable[[bool], None] | None = None,
    ) -> None:
        self._spark = spark
        self._name = f"{QUERY_NAME}{topology.name}"
        self._trigger = topology.trigger
        self._folder = folder
        self._driver = driver
        self._input_waits = input_waits
        self._read_by_spark = [source for source in topology.sources if not source.reads_descriptors]
        self._reads_rows = bool(frames)
        described = [SourceSpec.of(source, topology.name) for source in topology.sources if source.reads_descriptors]
        self._described = described
        self._descriptors: DescriptorLog | None = None
        self._group_offsets: GroupOffsets | None = None
        self._lag = SourceLag(described, folder.path / "files", lambda: driver.positions, driver.notify)
        if described:  # the last of the query's sources, see `_together`
            self._descriptors = DescriptorLog(described, folder.path / "files", folder.path / "spark", position=len(frames))
            self._group_offsets = GroupOffsets(described, self._descriptors, driver.notify)
        self._frame = _together(spark, described, frames, folder.path / "files", folder.positions)
        self._stopping = threading.Event()
        self._drain: Drain | None = None
        self._available_now = self._trigger.available_now
        self._ranges = RangeReader(driver, self._descriptors, SparkOffsets(folder.path / "spark"))
        self._newest_begun = -1
        self._prepared = threading.Event()
        self._ending = threading.Event()
        self._in_callback = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="batches")
        self._running: Future[None] | None = None
        self._query: StreamingQuery | None = None
        self._took: deque[float] = deque(maxlen=_RECENT_BATCHES)
        self._between: deque[float] = deque(maxlen=_RECENT_BATCHES)
        self._epoch = time.time() - time.monotonic()
        self._started_at = 0.0
        self._planned_before = -1
        self._newest_poll: Poll | None = None
        self._released_at: float | None = None
        self._batches_left: int | None = None
        self._parts = PartPrefetch(lambda: driver.reading_seconds)

    def stop(self, drain: Drain | None = None) -> None:
        """Stop after the running batch; with `drain` flush partials and close all windows, then. The newest call counts."""
        self._drain = drain
        self._stopping.set()

    @property
    def lag(self) -> Mapping[str, int | None]:
        """By Kafka source the rows that wait after the newest commit; None while that is unknown."""
        return self._lag.rows

    def unread(self) -> dict[str, str]:
        """Return the input that no batch has begun to read, by source: "8 files". Leaves out sources that Spark reads."""
        if self._descriptors is None:
            return {}
        planned = self._ranges.planned
        start = self._driver.positions if planned is None else planned.end
        return self._descriptors.unread(max(self._newest_begun, self._driver.last_spark_batch), start)

    def await_input(self, seconds: float) -> bool:
        """Wait until what the sources hold now is in state and sinks, and nothing is due; `seconds` for the latter at most."""
        query = self._query
        if query is not None:
            query.processAllAvailable()
        self._await_batch()
        if query is not None and not self._is_due() and not self._is_running():
            return True
        self._stopping.wait(seconds)
        return False

    def run(self, until: Until, prepare: Callable[[], None], clock: Callable[[], float] = time.monotonic) -> None:
        """Process the stream until `until`; raise what the driver raised. At the end of the input partials are flushed.

        `prepare` makes the driver ready for its first batch while Spark starts the query; both take seconds.
        """
        self._batches_left = until.batches
        self._available_now = self._trigger.available_now or until.drain
        with ExitStack() as undo:
            if self._group_offsets is not None:
                undo.callback(self._group_offsets.close)
            undo.enter_context(self._lag)
            if self._input_waits is not None:
                is_over = threading.Event()
                undo.callback(is_over.set)
                threading.Thread(
                    target=self._watch_unread, args=(self._input_waits, is_over), name="unread", daemon=True
                ).start()
            undo.callback(self._parts.close)
            undo.enter_context(self._thread)
            has_ended = self._stream(prepare, until.seconds, clock)
            if self._drain is Drain.AFTER_READING:
                has_ended = self._read_rest(clock)
            is_final = (has_ended and (until.drain or self._drain is Drain.AFTER_READING)) or self._drain is Drain.AT_ONCE
            if is_final and (late := self.unread()):
                self._driver.notify(f"{unread_text(late)}: their rows will be late, as all windows close now")
            if has_ended or is_final:
                self._driver.drain(for_good=is_final)
                self._report_held_back(is_final)
            elif self._driver.has_gathered:  # all that was read is in state and sinks when a run has stopped
                self._driver.batch_without_rows()

    def _read_rest(self, clock: Callable[[], float]) -> bool:
        """Read what the sources hold at this moment. Returns False if a further `stop` has cut it short."""
        self._available_now, self._batches_left = True, None
        self._stopping.clear()
        if self._drain is not Drain.AFTER_READING:
            return False
        self._prepared.clear()
        self._ending.clear()
        return self._stream(lambda: None, None, clock)

    def _stream(self, prepare: Callable[[], None], seconds: float | None, clock: Callable[[], float]) -> bool:
        """Run one streaming query. Returns True if it ended with its input, False if it was stopped."""
        counted = self._descriptors.newest_counted() if self._descriptors and not self._reads_rows else -1
        query = self._start()
        try:
            prepare()
            for sentence in nothing_to_read(self._described, waits=not self._available_now):
                self._driver.notify(sentence)
            self._report_changed_files()
            self._report_groups(self._driver.last_spark_batch)  # the run before may have died on its way to this
            for number in range(self._driver.last_spark_batch + 1, counted + 1):
                self._run_batch(None, number)  # Spark counts it as done, and the newest commit does not know it
            self._prepared.set()
            query = self._follow(query, seconds, clock)
        finally:
            if not query.isActive:
                self._await_batch()
            has_ended = not query.isActive and not self._stopping.is_set()
            self._stopping.set()
            self._prepared.set()
            self._end(query)
        self._finish_batch()
        failure = query.exception() if has_ended else None
        if failure is not None:
            raise TopologyFailed(plainly(without_secrets(self._read_by_spark, str(failure))))
        return has_ended

    def _follow(self, query: StreamingQuery, seconds: float | None, clock: Callable[[], float]) -> StreamingQuery:
        """Let Spark's query run until there is a reason to stop; return the newest query."""
        deadline = None if seconds is None else clock() + seconds
        starts_left = _MOST_STARTS - 1
        while not self._stopping.is_set() and not self._has_failed() and (deadline is None or clock() < deadline):
            if not query.isActive:
                if not starts_left or self._running is not None or not _was_slow_to_start(query):
                    break
                starts_left -= 1
                self._driver.notify(
                    "a source's Python process did not start within Spark's ten seconds; starting the query again"
                )
                query = self._start()
            self._close_what_is_due(query)
            self._stopping.wait(_LOOK_SECONDS)
        return query

    def _watch_unread(self, tell: Callable[[bool], None], is_over: threading.Event) -> None:
        """Tell every few seconds while no batch runs whether input waits; a thread of its own, as brokers may be slow."""
        while not is_over.is_set():
            if not self._is_running():
                with suppress(SourceError, OSError):  # a broker or a folder is away: the last word holds, and batches tell why
                    tell(bool(self.unread()))
            is_over.wait(_UNREAD_SECONDS)

    def _close_what_is_due(self, query: StreamingQuery) -> None:
        """Run a batch without rows if the watermark has passed something, or executors come or go, and the sources have
        nothing new. While they have, the next batch does it.
        """
        if not self._is_due() or self._is_running() or not self._in_callback.acquire(blocking=False):
            return
        try:
            if self._is_due() and not self._is_running() and _found_nothing(query) and self._holds_nothing():
                self._running = self._thread.submit(self._driver.batch_without_rows)
        finally:
            self._in_callback.release()

    def _holds_nothing(self) -> bool:
        """True if the sources that we read hold nothing new; Spark's own word is from its newest poll."""
        try:
            return not self.unread()
        except SourceError:
            return False  # a broker is away

    def _is_due(self) -> bool:
        return self._driver.is_due or self._driver.is_rescaled

    def _start(self) -> StreamingQuery:
        writer = self._frame.writeStream.foreachBatch(self._batch).queryName(self._name)
        writer = writer.option("checkpointLocation", str(self._folder.path / "spark"))
        if self._available_now:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{self._trigger.interval_seconds} seconds")
        self._planned_before = SparkOffsets(self._folder.path / "spark").newest()
        self._started_at, self._newest_poll = time.monotonic(), None
        self._query = writer.start()
        return self._query

    def _batch(self, frame: DataFrame, spark_batch: int) -> None:
        """Run a batch; Spark calls this and counts the batch as done unless it raises."""
        poll = self._poll(spark_batch)
        with self._in_callback:
            self._prepared.wait()
            self._prefetch(lambda: self._ranges.foresee(spark_batch))
            self._await_batch()
            if not self._stopping.is_set() and not self._has_failed():
                self._running = self._thread.submit(self._run_batch, self._rows(frame), spark_batch, poll)
                if self._reads_rows:
                    self._await_batch()
                else:
                    wait([self._running], self._seconds_until_release())
                self._released_at = time.monotonic()
                if not (self._reads_rows and self._has_failed()):  # Spark replays rows only of a batch that is not done for it
                    return
        self._turn_away()

    def _poll(self, spark_batch: int) -> Poll | None:
        """Return when Spark asked the sources for the rows of its batch; None if that was before this query.

        A query that ends with its input asks once, where it starts.
        """
        now, released = time.monotonic(), self._released_at
        if released is not None:
            self._between.append(now - released)
        if spark_batch <= self._planned_before:
            return None
        if self._newest_poll is None or not self._available_now:
            after = self._started_at if released is None else released
            self._newest_poll = Poll(self._epoch + after, self._epoch + now)
        return self._newest_poll

    def _turn_away(self) -> None:
        """Leave a batch to the next run: Spark begins it while the query stops, or after a failure.

        Spark logs any exception from here at length, so where possible this returns while the query is being stopped: if
        Spark counts the batch as done, the next run takes it from the offset log.
        """
        if self._reads_rows:
            raise _Enough
        self._ending.wait()
        time.sleep(_MARGIN_SECONDS)

    def _prefetch(self, foresee: Callable[[], Sequence[str]]) -> None:
        """Prefetch the batch of these descriptors while the one before it ends, if it will be run at all."""
        ends_soon = self._stopping.is_set() or self._batches_left == 1 or self._has_failed()
        if not self._reads_rows and self._is_running() and not ends_soon and (following := foresee()):
            self._driver.prefetch(following)

    def _seconds_until_release(self) -> float | None:
        """Return the seconds after which this batch leaves just enough time for Spark's bookkeeping and the next prefetch.

        None: not before its end. Released earlier, Spark would fix the offsets of the next batch before rows arrive that
        could be in it.
        """
        if not self._took or not self._between:
            return None
        ahead = min(self._between) + self._driver.reading_seconds + _MARGIN_SECONDS
        return max(min(self._took) - ahead, 0.0)

    def _run_batch(self, rows: DataFrame | None, spark_batch: int, poll: Poll | None = None) -> None:
        """Run what is left of a batch of Spark's, in parts if it is too large.

        A query that is stopped leaves the rest to the next run, unless there are `rows`: Spark would count them as done.
        """
        started = time.monotonic()
        self._newest_begun = spark_batch
        self._folder.save()
        is_read = self._run_part(rows, spark_batch, poll)
        while not is_read and (rows is not None or not self._stopping.is_set()):
            with self._parts.before_the_end(lambda: self._prefetch(lambda: self._ranges.foresee_part(spark_batch))):
                is_read = self._run_part(rows, spark_batch, poll)
        if is_read:
            self._report_groups(spark_batch)
            self._took.append(time.monotonic() - started)

    def _run_part(self, rows: DataFrame | None, spark_batch: int, poll: Poll | None) -> bool:
        """Run a batch of ours. Returns True if nothing of Spark's batch is left."""
        try:
            is_read = self._ranges.read_part(spark_batch, rows, poll)
        except (Py4JJavaError, PySparkException) as failure:
            if rows is None:
                raise
            spoken = without_secrets(self._read_by_spark, str(failure))
            raise TopologyFailed(unreadable(self._read_by_spark, self._driver.next_batch, spoken)) from failure
        if self._batches_left is not None:
            self._batches_left -= 1
            if self._batches_left == 0:
                self._stopping.set()
        return is_read

    def _report_changed_files(self) -> None:
        if self._descriptors is None:
            return
        for source, files in self._descriptors.changed(self._driver.positions or {}).items():
            others = "" if len(files) == 1 else f" (and {len(files) - 1:,} more)"
            self._driver.notify(
                f"source {source!r}: {files[0]}{others} was changed after it was read, and rows that came into it since then "
                "are not read; write them to a file of another name"
            )

    def _report_held_back(self, is_final: bool) -> None:
        for name in () if is_final else self._driver.watermarks.held_back_by():
            self._driver.notify(
                f"{name} has no new rows and holds the watermark back: windows wait for it. It holds back no longer once two "
                "polls, of this run or later ones, have found nothing in it at least its watermark.idleTimeout apart"
            )

    def _report_groups(self, spark_batch: int) -> None:
        if self._group_offsets is not None and spark_batch >= 0:
            self._group_offsets.committed(spark_batch)

    def _await_batch(self) -> None:
        if self._running is not None:
            wait([self._running])

    def _finish_batch(self) -> None:
        """Wait for the running batch; raise what it raised."""
        if self._running is not None:
            self._running.result()

    def _is_running(self) -> bool:
        return self._running is not None and not self._running.done()

    def _has_failed(self) -> bool:
        return self._running is not None and self._running.done() and self._running.exception() is not None

    def _rows(self, frame: DataFrame) -> DataFrame | None:
        """Return the rows of one batch that Spark reads itself."""
        if not self._reads_rows:
            return None
        if self._descriptors is None:
            return frame
        return frame.where(frame[source_tag.TAG] != _DESCRIPTORS).drop(_DESCRIPTORS)

    def _end(self, query: StreamingQuery) -> None:
        with self._in_callback:
            pass  # a running callback is not cut short; a later one finds the query stopping, and Spark's stop waits for it
        self._ending.set()
        if query.isActive:
            query.stop()


def _was_slow_to_start(query: StreamingQuery) -> bool:
    """True if Spark gave up a source's Python process; a busy machine takes longer than Spark's fixed ten seconds."""
    failure = query.exception()
    return failure is not None and _SLOW_START in str(failure)


def _found_nothing(query: StreamingQuery) -> bool:
    """True if Spark's newest poll of the sources found no new rows. During a poll Spark says that there are none, too."""
    status = query.status
    return query.isActive and not status["isTriggerActive"] and not status["isDataAvailable"]


def unread_text(unread: Mapping[str, str]) -> str:
    """Return a clause: `8 files of source 'rows' are unread`."""
    amounts = [f"{amount} of source {name!r}" for name, amount in unread.items()]
    is_one = len(amounts) == 1 and amounts[0].startswith("1 ")
    return f"{' and '.join(amounts)} {'is' if is_one else 'are'} unread"


def source_frames(spark: SparkSession, topology: Topology, base_dir: Path) -> dict[str, DataFrame]:
    """Return the frames of the sources that Spark reads itself."""
    return {s.name: spark_native.load(spark, s, base_dir=base_dir) for s in topology.sources if not s.reads_descriptors}


def spark_schemas(topology: Topology, frames: Mapping[str, DataFrame]) -> dict[str, pa.Schema]:
    """Return the rows of these frames, by source."""
    return {s.name: spark_native.rows_of(s, frames[s.name]) for s in topology.sources if s.name in frames}


def _together(
    spark: SparkSession, described: Sequence[SourceSpec], frames: Mapping[str, DataFrame], log: Path, positions: Positions
) -> DataFrame:
    """Return one frame for all sources: plain if there is one, else their tagged union, the descriptors' stream last."""
    together = dict(frames)
    if described:
        together[_DESCRIPTORS] = descriptor_stream(spark, described, log, positions)
    if len(together) == 1:
        return next(iter(together.values()))
    return spark_native.tagged_union(together)


_ERROR_CLASS = re.compile(r"\[[A-Z_]+(?:\.[A-Z_]+)*\] [^\n]*")
_SQL_FRAGMENT = re.compile(r"== SQL[^\n]*==\n([^\n]+)\n\s*\^")
_PYTHON_ERROR = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t][^\n]*\n|\n)*(\S[^\n]*)")
# All that Spark says when a source's Python process was killed: before it was asked, or meanwhile.
_CUT_OFF = ("Broken pipe", "Connection reset", "Connection reset by peer", "null")


def plainly(failure: str) -> str:
    """Return Spark's message without the plan that follows it, and of Python's trace only what was raised."""
    message = failure.split("=== Streaming Query ===")[0].strip()
    if raised := _PYTHON_ERROR.findall(message):
        message = message.split("Traceback")[0] + raised[-1]
    if message in _CUT_OFF:
        message = (
            f"a connection was cut off ({message}). Where a source is in Python, the process in which the driver asks it for "
            "offsets has ended: it was killed, perhaps for want of memory. Start again, which continues from the newest commit"
        )
    return f"the streaming query failed: {message}"


def unreadable(sources: Sequence[Source], batch: int, failure: str) -> str:
    """Return the message of a failure while Spark reads `sources`: Spark's own sentence, and the source at fault."""
    raised = _PYTHON_ERROR.findall(failure)
    reason = _ERROR_CLASS.search(failure)
    spoken = raised[-1] if raised else reason[0] if reason else failure.splitlines()[0]
    expression = _SQL_FRAGMENT.search(failure)
    culprits = [s for s in sources if expression and any(expression[1] in text for text in (*s.select, s.where or ""))]
    names = " or ".join(repr(source.name) for source in culprits or sources)
    where = f", expression {expression[1]!r}" if expression else ""
    return (
        f"source {names} failed in batch {batch}{where}: {spoken.rstrip('.')}. "
        "Nothing of this batch was committed. Spark reads this format itself and names no single row, so none can be set "
        "aside: correct the source, or its select or where (try_cast gives NULL instead of an error), and start again."
    )
