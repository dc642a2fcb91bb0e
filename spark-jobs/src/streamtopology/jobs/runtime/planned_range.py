"""Ranges that Spark planned, each read in one batch of ours or, if it is too large for that, in several (decision 74)."""

from __future__ import annotations

from collections.abc import Sequence

from streamtopology.jobs.checkpoint import SourceEnd
from streamtopology.jobs.checkpoint.spark_offsets import SparkOffsets
from streamtopology.jobs.connectors.sources.descriptor_stream import DescriptorLog, Planned, Positions
from streamtopology.jobs.driver.attempt_runner import ForeignRows
from streamtopology.jobs.driver.batch_loop import BatchLoop
from streamtopology.jobs.driver.progress import BatchInput
from streamtopology.jobs.driver.watermarks import Poll
from streamtopology.jobs.errors import BatchTooLarge
from streamtopology.jobs.runtime.carried_positions import created_again


class RangeReader:
    """Runs batches of `driver` on ranges that Spark planned. `descriptors` is None if Spark reads all sources itself.

    A driver that dies between two parts of a range finds Spark's batch not committed, and the positions of its newest commit
    within it. `planned` is the newest part.
    """

    def __init__(self, driver: BatchLoop, descriptors: DescriptorLog | None, offsets: SparkOffsets) -> None:
        self._driver = driver
        self._descriptors = descriptors
        self._offsets = offsets
        self.planned: Planned | None = None

    def foresee(self, spark_batch: int) -> Sequence[str]:
        """Return the descriptors of the first part of the range after the newest one, () if that has further parts."""
        if self.planned is None or not self.planned.is_whole:
            return ()
        return self._plan(spark_batch, self.planned.end).descriptors

    def foresee_part(self, spark_batch: int) -> Sequence[str]:
        """Return the descriptors of the part after the newest one, () if that is the last of its range."""
        if self.planned is None or self.planned.is_whole:
            return ()
        return self._plan(spark_batch, self.planned.end).descriptors

    def read_part(self, spark_batch: int, rows: ForeignRows, poll: Poll | None) -> bool:
        """Run a batch of ours on as much of Spark's batch as can be read at once. Returns True if nothing of it is left.

        Rows that Spark reads cannot be divided; they come with the last part.
        """
        too_large: Positions | None = None
        while True:
            start = self._driver.positions
            self.planned = planned = self._plan(spark_batch, start)
            given = self._input(planned, spark_batch, rows, poll, is_limited=planned.end != too_large)
            try:
                self._driver.batch(given)
            except BatchTooLarge as finding:
                self._driver.notify(f"batch {self._driver.next_batch}: {finding}; fewer are read at a time")
                too_large = planned.end
            else:
                for text in created_again(start or {}, planned.end):
                    self._driver.notify(text)
                return planned.is_whole

    def _plan(self, spark_batch: int, start: Positions | None) -> Planned:
        if self._descriptors is None:
            return Planned([], {})
        return self._descriptors.of_batch(spark_batch, start, self._driver.share_to_read)

    def _input(self, planned: Planned, spark_batch: int, rows: ForeignRows, poll: Poll | None, is_limited: bool) -> BatchInput:
        if not planned.is_whole:
            rows = poll = None
        counted = spark_batch if planned.is_whole else spark_batch - 1
        end = SourceEnd(planned.end, self._offsets.of_batch(counted))
        return BatchInput(spark_batch, planned.descriptors, rows, end, poll, planned.is_whole, is_limited)
