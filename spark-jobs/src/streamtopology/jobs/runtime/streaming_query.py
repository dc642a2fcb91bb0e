"""The stream of a topology: batch after batch, from what its sources hold to the end of the run.

The driver plans the batches of files and of Kafka itself, from where its newest commit ends: descriptors of what is to be
read, so that our pinned tasks, and not Spark's scheduler, decide where rows are read. Sources that Spark reads itself keep
their offsets with Spark, whose rows come batch by batch (`SparkRows`).
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from streamtopology.jobs.checkpoint.spark_log import SparkFolder
from streamtopology.jobs.connectors.file_uri import is_in_bucket
from streamtopology.jobs.connectors.sources.descriptor_stream import DescriptorStream
from streamtopology.jobs.connectors.sources.descriptors import SourceError, SourceSpec
from streamtopology.jobs.connectors.sources.files.survey import nothing_to_read
from streamtopology.jobs.connectors.sources.group_offsets import GroupOffsets
from streamtopology.jobs.connectors.sources.lag import SourceLag
from streamtopology.jobs.connectors.sources.spark import native as spark_native
from streamtopology.jobs.connectors.sources.spark.options import without_secrets
from streamtopology.jobs.driver.batch_loop import BatchLoop
from streamtopology.jobs.errors import TopologyFailed
from streamtopology.jobs.runtime.part_prefetch import PartPrefetch
from streamtopology.jobs.runtime.planned_range import NextBatch, RangeReader
from streamtopology.topology import Source, Topology

if TYPE_CHECKING:  # Spark takes a second to load, and a run in real time needs none of it
    from pyspark.sql import DataFrame, SparkSession

    from streamtopology.jobs.runtime.spark_rows import SparkRows

# What Spark calls the query of a topology begins so.
QUERY_NAME = "streamtopology "
_LOOK_SECONDS = 0.2  # between two looks at what is due, and at Spark's query
# Between two questions to the sources where the trigger has no interval, after a batch and after a while without one.
_POLL_SECONDS, _QUIET_POLL_SECONDS = 0.02, 0.1
_QUIET_BUCKET_SECONDS = 1.0  # each look at a bucket is charged for
_UNREAD_SECONDS = 5.0  # between two looks at what is unread: a large folder takes time to list


@dataclass(frozen=True)
class Until:
    """The end of a run: after `batches`, after `seconds`, or (both None) on `stop` or at the end of the input.

    `drain`: the input ends with what the sources hold at the start, and that end is final; windows close for good. `turn`:
    the batches after which another run on the same executors has its turn.
    """

    batches: int | None = None
    seconds: float | None = None
    drain: bool = False
    turn: int | None = None


class Drain(Enum):
    """The end of a run that closes all windows: `AFTER_READING` what the sources hold, or `AT_ONCE`."""

    AFTER_READING = "after reading"
    AT_ONCE = "at once"


class TopologyQuery:
    """Feeds a driver with batches. `stop()` may be called from any thread; the running batch is finished first.

    `frames`: the rows of sources that Spark reads itself, by source.
    """

    def __init__(
        self,
        topology: Topology,
        frames: Mapping[str, DataFrame],
        folder: SparkFolder,
        driver: BatchLoop,
        input_waits: Callable[[bool], None] | None = None,
    ) -> None:
        self._trigger = topology.trigger
        self._folder = folder
        self._driver = driver
        self._input_waits = input_waits
        self._epoch = time.time() - time.monotonic()
        self._wake = threading.Event()
        self._read_by_spark = [source for source in topology.sources if not source.reads_descriptors]
        self._spark: SparkRows | None = None
        if frames:
            from streamtopology.jobs.runtime.spark_rows import SparkRows

            name, log = f"{QUERY_NAME}{topology.name}", folder.path / "spark"
            self._spark = SparkRows(frames, name, log, self._trigger, self._wake.set, self._now)
        described = [SourceSpec.of(source, topology.name) for source in topology.sources if source.reads_descriptors]
        self._described = described
        is_charged = any(spec.table_format == "iceberg" or is_in_bucket(spec.options.get("path", "")) for spec in described)
        self._quiet_seconds = _QUIET_BUCKET_SECONDS if is_charged else _QUIET_POLL_SECONDS
        files = folder.path / "files"
        stream = DescriptorStream(described, files) if described else None
        # Of its own, as many files take long to list: batches do not wait for it.
        self._seen = DescriptorStream(described, files) if described else None
        self._group_offsets = GroupOffsets(described, driver.notify)
        self._lag = SourceLag(described, files, lambda: driver.positions, driver.notify)
        self._reader = RangeReader(driver, stream, self._spark, self._now)
        self._parts = PartPrefetch(lambda: driver.reading_seconds)
        self._stopping = threading.Event()
        self._drain: Drain | None = None
        self._available_now = self._trigger.available_now
        self._batches_left: int | None = None
        self._left_in_turn: int | None = None
        self._is_running = False
        self._asked = 0
        self._triggers_at = 0.0
        self._pause = _POLL_SECONDS
        # The sources were asked after the newest batch, in vain; those that Spark reads apart.
        self._holds_nothing = self._reader.is_by_spark
        self._looked_in_vain_at = 0.0

    def stop(self, drain: Drain | None = None) -> None:
        """Stop after the running batch; with `drain` flush partials and close all windows, then. The newest call counts."""
        self._drain = drain
        self._stopping.set()
        self._wake.set()

    @property
    def lag(self) -> Mapping[str, int | None]:
        """By Kafka source the rows that wait after the newest commit; None while that is unknown."""
        return self._lag.rows

    def unread(self) -> dict[str, str]:
        """Return the input that no batch has begun to read, by source: "8 files". Leaves out sources that Spark reads."""
        return {} if self._seen is None else self._seen.unread(self._reader.end)

    def await_input(self, seconds: float) -> bool:
        """Wait until what the sources hold now is in state and sinks, and nothing is due; for some `seconds` at most.

        Waits longer where Spark reads a source. Returns whether that is so.
        """
        asked_at = time.monotonic()
        if self._spark is not None:
            self._spark.await_all()
        until = time.monotonic() + seconds
        while self._looked_in_vain_at < asked_at and time.monotonic() < until and not self._stopping.wait(_POLL_SECONDS):
            """The newest look is older."""
        return self._looked_in_vain_at >= asked_at

    def run(self, until: Until, prepare: Callable[[], None], clock: Callable[[], float] = time.monotonic) -> None:
        """Process the stream until `until`; raise what the driver raised. At the end of the input partials are flushed.

        `prepare` makes the driver ready for its first batch while Spark starts its query; both take seconds.
        """
        for _ in self.turns(until, prepare, clock):
            """Nobody else wants a turn."""

    def turns(self, until: Until, prepare: Callable[[], None], clock: Callable[[], float] = time.monotonic) -> Generator[None]:
        """As `run`; yield after each turn but the last, while nothing of it runs."""
        self._batches_left, self._left_in_turn = until.batches, until.turn
        self._available_now = self._trigger.available_now or until.drain
        with ExitStack() as undo:
            undo.callback(self._group_offsets.close)
            undo.enter_context(self._lag)
            undo.enter_context(self._watching_unread())
            undo.callback(self._parts.close)
            has_ended = yield from self._stream(prepare, until, clock)
            if self._drain is Drain.AFTER_READING:
                has_ended = yield from self._read_rest(clock)
            is_final = (has_ended and (until.drain or self._drain is Drain.AFTER_READING)) or self._drain is Drain.AT_ONCE
            if is_final and (late := self.unread()):
                self._driver.notify(f"{unread_text(late)}: their rows will be late, as all windows close now")
            if has_ended or is_final:
                self._driver.drain(for_good=is_final)
                self._report_held_back(is_final)
            elif self._driver.has_gathered:  # all that was read is in state and sinks when a run has stopped
                self._driver.batch_without_rows()

    def _read_rest(self, clock: Callable[[], float]) -> Generator[None, None, bool]:
        """Read what the sources hold at this moment. Returns False if a further `stop` has cut it short."""
        self._available_now, self._batches_left = True, None
        self._stopping.clear()
        if self._drain is not Drain.AFTER_READING:
            return False
        return (yield from self._stream(lambda: None, Until(), clock))

    def _stream(self, prepare: Callable[[], None], until: Until, clock: Callable[[], float]) -> Generator[None, None, bool]:
        """Run batch after batch, turn after turn. Raises TopologyFailed.

        Returns True if the input has ended, False if the run was stopped.
        """
        with ExitStack() as undo:
            undo.enter_context(_source_failures())
            if self._spark is not None:
                undo.callback(self._spark.stop)
                self._spark.start(self._available_now)
            prepare()
            if self._spark is not None:
                self._spark.is_done(self._driver.last_spark_batch)
            if self._available_now:
                self._reader.close_listing()
            for sentence in nothing_to_read(self._described, waits=not self._available_now):
                self._driver.notify(sentence)
            self._report_changed_files()
            self._group_offsets.committed(self._driver.positions)  # the run before may have died on its way to this
            self._triggers_at = 0.0
            deadline = None if until.seconds is None else clock() + until.seconds
            while not self._stopping.is_set() and (deadline is None or clock() < deadline):
                self._raise_failure_of_spark()
                if self._left_in_turn == 0:
                    self._left_in_turn = until.turn
                    yield
                if self._has_run_one():
                    continue
                if self._has_ended():
                    return True
                self._wake.wait(self._seconds_to_wait())
            return False

    def _has_run_one(self) -> bool:
        """Run the batch that is next, if there is one: of rows, or without any where something is due."""
        self._wake.clear()
        looked_at = time.monotonic()
        following = self._reader.next(may_ask=looked_at >= self._triggers_at)
        if self._reader.asked != self._asked:
            self._holds_nothing = following is None
            self._asked, self._triggers_at = self._reader.asked, self._next_trigger(looked_at)
        if following is not None:
            self._run_batch(following)
            return True
        if not self._holds_nothing or not (self._spark is None or self._spark.found_nothing()):
            return False
        if not self._is_due():
            self._looked_in_vain_at = looked_at
            return False
        self._holds_nothing = self._reader.is_by_spark
        with self._running():
            self._driver.batch_without_rows()
        return True

    def _run_batch(self, following: NextBatch) -> None:
        self._folder.save()
        self._holds_nothing = self._reader.is_by_spark
        with self._running(), self._parts.before_the_end(self._prefetch):
            try:
                self._reader.read(following)
            except Exception as failure:
                if following.rows is None or not isinstance(failure, _failures_of_spark()):
                    raise
                spoken = without_secrets(self._read_by_spark, str(failure))
                raise TopologyFailed(unreadable(self._read_by_spark, self._driver.next_batch, spoken)) from failure
        self._group_offsets.committed(self._driver.positions)
        if self._left_in_turn is not None:
            self._left_in_turn -= 1
        if self._batches_left is not None:
            self._batches_left -= 1
            if self._batches_left == 0:
                self._stopping.set()

    def _prefetch(self) -> None:
        """Prefetch the batch that follows while this one ends, if it follows at once."""
        if self._stopping.is_set() or 1 in (self._batches_left, self._left_in_turn):
            return
        is_followed = time.monotonic() >= self._triggers_at
        if following := self._reader.foresee(is_followed):
            self._driver.prefetch(following)

    def _next_trigger(self, now: float) -> float:
        """The time from which on the sources are asked again, after they were at `now`: a tick of the trigger."""
        interval = self._trigger.interval_seconds
        if interval and not self._available_now:
            return now + interval - now % interval
        self._pause = min(2 * self._pause, self._quiet_seconds) if self._holds_nothing else _POLL_SECONDS
        asked = time.monotonic()
        return asked + max(self._pause, asked - now)

    def _seconds_to_wait(self) -> float:
        if self._reader.is_by_spark:
            return _LOOK_SECONDS  # Spark wakes us
        seconds = self._triggers_at - time.monotonic()
        return min(seconds, _LOOK_SECONDS) if seconds > 0 else _POLL_SECONDS

    def _has_ended(self) -> bool:
        """True if the run ends with its input, and the sources hold no more."""
        if not self._holds_nothing:
            return False
        if self._spark is None:
            return self._available_now
        return self._spark.has_ended() and self._spark.waiting() is None

    def _raise_failure_of_spark(self) -> None:
        if self._spark is not None and self._spark.has_ended() and (failure := self._spark.failure()) is not None:
            raise TopologyFailed(plainly(without_secrets(self._read_by_spark, failure)))

    @contextmanager
    def _running(self) -> Iterator[None]:
        self._is_running = True
        try:
            yield
        finally:
            self._is_running = False

    @contextmanager
    def _watching_unread(self) -> Iterator[None]:
        is_over = threading.Event()
        if self._input_waits is not None:
            threading.Thread(target=self._watch_unread, args=(self._input_waits, is_over), name="unread", daemon=True).start()
        try:
            yield
        finally:
            is_over.set()

    def _watch_unread(self, tell: Callable[[bool], None], is_over: threading.Event) -> None:
        """Tell every few seconds while no batch runs whether input waits; a thread of its own, as brokers may be slow."""
        while not is_over.is_set():
            if not self._is_running:
                with suppress(SourceError, OSError):  # a broker or a folder is away: the last word holds, and batches tell why
                    tell(bool(self.unread()))
            is_over.wait(_UNREAD_SECONDS)

    def _is_due(self) -> bool:
        return self._driver.is_due or self._driver.is_rescaled

    def _report_changed_files(self) -> None:
        if self._seen is None:
            return
        for source, files in self._seen.changed(self._driver.positions).items():
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

    def _now(self) -> float:
        """Epoch seconds, of a clock that is never set."""
        return self._epoch + time.monotonic()


def _failures_of_spark() -> tuple[type[Exception], ...]:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    return Py4JJavaError, PySparkException


@contextmanager
def _source_failures() -> Iterator[None]:
    """A source that cannot be read ends the run, not the checkpoint."""
    try:
        yield
    except SourceError as failure:
        raise TopologyFailed(str(failure)) from failure


def unread_text(unread: Mapping[str, str]) -> str:
    """Return a clause: `8 files of source 'rows' are unread`."""
    amounts = [f"{amount} of source {name!r}" for name, amount in unread.items()]
    is_one = len(amounts) == 1 and amounts[0].startswith("1 ")
    return f"{' and '.join(amounts)} {'is' if is_one else 'are'} unread"


def source_frames(spark: SparkSession, topology: Topology, base_dir: Path) -> dict[str, DataFrame]:
    """Return the frames of the sources that Spark reads itself. Raises SourceError if none of them is a stream."""
    frames = {s.name: spark_native.load(spark, s, base_dir=base_dir) for s in topology.sources if not s.reads_descriptors}
    if frames and not any(frame.isStreaming for frame in frames.values()):
        raise SourceError(
            f"source {next(iter(frames))!r}: its frame is no stream. One that is none is read once, with the first rows of a "
            "stream that Spark reads, and there is none; begin it with spark.readStream"
        )
    return frames


def spark_schemas(topology: Topology, frames: Mapping[str, DataFrame]) -> dict[str, pa.Schema]:
    """Return the rows of these frames, by source."""
    return {s.name: spark_native.rows_of(s, frames[s.name]) for s in topology.sources if s.name in frames}


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
