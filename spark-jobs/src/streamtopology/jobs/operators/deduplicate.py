"""deduplicate: the first tuple of each key passes, the others are left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from streamtopology.jobs.columnar.event_times import FIRST_SECOND
from streamtopology.jobs.operators.base import BatchInfo, Operator, Output, Rows
from streamtopology.jobs.operators.options import OptionError, key_schema, require_column
from streamtopology.jobs.operators.windows import (
    EVERYTHING_CLOSED,
    ClosingColumn,
    check_time_column,
    closed_micros,
    duration_micros,
    watermark_micros,
)
from streamtopology.jobs.state import Field, KeyedState, KeyedStateSchema

FORGOTTEN_AT = "forgotten_at"


class Deduplicate(Operator):
    """Emits the first tuple of each key, with all its columns; the key is the columns by which tuples are compared.

    Without options a key is kept for ever. `time`, the event-time column: tuples at or before the watermark of the batch before
    are late. `within`: a key is forgotten when the watermark reaches the time of its first tuple and this much more. A `time`
    that is part of the key needs no `within`: when the watermark has reached it, all tuples of the key are late.
    """

    def __init__(self, time: str | None = None, within: str | float | None = None, **common: Any) -> None:
        super().__init__(**common)
        if within is not None and time is None:
            raise OptionError("option 'within' counts from an event time; name its column: time", about="within")
        self._time = None if time is None else ClosingColumn(time)
        self._within = None if within is None else duration_micros(within, "within", least=0)

    @classmethod
    def leaves_out_late(cls, options: Mapping[str, Any]) -> bool:
        return options.get("time") is not None

    def prepare(self, inputs: Mapping[str, pa.Schema], key: tuple[str, ...]) -> pa.Schema | None:
        first, *others = inputs
        for other in others:
            if not inputs[first].equals(inputs[other]):
                raise OptionError(
                    f"inputs {first!r} and {other!r} have other columns; give each a map that makes them the same"
                )
        keys = key_schema(inputs, key, self.renamed_keys)
        if self._time is not None:
            check_time_column(self._time.name, require_column(inputs, self._time.name, first).type)
        self._forgets = self._within is not None or (self._time is not None and self._time.name in key)
        field = Field(FORGOTTEN_AT, np.dtype(np.int64), means=f"microseconds by {self._time and self._time.name}")
        self.state = KeyedStateSchema((field,) if self._forgets else (), keys, self.upgrade)
        self.output = inputs[first]
        return self.output

    def process(self, rows: Rows, state: KeyedState) -> Output:
        times = None
        if self._time is not None:
            on_time, times = self._time.open_at(rows, closed_micros(self.batch, 0))
            rows = self.leave_out_late(rows, on_time)
        if rows.keys is None:
            raise ValueError("deduplicate needs the tuples' keys")
        unknown = np.flatnonzero(state.find(rows.keys) < 0)
        if not len(unknown):
            return None
        slots, first = np.unique(state.slots(rows.keys.take(unknown)), return_index=True)
        if times is not None and self._forgets:
            state.column(FORGOTTEN_AT)[slots] = self._forgotten_at(times[unknown[first]])
        places = np.sort(unknown[first])
        return rows.take(places).batch if len(places) < len(rows) else rows.batch

    def _forgotten_at(self, times: np.ndarray) -> np.ndarray:
        """int64[n]: when the keys of tuples of these times (microseconds) are forgotten.

        As in Spark, a key without a time is kept to the end; with `within`, none counts as 1970.
        """
        if self._within is None:
            return times
        return np.where(times == EVERYTHING_CLOSED, 0, times) + self._within

    def finish(self, batch: BatchInfo, state: KeyedState) -> Output:
        until = None if self._time is None else self._time.until(watermark_micros(batch))
        if until is not None and self._forgets:
            live = state.live()
            over = live[state.column(FORGOTTEN_AT)[live] <= until]
            if len(over):
                state.delete(over)
        return None

    @property
    def due(self) -> float | None:
        """Whenever the watermark has moved, as in Spark: a batch without rows decides which tuples are late in the next."""
        return None if self._time is None or self.batch.final else float(FIRST_SECOND)

    def shown(self, state: KeyedState, slots: np.ndarray) -> pa.RecordBatch:
        """The keys, and when each is forgotten; NULL for those that are kept to the end."""
        rows = super().shown(state, slots)
        if not self._forgets:
            return rows
        place = rows.schema.get_field_index(FORGOTTEN_AT)
        micros = rows.column(place).to_numpy()
        times = pa.array(micros, pa.timestamp("us", "UTC"), mask=micros == EVERYTHING_CLOSED)
        return rows.set_column(place, FORGOTTEN_AT, times)
