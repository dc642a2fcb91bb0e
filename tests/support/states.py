"""The part of an instance's state whose routing hashes are meant."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from streamtopology.jobs.state import KeyedState, RowState

# uint64[n] routing hashes -> bool[n].
Meant = Callable[[np.ndarray], np.ndarray]


def slots_of(state: KeyedState, meant: Meant) -> np.ndarray:
    slots = state.live()
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
