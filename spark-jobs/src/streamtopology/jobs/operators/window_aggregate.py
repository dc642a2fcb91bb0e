"""window-aggregate: sum, mean, min, max, count per group that is over at some event time, such as a window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from streamtopology.jobs.operators.aggregate import NANS, parse_calls
from streamtopology.jobs.operators.base import BatchInfo, Output, Rows
from streamtopology.jobs.operators.behind import UNBOUNDED, Behind
from streamtopology.jobs.operators.groups import Groups
from streamtopology.jobs.operators.options import MissingOption, OptionError, one_of, seconds_of
from streamtopology.jobs.operators.timed_aggregate import CLOSES, TimedAggregate
from streamtopology.jobs.operators.windows import (
    COUNTED_SECONDS,
    EVERYTHING_CLOSED,
    ClosingColumn,
    Windows,
    closed_micros,
    duration_micros,
    on_time,
    watermark_micros,
)
from streamtopology.jobs.state import KeyedState
from streamtopology.topology.traits import NOW

# Tuples, one for each window that they are in, that are made at a time: a day that slides by minutes has 1,440 a tuple.
MOST_MEMBERS = 65_536
EMITS = ("closed", "updates", "all")


class WindowAggregate(TimedAggregate):
    """Groups by key, columns `groupBy` and window, which close as the watermark reaches their end.

    Windows are of `size`, tumbling or sliding with a `slide` smaller than that, over the event-time column `time`. Or the
    tuples name theirs: `closes`, a column of the group, is the time at which the group is over. With `now()` for `time` they
    are of processing time, the driver's clock: no tuple is late.

    emit `closed`: a group's row when it closes, or the input ends for good. `updates`: a row for each group that had tuples in
    the batch. `all`: a row for each group in every batch; none is ever closed. Else a group is forgotten `allowedLateness`
    after it closed; until then it is emitted again in each batch that brings it tuples.
    """

    bounds = ("window_start", "window_end")

    def __init__(
        self,
        aggregates: Mapping[str, str],
        time: str | None = None,
        size: str | float | None = None,
        slide: str | float | None = None,
        closes: str | None = None,
        groupBy: list[str] | None = None,  # noqa: N803 - the option's name in the manifest
        emit: str = "closed",
        nan: str = "ignore",
        allowedLateness: str | float = 0,  # noqa: N803 - the option's name in the manifest
        **common: Any,
    ) -> None:
        super().__init__(**common)
        self.calls = parse_calls(aggregates)
        self.groups = Groups(groupBy)
        self.emit = one_of(emit, EMITS, "emit")
        self.nan = one_of(nan, NANS, "nan")
        self.lateness = duration_micros(allowedLateness, "allowedLateness", least=0)
        self.closing = _closing(time, size, slide, closes)
        self.time = time or ""
        if self._by_clock and self.lateness:
            raise OptionError(f"with time: {NOW} no tuple is late; leave allowedLateness out", about="allowedLateness")

    @classmethod
    def leaves_out_late(cls, options: Mapping[str, Any]) -> bool:
        return options.get("time") != NOW

    @classmethod
    def event_time(cls, options: Mapping[str, Any], input: str) -> str | None:
        return options["closes"] if options.get("closes") is not None else super().event_time(options, input)

    @classmethod
    def behind(cls, options: Mapping[str, Any], given: Behind, own: float) -> Behind:
        """What is over in a batch was not in the one before; with `allowedLateness` it may have been for so long."""
        if options.get("emit") == "all" or options.get("time") == NOW:
            return Behind(others=UNBOUNDED)
        over = own + seconds_of(options.get("allowedLateness", 0), "allowedLateness")
        if options.get("closes") is not None:
            return Behind({options["closes"]: over + COUNTED_SECONDS}, UNBOUNDED)
        start, end = cls.bounds
        return Behind({end: over, start: over + seconds_of(options["size"], "size")}, UNBOUNDED)

    def prepare(self, inputs: Mapping[str, pa.Schema], key: tuple[str, ...]) -> pa.Schema | None:
        group = self.groups.schema(inputs, key, self.renamed_keys)
        if isinstance(self.closing, ClosingColumn):
            self.closing.check(group)
        has_bounds = isinstance(self.closing, Windows)
        return self.prepare_groups(
            inputs, group, has_bounds, means=f"the end of {self.closing}{' by the clock' if self._by_clock else ''}"
        )

    def begin(self, batch: BatchInfo) -> None:
        super().begin(self._timed(batch))

    def process(self, rows: Rows, state: KeyedState) -> Output:
        closed = None if self.emit == "all" else closed_micros(self.batch, self.lateness)
        if isinstance(self.closing, ClosingColumn):
            places, closes = self.closing.open_at(rows, closed)
            self._add(self.leave_out_late(rows, places), closes, state)
            return None
        if self._by_clock:
            kept, times = rows, np.full(len(rows), round((self.batch.now or 0) * 1e6), np.int64)
        else:
            places, times = on_time(rows.column(self.time), self.closing.first_open(closed))
            kept = self.leave_out_late(rows, places)
        if self.closing.tumbling:
            self._add(kept, self.closing.of(times)[1] + self.closing.size, state)
            return None
        for first in range(0, len(kept), step := max(1, MOST_MEMBERS // self.closing.overlap)):
            which, starts = self.closing.of(times[first : first + step], closed)
            self._add(kept.take(which + first), starts + self.closing.size, state)
        return None

    def _add(self, members: Rows, closes: np.ndarray, state: KeyedState) -> None:
        """Add tuple i to its group that closes at closes[i]."""
        starts = [] if isinstance(self.closing, ClosingColumn) else [self.as_bounds(closes - self.closing.size)]
        slots = self.groups.slots(members, state, *starts)
        state.column(CLOSES)[slots] = closes
        self.aggregates.fold(members, slots, state)
        self.groups.mark(slots)

    def finish(self, batch: BatchInfo, state: KeyedState) -> Output:
        watermark = watermark_micros(self._timed(batch))
        until, live = self.closing.until(watermark), state.live()
        closes = state.column(CLOSES)[live]
        shown = live[self._is_shown(live, closes, until)]
        emitted = self.shown(state, shown) if len(shown) else None
        if self.emit == "all":
            return emitted
        self.note_due(closes if until is None else closes[closes > until])
        forgotten = watermark if watermark in (None, EVERYTHING_CLOSED) else self.closing.until(watermark - self.lateness)
        over = live[:0] if forgotten is None else live[closes <= forgotten]
        if len(over):
            state.delete(over)
        return emitted

    def _is_shown(self, slots: np.ndarray, closes: np.ndarray, until: int | None) -> np.ndarray:
        """bool[n]: of groups that close, those that do so in this batch, and those closed already that have new tuples."""
        if self.emit == "all":
            return np.ones(len(slots), np.bool_)
        if self.emit == "updates":
            return self.groups.is_marked(slots)
        closing = np.zeros(len(slots), np.bool_) if until is None else closes <= until
        before = self.closing.until(closed_micros(self.batch, 0))
        if not self.lateness or before is None:
            return closing
        return closing & ((closes > before) | self.groups.is_marked(slots))

    @property
    def due(self) -> float | None:
        return None if self._by_clock else self._due

    @property
    def due_at(self) -> float | None:
        return self._due if self._by_clock else None

    @property
    def _by_clock(self) -> bool:
        return self.time == NOW

    def _timed(self, batch: BatchInfo) -> BatchInfo:
        """The batch; where windows are of processing time, its watermark is that."""
        return replace(batch, watermark=batch.now, closed_until=None) if self._by_clock else batch

    def _bound(self, inputs: Mapping[str, pa.Schema]) -> pa.DataType:
        return pa.timestamp("us", "UTC") if self._by_clock else super()._bound(inputs)


def _closing(time: Any, size: Any, slide: Any, closes: Any) -> Windows | ClosingColumn:
    """What says when a group closes. Raises OptionError."""
    if closes is not None:
        for name, given in (("time", time), ("size", size), ("slide", slide)):
            if given is not None:
                raise OptionError(
                    f"option {name!r} makes windows, and the option 'closes' says when groups are over; leave one out",
                    about=name,
                )
        return ClosingColumn(closes)
    for name, given in (("time", time), ("size", size)):
        if given is None:
            raise MissingOption(f"option {name!r} is missing; allowed: time with size, or closes", name)
    micros = duration_micros(size, "size")
    windows = Windows(micros, micros if slide is None else duration_micros(slide, "slide"))
    if windows.slide > windows.size:
        raise OptionError(
            f"option 'slide' is {slide!r}, 'size' is {size!r}; allowed: a slide of at most the size", about="slide"
        )
    return windows
