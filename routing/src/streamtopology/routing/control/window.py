"""The window of batches that a judgement is made from, and what re-routings turned out to bring."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from streamtopology.routing.control.decisions import Outcome
from streamtopology.routing.control.observed import ObservedBatch
from streamtopology.routing.control.slot_model import StageTiming
from streamtopology.routing.control.timings import Timings
from streamtopology.routing.load.load_report import LoadReport
from streamtopology.routing.load.load_sum import LoadSum

MIN_BATCHES = 4
"""Batches under the current epoch before it is judged: the fewest with a median that one bad batch does not make."""

FEW_BATCHES = 2
"""Batches under the current epoch that show whether it is glaringly out of balance."""

MAX_BATCHES = 32
"""Batches that a window holds at most: medians do not get better by more."""

MAX_SPANS = 8
"""Spans of batches with one sum of loads that a window holds at most: neighbours are added up beyond that."""

MOST_OUTCOMES = 64
"""Measured re-routings that are kept, the newest."""

DISAPPOINTING = 0.25
"""A re-routing that gained less than this share of what was predicted puts the next judgement off, longer each time."""

LONGEST_PATIENCE = 4
"""Intervals that a judgement is put off at most."""


@dataclass(frozen=True)
class WindowBatch:
    """A batch of the window. `at`: when it was observed, by the controller's clock."""

    at: float
    number: int
    seconds: float
    epoch: int
    packed_timings: Timings
    source_rows: int
    source_is_hidden: bool
    """Sources were read during the batch before, and operators hardly waited for them: nothing to gain there."""

    @property
    def seconds_per_row(self) -> float:
        return self.seconds / max(self.source_rows, 1)

    @property
    def timings(self) -> tuple[StageTiming, ...]:
        return self.packed_timings.unpacked()

    @staticmethod
    def of(batch: ObservedBatch, at: float, tolerance: float) -> WindowBatch:
        """`batch` as it is judged by."""
        return WindowBatch(
            at=at,
            number=batch.number,
            seconds=batch.seconds,
            epoch=batch.epoch,
            packed_timings=batch.timings,
            source_rows=batch.source_rows,
            source_is_hidden=batch.read_ahead and batch.source_seconds <= tolerance * batch.seconds,
        )


@dataclass(frozen=True)
class Span:
    """The loads of the keys of `batches` batches of one epoch, up to number `last`, by operator."""

    last: int
    epoch: int
    batches: int
    loads: Mapping[str, LoadSum]

    def reports_of(self, operator: str) -> list[LoadReport]:
        """The operator's loads, one report for each instance on each slot."""
        return self.loads[operator].reports() if operator in self.loads else []

    def plus(self, later: Span) -> Span:
        """Both as one."""
        names = dict.fromkeys((*self.loads, *later.loads))
        loads = {name: LoadSum.of([*self.reports_of(name), *later.reports_of(name)]) for name in names}
        return Span(later.last, later.epoch, self.batches + later.batches, loads)


class Window:
    """The newest batches, of several epochs: loads of keys do not depend on the epoch."""

    def __init__(self) -> None:
        self._batches: deque[WindowBatch] = deque(maxlen=MAX_BATCHES)
        self._spans: list[Span] = []

    def add(self, batch: WindowBatch) -> None:
        self._batches.append(batch)

    def add_loads(self, span: Span, span_seconds: float) -> None:
        """Take note of the loads of keys up to the newest batch; those of batches beyond `span_seconds` are forgotten."""
        self._spans = [*self.spans(self.recent(span_seconds)), span]
        if len(self._spans) > MAX_SPANS:
            self._join_two()

    def _join_two(self) -> None:
        """Add up the neighbours of one epoch that have the fewest batches, of equals the oldest; else drop the oldest span."""
        spans = self._spans
        pairs = [n for n in range(len(spans) - 1) if spans[n].epoch == spans[n + 1].epoch]
        if pairs:
            first = min(pairs, key=lambda n: spans[n].batches + spans[n + 1].batches)
            spans[first : first + 2] = [spans[first].plus(spans[first + 1])]
        else:
            del spans[0]

    def recent(self, span_seconds: float) -> list[WindowBatch]:
        """The batches of the last `span_seconds`, but at least as many as a judgement needs."""
        newest = self._batches[-1].at if self._batches else 0.0
        least = len(self._batches) - MIN_BATCHES
        return [batch for i, batch in enumerate(self._batches) if newest - batch.at < span_seconds or i >= least]

    def spans(self, batches: Sequence[WindowBatch]) -> list[Span]:
        """The loads of keys in these batches, of the newest ones, and in those that are summed up with the first of them."""
        return [span for span in self._spans if batches and span.last >= batches[0].number]

    def batches_under(self, epoch: int) -> int:
        return sum(batch.epoch == epoch for batch in self._batches)

    def since(self, epoch: int) -> list[WindowBatch]:
        """The batches under `epoch` or a later one."""
        return [batch for batch in self._batches if batch.epoch >= epoch]

    def keep(self, newest: int) -> None:
        """Forget all but the newest batches."""
        while len(self._batches) > newest:
            self._batches.popleft()


@dataclass(frozen=True)
class Trial:
    """A re-routing that has been decided and not been measured yet."""

    epoch: int
    decided_at: float
    predicted_gain_seconds: float
    seconds_per_row_before: float

    def outcome(self, after: Sequence[WindowBatch]) -> Outcome | None:
        """Its gain, by the batches under it; None while these are too few."""
        if len(after) < MIN_BATCHES:
            return None
        rows = float(np.median([batch.source_rows for batch in after]))
        per_row = float(np.median([batch.seconds_per_row for batch in after]))
        before = self.seconds_per_row_before * rows
        return Outcome(self.epoch, self.predicted_gain_seconds, before - per_row * rows, before)


class Trials:
    """Re-routings under trial, one at a time, and how patient their outcomes make the controller.

    `patience`: intervals until the next judgement.
    """

    def __init__(self) -> None:
        self.outcomes: deque[Outcome] = deque(maxlen=MOST_OUTCOMES)
        self.patience = 1
        self._pending: Trial | None = None

    def begin(self, trial: Trial) -> None:
        self._pending = trial

    def awaited(self, current_epoch: int, now: float, patience_seconds: float) -> int | None:
        """The epoch that was decided and does not run yet; given up after `patience_seconds`."""
        trial = self._pending
        if trial is None or current_epoch >= trial.epoch:
            return None
        if now - trial.decided_at < patience_seconds:
            return trial.epoch
        self._pending = None
        return None

    def measure(self, window: Window) -> None:
        """Note the outcome of the trial once enough batches ran under it."""
        trial = self._pending
        outcome = trial.outcome(window.since(trial.epoch)) if trial is not None else None
        if outcome is None:
            return
        self.outcomes.append(outcome)
        predicted = outcome.predicted_gain_seconds
        disappointed = predicted > 0 and outcome.measured_gain_seconds < DISAPPOINTING * predicted
        self.patience = min(2 * self.patience, LONGEST_PATIENCE) if disappointed else 1
        self._pending = None
