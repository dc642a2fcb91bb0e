"""Sessions, for sessions.yaml: tuples of a key without a pause between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from streamtopology.api import (
    BatchInfo,
    Field,
    KeyedState,
    OptionError,
    Output,
    TupleOperator,
    key_schema,
    require_column,
    seconds_of,
)

TIME = pa.timestamp("us", tz="UTC")


class Sessions(TupleOperator):
    """Emits start, end and number of tuples of each session; a pause longer than `pause` ends one.

    Tuples of a key should come in the order of their times: one that is older than the open session by more than the
    pause, not after the watermark of the batch before, or without a time is late.
    """

    fields = tuple(Field(name, np.dtype(np.int64)) for name in ("start", "last", "tuples"))  # times in microseconds

    def __init__(self, time: str, pause: str, **common: Any) -> None:
        super().__init__(**common)
        self.time, self.pause = time, round(seconds_of(pause, "pause") * 1e6)
        if not self.pause:
            raise OptionError(f"option 'pause' is {pause!r}; allowed: a duration longer than 0, such as 20s")

    def prepare(self, inputs: Mapping[str, pa.Schema], key: tuple[str, ...]) -> pa.Schema | None:
        super().prepare(inputs, key)
        for alias in inputs:
            if not pa.types.is_timestamp(require_column(inputs, self.time, alias).type):
                raise OptionError(f"option 'time' is {self.time!r}; allowed: a column of timestamps")
        self.key = key_schema(inputs, key)
        self.output = pa.schema([*self.key, ("start", TIME), ("end", TIME), ("tuples", pa.int64())])
        return self.output

    def process_tuple(self, row: dict[str, Any], state: Any) -> dict[str, Any] | None:
        at = pa.scalar(row[self.time], TIME).cast(pa.int64()).as_py()
        open_, closed = state["tuples"] > 0, self.batch.closed_until
        late = at is None or (closed is not None and at <= closed * 1e6)
        if late or (open_ and at < state["start"] - self.pause):
            self.late_rows += 1
            return None
        if not open_ or at > state["last"] + self.pause:
            ended = self._row(row, state) if open_ else None
            state.update({"start": at, "last": at, "tuples": 1})
            return ended
        state.update({"start": min(state["start"], at), "last": max(state["last"], at), "tuples": state["tuples"] + 1})
        return None

    def finish(self, batch: BatchInfo, state: KeyedState) -> Output:
        """Close the sessions that no tuple after the watermark can extend; all of them at the end of the input."""
        slots = state.live()
        if not batch.final:
            until = -np.inf if batch.watermark is None else batch.watermark * 1e6
            slots = slots[state.column("last")[slots] + self.pause <= until]
        if not len(slots):
            return None
        times = [pa.array(state.column(name)[slots]).cast(TIME) for name in ("start", "last")]
        columns = [*state.keys(slots), *times, pa.array(state.column("tuples")[slots])]
        state.delete(slots)
        return pa.RecordBatch.from_arrays(columns, schema=self.output)

    def _row(self, row: dict[str, Any], state: Any) -> dict[str, Any]:
        start, last = (pa.scalar(state[name]).cast(TIME).as_py() for name in ("start", "last"))
        return {**{name: row[name] for name in self.key.names}, "start": start, "end": last, "tuples": state["tuples"]}
