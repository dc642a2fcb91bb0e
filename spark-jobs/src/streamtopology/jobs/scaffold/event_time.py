"""The column of a sample that is its event time, and how late rows are by it."""

# pyarrow.compute makes its functions when it is imported, unseen by the type checker.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamtopology.jobs.scaffold.column_names import is_id, is_time

_YEAR_1990, _YEAR_2100 = 631_152_000, 4_102_444_800
# Ticks of a second -> their name, and the SQL function that makes a timestamp of them; seconds are taken as they are.
_UNITS: Mapping[int, tuple[str, str]] = {
    1: ("seconds", ""),
    1000: ("milliseconds", "epoch_ms"),
    1_000_000: ("microseconds", "make_timestamp"),
}


@dataclass(frozen=True)
class EventTime:
    """The column of event time. divisor: ticks of a second, of numbers; None of timestamps and dates."""

    column: str
    divisor: int | None = None
    disorder_seconds: float = 0.0

    @property
    def unit(self) -> str:
        """The unit of numbers; empty for timestamps and dates."""
        return _UNITS[self.divisor][0] if self.divisor else ""

    def converted(self, sql: str, type_: pa.DataType) -> str:
        """The SQL that makes a time of the column, whose values are `sql` of type `type_`."""
        function = _UNITS[self.divisor][1] if self.divisor else ""
        if not function:
            return sql
        return f"{function}({sql if pa.types.is_integer(type_) else f'TRY_CAST({sql} AS BIGINT)'})"


def event_time(table: pa.Table) -> EventTime | None:
    """The event time of `table`, or None.

    Timestamps come first, then epoch numbers of a fitting name, dates, and numbers that can only be times; of each kind the
    first column.
    """
    found = [
        (rank, place) for place, name in enumerate(table.column_names) if (rank := _rank(name, table.column(name))) is not None
    ]
    if not found:
        return None
    place = min(found)[1]
    column = table.column(place)
    divisor = None if pa.types.is_temporal(column.type) else _divisor(column)
    return EventTime(table.column_names[place], divisor, _disorder(column, divisor))


def is_epoch(column: pa.ChunkedArray) -> bool:
    """True if all values are times of the years 1990 to 2100 in one unit, and not all the same."""
    if _divisor(column) is None:
        return False
    bounds = pc.min_max(column).as_py()
    return bool(bounds["min"] != bounds["max"])


def _rank(name: str, column: pa.ChunkedArray) -> int | None:
    """The rank of a column as event time, best first; None for one that is none."""
    if not len(column) or column.null_count > len(column) / 2:
        return None
    if pa.types.is_timestamp(column.type):
        return 0
    if pa.types.is_date(column.type):
        return 2
    if is_time(name):
        return None if _divisor(column) is None else 1
    return 3 if is_epoch(column) and not is_id(name) else None


def _divisor(column: pa.ChunkedArray) -> int | None:
    """Ticks of a second in which all numbers of a column are of the years 1990 to 2100; None if there is no such unit."""
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)) or column.null_count == len(column):
        return None
    bounds = pc.min_max(column).as_py()
    within = (ticks for ticks in _UNITS if _YEAR_1990 * ticks <= bounds["min"] and bounds["max"] <= _YEAR_2100 * ticks)
    return next(within, None)


def _disorder(column: pa.ChunkedArray, divisor: int | None) -> float:
    """Seconds by which a row of the sample is older than the newest row before it, at most."""
    if divisor is None:
        column = column.cast(pa.timestamp("us", getattr(column.type, "tz", None)), safe=False).cast(pa.int64())
    values = column.drop_null().to_numpy().astype(np.float64)
    return float((np.maximum.accumulate(values) - values).max() / (divisor or 1_000_000)) if len(values) else 0.0
