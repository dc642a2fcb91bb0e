"""The Python values of dicts that an operator emits: copied when they are emitted, and held against what Arrow made of them."""

from __future__ import annotations

import datetime
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from itertools import chain
from numbers import Number
from typing import Any, cast

import numpy as np
import pyarrow as pa

from streamtopology.jobs.columnar.layouts import is_bytes, is_list, is_number, is_text
from streamtopology.jobs.columnar.python_values import python_values

_UNCHANGING = frozenset({
    type(None), bool, int, float, str, bytes, Decimal,
    datetime.datetime, datetime.date, datetime.time, datetime.timedelta, pa.MonthDayNano,
})  # fmt: skip
_NO_DATETIME = "a date has no time of day; make it a datetime, as by datetime.datetime.combine(value, datetime.time())"
_PART = "a part of it would be lost"
_NONE_OF_THEM = "it is no such value"
_SECOND = 10**9
_NANOSECONDS = {"s": _SECOND, "ms": 10**6, "us": 10**3, "ns": 1, "m": 60 * _SECOND, "h": 3600 * _SECOND, "D": 86_400 * _SECOND}
_DAY = _NANOSECONDS["D"]
# numpy's units of times that Arrow has, too.
_UNITS = frozenset({"s", "ms", "us", "ns"})
_EPOCH = datetime.datetime(1970, 1, 1)
_EPOCH_UTC = _EPOCH.replace(tzinfo=datetime.UTC)


def frozen(value: Any) -> Any:
    """The value as it is now, whatever becomes of the lists, dicts and arrays in it."""
    if type(value) in _UNCHANGING:
        return value
    if isinstance(value, Mapping):
        return {name: frozen(each) for name, each in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, tuple):
        return tuple(map(frozen, cast("Iterable[Any]", value)))
    if isinstance(value, (list, deque)):
        return list(map(frozen, cast("Iterable[Any]", value)))
    if isinstance(value, np.ndarray):
        return np.array(value) if value.dtype.kind in "mM" else frozen(value.tolist())  # None where it is masked
    if isinstance(value, (set, bytearray)):
        return cast("set[Any] | bytearray", value).copy()
    return bytes(value) if isinstance(value, memoryview) else value


def loss(values: Sequence[Any], field: pa.Field) -> str | None:
    """The reason why a column of `field` would not be all of `values`; None if it would. Raises what Arrow raises."""
    present = [value for value in values if value is not None]
    if not field.nullable and len(present) < len(values):
        return "it is NULL, and NULL is not allowed there"
    kind = field.type
    if pa.types.is_struct(kind):
        return _loss_in_structs(present, kind)
    if is_list(kind):
        return _loss_in_lists(present, kind)
    if pa.types.is_map(kind):
        return _loss_in_maps(present, kind)
    return _loss_in_leaves(present, kind.value_type if isinstance(kind, pa.DictionaryType) else kind)


def _loss_in_structs(values: Sequence[Any], kind: pa.StructType) -> str | None:
    for value in values:
        if not isinstance(value, Mapping):
            return "a struct is a dict of its fields"
        named = cast("Mapping[str, Any]", value)
        for each in kind:
            if each.name not in named:
                has = ", ".join(map(str, named)) or "none"
                return f"a struct without its field {each.name!r} (None is NULL; it has: {has})"
    return _first(loss([value[each.name] for value in values], each) for each in kind)


def _loss_in_lists(values: Sequence[Any], kind: pa.ListType) -> str | None:
    for value in values:
        if isinstance(value, (set, frozenset)):
            return "a set has no order; make it a list, as by sorted()"
        if not (_is_sequence(value) or isinstance(value, pa.Array) or (isinstance(value, np.ndarray) and value.ndim == 1)):
            return "a list is a Python list, a tuple or a numpy array of one dimension"
    return loss(list(chain.from_iterable(map(_items, values))), kind.value_field)


def _loss_in_maps(values: Sequence[Any], kind: pa.MapType) -> str | None:
    pairs = [pair for value in values for pair in (value.items() if isinstance(value, Mapping) else value)]
    if not all(isinstance(pair, tuple) and len(cast("Sequence[Any]", pair)) == 2 for pair in pairs):
        return "a map is a dict, or a list of pairs (key, value)"  # Arrow ends the process over a pair that is None
    return loss([name for name, _ in pairs], kind.key_field) or loss([each for _, each in pairs], kind.item_field)


def _first(reasons: Iterable[str | None]) -> str | None:
    return next((reason for reason in reasons if reason is not None), None)


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray, memoryview))


def _items(value: Any) -> Iterable[Any]:
    if isinstance(value, pa.Array):
        return python_values(value)
    if isinstance(value, np.ndarray):
        return value.tolist() if value.dtype.kind in "biuf" else list(value)
    return value


def _loss_in_leaves(values: Sequence[Any], kind: pa.DataType) -> str | None:
    if _converted_exactly(kind).issuperset(map(type, values)) and not _differs_in_zone(values, kind):
        return None
    if pa.types.is_interval(kind):
        return _first(map(_loss_of_interval, values))
    if pa.types.is_temporal(kind):
        unlike = _first(_unlike_time(value, kind) for value in values)
        if unlike is not None:
            return unlike
        kept = _ticks(pa.array(values, kind))
        return _first(_loss_of_time(value, ticks, kind) for value, ticks in zip(values, kept, strict=True))
    judge = _judge_of(kind)
    kept = python_values(pa.array(values, kind))
    return _first(judge(_plain(value), each, kind) for value, each in zip(values, kept, strict=True))


@lru_cache(256)
def _converted_exactly(kind: pa.DataType) -> frozenset[type]:
    """Types of Python values that Arrow converts exactly to `kind`, or refuses: they need not be compared one by one."""
    exact: Mapping[Callable[[pa.DataType], bool], tuple[type, ...]] = {
        pa.types.is_integer: (int,),
        pa.types.is_float64: (float, int),
        pa.types.is_float32: (int,),
        pa.types.is_decimal: (Decimal, int),
        pa.types.is_boolean: (bool,),
        is_text: (str,),
        is_bytes: (bytes,),
        pa.types.is_date: (datetime.date,),
        lambda each: pa.types.is_timestamp(each) and each.unit in ("us", "ns"): (datetime.datetime,),
        lambda each: pa.types.is_duration(each) and each.unit in ("us", "ns"): (datetime.timedelta,),
    }
    return frozenset(next((types for is_kind, types in exact.items() if is_kind(kind)), ()))


def _differs_in_zone(values: Sequence[Any], kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and any((value.tzinfo is None) != (kind.tz is None) for value in values)


def _plain(value: Any) -> Any:
    """A value of numpy or Arrow as the one of Python."""
    if isinstance(value, pa.Scalar):
        return value.as_py()
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return value.item()
    return value.item() if isinstance(value, np.generic) else value


# --- values that are no times ---


def _judge_of(kind: pa.DataType) -> Callable[[Any, Any, pa.DataType], str | None]:
    if is_number(kind):
        return _loss_of_number
    if is_text(kind):
        return _loss_of_text
    return _loss_of_bytes if is_bytes(kind) else _loss_of_other


def _loss_of_number(value: Any, kept: Any, kind: pa.DataType) -> str | None:
    if isinstance(value, bool) or not isinstance(value, Number):
        return _NONE_OF_THEM
    if value != value:
        return None if kept != kept else _PART
    if isinstance(value, float) and pa.types.is_floating(kind):  # it is rounded to the nearest
        return f"it is beyond the numbers of a {kind}" if math.isinf(kept) and not math.isinf(value) else None
    return None if value == kept else _PART


def _loss_of_text(value: Any, kept: Any, kind: pa.DataType) -> str | None:
    if not isinstance(value, str):
        return "bytes are no text; decode them"
    return None if str(value) == kept else _PART


def _loss_of_bytes(value: Any, kept: Any, kind: pa.DataType) -> str | None:
    if isinstance(value, str):
        return "a text is no bytes; encode it"
    if not isinstance(value, (bytes, bytearray, memoryview)):
        return _NONE_OF_THEM
    return None if bytes(value) == kept else _PART


def _loss_of_other(value: Any, kept: Any, kind: pa.DataType) -> str | None:
    return None if type(value) is type(kept) and value == kept else _PART


# --- times ---


def _ticks(column: pa.Array) -> list[int | None]:
    """The integers that Arrow holds for times of any kind."""
    return column.view(pa.int64() if column.type.bit_width == 64 else pa.int32()).to_pylist()


def _loss_of_interval(value: Any) -> str | None:
    if isinstance(value, pa.MonthDayNano):
        return None
    return "an interval is a pa.MonthDayNano of months, days and nanoseconds"


def _unlike_time(value: Any, kind: pa.DataType) -> str | None:
    """The reason why Arrow would not read a time of Python's or numpy's as `kind`, where its own words are no help."""
    if isinstance(value, str):
        return "a text is no time; make it one of Python's"
    if isinstance(value, np.datetime64) and pa.types.is_date(kind):
        return "it is a datetime64; make it a date, as by value.astype('datetime64[D]').item()"
    if isinstance(value, np.datetime64) and pa.types.is_timestamp(kind) and np.datetime_data(value.dtype)[0] not in _UNITS:
        return f"give it the unit of its column, as by value.astype('datetime64[{kind.unit}]')"
    if isinstance(value, np.timedelta64) and pa.types.is_duration(kind) and np.datetime_data(value.dtype)[0] not in _UNITS:
        return f"give it the unit of its column, as by value.astype('timedelta64[{kind.unit}]')"
    if pa.types.is_timestamp(kind) and isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return _NO_DATETIME
    return None


def _loss_of_time(value: Any, ticks: int | None, kind: pa.DataType) -> str | None:
    if isinstance(value, pa.Scalar):
        return None if value.type.equals(kind) else _NONE_OF_THEM
    if value != value:
        return "it is no time; None is NULL"
    nanoseconds = _nanoseconds(value, kind)
    if isinstance(nanoseconds, str):
        return nanoseconds
    tick = _DAY if pa.types.is_date32(kind) else _NANOSECONDS["ms"] if pa.types.is_date64(kind) else _NANOSECONDS[kind.unit]
    whole_day = not pa.types.is_date(kind) or nanoseconds % _DAY == 0
    return None if ticks is not None and ticks * tick == nanoseconds and whole_day else _PART


def _nanoseconds(value: Any, kind: pa.DataType) -> int | str:
    """The time in nanoseconds, by the clock of `kind`; the reason why it has none there."""
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return _nanoseconds_of_numpy(value, kind)
    if pa.types.is_duration(kind):
        return _span(value) if isinstance(value, datetime.timedelta) else _NONE_OF_THEM
    if pa.types.is_time(kind):
        if not isinstance(value, datetime.time):
            return _NONE_OF_THEM
        return _of_day(value) if value.tzinfo is None else "it has a time zone, which the column has not"
    if isinstance(value, datetime.datetime):
        return _of_datetime(value, kind)
    if pa.types.is_date(kind) and isinstance(value, datetime.date):
        return (value - _EPOCH.date()).days * _DAY
    return _NONE_OF_THEM


def _of_datetime(value: datetime.datetime, kind: pa.DataType) -> int | str:
    further = int(getattr(value, "nanosecond", 0))
    if hasattr(value, "to_pydatetime"):  # a pandas.Timestamp
        value = cast("Any", value).to_pydatetime(warn=False)
    if pa.types.is_date(kind):
        return _span(value.replace(tzinfo=None) - _EPOCH) + further
    if (value.tzinfo is None) != (kind.tz is None):
        if kind.tz is None:
            return "it has a time zone, which the column has not; convert it, then value.replace(tzinfo=None)"
        return "it has no time zone; give it one, as by value.replace(tzinfo=datetime.timezone.utc)"
    return _span(value - (_EPOCH if kind.tz is None else _EPOCH_UTC)) + further


def _nanoseconds_of_numpy(value: Any, kind: pa.DataType) -> int | str:
    unit, count = np.datetime_data(value.dtype)
    is_span = isinstance(value, np.timedelta64)
    if is_span != pa.types.is_duration(kind) or pa.types.is_time(kind) or unit not in _NANOSECONDS:
        return _NONE_OF_THEM
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return "it has no time zone; give it one: make it a datetime of one"
    return int(value.astype(np.int64)) * count * _NANOSECONDS[unit]


def _span(value: datetime.timedelta) -> int:
    seconds = value.days * 86_400 + value.seconds
    return seconds * _SECOND + value.microseconds * 1000 + int(getattr(value, "nanoseconds", 0))


def _of_day(value: datetime.time) -> int:
    return ((value.hour * 60 + value.minute) * 60 + value.second) * _SECOND + value.microsecond * 1000
