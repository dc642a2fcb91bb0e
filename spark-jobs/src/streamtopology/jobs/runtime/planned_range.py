"""What the next batch reads: a range of what the sources hold, whole or, if it is too large for that, in parts (decision 74).

The driver plans for itself, from where its newest commit ends. A batch that was recorded and not committed is read again as
it was recorded: sinks know batches by their numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamtopology.jobs.checkpoint import BatchRecord, SourceEnd
from streamtopology.jobs.connectors.sources.descriptor_stream import DescriptorStream, Planned, Positions
from streamtopology.jobs.driver.batch_loop import BatchLoop
from streamtopology.jobs.driver.progress import BatchInput
from streamtopology.jobs.driver.watermarks import Poll
from streamtopology.jobs.errors import BatchTooLarge
from streamtopology.jobs.runtime.carried_positions import created_again

if TYPE_CHECKING:
    from streamtopology.jobs.runtime.spark_rows import SparkBatch, SparkRows


@dataclass(frozen=True)
class Range:
    """What the sources held after `start` when they were asked: up to `end`, of which the next batch reads all up to `first`.

    poll: when they were asked; None if the run before did.
    """

    start: Positions
    end: Positions
    first: Positions
    poll: Poll | None = None


@dataclass(frozen=True)
class NextBatch:
    """What the next batch reads: of a range (None: the sources hold nothing new), and of what Spark has read."""

    range: Range | None
    rows: SparkBatch | None


class RangeReader:
    """Runs batches of `driver` on ranges of `stream`, and on the rows that Spark reads. Each may be None, not both.

    `clock`: epoch seconds, of a clock that is never set.
    """

    def __init__(
        self, driver: BatchLoop, stream: DescriptorStream | None, spark: SparkRows | None, clock: Callable[[], float]
    ) -> None:
        self._driver = driver
        self._stream = stream
        self._spark = spark
        self._clock = clock
        self._foreseen: Range | None = None
        self._range: Range | None = None
        self._closed_at: Poll | None = None
        self._poll: Poll | None = None
        self.asked = 0
        """How often the sources were asked for what is new."""
        self._are_recorded = True
        self._planned: Planned | None = None

    @property
    def is_by_spark(self) -> bool:
        """True if Spark reads all sources."""
        return self._stream is None

    @property
    def end(self) -> Positions:
        """Where the newest batch that was begun ends, or else the newest commit."""
        return self._driver.positions if self._planned is None else self._planned.end

    def close_listing(self) -> None:
        """Fix the end of the sources at what they hold now."""
        if self._stream is not None:
            asked = self._clock()
            self._stream.close_listing()
            self._closed_at = Poll(asked, self._clock())

    def next(self, may_ask: bool) -> NextBatch | None:
        """Return what the next batch reads, None if nothing. `may_ask`: whether the sources may be asked for something new."""
        rows = None if self._spark is None else self._spark.waiting()
        recorded = self._recorded()
        if recorded is not None:
            awaits_rows = recorded.spark_batch > self._driver.last_spark_batch
            if awaits_rows and rows is None and self._spark is not None and not self._spark.has_ended():
                return None
            range_ = Range(self._driver.positions, recorded.range_end or recorded.end, recorded.end)
            return NextBatch(range_, rows if awaits_rows else None)
        found = self._rest() or self._taken_foreseen()
        if found is None and (may_ask or rows is not None):
            found = self._ask(self._driver.positions)
        return None if found is None and rows is None else NextBatch(found, rows)

    def foresee(self, is_followed: bool) -> Sequence[str]:
        """Return the descriptors of the batch that follows the running one, () if they are not known.

        is_followed: whether the next batch begins right after this one, so that a new range can be planned.
        """
        running, range_ = self._planned, self._range
        if self._stream is None or self._spark is not None or running is None or range_ is None or self._are_recorded:
            return ()
        if not running.is_whole:
            return self._stream.part(running.end, range_.end, self._driver.share_to_read).descriptors
        self._foreseen = self._ask(running.end) if is_followed else None
        if self._foreseen is None:
            return ()
        return self._stream.part(running.end, self._foreseen.end, self._driver.share_to_read).descriptors

    def read(self, todo: NextBatch) -> None:
        """Run a batch of ours on as much of the range as can be read at once; rows of Spark's come with its last part."""
        start, too_large = self._driver.positions, None
        self._range = todo.range
        while True:
            self._planned = planned = self._part(start, todo.range, as_recorded=too_large is None and self._are_recorded)
            given = self._input(planned, todo, is_limited=planned.end != too_large)
            try:
                self._driver.batch(given)
            except BatchTooLarge as finding:
                self._driver.notify(f"batch {self._driver.next_batch}: {finding}; fewer are read at a time")
                too_large = planned.end
            else:
                if self._spark is not None:
                    self._spark.is_done(given.spark_batch)
                for text in created_again(start, planned.end):
                    self._driver.notify(text)
                return

    # --- how ---

    def _recorded(self) -> BatchRecord | None:
        """The attempt at the next batch that a run before has left. Those of this run are its own."""
        recorded = self._driver.recorded() if self._are_recorded else None
        self._are_recorded = recorded is not None
        return recorded

    def _rest(self) -> Range | None:
        """What is left of the range that the newest commit has read a part of."""
        start, end = self._driver.positions, self._driver.range_end
        if end is None:
            return None
        is_ours = self._range is not None and self._range.end == end
        return Range(start, end, end, self._range.poll if is_ours and self._range is not None else None)

    def _taken_foreseen(self) -> Range | None:
        foreseen, self._foreseen = self._foreseen, None
        return foreseen if foreseen is not None and foreseen.start == self._driver.positions else None

    def _ask(self, start: Positions) -> Range | None:
        if self._stream is None:
            return None
        asked = self._clock()
        end = self._stream.advance(start)
        self.asked += 1
        self._poll = self._closed_at or Poll(asked, self._clock())
        return None if end is None else Range(start, end, end, self._poll)

    def _part(self, start: Positions, range_: Range | None, as_recorded: bool) -> Planned:
        if self._stream is None or range_ is None:
            return Planned([], start)
        if as_recorded:
            planned = self._stream.part(start, range_.first)
        else:
            planned = self._stream.part(start, range_.first, self._driver.share_to_read)
        return planned if range_.first == range_.end else Planned(planned.descriptors, planned.end, is_whole=False)

    def _input(self, planned: Planned, todo: NextBatch, is_limited: bool) -> BatchInput:
        rows = todo.rows if planned.is_whole else None
        number = self._driver.last_spark_batch if rows is None else rows.number
        return BatchInput(
            number,
            planned.descriptors,
            None if rows is None else rows.frame,
            SourceEnd(planned.end, None if self._spark is None else self._spark.offsets_of(number)),
            self._poll_of(todo) if planned.is_whole else None,
            None if planned.is_whole or todo.range is None else todo.range.end,
            is_limited,
        )

    def _poll_of(self, todo: NextBatch) -> Poll | None:
        """When all sources were asked for what is in a batch, or in vain; None if that is unknown of one."""
        polls: list[Poll | None] = []
        if self._stream is not None:
            polls.append(self._poll if todo.range is None else todo.range.poll)
        if self._spark is not None:
            polls.append(self._spark.poll_in_vain() if todo.rows is None else todo.rows.poll)
        known = [poll for poll in polls if poll is not None]
        if len(known) < len(polls):
            return None
        return Poll(min(poll.after for poll in known), max(poll.before for poll in known))
