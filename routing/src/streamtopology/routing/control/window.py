"""The window of batches that a judgement is made from.

One batch is too noisy to judge by: a garbage collection looks like a slow executor. Medians over a window are not. Only
batches of the current epoch show how its routing does. The loads of keys do not depend on the epoch, so the window keeps
older batches for them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from streamtopology.contract.reasons import SOURCE
from streamtopology.routing.control.observed import ObservedBatch
from streamtopology.routing.control.timings import Timings
from streamtopology.routing.load.load_report import LoadReport
from streamtopology.routing.load.load_sum import LoadSum

# Batches under the current epoch before it is judged: the fewest with a median that one bad batch does not make.
MIN_BATCHES = 4

# Batches under the current epoch that show whether it is glaringly out of balance.
FEW_BATCHES = 2

# Spreads by which batches are worse than those before only if something has changed.
SPREADS = 4.0

# Batches that a window holds at most: medians do not get better by more.
MAX_BATCHES = 32

# Spans of batches with one sum of loads that a window holds at most: neighbours are added up beyond that.
MAX_SPANS = 8


@dataclass(frozen=True)
class WindowBatch:
    """A batch of the window. `at`: when it was observed, by the controller's clock."""

    at: float
    number: int
    seconds: float
    epoch: int
    timings: Timings
    source_rows: int
    # Some source rows were read during the batch before: the seconds of their tasks are not this batch's.
    read_ahead: bool
    # Sources were read during the batch before, and operators hardly waited for them: nothing to gain there.
    source_is_hidden: bool
    # The share of its seconds in which slots waited for the last one of a stage.
    lost: float
    # The time for which a row between two executors kept a link busy; 0 where that is not known.
    remote_seconds: float = 0.0

    @property
    def seconds_per_row(self) -> float:
        return self.seconds / max(self.source_rows, 1)

    @staticmethod
    def of(batch: ObservedBatch, at: float, tolerance: float) -> WindowBatch:
        """`batch` as it is judged by."""
        return WindowBatch(
            at=at,
            number=batch.number,
            seconds=batch.seconds,
            epoch=batch.epoch,
            timings=batch.timings,
            source_rows=batch.source_rows,
            read_ahead=batch.read_ahead,
            source_is_hidden=batch.read_ahead and batch.source_seconds <= tolerance * batch.seconds,
            lost=_lost_seconds(batch) / batch.seconds if batch.seconds > 0 else 0.0,
            remote_seconds=batch.remote_seconds,
        )


def _lost_seconds(batch: ObservedBatch) -> float:
    """The seconds by which the last slots of all stages are behind the mean ones, without what was read ahead."""
    counted = [name for name in batch.timings.stages if name != SOURCE or not batch.read_ahead]
    stages = [batch.timings.of_stage(name)["busy_seconds"] for name in counted]
    return sum(float(busy.max() - busy.mean()) for busy in stages)


@dataclass(frozen=True)
class LoadSpan:
    """The loads of the keys of `batches` batches of one epoch, up to number `last`, by operator."""

    last: int
    epoch: int
    batches: int
    loads: Mapping[str, LoadSum]

    def reports_of(self, operator: str) -> list[LoadReport]:
        """The operator's loads, one report for each instance on each slot."""
        return self.loads[operator].reports() if operator in self.loads else []

    def plus(self, later: LoadSpan) -> LoadSpan:
        """Both as one."""
        names = dict.fromkeys((*self.loads, *later.loads))
        loads = {name: LoadSum.of([*self.reports_of(name), *later.reports_of(name)]) for name in names}
        return LoadSpan(later.last, later.epoch, self.batches + later.batches, loads)


class Window:
    """The newest batches, of several epochs: loads of keys do not depend on the epoch."""

    def __init__(self) -> None:
        self._batches: deque[WindowBatch] = deque(maxlen=MAX_BATCHES)
        self._spans: list[LoadSpan] = []

    def add(self, batch: WindowBatch) -> None:
        self._batches.append(batch)

    def add_loads(self, span: LoadSpan, span_seconds: float) -> None:
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

    def spans(self, batches: Sequence[WindowBatch]) -> list[LoadSpan]:
        """The loads of keys in these batches, of the newest ones, and in those that are summed up with the first of them."""
        return [span for span in self._spans if batches and span.last >= batches[0].number]

    def batches_under(self, epoch: int) -> int:
        return sum(batch.epoch == epoch for batch in self._batches)

    def has_worsened(self, epoch: int, least: float) -> bool:
        """True if each of the newest `FEW_BATCHES` under `epoch` loses more of its time than those before let expect.

        `least`: that much more, whatever their spread is.
        """
        lost = [batch.lost for batch in self._batches if batch.epoch == epoch and batch.source_rows]
        before, newest = np.array(lost[:-FEW_BATCHES]), lost[-FEW_BATCHES:]
        if len(before) < MIN_BATCHES:
            return False
        usual = float(np.median(before))
        spread = float(np.quantile(np.abs(before - usual), 0.75))  # which a few bad batches do not make
        return min(newest) > usual + max(SPREADS * spread, least)

    def since(self, epoch: int) -> list[WindowBatch]:
        """The batches under `epoch` or a later one."""
        return [batch for batch in self._batches if batch.epoch >= epoch]

    def keep(self, newest: int) -> None:
        """Forget all but the newest batches."""
        while len(self._batches) > newest:
            self._batches.popleft()

    def begin_at_change(self) -> None:
        """Forget all but the newest `FEW_BATCHES`, and the loads of other batches if there are some of these alone."""
        self.keep(FEW_BATCHES)
        first = self._batches[0].number
        self._spans = [span for span in self._spans if span.last - span.batches + 1 >= first] or self._spans[-1:]
