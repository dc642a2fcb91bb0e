"""window-aggregate: sum, mean, min, max, count per key and window of event time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from streamtopology.jobs.columnar.keys import KeyColumns
from streamtopology.jobs.operators.aggregate import Aggregates, parse_calls
from streamtopology.jobs.operators.base import BatchInfo, Operator, Output, Rows
from streamtopology.jobs.operators.options import OptionError, key_schema, require_column
from streamtopology.jobs.operators.windows import (
    EVERYTHING_CLOSED,
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

START, END = "window_start", "window_end"
_CLOSES = "window_closes"


class WindowAggregate(Operator):
    """Tumbling windows of `size`, or sliding ones with a `slide` smaller than that, over the event-time column `time`.

    A window's row (key, window_start, window_end, results) is emitted when the watermark reaches its end or the input ends
    for good. The window is forgotten `allowedLateness` after that; until then it is emitted again in each batch that
    brings it tuples.
    """

    emits_behind_watermark = True
    drops_late_rows = True

    def __init__(
        self,
        time: str,
        size: str | float,
        aggregates: Mapping[str, str],
        slide: str | float | None = None,
        allowedLateness: str | float = 0,  # noqa: N803 - the option's name in the manifest
        **common: Any,
    ) -> None:
        super().__init__(**common)
        self.time = time
        size_micros = duration_micros(size, "size")
        self.windows = Windows(size_micros, size_micros if slide is None else duration_micros(slide, "slide"))
        if self.windows.slide > self.windows.size:
            raise OptionError(
                f"option 'slide' is {slide!r}, 'size' is {size!r}; allowed: a slide of at most the size", about="slide"
            )
        self.lateness = duration_micros(allowedLateness, "allowedLateness", least=0)
        self.calls = parse_calls(aggregates)
        self._touched: list[np.ndarray] = []
        self._due: float | None = None

    def prepare(self, inputs: Mapping[str, pa.Schema], key: tuple[str, ...]) -> pa.Schema | None:
        keys = key_schema(inputs, key, self.renamed_keys)
        bounds = {check_time_column(self.time, require_column(inputs, self.time, alias).type) for alias in inputs}
        if len(bounds) > 1:
            raise OptionError(
                f"time column {self.time!r} has different time zones in different inputs; cast it in a map", about="time"
            )
        self._bound = bounds.pop()
        self.aggregates = Aggregates(self.calls, inputs)
        self._window_keys = pa.schema([*keys, (START, self._bound)])
        fields = (Field(_CLOSES, np.dtype(np.int64), means=f"the end of {self.windows}"), *self.aggregates.fields)
        self.state = KeyedStateSchema(fields, self._window_keys, self.aggregates.upgrade)
        names = [*self._window_keys.names, END, *self.aggregates.schema.names]
        if len(set(names)) < len(names):
            raise OptionError(f"two columns of the result have one name: {', '.join(names)}")
        self.output = pa.schema([*self._window_keys, (END, self._bound), *self.aggregates.schema])
        return self.output

    def begin(self, batch: BatchInfo) -> None:
        super().begin(batch)
        self._touched = []

    def process(self, rows: Rows, state: KeyedState) -> Output:
        if rows.keys is None:
            raise ValueError("window-aggregate needs the rows' keys")
        closed = closed_micros(self.batch, self.lateness)
        places, times = on_time(rows.column(self.time), self.windows.first_open(closed))
        kept = self.leave_out_late(rows, places)
        if self.windows.tumbling:
            self._add(kept, self.windows.of(times)[1], state)
            return None
        for first in range(0, len(kept), step := max(1, MOST_MEMBERS // self.windows.overlap)):
            which, starts = self.windows.of(times[first : first + step], closed)
            self._add(kept.take(which + first), starts, state)
        return None

    def _add(self, members: Rows, starts: np.ndarray, state: KeyedState) -> None:
        """Add tuple i to the window of its key that begins at starts[i]."""
        assert members.keys is not None
        bounds = pa.array(starts, pa.int64()).cast(pa.timestamp("us")).cast(self._bound)
        keys = KeyColumns.from_arrays([*members.keys.decode(), bounds], self._window_keys.names, len(members))
        slots = state.slots(keys, members.keys.hashes)
        state.column(_CLOSES)[slots] = starts + self.windows.size
        self.aggregates.fold(members, slots, state)
        if self.lateness:
            self._touched.append(slots if self.windows.tumbling else np.unique(slots))

    def finish(self, batch: BatchInfo, state: KeyedState) -> Output:
        until = watermark_micros(batch)
        live = state.live()
        closes = state.column(_CLOSES)[live]
        next_close = closes.min(initial=EVERYTHING_CLOSED, where=True if until is None else closes > until)
        self._due = None if next_close == EVERYTHING_CLOSED else float(next_close) / 1e6
        if until is None:
            return None
        shown = live[self._is_shown(live, closes, until)]
        emitted = self.shown(state, shown) if len(shown) else None
        over = live[closes <= (until if until == EVERYTHING_CLOSED else until - self.lateness)]
        if len(over):
            state.delete(over)
        return emitted

    @property
    def due(self) -> float | None:
        return self._due

    def _is_shown(self, slots: np.ndarray, closes: np.ndarray, until: int) -> np.ndarray:
        """bool[n]: the windows that close in this batch, and of those that are closed already the ones with new tuples."""
        closing = closes <= until
        before = closed_micros(self.batch, 0)
        if not self.lateness or before is None:
            return closing
        return closing & ((closes > before) | np.isin(slots, np.concatenate([np.empty(0, np.int64), *self._touched])))

    def shown(self, state: KeyedState, slots: np.ndarray) -> pa.RecordBatch:
        """A row for each window, closed or not: key, window_start, window_end, results."""
        ends = pa.array(state.column(_CLOSES)[slots], pa.int64()).cast(pa.timestamp("us")).cast(self._bound)
        columns = [*state.keys(slots), ends, *self.aggregates.results(slots, state)]
        return pa.RecordBatch.from_arrays(columns, schema=self.output)
