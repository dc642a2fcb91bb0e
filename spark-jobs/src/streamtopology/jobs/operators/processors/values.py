"""The values of a processor's state as Python's, and back to Arrow: by column, since a value at a time costs ten times that.

A struct is a tuple, a list a list, a map a dict, NULL is None; a struct inside of a value is a Row, as PySpark gives it, and a
timestamp has no zone: it is one of UTC.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from functools import lru_cache
from itertools import chain, pairwise
from typing import Any

import pyarrow as pa

from streamtopology.jobs.columnar.layouts import is_bytes, is_list, is_text
from streamtopology.jobs.columnar.python_values import python_values
from streamtopology.jobs.operators.processors.spark_rows import row_class
from streamtopology.jobs.operators.python_kept import loss
from streamtopology.jobs.state.value_types import parts_of

# Of a value of this Python type, in a struct, Arrow makes another one without a word for such a leaf. (A datetime may have a
# zone too much.) All else it keeps or refuses.
_CHANGED: dict[type, Callable[[pa.DataType], bool]] = {
    type(None): lambda kind: False,
    bool: lambda kind: False,
    date: lambda kind: False,
    datetime: lambda kind: not pa.types.is_timestamp(kind),  # without a zone it is one of UTC, with one it becomes that
    str: lambda kind: is_bytes(kind),
    bytes: lambda kind: is_text(kind),
    int: lambda kind: pa.types.is_temporal(kind),
    float: lambda kind: pa.types.is_temporal(kind) or pa.types.is_integer(kind) or pa.types.is_float32(kind),
    Decimal: lambda kind: pa.types.is_temporal(kind) or pa.types.is_integer(kind),
    time: pa.types.is_time32,
    timedelta: lambda kind: pa.types.is_duration(kind) and kind.unit in ("s", "ms"),
}

_WIDE = Context(prec=76)
# The only one in state: in Python a NaN is the same key of a map as itself only, in Spark as any other.
_NAN = float("nan")


def is_plain(kind: pa.StructType) -> bool:
    """True if a class gets back the fields of a struct just as it gives them."""
    return is_flat(kind) and not any(map(_is_changed, (each.type for each in kind)))


def _is_changed(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) or pa.types.is_decimal(kind) or pa.types.is_float32(kind) or is_bytes(kind)


def is_flat(kind: pa.StructType) -> bool:
    """True if no field of the struct has parts, so that a value of it cannot be changed in place."""
    return not any(parts_of(field.type) for field in kind)


def decoded(column: pa.Array) -> list[Any]:
    """The values of a column: a struct is a tuple, also as an item of a list or map."""
    kind = column.type
    if pa.types.is_map(kind):
        return _sliced(column, list(zip(decoded(column.keys), decoded(column.items), strict=True)), dict)
    if pa.types.is_list(kind):
        return _sliced(column, decoded(column.values), list)
    if pa.types.is_struct(kind):
        return _structs(column, None)
    return _inner(column)


def _inner(column: pa.Array) -> list[Any]:
    """The values of a part of a value."""
    kind = column.type
    if pa.types.is_struct(kind):
        return _structs(column, row_class(tuple(field.name for field in kind)))
    if pa.types.is_map(kind):
        return _sliced(column, list(zip(_inner(column.keys), _inner(column.items), strict=True)), dict)
    if pa.types.is_list(kind):
        return _sliced(column, _inner(column.values), list)
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        column = column.cast(pa.timestamp(kind.unit))
    return plain_values(column)


def plain_values(column: pa.Array) -> list[Any]:
    """`python_values`, numbers without NULL three times as fast."""
    if column.null_count == 0 and (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        return column.to_numpy(zero_copy_only=False).tolist()
    return python_values(column)


def zoned(column: pa.Array, zone: str) -> pa.Array:
    """The column with its times, also those inside of values, in another zone: the moments stay."""
    return column if zone == "UTC" else column.cast(_zoned_type(column.type, zone))


@lru_cache(256)
def _zoned_type(kind: pa.DataType, zone: str) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return kind if kind.tz is None else pa.timestamp(kind.unit, zone)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_zoned_type(field.type, zone)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_zoned_type(kind.key_type, zone), _zoned_type(kind.item_type, zone))
    return pa.list_(_zoned_type(kind.value_type, zone)) if pa.types.is_list(kind) else kind


def _structs(column: pa.Array, row: type | None) -> list[Any]:
    values: list[Any] = list(zip(*map(_inner, column.flatten()), strict=True))
    if row is not None:
        new = tuple.__new__
        values = [new(row, value) for value in values]
    return _with_none(values, column)


def _sliced(column: pa.Array, parts: Sequence[Any], made: Callable[[Sequence[Any]], Any]) -> list[Any]:
    """Lists or dicts of `parts`, which are those of the whole buffer that `column` may be a slice of."""
    offsets = column.offsets.to_pylist()
    return _with_none([made(parts[start:end]) for start, end in pairwise(offsets)], column)


def _with_none(values: list[Any], column: pa.Array) -> list[Any]:
    if column.null_count == 0:
        return values
    return [value if is_valid else None for value, is_valid in zip(values, column.is_valid().to_pylist(), strict=True)]


def encoded(values: Sequence[Any], kind: pa.DataType, as_rows_have_them: bool = False) -> pa.Array:
    """The values as a column. Raises ValueError unless each of them stays what it is.

    as_rows_have_them: structs may be dicts, and maps lists of pairs, as in a row that a processor gets. Arrow takes a tuple
    for a struct, which costs a tenth of columns made of the tuples first.
    """
    try:
        if as_rows_have_them:
            values = [_unrowed(value, kind) for value in values]
        column = pa.array([_paired(value, kind) for value in values] if _has_map(kind) else values, kind)
        reason = None if _are_kept(values, kind) else loss([_named(value, kind) for value in values], pa.field("", kind))
    except (pa.ArrowException, AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
        raise ValueError(str(error)) from error
    if reason is not None:
        raise ValueError(reason)
    return column


def _unrowed(value: Any, kind: pa.DataType) -> Any:
    """The value with a tuple for each struct and a dict for each map."""
    if value is None or not parts_of(kind):
        return value
    if pa.types.is_struct(kind):
        fields = map(value.get, (field.name for field in kind)) if isinstance(value, dict) else value
        return tuple(_unrowed(each, field.type) for each, field in zip(fields, kind, strict=True))
    if pa.types.is_map(kind):
        return {_unrowed(key, kind.key_type): _unrowed(item, kind.item_type) for key, item in dict(value).items()}
    return [_unrowed(each, kind.value_type) for each in value]


@lru_cache(256)
def has(kind: pa.DataType, is_this: Callable[[pa.DataType], bool]) -> bool:
    """True if the type or a part of it is one of these."""
    return is_this(kind) or any(has(part.type, is_this) for part in parts_of(kind))


def _has_map(kind: pa.DataType) -> bool:
    return has(kind, pa.types.is_map)


def _paired(value: Any, kind: pa.DataType) -> Any:
    """The value with a list of pairs for each dict."""
    if value is None or not _has_map(kind):
        return value
    if pa.types.is_map(kind):
        if not _has_map(kind.key_type) and not _has_map(kind.item_type):
            return list(value.items())
        return [(_paired(key, kind.key_type), _paired(item, kind.item_type)) for key, item in value.items()]
    if pa.types.is_struct(kind):
        return tuple(_paired(each, field.type) for each, field in zip(value, kind, strict=True))
    return [_paired(each, kind.value_type) for each in value]


def _named(value: Any, kind: pa.DataType) -> Any:
    """The value with a dict for each struct and a zone for each timestamp, as `loss` knows it."""
    if value is None or not parts_of(kind):
        return _with_zone(value, kind)
    if pa.types.is_map(kind):
        return [(_named(key, kind.key_type), _named(item, kind.item_type)) for key, item in value.items()]
    if pa.types.is_struct(kind):
        return {field.name: _named(each, field.type) for each, field in zip(value, kind, strict=True)}
    return [_named(each, kind.value_type) for each in value]


def _with_zone(value: Any, kind: pa.DataType) -> Any:
    if isinstance(value, datetime) and value.tzinfo is None and pa.types.is_timestamp(kind) and kind.tz is not None:
        return value.replace(tzinfo=UTC)
    return value


def _are_kept(values: Iterable[Any], kind: pa.DataType) -> bool:
    """True if their Python types show that Arrow keeps all values."""
    present = [value for value in values if value is not None]
    if pa.types.is_struct(kind):
        if is_flat(kind) and set(map(type, chain.from_iterable(present))) <= _kept_in(kind):
            return True
        return all(_are_kept([value[place] for value in present], part.type) for place, part in enumerate(kind))
    if pa.types.is_map(kind):
        keys = chain.from_iterable(present)
        items = chain.from_iterable(value.values() for value in present)
        return _are_kept(keys, kind.key_type) and _are_kept(items, kind.item_type)
    if parts_of(kind):
        return _are_kept(chain.from_iterable(present), kind.value_type)
    return set(map(type, present)) <= _kept_in(kind)


@lru_cache(256)
def _kept_in(kind: pa.DataType) -> frozenset[type]:
    """The Python types that every leaf of `kind` keeps or refuses."""
    leaves = [part.type for part in parts_of(kind)] or [kind]
    return frozenset(each for each, is_changed in _CHANGED.items() if not any(map(is_changed, leaves)))


def owned(value: Any, kind: pa.DataType) -> Any:
    """What a class puts in state, as it gets it back, with lists and dicts of its own. What does not fit stays as it is.

    A struct may be a dict, and a map a list of pairs, as rows have them.
    """
    if isinstance(value, dict) and pa.types.is_struct(kind):
        value = tuple(map(value.get, (field.name for field in kind)))
    if isinstance(value, tuple) and pa.types.is_struct(kind) and len(value) == kind.num_fields:
        return tuple.__new__(row_class(tuple(field.name for field in kind)), owned_parts(value, kind))
    if isinstance(value, (dict, list)) and pa.types.is_map(kind):
        return {owned(key, kind.key_type): owned(item, kind.item_type) for key, item in dict(value).items()}
    if isinstance(value, (list, tuple)) and is_list(kind):
        return [owned(each, kind.value_type) for each in value]
    if pa.types.is_timestamp(kind):
        return _without_zone(value, kind)
    if pa.types.is_decimal(kind) and isinstance(value, Decimal):
        return _rounded(value, kind)
    if pa.types.is_floating(kind):
        return _float(copied(value), kind)
    return bytes(value) if isinstance(value, bytearray) else copied(value)


def owned_parts(values: Iterable[Any], kind: pa.StructType) -> tuple[Any, ...]:
    """`owned` for each field of a struct."""
    return tuple(owned(value, field.type) for value, field in zip(values, kind, strict=True))


def _without_zone(value: Any, kind: pa.DataType) -> Any:
    if hasattr(value, "to_pydatetime"):  # of pandas
        value = value.to_pydatetime()
    if not isinstance(value, datetime) or value.tzinfo is None:
        return value
    return (value if kind.tz is None else value.astimezone(UTC)).replace(tzinfo=None)


def _rounded(value: Decimal, kind: pa.DataType) -> Decimal:
    """With the digits behind the point that Spark keeps, too."""
    try:
        return value.quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP, _WIDE)
    except InvalidOperation:
        return value  # NaN: refused with the value


def _float(value: Any, kind: pa.DataType) -> Any:
    if isinstance(value, float) and value != value:
        return _NAN
    if not isinstance(value, float) or not pa.types.is_float32(kind):
        return value
    try:
        return struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return value  # refused with the value


def copied(value: Any) -> Any:
    """The value with lists and dicts of its own."""
    if isinstance(value, list):
        return [copied(each) for each in value]
    if isinstance(value, dict):
        return {key: copied(each) for key, each in value.items()}
    if isinstance(value, tuple):
        parts = map(copied, value)
        return tuple(parts) if type(value) is tuple else tuple.__new__(type(value), parts)
    return value.item() if hasattr(value, "dtype") and hasattr(value, "item") else value
