"""The two halves of an operator whose keys a grouping splits: gather parts anywhere, combine them at one place.

PKG and its kin (Nasir et al., "The Power of Both Choices", ICDE 2015, section 4) need this second step for results
per key; nothing ever migrates on such an edge, because the parts are handed over and forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from streamtopology.jobs.columnar.keys import KeyColumns
from streamtopology.jobs.operators.base import BatchInfo, Operator, Output, Rows
from streamtopology.jobs.operators.keyed_aggregate import KeyedAggregate
from streamtopology.jobs.operators.options import OptionError
from streamtopology.jobs.state import KeyedState, KeyedStateSchema


class PartialOperator(Operator):
    """Gathers the state of `inner` (prepared) and hands it over, one row per key, when the batch says `flush`."""

    def __init__(self, inner: Operator) -> None:
        super().__init__()
        self.inner = inner
        self.state = _combinable_state(inner)
        fields = [pa.field(field.name, field.arrow_type) for field in self.state.fields]
        self.output = pa.schema([*self.state.key_types, *fields])

    def prepare(self, inputs: Mapping[str, pa.Schema], key: tuple[str, ...]) -> pa.Schema | None:
        return self.output

    def declare_cost(self, iterations_per_second: float) -> None:
        self.inner.declare_cost(iterations_per_second)

    def tuple_weights(self, rows: Rows) -> np.ndarray | None:
        return self.inner.tuple_weights(rows)

    def begin(self, batch: BatchInfo) -> None:
        super().begin(batch)
        self.inner.begin(batch)

    def accept(self, rows: Rows, state: Any, dead_letter: bool = False) -> Output:
        self.inner.accept(rows, state, dead_letter)
        self.late_rows, self.set_aside = self.inner.late_rows, self.inner.set_aside
        self.late, self.late_schema = self.inner.late, self.inner.late_schema
        self.last_tuple_seconds = self.inner.last_tuple_seconds
        return None

    def finish(self, batch: BatchInfo, state: KeyedState) -> Output:
        return self.flush(state) if batch.flush or batch.final else None

    def flush(self, state: KeyedState) -> Output:
        """All keys with their fields; the state is empty afterwards."""
        slots = state.live()
        if not len(slots):
            return None
        fields = [state.read(field.name, slots) for field in _combinable_state(self.inner).fields]
        handed_over = pa.RecordBatch.from_arrays([*state.keys(slots), *fields], schema=self.output)
        state.delete(slots)
        return handed_over


class MergeOperator(Operator):
    """Combines what partial operators hand over into the state of `inner` (prepared), which speaks at the end."""

    def __init__(self, inner: Operator) -> None:
        super().__init__()
        self.inner = inner
        self.state = _combinable_state(inner)
        self.output = inner.output

    def prepare(self, inputs: Mapping[str, pa.Schema], key: tuple[str, ...]) -> pa.Schema | None:
        return self.output

    def begin(self, batch: BatchInfo) -> None:
        super().begin(batch)
        self.inner.begin(batch)

    def process(self, rows: Rows, state: KeyedState) -> Output:
        if rows.keys is None:
            raise ValueError("partial rows need their keys")
        groups = state.schema.key_types.names
        if len(groups) == len(rows.keys.types):
            slots = state.slots(rows.keys)
        else:
            slots = state.slots(KeyColumns.from_arrow(rows.batch, groups), rows.keys.hashes)
        self.inner.combine(state, slots, rows.batch)
        return None

    def finish(self, batch: BatchInfo, state: KeyedState) -> Output:
        return self.inner.finish(batch, state)

    @property
    def due(self) -> float | None:
        return self.inner.due

    @property
    def due_at(self) -> float | None:
        return self.inner.due_at

    def combine(self, state: KeyedState, slots: np.ndarray, partial: pa.RecordBatch) -> None:
        self.inner.combine(state, slots, partial)

    def shown(self, state: KeyedState, slots: np.ndarray) -> pa.RecordBatch:
        return self.inner.shown(state, slots)


def _combinable_state(inner: Operator) -> KeyedStateSchema:
    if not inner.combinable or not isinstance(inner.state, KeyedStateSchema):
        raise OptionError(f"the state of {type(inner).__name__} cannot be gathered in parts: it is not combinable")
    if isinstance(inner, KeyedAggregate) and inner.emit == "tuples":
        raise OptionError("emit: tuples needs a grouping that keeps a key together; a splitting one can emit updates")
    return inner.state
