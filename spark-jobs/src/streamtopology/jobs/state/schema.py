"""What an operator declares about its state: fixed-size fields a key, or rows kept a while.

An operator that is changed finds state that its former version wrote. `KeyedStateSchema.fitted` makes one of the other, file
by file as they are read, or says why it will not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
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
    added: this field came with a later version of the operator; keys from before have `initial`.
    """

    name: str
    dtype: np.dtype
    shape: tuple[int, ...] = ()
    initial: float = 0
    merge: Merge | None = None
    added: bool = False

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

    def widened(self, array: pa.Array) -> pa.Array | None:
        """The values of a former version's field as this one's; None when the types do not promise that all survive."""
        held = array.type
        if held == self.arrow_type:
            return array
        if self.shape:
            if not pa.types.is_fixed_size_list(held) or held.list_size != prod(self.shape):
                return None
            held = held.value_type
        before = np.dtype(held.to_pandas_dtype())
        loses = before.kind in "iu" and self.dtype.kind == "f" and before.itemsize >= self.dtype.itemsize
        if loses or not np.can_cast(before, self.dtype, "safe"):
            return None
        return self.to_arrow(self.to_numpy(array).astype(self.dtype))


@dataclass(frozen=True)
class KeyedStateSchema:
    """State with one set of fields a key. key_types: names and Arrow types of the key columns (`keys.key_types`).

    upgrade: what makes rows of this version (key columns and fields) of those that a former one wrote; the keys stay.
    """

    fields: tuple[Field, ...]
    key_types: pa.Schema
    upgrade: Callable[[pa.RecordBatch], pa.RecordBatch] | None = dataclass_field(default=None, compare=False)

    def __post_init__(self) -> None:
        names = [*self.key_types.names, *(field.name for field in self.fields)]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise StateError(f"state column {twice[0]!r} is declared twice; key columns and fields share one namespace")

    def fits(self, rows: pa.RecordBatch) -> bool:
        """Whether a snapshot or delta has the columns that this version of the operator writes."""
        found = {column.name: column.type for column in rows.schema if column.name not in (DELETED, ROUTING)}
        return found == {column.name: column.type for column in self.columns()}

    def columns(self) -> list[pa.Field]:
        """Key columns, then fields, as Arrow has them."""
        return [*self.key_types, *(pa.field(field.name, field.arrow_type) for field in self.fields)]

    def fitted(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """A snapshot or delta as this version of the operator writes it. StateError: it cannot be made of these rows."""
        if self.fits(rows):
            return rows
        said = rows.schema.metadata
        marks = [name for name in (DELETED, ROUTING) if name in rows.schema.names]
        dead = 0
        if DELETED in marks:  # tombstones have no values to upgrade: they go first
            deleted = rows.column(DELETED).to_numpy(zero_copy_only=False)
            dead = int(deleted.sum())
            rows = rows.take(pa.array(np.argsort(~deleted, kind="stable")))
        former = rows.select([name for name in rows.schema.names if name not in marks])
        living = former.slice(dead)
        now = living if self.upgrade is None else _upgraded(self.upgrade, living, self.key_types.names)
        keys = [former.column(name) for name in self.key_types.names if name in former.schema.names]
        fields = [_padded(field, self._taken(field, now), dead) for field in self.fields]
        names = [*self.key_types.names, *(field.name for field in self.fields)]
        unknown = sorted(set(now.schema.names) - set(names))
        if unknown or [key.type for key in keys] != self.key_types.types:
            raise self._unfit(now)
        arrays = [*keys, *fields, *(rows.column(mark) for mark in marks)]
        return pa.RecordBatch.from_arrays(arrays, names=[*names, *marks]).replace_schema_metadata(said)

    def _taken(self, field: Field, rows: pa.RecordBatch) -> pa.Array:
        """What `rows` say of a field."""
        if field.name in rows.schema.names:
            values = field.widened(rows.column(field.name))
            if values is not None:
                return values
        elif field.added:
            return field.to_arrow(np.full((rows.num_rows, *field.shape), field.initial, field.dtype))
        raise self._unfit(rows)

    def _unfit(self, rows: pa.RecordBatch) -> StateError:
        return StateError(f"rows of ({described(rows.schema)}) do not fit state of ({described(self.columns())})")


def described(columns: Sequence[pa.Field] | pa.Schema) -> str:
    """Names and types, for sentences."""
    return ", ".join(f"{column.name} {column.type}" for column in columns if column.name not in (DELETED, ROUTING))


def _padded(field: Field, values: pa.Array, dead: int) -> pa.Array:
    """`values` behind as many that no one reads."""
    return pa.concat_arrays([field.to_arrow(np.zeros((dead, *field.shape), field.dtype)), values]) if dead else values


def _upgraded(upgrade: Callable[[pa.RecordBatch], pa.RecordBatch], rows: pa.RecordBatch, key: Sequence[str]) -> pa.RecordBatch:
    """What the operator makes of rows that a former version wrote. StateError: it raises, or changes keys."""
    try:
        now = upgrade(rows)
    except Exception as error:
        raise StateError(f"the operator's upgrade() raised {type(error).__name__}: {error}") from error
    if now.num_rows != rows.num_rows or any(not now.column(name).equals(rows.column(name)) for name in key):
        raise StateError("the operator's upgrade() must keep rows and keys as they are: a key's hash says where it lives")
    return now


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

    def fits(self, rows: pa.RecordBatch) -> bool:
        """The columns of changes are the same for all; whether the kept rows fit is seen when they are taken in."""
        return True

    def fitted(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """As they are: kept rows are short-lived, so those of a former version are refused."""
        return rows


StateSchema = KeyedStateSchema | RowStateSchema
