"""Versioned state of one operator instance: keyed fields or kept rows, with deltas, rollback and moving parts."""

from streamtopology.jobs.state.keyed import HashMask, KeyedState
from streamtopology.jobs.state.schema import Field, KeyedStateSchema, RowStateSchema, StateError, StateSchema

__all__ = ["Field", "HashMask", "KeyedState", "KeyedStateSchema", "RowStateSchema", "StateError", "StateSchema"]
