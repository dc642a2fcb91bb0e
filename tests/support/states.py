"""The part of an instance's state whose routing hashes are meant."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from streamtopology.jobs.columnar.keys import KeyColumns
from streamtopology.jobs.state import DiskState, KeyedState, RowState

# uint64[n] routing hashes -> bool[n].
Meant = Callable[[np.ndarray], np.ndarray]


def all_slots(state: KeyedState) -> np.ndarray:
    """The slots of all keys; those on disk come into memory for it."""
    if isinstance(state, DiskState):
        return state.find(KeyColumns.from_arrow(state.snapshot(), state.schema.key_types.names))
    return state.live()


def slots_of(state: KeyedState, meant: Meant) -> np.ndarray:
    slots = all_slots(state)
    return slots[meant(state.hashes(slots))]


def extracted(state: KeyedState | RowState, meant: Meant) -> pa.RecordBatch:
    """These keys or rows, to be inserted elsewhere."""
    return state.extract(meant) if isinstance(state, RowState) else state.written(slots_of(state, meant))


def forget(state: KeyedState | RowState, meant: Meant) -> None:
    """Remove these keys or rows: a change of the batch."""
    if isinstance(state, RowState):
        state.remove(meant)
    else:
        state.delete(slots_of(state, meant))
