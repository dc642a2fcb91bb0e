"""window-aggregate: sum, mean, min, max, count per key and window of event time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from streamtopology.jobs.keys import KeyColumns
from streamtopology.jobs.operators.aggregate import Aggregates, parse_calls
from streamtopology.jobs.operators.base import BatchInfo, Operator, Output, Rows
from streamtopology.jobs.operators.options import OptionError, key_schema, require_column
from streamtopology.jobs.operators.windows import Windows, check_time_column, closed_until, duration_micros, on_time
from streamtopology.jobs.state import Field, KeyedState, KeyedStateSchema

START, END = "window_start", "window_end"
_CLOSES = "window_closes"


class WindowAggregate(Operator):
    """Tumbling windows of `size`, or sliding ones with a `slide` smaller than that, over the event-time column `time`.

    A window's row (key, window_start, window_end, results) is emitted once, when the watermark reaches its end or the
    input ends for good; then the window is forgotten.
    """

    emits_behind_watermark = True
    drops_late_rows = True

    def __init__(
        self,
        time: str,
        size: str | float,
        aggregates: Mapping[str, str],
        slide: str | float | None = None,
        **common: Any,
    ) -> None:
        super().__init__(**common)
        self.time = time
        size_micros = duration_micros(size, "size")
        self.windows = Windows(size_micros, size_micros if slide is None else duration_micros(slide, "slide"))
        if self.windows.slide > self.windows.size:
            raise OptionError(f"option 'slide' is {slide!r}, 'size' is {size!r}; allowed: a slide of at most the size")
        self.calls = parse_calls(aggregates)

    def prepare(self, inputs: Mapping[str, pa.Schema], key: tuple[str, ...]) -> pa.Schema | None:
        keys = key_schema(inputs, key)
        bounds = {check_time_column(self.time, require_column(inputs, self.time, alias).type) for alias in inputs}
        if len(bounds) > 1:
            raise OptionError(f"time column {self.time!r} has different time zones in different inputs; cast it in a map")
        self._bound = bounds.pop()
        self.aggregates = Aggregates(self.calls, inputs)
        self._window_keys = pa.schema([*keys, (START, self._bound)])
        fields = (Field(_CLOSES, np.dtype(np.int64)), *self.aggregates.fields)
        self.state = KeyedStateSchema(fields, self._window_keys)
        names = [*self._window_keys.names, END, *self.aggregates.schema.names]
        if len(set(names)) < len(names):
            raise OptionError(f"two columns of the result have one name: {', '.join(names)}")
        self.output = pa.schema([*self._window_keys, (END, self._bound), *self.aggregates.schema])
        return self.output

    def process(self, rows: Rows, state: KeyedState) -> Output:
        if rows.keys is None:
            raise ValueError("window-aggregate needs the rows' keys")
        places, times = on_time(rows.column(self.time), self.batch)
        self.late_rows += len(rows) - len(places)
        which, starts = self.windows.of(times)
        members = rows if len(rows) == len(places) and self.windows.tumbling else rows.take(places[which])
        assert members.keys is not None
        bounds = pa.array(starts, pa.int64()).cast(pa.timestamp("us")).cast(self._bound)
        keys = KeyColumns.from_arrays([*members.keys.decode(), bounds], self._window_keys.names, len(members))
        slots = state.slots(keys, members.keys.hashes)
        state.column(_CLOSES)[slots] = starts + self.windows.size
        self.aggregates.fold(members, slots, state)
        return None

    def finish(self, batch: BatchInfo, state: KeyedState) -> Output:
        until = closed_until(batch)
        if until is None:
            return None
        open_or_not = state.live()
        closed = open_or_not[state.column(_CLOSES)[open_or_not] <= until]
        if not len(closed):
            return None
        ends = pa.array(state.column(_CLOSES)[closed], pa.int64()).cast(pa.timestamp("us")).cast(self._bound)
        columns = [*state.keys(closed), ends, *self.aggregates.results(closed, state)]
        emitted = pa.RecordBatch.from_arrays(columns, schema=self.output)
        state.delete(closed)
        return emitted
