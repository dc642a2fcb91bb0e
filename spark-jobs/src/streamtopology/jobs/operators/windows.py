"""Event time, lateness and windows: the same rules for every windowed operator.

Windows are [start, start + size), aligned to 1970. A tuple is late when its event time is at or below the watermark;
it is counted and left out, whether or not one of its windows is still open: all its windows have it, or none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streamtopology.jobs.operators.base import BatchInfo
from streamtopology.jobs.operators.columns import event_micros
from streamtopology.jobs.operators.options import OptionError, seconds_of

EVERYTHING_CLOSED = np.iinfo(np.int64).max


def duration_micros(value: Any, option: str, least: int = 1) -> int:
    """Whole microseconds of a duration option, at least `least`."""
    micros = round(seconds_of(value, option) * 1e6)
    if micros < least:
        raise OptionError(f"option {option!r} is {value!r}; allowed: a duration of at least {least} us, such as 10m")
    return micros


def check_time_column(name: str, kind: pa.DataType) -> pa.DataType:
    """The type of window bounds for an event-time column: a timestamp in microseconds."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_date(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return pa.timestamp("us", "UTC")
    raise OptionError(f"time column {name!r} is {kind}; allowed: a timestamp, a date, or a number of epoch seconds")


def watermark_micros(batch: BatchInfo) -> int | None:
    return None if batch.watermark is None else round(batch.watermark * 1e6)


def closed_until(batch: BatchInfo) -> int | None:
    """Windows that end at or before this (microseconds) will get no more tuples; None: none will close yet."""
    return EVERYTHING_CLOSED if batch.final else watermark_micros(batch)


def on_time(column: pa.Array, batch: BatchInfo) -> tuple[np.ndarray, np.ndarray]:
    """(int64[m] places of the tuples that are not late, int64[m] their event times in microseconds).

    A tuple whose event time is NULL or NaN belongs to no window and is left out like a late one.
    """
    times, valid = event_micros(column)
    watermark = watermark_micros(batch)
    kept = np.ones(len(times), np.bool_) if valid is None else valid
    if watermark is not None:
        kept = kept & (times > watermark)
    places = np.flatnonzero(kept)
    return places, times[places]


@dataclass(frozen=True)
class Windows:
    """Tumbling windows when slide == size, else sliding (they overlap) ones; microseconds."""

    size: int
    slide: int

    @property
    def tumbling(self) -> bool:
        """Each time lies in exactly one window."""
        return self.slide == self.size

    def of(self, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(int64[m] which of `times`, int64[m] window start), one entry for each window a time lies in."""
        newest = times // self.slide * self.slide
        if self.tumbling:
            return np.arange(len(times)), newest
        steps = np.arange(-(-self.size // self.slide), dtype=np.int64) * self.slide
        starts = newest[:, None] - steps
        which, step = np.nonzero(starts > times[:, None] - self.size)
        return which, starts[which, step]
