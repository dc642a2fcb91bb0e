"""A driver that only notes its batches, for tests of what feeds it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamtopology.jobs.checkpoint import BatchRecord
from streamtopology.jobs.driver.progress import BatchInput
from streamtopology.jobs.driver.watermarks import Poll, Watermarks
from streamtopology.topology import Source, Watermark


class NotingDriver:
    """`last_spark_batch`: of the run before. `fails_at`: the batch of Spark's that cannot be."""

    reading_seconds = 0.0
    range_end = None
    next_batch = 0

    def __init__(self, last_spark_batch: int = -1, fails_at: int | None = None) -> None:
        self.last_spark_batch = last_spark_batch
        self.positions: dict[str, Any] = {}
        self.given: list[BatchInput] = []
        self.batches: list[int] = []
        self.drained: str | None = None
        self.polls: list[Poll | None] = []
        self.said: list[str] = []
        marked = [Source(name, "rate", None, {}, (), None, Watermark("t")) for name in ("ahead", "silent")]
        self.watermarks = Watermarks(marked)
        self.is_due = False
        self.is_rescaled = False
        self.has_gathered = False
        self.closed: list[int] = []
        self.without_rows: Callable[[], object] = lambda: None
        self.after_batch: dict[int, Callable[[], object]] = {}
        self._fails_at = fails_at

    def notify(self, text: str) -> None:
        self.said.append(text)

    def recorded(self) -> BatchRecord | None:
        return None

    def share_to_read(self, descriptors: object) -> float:
        return 1.0

    def batch(self, given: BatchInput) -> None:
        if given.spark_batch == self._fails_at:
            raise RuntimeError(f"batch {given.spark_batch} cannot be")
        self.given.append(given)
        self.batches.append(given.spark_batch)
        self.polls.append(given.poll)
        self.last_spark_batch, self.positions = given.spark_batch, dict(given.end.positions)
        self.after_batch.get(given.spark_batch, lambda: None)()

    def batch_without_rows(self) -> None:
        self.closed.append(len(self.batches))
        self.is_due = self.has_gathered = self.is_rescaled = False
        self.without_rows()

    def drain(self, for_good: bool) -> None:
        self.drained = "for good" if for_good else "for now"
