"""The common part of aggregates over event time: groups that have bounds in it, and one of these at which they are over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from streamtopology.jobs.lazy import LazyModule
from streamtopology.jobs.operators.aggregate import Aggregates, Call
from streamtopology.jobs.operators.base import BatchInfo, Operator
from streamtopology.jobs.operators.groups import Groups
from streamtopology.jobs.operators.options import OptionError, require_column
from streamtopology.jobs.operators.windows import EVERYTHING_CLOSED, check_time_column
from streamtopology.jobs.state import Field, KeyedState, KeyedStateSchema

if TYPE_CHECKING:
    from streamtopology.jobs.operators import kernels
else:
    kernels = LazyModule("streamtopology.jobs.operators.kernels")

CLOSES = "window_closes"


class TimedAggregate(Operator):
    """Keeps, for each group, when it is over; has a row for it then.

    bounds: the names of the two columns between which a group is, where it is made of its tuples' times.
    """

    combinable = True
    emits_behind_watermark = True
    drops_late_rows = True
    bounds: ClassVar[tuple[str, str]]

    # set by __init__
    calls: tuple[Call, ...]
    groups: Groups
    nan: str
    time: str

    _due: float | None = None

    @classmethod
    def reads_mentioned_columns(cls, options: Mapping[str, Any]) -> bool:
        return True

    def prepare_groups(self, inputs: Mapping[str, pa.Schema], group: pa.Schema, has_bounds: bool, means: str) -> pa.Schema:
        """Set state and output of groups of these columns, and of bounds. means: what ends a group."""
        kind = self._bound(inputs) if has_bounds else None
        self._bounds = pa.schema([(name, kind) for name in self.bounds] if kind else [])
        self.aggregates = Aggregates(self.calls, inputs, self.nan)
        closes = Field(CLOSES, np.dtype(np.int64), initial=np.iinfo(np.int64).min, merge="max", means=means)
        keys = pa.schema([*group, *list(self._bounds)[:1]])
        self.state = KeyedStateSchema((closes, *self.aggregates.fields), keys, self.aggregates.upgrade)
        output = pa.schema([*group, *self._bounds, *self.aggregates.schema])
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

    def combine(self, state: KeyedState, slots: np.ndarray, partial: pa.RecordBatch) -> None:
        kernels.combine_into(state.column(CLOSES), slots, partial.column(CLOSES).to_numpy(), "max")
        self.aggregates.combine(state, slots, partial)
        self.groups.mark(slots)

    @property
    def due(self) -> float | None:
        return self._due

    def note_due(self, closes: np.ndarray) -> None:
        """Groups that are left are over at closes[i]."""
        first = closes.min(initial=EVERYTHING_CLOSED)
        self._due = None if first == EVERYTHING_CLOSED else float(first) / 1e6

    def as_bounds(self, micros: np.ndarray) -> pa.Array:
        return pa.array(micros, pa.int64()).cast(pa.timestamp("us")).cast(self._bounds.field(0).type)

    def shown(self, state: KeyedState, slots: np.ndarray) -> pa.RecordBatch:
        """A row for each group, over or not: its columns, its bounds where these are made here, results."""
        ends = [self.as_bounds(state.column(CLOSES)[slots])] if len(self._bounds) else []
        columns = [*state.keys(slots), *ends, *self.aggregates.results(slots, state)]
        return pa.RecordBatch.from_arrays(columns, schema=self.output)
