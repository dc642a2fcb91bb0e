"""Arrow values as Python's, whatever a column holds."""

# pyarrow.compute makes its functions when it is imported, unseen by the type checker.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

# Raised for times out of range, texts that are no UTF-8, and (KeyError) unknown zones and names that are there twice.
_UNKNOWN_TO_PYTHON = (OverflowError, ValueError, KeyError)
# A day in each unit of time.
_DAY = {"s": 86_400, "ms": 86_400 * 10**3, "us": 86_400 * 10**6, "ns": 86_400 * 10**9}


def python_values(column: pa.Array | pa.ChunkedArray, maps_as_dicts: bool = False) -> list[Any]:
    """The values of a column. What Python does not know is a text: a time in ISO 8601, bytes that are no UTF-8 with escapes.

    Python's dates and times are those of the years 1 to 9999, to the microsecond, and its days end before 24:00; Arrow's,
    Spark's and SQL's go further.
    Texts of files and of operators may be no UTF-8, and their time zones ones that this machine does not know.
    A map is a list of pairs, or a dict if asked for and if a dict can have its keys.

    >>> python_values(pa.array([0, 4_000_000], pa.date32()))
    [datetime.date(1970, 1, 1), '12921-08-18']
    """
    try:
        if _is_of_micros(column.type):
            return _datetimes(column)
        if _has_other_times(column):
            return [_value(scalar, maps_as_dicts) for scalar in column]
        return column.to_pylist(maps_as_pydicts="strict" if maps_as_dicts else None)
    except (*_UNKNOWN_TO_PYTHON, TypeError):  # TypeError: keys of a map that no dict takes
        return [_value(scalar, maps_as_dicts) for scalar in column]


def _is_of_micros(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.unit == "us" and kind.tz in (None, "UTC")


def _datetimes(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The timestamps of microseconds: Arrow's own way takes 5 us for each with a zone, this 0.2 us. Raises OverflowError."""
    values = column.cast(pa.timestamp("us")).to_numpy(zero_copy_only=False).tolist()  # an int beyond the year 9999
    if int in set(map(type, values)):
        raise OverflowError
    if column.type.tz is None:
        return values
    return [value if value is None else value.replace(tzinfo=datetime.UTC) for value in values]


def python_rows(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows, each as column -> value, as `python_values` gives them."""
    columns = [python_values(column) for column in rows.columns]
    return [dict(zip(rows.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def _has_other_times(column: pa.Array | pa.ChunkedArray) -> bool:
    """True if a time of day may be none of Python's, which Arrow makes another one of: 24:00 or with nanoseconds."""
    if not pa.types.is_time(column.type):
        return any(map(pa.types.is_time, _types_in(column.type)))
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return any(_has_other_ticks(chunk) for chunk in chunks)


def _has_other_ticks(times: pa.Array) -> bool:
    ticks = times.drop_null().view(pa.int32() if times.type.bit_width == 32 else pa.int64()).to_numpy()
    return bool(len(ticks) and (ticks.max() >= _DAY[times.type.unit] or (times.type.unit == "ns" and (ticks % 1000).any())))


def _types_in(kind: pa.DataType) -> Iterator[pa.DataType]:
    parts = [kind.field(number).type for number in range(kind.num_fields)]
    for part in [kind.value_type] if isinstance(kind, pa.DictionaryType) else parts:
        yield part
        yield from _types_in(part)


def _time_of_day(scalar: pa.Scalar) -> datetime.time | str:
    """One of Python's, or the text of 24:00 and of times with nanoseconds."""
    nanoseconds = int(scalar.value) * (_DAY["ns"] // _DAY[scalar.type.unit])
    if nanoseconds < _DAY["ns"] and nanoseconds % 1000 == 0:
        return scalar.as_py()
    seconds, part = divmod(nanoseconds, 10**9)
    digits = f".{part:09d}".rstrip("0").rstrip(".")
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{digits}"


def _value(scalar: pa.Scalar, maps_as_dicts: bool) -> Any:
    if not scalar.is_valid:
        return None
    if isinstance(scalar, pa.MapScalar):
        pairs = [(pair["key"], pair["value"]) for pair in python_values(scalar.values, maps_as_dicts)]
        return _dict_of(pairs) if maps_as_dicts else pairs
    if isinstance(scalar, pa.StructScalar):
        return {field.name: _value(scalar[place], maps_as_dicts) for place, field in enumerate(scalar.type)}
    if isinstance(scalar, pa.ListScalar):
        return python_values(scalar.values, maps_as_dicts)
    if isinstance(scalar, pa.DictionaryScalar):
        return _value(scalar.value, maps_as_dicts)
    try:
        return _time_of_day(scalar) if pa.types.is_time(scalar.type) else scalar.as_py()
    except UnicodeDecodeError:
        return scalar.as_buffer().to_pybytes().decode("utf-8", "backslashreplace")
    except _UNKNOWN_TO_PYTHON:
        return _iso(scalar)


def _dict_of(pairs: list[tuple[Any, Any]]) -> dict[Any, Any] | list[tuple[Any, Any]]:
    """The pairs as a dict; as they are if a key is there twice or is a list or struct."""
    try:
        made = dict(pairs)
    except TypeError:
        return pairs
    return made if len(made) == len(pairs) else pairs


def _iso(scalar: pa.Scalar) -> str:
    if not pa.types.is_timestamp(scalar.type):
        return str(scalar.cast(pa.string()))
    zone = "" if scalar.type.tz is None else "Z"
    return str(pc.strftime(scalar.cast(pa.timestamp(scalar.type.unit, scalar.type.tz and "UTC")), f"%Y-%m-%dT%H:%M:%S{zone}"))
