"""Event time, lateness and windows: the same rules for every windowed operator.

Windows are [start, start + size), aligned to 1970. A tuple is late when all its windows were closed by earlier batches, or
when it has no event time; it is counted and left out. A tuple at or below the watermark counts while its window is open.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streamtopology.jobs.columnar.event_time import EVENT_TIMES, is_event_time
from streamtopology.jobs.columnar.event_times import event_micros
from streamtopology.jobs.operators.base import BatchInfo, Rows
from streamtopology.jobs.operators.options import OptionError, seconds_of
from streamtopology.topology import format_duration

EVERYTHING_CLOSED = np.iinfo(np.int64).max
# The longest duration: with it, and times of the years 1 to 9999, no bound of a window leaves 64 bits.
LONGEST_DAYS = 1_000_000


def duration_micros(value: Any, option: str, least: int = 1) -> int:
    """Whole microseconds of a duration option, at least `least` and at most `LONGEST_DAYS`."""
    seconds = seconds_of(value, option)
    if seconds > LONGEST_DAYS * 86_400:
        raise OptionError(f"option {option!r} is {value!r}; allowed: a duration of at most {LONGEST_DAYS}d", about=option)
    micros = round(seconds * 1e6)
    if micros < least:
        raise OptionError(
            f"option {option!r} is {value!r}; allowed: a duration of at least {least} us, such as 10m", about=option
        )
    return micros


def check_time_column(name: str, kind: pa.DataType) -> pa.DataType:
    """The type of window bounds for an event-time column: a timestamp in microseconds."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if is_event_time(kind):
        return pa.timestamp("us", "UTC")
    raise OptionError(f"time column {name!r} is {kind}; allowed: {EVENT_TIMES}", about=name)


def watermark_micros(batch: BatchInfo) -> int | None:
    """The time (microseconds) up to which windows close in this batch; None: none will close yet."""
    if batch.final:
        return EVERYTHING_CLOSED
    return None if batch.watermark is None else round(batch.watermark * 1e6)


# Spark counts watermarks in whole milliseconds: what is over may have been so for nearly one.
COUNTED_SECONDS = 0.001


def in_whole_milliseconds(watermark: int | None) -> int | None:
    """The watermark (microseconds) as Spark counts it."""
    return watermark if watermark in (None, EVERYTHING_CLOSED) else watermark // 1000 * 1000


def closed_micros(batch: BatchInfo, lateness: int) -> int | None:
    """The time (microseconds) up to which windows take no more tuples: `lateness` after earlier batches closed them.

    Those that were forgotten under a smaller lateness take none, either.
    """
    if batch.closed_until is None:
        return None
    closed = round(batch.closed_until * 1e6) - lateness
    return closed if batch.forgotten_until is None else max(closed, round(batch.forgotten_until * 1e6))


def on_time(column: pa.Array, first_open: int | None) -> tuple[np.ndarray, np.ndarray]:
    """(int64[m] places of the tuples that are not late, int64[m] their event times in microseconds).

    first_open: the earliest time that is not late; None: all are in time. A tuple without event time is left out, too.
    """
    times, valid = event_micros(column)
    if first_open is not None:
        kept = times >= first_open
        valid = kept if valid is None else valid & kept
    if valid is None or valid.all():
        return np.arange(len(times)), times
    places = np.flatnonzero(valid)
    return places, times[places]


@dataclass(frozen=True)
class Windows:
    """Tumbling windows when slide == size, else sliding (they overlap) ones; microseconds."""

    size: int
    slide: int

    def __str__(self) -> str:
        size, slide = (format_duration(micros / 1_000_000) for micros in (self.size, self.slide))
        return f"windows of {size}" if self.tumbling else f"windows of {size} that slide by {slide}"

    @property
    def tumbling(self) -> bool:
        """Each time lies in exactly one window."""
        return self.slide == self.size

    @property
    def overlap(self) -> int:
        """The most windows that a time lies in."""
        return -(-self.size // self.slide)

    def until(self, watermark: int | None) -> int | None:
        """The time up to which windows close at this watermark (None: none will close yet)."""
        return watermark

    def first_open(self, closed: int | None) -> int | None:
        """The earliest time that lies in a window which ends after `closed` (None: all windows do)."""
        return None if closed is None else ((closed - self.size) // self.slide + 1) * self.slide

    def of(self, times: np.ndarray, closed: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """(int64[m] which of `times`, int64[m] window start), one entry for each window a time lies in.

        Windows that end at or before `closed` are left out; each of `times` has another one.
        """
        newest = times // self.slide * self.slide
        if self.tumbling:
            return np.arange(len(times)), newest
        steps = np.arange(self.overlap, dtype=np.int64) * self.slide
        starts = newest[:, None] - steps
        oldest = times[:, None] - self.size
        which, step = np.nonzero(starts > (oldest if closed is None else np.maximum(oldest, closed - self.size)))
        return which, starts[which, step]


@dataclass(frozen=True)
class ClosingColumn:
    """A column of groups: the time at which a group is over. A group that has NULL there is over when the input ends.

    As in Spark, whose queries are run by it, the watermark is `in_whole_milliseconds`.
    """

    name: str

    def __str__(self) -> str:
        return f"groups at {self.name}"

    def check(self, group: pa.Schema) -> None:
        """Raise OptionError if it is no column of the group, or no time."""
        if self.name not in group.names:
            raise OptionError(
                f"option 'closes' is {self.name!r}; allowed: a column of the group, here {', '.join(group.names)}",
                about="closes",
            )
        kind = group.field(self.name).type
        if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
            raise OptionError(
                f"column {self.name!r} is {kind}; allowed: a timestamp or a date; a map can cast it", about="closes"
            )

    def until(self, watermark: int | None) -> int | None:
        """The time up to which groups close at this watermark (None: none will close yet)."""
        return in_whole_milliseconds(watermark)

    def open_at(self, rows: Rows, closed: int | None) -> tuple[np.ndarray, np.ndarray]:
        """(int64[m] places of the tuples whose groups close after `closed`, int64[m] the times at which these do)."""
        closes, valid = event_micros(rows.column(self.name))
        if valid is not None:
            closes = np.where(valid, closes, EVERYTHING_CLOSED)
        closed = self.until(closed)
        if closed is None:
            return np.arange(len(closes)), closes
        places = np.flatnonzero(closes > closed)
        return places, closes[places]
