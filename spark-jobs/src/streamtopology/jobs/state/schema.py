"""Schemas of state: fixed-size fields a key, or rows kept until they expire.

An operator that is changed finds state that its old version wrote. `KeyedStateSchema.fitted` makes one of the other, file
by file as they are read, or says why it will not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from math import prod
from operator import index
from typing import Any, Literal, cast

import numpy as np
import pyarrow as pa

from streamtopology.jobs.columnar.key_widening import keeps_keys
from streamtopology.jobs.columnar.keys import LARGEST_INT32, widened
from streamtopology.jobs.state.field_checks import holds
from streamtopology.jobs.state.value_types import holds_all_of, refused_part

DELETED = "__deleted"
ROUTING = "__routing"
# A field of operators that forget keys whose state is not written any more.
LAST_WRITTEN = "__last_written"
# In the metadata of a column of state: what its numbers stand for.
MEANS = "means"
_RENAME = "give the key column another name in the source's select, or in a map"

# Of a `Field(str)`: without a default Python would refuse the call in words of its own, and not as an error of ours.
_LEFT_OUT = cast("np.dtype", None)
_PLACES, _NO_TYPE = np.dtype(np.int64), pa.null()
_OF_ARROW = [np.dtype(char) for char in ("?", *np.typecodes["AllInteger"], "e", "f", "d")]
Merge = Literal["sum", "min", "max"]


class StateError(ValueError):
    """State is declared or used in a way that cannot work."""


@dataclass(frozen=True)
class Field:
    """One value a key: a number, or an array of numbers of `shape`. `Field.of` declares values of any other type.

    dtype: a numpy type of booleans, integers or floats; a value that it cannot hold raises OverflowError where it is written,
    floats are rounded. shape: as in numpy, 3 is (3,). initial: the value of a new key.
    merge: how two partial values of one key become one ("sum", "min", "max"), None when they cannot. added: a later version of
    the operator brought the field; keys from before have `initial`. means: what its numbers stand for, such as "date32[day]";
    state in which they stand for something else is refused. Raises StateError for any other dtype or shape, and for names that
    start with two underscores.

    >>> Field("total", np.float64, merge="sum").arrow_type
    DataType(double)
    >>> Field("histogram", np.int64, shape=(16,)).arrow_type
    FixedSizeListType(fixed_size_list<item: int64>[16])
    """

    name: str
    dtype: np.dtype = _LEFT_OUT
    shape: tuple[int, ...] = ()
    initial: float = 0
    merge: Merge | None = None
    added: bool = False
    means: str = ""

    def __post_init__(self) -> None:
        if self.dtype is _LEFT_OUT or not isinstance(self.name, str):
            raise StateError(f"Field({self.name!r}): a field has a name and a type, such as Field('count', np.int64)")
        object.__setattr__(self, "dtype", _dtype(self.name, self.dtype))
        object.__setattr__(self, "shape", _shape(self.name, self.shape))
        if self.dtype.kind not in "biuf":
            raise StateError(
                f"field {self.name!r}: a numpy type of numbers or booleans is needed, not {self.dtype}; declare texts and the "
                f"like by their Arrow type, as Field.of({self.name!r}, pa.string())"
            )
        _check_name(self.name)
        if any(size < 1 for size in self.shape):
            raise StateError(f"field {self.name!r}: every dimension of shape {self.shape} must be at least 1")
        if np.ndim(self.initial) == 0 and not holds(self.dtype, self.initial):
            raise StateError(f"field {self.name!r}: {self.dtype} cannot hold initial {self.initial!r}")

    @staticmethod
    def of(name: str, kind: pa.DataType) -> ArrowField:
        """A value of any Arrow type a key: text, time, decimal, list, map, struct; NULL for a new key.

        A later version of the operator may add it, widen its numbers, or give more fields to its structs; values from before
        have NULL there. Raises StateError for views, dictionaries and other encodings.

        >>> Field.of("pages", pa.list_(pa.string())).arrow_type
        ListType(list<item: string>)
        """
        return ArrowField(name, kind=kind)

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

    def first_values(self, count: int) -> pa.Array:
        """The values of `count` new keys."""
        return self.to_arrow(np.full((count, *self.shape), self.initial, self.dtype))

    def widened(self, array: pa.Array) -> pa.Array | None:
        """The values of an old version's field as this one's; None when the types do not promise that all survive."""
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
class ArrowField(Field):
    """A value of the Arrow type `kind` a key, made by `Field.of`. In the state's column there is its place, an int64."""

    dtype: np.dtype = _PLACES
    added: bool = True
    kind: pa.DataType = _NO_TYPE

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not isinstance(self.kind, pa.DataType):
            raise StateError(
                f"Field.of({self.name!r}, {self.kind!r}): give it a name and an Arrow type, as Field.of('page', pa.string())"
            )
        _check_name(self.name)
        refused = refused_part(self.kind)
        if refused is not None:
            raise StateError(
                f"field {self.name!r}: state holds numbers, texts, bytes, times, decimals, lists, maps and structs of them; "
                f"in {self.kind} {refused}"
            )

    @property
    def arrow_type(self) -> pa.DataType:
        return self.kind

    def first_values(self, count: int) -> pa.Array:
        return pa.nulls(count, self.kind)

    def widened(self, array: pa.Array) -> pa.Array | None:
        if array.type.equals(self.kind):
            return array
        return array.cast(self.kind) if holds_all_of(self.kind, array.type) else None


def _check_name(name: str) -> None:
    if name.startswith("__") and name != LAST_WRITTEN:
        raise StateError(f"field {name!r}: names that start with two underscores are kept for the store")


def _dtype(name: str, given: Any) -> np.dtype:
    try:
        dtype = np.dtype(given).newbyteorder("=")  # the byte order of this machine, which holds the values
    except TypeError:
        raise StateError(f"field {name!r}: dtype is {given!r}; allowed: a numpy type such as np.int64") from None
    if dtype.kind in "biuf" and dtype not in _OF_ARROW:
        raise StateError(f"field {name!r}: state is stored in types of Arrow, which has no {dtype}; take np.float64")
    return dtype


def _shape(name: str, given: Any) -> tuple[int, ...]:
    """The dimensions that a user gave: a number is one dimension."""
    try:
        return tuple(map(index, given if isinstance(given, list | tuple) else (given,)))
    except TypeError:
        raise StateError(f"field {name!r}: shape is {given!r}; allowed: whole numbers such as 3, (3,) or (3, 2)") from None


@dataclass(frozen=True)
class KeyedStateSchema:
    """State with one set of fields a key. key_types: names and Arrow types of the key columns (`key_schema`).

    upgrade: converts rows (key columns and fields) of an earlier version of the operator into rows of this one; keys stay.

    >>> schema = KeyedStateSchema((Field("count", np.int64),), pa.schema([("sensor", pa.int64())]))
    >>> [column.name for column in schema.columns()]
    ['sensor', 'count']
    """

    fields: tuple[Field, ...]
    key_types: pa.Schema
    upgrade: Callable[[pa.RecordBatch], pa.RecordBatch] | None = dataclass_field(default=None, compare=False)

    def __post_init__(self) -> None:
        names = [*self.key_types.names, *(field.name for field in self.fields)]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            sentence = f"state column {twice[0]!r} is declared twice; key columns and fields share one namespace"
            raise StateError(f"{sentence}: {_RENAME}")
        kept = sorted({DELETED, ROUTING} & set(self.key_types.names))
        if kept:
            raise StateError(f"key column {kept[0]!r} has a name that is kept for the store: {_RENAME}")

    def fits(self, rows: pa.RecordBatch) -> bool:
        """True if a snapshot or delta has the columns that this version of the operator writes; keys may be of large types."""
        found = {column.name: widened(column.type) for column in rows.schema if column.name not in (DELETED, ROUTING)}
        return found == {column.name: widened(column.type) for column in self.columns()}

    def field(self, name: str) -> Field:
        """Raises StateError."""
        for field in self.fields:
            if field.name == name:
                return field
        names = ", ".join(field.name for field in self.fields)
        raise StateError(f"the state has no field {name!r}; its fields are {names or 'none'}")

    def columns(self) -> list[pa.Field]:
        """Key columns, then fields, as Arrow has them."""
        return [*self.key_types, *(pa.field(field.name, field.arrow_type) for field in self.fields)]

    def fitted(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """A snapshot or delta as this version of the operator writes it. StateError: it cannot be made of these rows.

        A key's hash is that of its columns in their order, and deltas say by hashes which keys have left.
        """
        if LAST_WRITTEN in rows.schema.names and all(field.name != LAST_WRITTEN for field in self.fields):
            rows = rows.drop_columns(LAST_WRITTEN)
        held = [name for name in rows.schema.names if name in self.key_types.names]
        if held != self.key_types.names and sorted(held) == sorted(self.key_types.names):
            raise self._unfit(rows)
        self._refuse_other_meanings(rows.schema)
        return self.labelled(rows if self.fits(rows) else self._converted(rows))

    def labelled(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """`rows` with what the numbers of each field stand for in their schema, for later versions of the operator."""
        means = {field.name: {MEANS: field.means} for field in self.fields if field.means}
        if not means:
            return rows
        columns = [column.with_metadata(means.get(column.name)) for column in rows.schema]
        return pa.RecordBatch.from_arrays(rows.columns, schema=pa.schema(columns, rows.schema.metadata))

    def _refuse_other_meanings(self, former: pa.Schema) -> None:
        for field in self.fields:
            means = meaning(former.field(field.name)) if field.name in former.names else ""
            if means and means != field.means:
                raise other_meaning(field.name, means, field.means)

    def _converted(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        metadata = rows.schema.metadata
        marks = [name for name in (DELETED, ROUTING) if name in rows.schema.names]
        dead = 0
        if DELETED in marks:  # tombstones have no values to upgrade: they go first
            deleted = rows.column(DELETED).to_numpy(zero_copy_only=False)
            dead = int(deleted.sum())
            rows = rows.take(pa.array(np.argsort(~deleted, kind="stable")))
        former = rows.select([name for name in rows.schema.names if name not in marks])
        if set(self.key_types.names) - set(former.schema.names):
            raise self._unfit(former)
        living = former.slice(dead)
        now = living if self.upgrade is None else _upgraded(self.upgrade, living, self.key_types.names)
        keys = [_fitting_key(former.column(key.name), key.type) for key in self.key_types]
        fields = [_padded(field, self._taken(field, now), dead) for field in self.fields]
        names = [*self.key_types.names, *(field.name for field in self.fields)]
        unknown = sorted(set(now.schema.names) - set(names))
        if unknown or [widened(key.type) for key in keys] != [widened(type_) for type_ in self.key_types.types]:
            raise self._unfit(now)
        arrays = [*keys, *fields, *(rows.column(mark) for mark in marks)]
        return pa.RecordBatch.from_arrays(arrays, names=[*names, *marks]).replace_schema_metadata(metadata)

    def _taken(self, field: Field, rows: pa.RecordBatch) -> pa.Array:
        """The values of a field in `rows`."""
        if field.name in rows.schema.names:
            values = field.widened(rows.column(field.name))
            if values is not None:
                return values
        elif field.added:
            return field.first_values(rows.num_rows)
        raise self._unfit(rows)

    def _unfit(self, rows: pa.RecordBatch) -> StateError:
        return StateError(f"rows of ({described(rows.schema)}) do not fit state of ({described(self.columns())})")


def meaning(column: pa.Field) -> str:
    """The words for what the numbers of a column of state stand for; "" if it does not say."""
    return (column.metadata or {}).get(MEANS.encode(), b"").decode()


def other_meaning(name: str, before: str, now: str) -> StateError:
    return StateError(f"{name} stands for {before} in it, and for {now or 'something else'} now")


def concatenated(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """The rows of all batches, which have the same columns; keys of more than 2 GiB in all are of their large type."""
    first = batches[0].schema

    def joined(index: int) -> pa.Field:
        field, columns = first.field(index), [batch.column(index) for batch in batches]
        is_wide = any(column.type != field.type for column in columns)
        return field.with_type(widened(field.type)) if is_wide or sum(c.nbytes for c in columns) > LARGEST_INT32 else field

    schema = pa.schema([joined(index) for index in range(len(first))])
    return pa.concat_batches([batch.cast(schema) for batch in batches])


def described(columns: Sequence[pa.Field] | pa.Schema) -> str:
    """Names and types, for sentences."""
    return ", ".join(f"{column.name} {column.type}" for column in columns if column.name not in (DELETED, ROUTING))


def _fitting_key(keys: pa.Array, type_: pa.DataType) -> pa.Array:
    """The key column in the type of this version, if its keys stay the same ones; else as it is."""
    return keys.cast(type_) if keeps_keys(keys.type, type_) else keys


def _padded(field: Field, values: pa.Array, dead: int) -> pa.Array:
    """`values` behind as many that no one reads."""
    return pa.concat_arrays([field.first_values(dead), values]) if dead else values


def _upgraded(upgrade: Callable[[pa.RecordBatch], pa.RecordBatch], rows: pa.RecordBatch, key: Sequence[str]) -> pa.RecordBatch:
    """Rows of an earlier version, upgraded by the operator. Raises StateError when it raises or changes keys."""
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

    inputs: the Arrow schema of the kept rows by the input's alias. key: the columns, in every input, whose hash routes a row.
    time: the column, in every input, with the event time, a timestamp or int64 microseconds since 1970. Raises StateError when
    a column is missing.

    >>> clicks = pa.schema([("user", pa.int64()), ("at", pa.timestamp("us"))])
    >>> RowStateSchema({"clicks": clicks}, key=("user",), time="at").key
    ('user',)
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
        """As they are: kept rows are short-lived, so those of an old version are refused."""
        return rows


StateSchema = KeyedStateSchema | RowStateSchema
