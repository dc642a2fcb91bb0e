"""Versioned state of one operator instance: keyed fields or kept rows, with deltas, rollback and moving parts."""

from streamtopology.jobs.state.encoding import StateFileError, decode, encode
from streamtopology.jobs.state.keyed import HashMask, KeyedState, routing_hashes
from streamtopology.jobs.state.ownership import Ownership
from streamtopology.jobs.state.rows import RowState
from streamtopology.jobs.state.schema import Field, KeyedStateSchema, RowStateSchema, StateError, StateSchema

State = KeyedState | RowState


def new_state(schema: StateSchema) -> State:
    """Empty state of the declared kind."""
    return KeyedState(schema) if isinstance(schema, KeyedStateSchema) else RowState(schema)


__all__ = [
    "Field",
    "HashMask",
    "KeyedState",
    "KeyedStateSchema",
    "Ownership",
    "RowState",
    "RowStateSchema",
    "State",
    "StateError",
    "StateFileError",
    "StateSchema",
    "decode",
    "encode",
    "new_state",
    "routing_hashes",
]
