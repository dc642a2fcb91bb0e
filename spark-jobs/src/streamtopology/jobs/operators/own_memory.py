"""Rows that an operator returned and may still change: Arrow shares the memory of numpy arrays, it copies none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from streamtopology.jobs.operators.base import Operator
from streamtopology.jobs.state import KeyedState, State


def unshared(rows: Sequence[pa.RecordBatch], operator: Operator, state: State | None) -> list[pa.RecordBatch]:
    """The rows; those in the memory of an array that the operator or its state keeps are copied."""
    kept = [value for value in vars(operator).values() if isinstance(value, np.ndarray)]
    if isinstance(state, KeyedState):
        kept.extend(state.arrays.values())
    memory = [np.lib.array_utils.byte_bounds(array) for array in kept if array.nbytes]
    return [_copied(batch) if memory and _lies_in(batch, memory) else batch for batch in rows]


def _lies_in(batch: pa.RecordBatch, memory: Iterable[tuple[int, int]]) -> bool:
    buffers = [buffer for column in batch.columns for buffer in column.buffers() if buffer is not None and buffer.size]
    return any(buffer.address < end and start < buffer.address + buffer.size for start, end in memory for buffer in buffers)


def _copied(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [pa.concat_arrays([column, column.slice(0, 0)]) for column in batch.columns]  # of one array it makes no copy
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)
