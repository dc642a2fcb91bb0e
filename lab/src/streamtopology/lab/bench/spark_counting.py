"""Counting by key in plain Spark, with the kernels and the state of our `count`: what the benchmarks compare with.

Spark's workers import this module, and it imports nothing that their daemon has not loaded: no time is lost on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from streamtopology.jobs.columnar.keys import KeyColumns, key_types
from streamtopology.jobs.operators import declared_cost
from streamtopology.jobs.operators.kernels import count_at
from streamtopology.jobs.state import Field, KeyedState, KeyedStateSchema

if TYPE_CHECKING:  # pandas takes a second to import, and only Spark's own state wants it
    import pandas as pd
    from pyspark.sql.streaming.state import GroupState

    Frames = Iterator[pd.DataFrame]

Rows = Iterator[pa.RecordBatch]


def count_in_task(key: str, seconds_per_row: float) -> Callable[[Rows], Rows]:
    """For mapInArrow: count by `key` within the task, with declared work per row as the topology's; gives `n long`."""
    return partial(_count_in_task, key, round(seconds_per_row * declared_cost.iterations_for(1.0)))


def count_and_pass(name: str, key: str) -> Callable[[Rows], Rows]:
    """For mapInArrow: add to the counts by `key` that this worker keeps as `name` of its partition; rows pass."""
    return partial(_count_and_pass, name, key)


def count_and_end(name: str, key: str) -> Callable[[Rows], Rows]:
    """As `count_and_pass`, but gives only `n long`."""
    return partial(_count_and_end, name, key)


def count_in_spark_state(seconds_per_row: float) -> Callable[[tuple[int], Frames, GroupState], Frames]:
    """For applyInPandasWithState: count in Spark's own state, `n long`, with declared work per row; gives `n long`."""
    return partial(_count_in_spark_state, round(seconds_per_row * declared_cost.iterations_for(1.0)))


_kept: dict[tuple[str, int], KeyedState] = {}


# Module-level functions, so that Spark ships them by name and a worker finds what it kept.


def _count_in_task(key: str, turns: int, batches: Rows) -> Rows:
    state: KeyedState | None = None
    rows = 0
    for batch in batches:
        state = state or _new_counts(batch.schema, key)
        _count(state, key, batch)
        declared_cost.burn(batch.num_rows, turns)
        rows += batch.num_rows
    yield pa.record_batch({"n": [rows]})


def _count_and_pass(name: str, key: str, batches: Rows) -> Rows:
    for batch in batches:
        _count_kept(name, key, batch)
        yield batch


def _count_and_end(name: str, key: str, batches: Rows) -> Rows:
    rows = 0
    for batch in batches:
        _count_kept(name, key, batch)
        rows += batch.num_rows
    yield pa.record_batch({"n": [rows]})


def _count_in_spark_state(turns: int, key: tuple[int], frames: Frames, state: GroupState) -> Frames:
    import pandas as pd

    rows = 0
    for frame in frames:
        declared_cost.burn(len(frame), turns)
        rows += len(frame)
    state.update((rows + (state.get[0] if state.exists else 0),))
    yield pd.DataFrame({"n": [rows]})


def _count_kept(name: str, key: str, batch: pa.RecordBatch) -> None:
    context = TaskContext.get()
    assert context is not None, "runs in a task only"
    kept = (name, context.partitionId())
    if kept not in _kept:
        _kept[kept] = _new_counts(batch.schema, key)
    _count(_kept[kept], key, batch)
    _kept[kept].commit()


def _new_counts(schema: pa.Schema, key: str) -> KeyedState:
    field = Field("count", np.dtype(np.int64), merge="sum")
    return KeyedState(KeyedStateSchema((field,), key_types(schema, (key,))))


def _count(state: KeyedState, key: str, batch: pa.RecordBatch) -> None:
    slots = state.slots(KeyColumns.from_arrow(batch, (key,)))
    count_at(state.column("count"), slots)
