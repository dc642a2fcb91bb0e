"""Versioned state of one operator instance: keyed fields or kept rows, with deltas, rollback and moving parts."""

from streamtopology.jobs.state.disk import DiskState
from streamtopology.jobs.state.encoding import StateFileError, decode, decode_parts, decode_read, encode, encode_parts
from streamtopology.jobs.state.keyed import KeyedState, routing_hashes
from streamtopology.jobs.state.merging import merged
from streamtopology.jobs.state.ownership import Ownership
from streamtopology.jobs.state.rows import RowState
from streamtopology.jobs.state.schema import (
    LAST_WRITTEN,
    Field,
    KeyedStateSchema,
    RowStateSchema,
    StateError,
    StateSchema,
    concatenated,
)
from streamtopology.jobs.state.sorted_rows import StateDiskError

State = KeyedState | RowState


def new_state(schema: StateSchema, memory_bytes: int | None = None) -> State:
    """Empty state of the declared kind: a KeyedState or a RowState.

    memory_bytes: of keyed state, so much is in memory, and the rest on disk; None: all is in memory.

    >>> from streamtopology.api import Field, KeyedStateSchema, new_state
    >>> import numpy as np, pyarrow as pa
    >>> len(new_state(KeyedStateSchema((Field("count", np.int64),), pa.schema([("sensor", pa.int64())]))))
    0
    """
    if not isinstance(schema, KeyedStateSchema):
        return RowState(schema)
    return KeyedState(schema) if memory_bytes is None else DiskState(schema, memory_bytes)


__all__ = [
    "LAST_WRITTEN",
    "DiskState",
    "Field",
    "KeyedState",
    "KeyedStateSchema",
    "Ownership",
    "RowState",
    "RowStateSchema",
    "State",
    "StateDiskError",
    "StateError",
    "StateFileError",
    "StateSchema",
    "concatenated",
    "decode",
    "decode_parts",
    "decode_read",
    "encode",
    "encode_parts",
    "merged",
    "new_state",
    "routing_hashes",
]
