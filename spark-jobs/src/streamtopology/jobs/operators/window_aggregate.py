"""window-aggregate: sum, mean, min, max, count per group that is over at some event time, such as a window."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from streamtopology.jobs.operators.aggregate import NANS, Aggregates, parse_calls
from streamtopology.jobs.operators.base import BatchInfo, Operator, Output, Rows
from streamtopology.jobs.operators.groups import Groups
from streamtopology.jobs.operators.options import MissingOption, OptionError, one_of, require_column
from streamtopology.jobs.operators.windows import (
    EVERYTHING_CLOSED,
    ClosingColumn,
    Windows,
    check_time_column,
    closed_micros,
    duration_micros,
    on_time,
    watermark_micros,
)
from streamtopology.jobs.state import Field, KeyedState, KeyedStateSchema

# Tuples, one for each window that they are in, that are made at a time: a day that slides by minutes has 1,440 a tuple.
MOST_MEMBERS = 65_536
EMITS = ("closed", "updates", "all")

START, END = "window_start", "window_end"
_CLOSES = "window_closes"


class WindowAggregate(Operator):
    """Groups by key, columns `groupBy` and window, which close as the watermark reaches their end.

    Windows are of `size`, tumbling or sliding with a `slide` smaller than that, over the event-time column `time`. Or the
    tuples name theirs: `closes`, a column of the group, is the time at which the group is over.

    emit `closed`: a group's row when it closes, or the input ends for good. `updates`: a row for each group that had tuples in
    the batch. `all`: a row for each group in every batch; none is ever closed. Else a group is forgotten `allowedLateness`
    after it closed; until then it is emitted again in each batch that brings it tuples.
    """

    combinable = True
    emits_behind_watermark = True
    drops_late_rows = True

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
        self._due: float | None = None

    def prepare(self, inputs: Mapping[str, pa.Schema], key: tuple[str, ...]) -> pa.Schema | None:
        keys = self.groups.schema(inputs, key, self.renamed_keys)
        self._bounds = pa.schema([])
        if isinstance(self.closing, ClosingColumn):
            self.closing.check(keys)
        else:
            kind = self._bound(inputs)
            self._bounds = pa.schema([(START, kind), (END, kind)])
        self.aggregates = Aggregates(self.calls, inputs, self.nan)
        group = pa.schema([*keys, *list(self._bounds)[:1]])
        closes = Field(_CLOSES, np.dtype(np.int64), merge="max", means=f"the end of {self.closing}")
        self.state = KeyedStateSchema((closes, *self.aggregates.fields), group, self.aggregates.upgrade)
        output = pa.schema([*keys, *self._bounds, *self.aggregates.schema])
        if len(set(output.names)) < len(output):
            raise OptionError(f"two columns of the result have one name: {', '.join(output.names)}")
        self.output = output
        return output

    def _bound(self, inputs: Mapping[str, pa.Schema]) -> pa.DataType:
        bounds = {check_time_column(self.time, require_column(inputs, self.time, alias).type) for alias in inputs}
        if len(bounds) > 1:
            raise OptionError(
                f"time column {self.time!r} has different time zones in different inputs; cast it in a map", about="time"
            )
        return bounds.pop()

    def begin(self, batch: BatchInfo) -> None:
        super().begin(batch)
        self.groups.begin()

    def process(self, rows: Rows, state: KeyedState) -> Output:
        closed = None if self.emit == "all" else closed_micros(self.batch, self.lateness)
        if isinstance(self.closing, ClosingColumn):
            places, closes = self.closing.open_at(rows, closed)
            self._add(self.leave_out_late(rows, places), closes, state)
            return None
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
        starts = [] if isinstance(self.closing, ClosingColumn) else [self._as_bounds(closes - self.closing.size)]
        slots = self.groups.slots(members, state, *starts)
        state.column(_CLOSES)[slots] = closes
        self.aggregates.fold(members, slots, state)
        self.groups.mark(slots)

    def _as_bounds(self, micros: np.ndarray) -> pa.Array:
        return pa.array(micros, pa.int64()).cast(pa.timestamp("us")).cast(self._bounds.field(START).type)

    def combine(self, state: KeyedState, slots: np.ndarray, partial: pa.RecordBatch) -> None:
        state.column(_CLOSES)[slots] = partial.column(_CLOSES).to_numpy()
        self.aggregates.combine(state, slots, partial)
        self.groups.mark(slots)

    def finish(self, batch: BatchInfo, state: KeyedState) -> Output:
        watermark = watermark_micros(batch)
        until, live = self.closing.until(watermark), state.live()
        closes = state.column(_CLOSES)[live]
        shown = live[self._is_shown(live, closes, until)]
        emitted = self.shown(state, shown) if len(shown) else None
        self._due = None
        if self.emit == "all":
            return emitted
        next_close = closes.min(initial=EVERYTHING_CLOSED, where=True if until is None else closes > until)
        self._due = None if next_close == EVERYTHING_CLOSED else float(next_close) / 1e6
        forgotten = watermark if watermark in (None, EVERYTHING_CLOSED) else self.closing.until(watermark - self.lateness)
        over = live[:0] if forgotten is None else live[closes <= forgotten]
        if len(over):
            state.delete(over)
        return emitted

    @property
    def due(self) -> float | None:
        return self._due

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

    def shown(self, state: KeyedState, slots: np.ndarray) -> pa.RecordBatch:
        """A row for each group, closed or not: its columns, window_start and window_end where windows are made, results."""
        ends = [self._as_bounds(state.column(_CLOSES)[slots])] if len(self._bounds) else []
        columns = [*state.keys(slots), *ends, *self.aggregates.results(slots, state)]
        return pa.RecordBatch.from_arrays(columns, schema=self.output)


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
