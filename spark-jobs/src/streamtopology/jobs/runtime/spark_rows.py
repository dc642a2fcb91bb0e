"""The rows of sources that Spark reads itself: Structured Streaming gives their offsets, and the same ones after a crash.

Spark's query runs beside ours and hands over one batch of rows at a time, in `foreachBatch`. It counts the batch as done
once ours is committed, and so never plans ahead of our checkpoint by more than one batch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from streamtopology.jobs.checkpoint.spark_offsets import SparkOffsets
from streamtopology.jobs.connectors.sources.spark import native as spark_native
from streamtopology.jobs.driver.watermarks import Poll
from streamtopology.topology import Trigger

_MOST_STARTS = 3
_SLOW_START = "Python worker failed to connect back"


@dataclass(frozen=True)
class SparkBatch:
    """A batch of Spark's: its number and rows, tagged if they are of several sources.

    poll: when Spark asked the sources for them; None if the run before did.
    """

    number: int
    frame: DataFrame
    poll: Poll | None


class _NotRead(Exception):
    """Ends Spark's query without its batch being counted as done."""


class SparkRows:
    """Spark's query over `frames`, by source; it logs to the folder `log`. `awake` is called when there is something new.

    Frames that are no streams come whole with the first batch. `clock`: epoch seconds, of a clock that is never set.
    """

    def __init__(
        self,
        frames: Mapping[str, DataFrame],
        name: str,
        log: Path,
        trigger: Trigger,
        awake: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        streams = {source: frame for source, frame in frames.items() if frame.isStreaming}
        tables = {source: frame for source, frame in frames.items() if not frame.isStreaming}
        self._frame = next(iter(frames.values())) if len(frames) == 1 else spark_native.tagged_union(streams)
        self._of_first_batch = spark_native.tagged_union(tables) if tables else None
        self._name = name
        self._log = log
        self._offsets = SparkOffsets(log)
        self._trigger = trigger
        self._awake = awake
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: SparkBatch | None = None
        self._done = -1
        self._is_closing = False
        self._query: StreamingQuery | None = None
        self._starts_left = _MOST_STARTS
        self._available_now = False
        self._asked_after = 0.0
        self._newest_poll: Poll | None = None
        self._planned_before = -1

    def start(self, available_now: bool) -> None:
        """Start the query. `available_now`: it ends with what the sources hold now."""
        self._available_now, self._is_closing = available_now, False
        self._starts_left = _MOST_STARTS
        self._begin()

    def is_done(self, number: int) -> None:
        """Let Spark go on after the batches up to `number`."""
        with self._changed:
            self._done = max(self._done, number)
            self._changed.notify_all()

    def waiting(self) -> SparkBatch | None:
        """The batch that Spark has handed over and that is not done."""
        with self._changed:
            return self._waiting if self._waiting is not None and self._waiting.number > self._done else None

    def offsets_of(self, number: int) -> str | None:
        """Spark's record of a batch; None if there is none."""
        return self._offsets.of_batch(number)

    def poll_in_vain(self) -> Poll | None:
        """When Spark asked its sources and found nothing; None while it asks, and after it found something."""
        query = self._query
        if query is None or not self.found_nothing():
            return None
        progress = query.lastProgress
        began = self._asked_after
        if progress is not None:
            began = max(began, datetime.fromisoformat(progress["timestamp"]).timestamp())
        return Poll(min(began, self._clock()), self._clock())

    def found_nothing(self) -> bool:
        """True if Spark's newest poll of the sources found no new rows. During a poll Spark says that there are none, too."""
        query = self._query
        if query is None or not query.isActive or self.waiting() is not None:
            return False
        status = query.status
        return not status["isTriggerActive"] and not status["isDataAvailable"]

    def has_ended(self) -> bool:
        """True if the query runs no more; one that a busy machine kept from its start is started again before that."""
        query = self._query
        if query is None or query.isActive:
            return False
        if self._starts_left and _was_slow_to_start(query):
            self._begin()
            return False
        return True

    def failure(self) -> str | None:
        """What the query ended with, in Spark's words; None if it ended with its input, or runs."""
        query = self._query
        failure = None if query is None or query.isActive else query.exception()
        return None if failure is None else str(failure)

    def await_all(self) -> None:
        """Wait until all that the sources hold now was handed over and is done."""
        if self._query is not None:
            self._query.processAllAvailable()

    def stop(self) -> None:
        """Stop the query; a batch that is not done comes again in the next run."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        if self._query is not None and self._query.isActive:
            self._query.stop()

    def _begin(self) -> None:
        self._starts_left -= 1
        writer = self._frame.writeStream.foreachBatch(self._batch).queryName(self._name)
        writer = writer.option("checkpointLocation", str(self._log))
        if self._available_now:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{self._trigger.interval_seconds} seconds")
        self._planned_before = self._offsets.newest()
        self._asked_after, self._newest_poll = self._clock(), None
        self._query = writer.start()

    def _batch(self, frame: DataFrame, number: int) -> None:
        """Hand a batch over, and wait until it is done; Spark calls this, and counts the batch as done unless it raises."""
        poll = self._poll(number)
        if number == 0 and self._of_first_batch is not None:
            frame = frame.unionByName(self._of_first_batch, allowMissingColumns=True)
        with self._changed:
            self._waiting = SparkBatch(number, frame, poll)
            self._awake()
            self._changed.wait_for(lambda: self._done >= number or self._is_closing)
            self._waiting = None
            if self._done < number:
                raise _NotRead
        self._asked_after = self._clock()

    def _poll(self, number: int) -> Poll | None:
        """When Spark asked for the rows of a batch. A query that ends with its input asks once, where it starts."""
        if number <= self._planned_before:
            return None
        if self._newest_poll is None or not self._available_now:
            self._newest_poll = Poll(self._asked_after, self._clock())
        return self._newest_poll


def _was_slow_to_start(query: StreamingQuery) -> bool:
    """True if Spark gave up a source's Python process; a busy machine takes longer than Spark's fixed ten seconds."""
    failure = query.exception()
    return failure is not None and _SLOW_START in str(failure)
