"""What an operator declares about its state: fixed-size fields a key, or rows kept a while."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Literal

import numpy as np
import pyarrow as pa

DELETED = "__deleted"
ROUTING = "__routing"

Merge = Literal["sum", "min", "max"]


class StateError(ValueError):
    """State is declared or used in a way that cannot work."""


@dataclass(frozen=True)
class Field:
    """One value a key: a number, or an array of numbers when `shape` is given.

    initial: what a new key starts with. merge: how two partial values of one key become one; None when they cannot.
    """

    name: str
    dtype: np.dtype
    shape: tuple[int, ...] = ()
    initial: float = 0
    merge: Merge | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", np.dtype(self.dtype))
        if self.dtype.kind not in "biuf":
            raise StateError(f"field {self.name!r}: state holds numbers and booleans, not {self.dtype}")
        if self.name.startswith("__"):
            raise StateError(f"field {self.name!r}: names that start with two underscores are kept for the store")
        if any(size < 1 for size in self.shape):
            raise StateError(f"field {self.name!r}: every dimension of shape {self.shape} must be at least 1")

    @property
    def arrow_type(self) -> pa.DataType:
        value = pa.from_numpy_dtype(self.dtype)
        return pa.list_(value, prod(self.shape)) if self.shape else value

    def to_arrow(self, values: np.ndarray) -> pa.Array:
        """values: dtype[n, *shape]; the array may share their memory."""
        flat = pa.array(values.reshape(-1), from_pandas=False)
        return pa.FixedSizeListArray.from_arrays(flat, prod(self.shape)) if self.shape else flat

    def to_numpy(self, array: pa.Array) -> np.ndarray:
        """dtype[n, *shape] of an array that `to_arrow` made."""
        flat = array.flatten() if self.shape else array
        return flat.to_numpy(zero_copy_only=False).reshape(len(array), *self.shape)


@dataclass(frozen=True)
class KeyedStateSchema:
    """State with one set of fields a key. key_types: names and Arrow types of the key columns (`keys.key_types`)."""

    fields: tuple[Field, ...]
    key_types: pa.Schema

    def __post_init__(self) -> None:
        names = [*self.key_types.names, *(field.name for field in self.fields)]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise StateError(f"state column {twice[0]!r} is declared twice; key columns and fields share one namespace")


@dataclass(frozen=True)
class RowStateSchema:
    """State that keeps rows of several inputs until they expire.

    inputs: the Arrow schema of the kept rows, by the input's alias. key: the columns, in every input, whose hash routes
    a row. time: the column, in every input, with the event time: a timestamp or int64 microseconds.
    """

    inputs: Mapping[str, pa.Schema]
    key: tuple[str, ...]
    time: str

    def __post_init__(self) -> None:
        for alias, schema in self.inputs.items():
            for name in (*self.key, self.time):
                if name not in schema.names:
                    raise StateError(f"rows of input {alias!r} have no column {name!r}; they have {schema.names}")
            type_ = schema.field(self.time).type
            if not (pa.types.is_timestamp(type_) or pa.types.is_int64(type_)):
                raise StateError(f"event time {self.time!r} of input {alias!r} is {type_}, not a timestamp or int64")


StateSchema = KeyedStateSchema | RowStateSchema
