"""Event times: which values of a column are one, in microseconds since 1970."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

# The years 1 to 9999, in epoch seconds: what a timestamp can show. A time outside of them is none.
FIRST_SECOND = -62135596800
LAST_SECOND = 253402300799

_LARGEST = np.uint64(np.iinfo(np.int64).max)
_FIRST_MICROS, _END_MICROS = FIRST_SECOND * 1_000_000, (LAST_SECOND + 1) * 1_000_000
# Microseconds of one unit of a column, as a fraction.
_MICROS_PER_UNIT: Mapping[str, tuple[int, int]] = {
    "s": (1_000_000, 1),
    "ms": (1_000, 1),
    "us": (1, 1),
    "ns": (1, 1_000),
    "day": (86_400_000_000, 1),
}


def is_event_time(seconds: float | None) -> bool:
    """True for epoch seconds in the years 1 to 9999; NaN and infinity are none."""
    return seconds is not None and FIRST_SECOND <= seconds < LAST_SECOND + 1


def event_micros(column: pa.Array) -> tuple[np.ndarray, np.ndarray | None]:
    """(int64[n] microseconds since 1970, bool[n] which rows have an event time or None for all).

    Timestamps and dates, or numbers as epoch seconds. NULL, NaN, infinity and times outside of the years 1 to 9999 are no
    event times; their microseconds have no meaning.
    """
    valid = None if column.null_count == 0 else column.is_valid().to_numpy(zero_copy_only=False)
    values, unit = _values(column)
    scale, divisor = _MICROS_PER_UNIT[unit]
    first, end = _FIRST_MICROS * divisor // scale, _END_MICROS * divisor // scale
    with np.errstate(invalid="ignore"):
        is_inside = not len(values) or (values.min() >= first and values.max() < end)  # False for NaN
        if not is_inside:
            inside = (values >= first) & (values < end)
            valid = inside if valid is None else valid & inside
            values = np.where(inside, values, 0)
    if values.dtype == np.float64:
        return np.floor(values * 1e6).astype(np.int64), valid
    return (values if scale == 1 else values * scale) if divisor == 1 else values // divisor, valid


def _values(column: pa.Array) -> tuple[np.ndarray, str]:
    """The column's int64 or float64 values, 0 for NULL, and their unit."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return _filled(column.view(pa.int64()), 0), kind.unit
    if pa.types.is_date(kind):
        days = kind == pa.date32()
        return _filled(column.view(pa.int32() if days else pa.int64()).cast(pa.int64()), 0), "day" if days else "ms"
    if kind == pa.uint64():
        return np.minimum(_filled(column, 0), _LARGEST).astype(np.int64), "s"
    if pa.types.is_integer(kind):
        return _filled(column.cast(pa.int64()), 0), "s"
    return _filled(column.cast(pa.float64()), 0.0), "s"


def _filled(column: pa.Array, value: float) -> np.ndarray:
    return (column if column.null_count == 0 else column.fill_null(value)).to_numpy(zero_copy_only=False)
