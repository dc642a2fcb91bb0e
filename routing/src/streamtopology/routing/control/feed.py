"""The input of the control loop: committed batches, read in one place for every runner.

The driver's own process, the operator's planning process, plan previews and simulations all feed a controller here. If each
read batches in its own way, a preview would show another plan than the run makes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from streamtopology.contract import stats
from streamtopology.routing.control import observed
from streamtopology.routing.control.observed import ObservedBatch
from streamtopology.routing.control.timings import Timings, stage_timings
from streamtopology.routing.load.load_report import LoadReport, ReportFormatError, SourceReport
from streamtopology.routing.load.load_sum import sums_of


@dataclass(frozen=True)
class CommittedBatch:
    """A committed batch with the reports of its instances and source tasks.

    `epoch`: the one that it ran under. `committed_at`: seconds since 1970, 0 where nobody needs it. `moving`: state moved in
    portions with it. `remote_seconds`: how long a row between two executors kept a link busy, as last measured, or 0.
    """

    number: int
    epoch: int
    seconds: float
    reports: Sequence[LoadReport]
    source_reports: Sequence[SourceReport] = ()
    committed_at: float = 0.0
    moving: bool = False
    remote_seconds: float = 0.0

    @property
    def placed_sources(self) -> tuple[SourceReport, ...]:
        """The reports of source tasks that we placed; Spark runs its own wherever it likes."""
        return tuple(report for report in self.source_reports if report.slot >= 0)

    @staticmethod
    def from_stats(batch: stats.Batch) -> CommittedBatch:
        """From one of the batches of `/stats`. ReportFormatError: its reports cannot be read."""
        return CommittedBatch(
            number=batch.number,
            epoch=batch.epoch,
            seconds=batch.seconds,
            reports=tuple(LoadReport.from_wire(report) for report in batch.reports),
            source_reports=tuple(SourceReport.from_wire(report) for report in batch.source_reports),
            committed_at=batch.committed_at,
            moving=batch.moving,
            remote_seconds=batch.remote_seconds,
        )

    def observed(self, with_loads: bool = True) -> ObservedBatch:
        """As it is observed, with the loads of its own keys."""
        sources = self.placed_sources
        return ObservedBatch(
            number=self.number,
            epoch=self.epoch,
            seconds=self.seconds,
            timings=Timings.of(stage_timings(self.reports, sources)),
            source_rows=sum(report.rows for report in sources) or sum(report.rows for report in self.reports),
            committed_at=self.committed_at,
            read_ahead=any(report.ahead for report in sources),
            source_seconds=max((report.task_seconds for report in sources), default=0.0),
            remote_seconds=self.remote_seconds,
            loads=sums_of(self.reports) if with_loads else {},
            batches=1 if with_loads and self.reports else 0,
        )


class BatchObserver(Protocol):
    """Takes note of committed batches: the controller, the autoscaler."""

    def observe(self, batch: ObservedBatch) -> None: ...


class Feed:
    """Hands each committed batch to all observers once, and none that moved state: its time says nothing of the routing."""

    def __init__(self, *observers: BatchObserver) -> None:
        self._observers = observers
        self.newest = -1
        """Number of the newest batch taken, -1 before any."""

    def take(self, batch: CommittedBatch) -> None:
        """Take note of `batch`, unless it is known."""
        if self._is_news(batch):
            self._observe(batch.observed())

    def take_stats(self, answer: stats.Stats) -> None:
        """Take the batches of an answer of `/stats`. ReportFormatError names one that is new and cannot be read."""
        if answer.observed is not None:
            for batch in observed.from_wire(answer.observed):
                if not self.knows(batch.number):
                    self._observe(batch)
            return
        for batch in answer.batches or (answer.last_batch,):
            if batch is None or not batch.reports or not self._is_news(batch):
                continue
            try:
                self.take(CommittedBatch.from_stats(batch))
            except ReportFormatError as damage:
                raise ReportFormatError(f"batch {batch.number}: {damage}") from damage

    def _observe(self, batch: ObservedBatch) -> None:
        for observer in self._observers:
            observer.observe(batch)
        self.newest = batch.number

    def _is_news(self, batch: CommittedBatch | stats.Batch) -> bool:
        return not batch.moving and not self.knows(batch.number)

    def knows(self, number: int) -> bool:
        """True if the batch of this number, or a later one, has been taken."""
        return number <= self.newest
