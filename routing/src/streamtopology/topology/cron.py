"""Times of a schedule as cron writes them: minute, hour, day of month, month and day of week, in UTC.

A range may go over its end, so 22-2 are five hours: what `CRON_PATTERN` takes has a meaning, and the API server judges by it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

# Of each field: a number as people write it, the least and the most.
_FIELDS = (
    ("[0-5]?[0-9]", 0, 59),
    ("[01]?[0-9]|2[0-3]", 0, 23),
    ("0?[1-9]|[12][0-9]|3[01]", 1, 31),
    ("0?[1-9]|1[0-2]", 1, 12),
    ("[0-6]", 0, 6),
)
# The most days that each month may have.
_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_PARTS = [rf"([*]|({number})(-({number}))?)(/[1-9][0-9]?)?" for number, _, _ in _FIELDS]
CRON_PATTERN = " ".join(f"{part}(,{part})*" for part in _PARTS)
CRON_EXPECTED = "a time in UTC as cron writes it: minute, hour, day of month, month, day of week (0 is Sunday), as 30 3 * * *"


@dataclass(frozen=True)
class Cron:
    """The minutes of a schedule. Of two days that are both given one is enough, as cron has it."""

    fields: tuple[frozenset[int], ...]
    is_either_day: bool

    @staticmethod
    def parse(text: str) -> Cron:
        """Raises ValueError for other than `CRON_PATTERN`."""
        if not re.fullmatch(CRON_PATTERN, text):
            raise ValueError(f"expected {CRON_EXPECTED}")
        given = text.split(" ")
        fields = (_numbers(field, least, most) for field, (_, least, most) in zip(given, _FIELDS, strict=True))
        return Cron(tuple(fields), not given[2].startswith("*") and not given[4].startswith("*"))

    @property
    def is_of_no_day(self) -> bool:
        """True if no month has a day of the schedule, as of 31 February."""
        _, _, days, months, _ = self.fields
        return not self.is_either_day and all(min(days) > _DAYS[month - 1] for month in months)

    def newest(self, after: float, until: float) -> float | None:
        """The last time of the schedule that is after `after` and not after `until`, in seconds since 1970, if any."""
        return next(self.all(after, until), None)

    def all(self, after: float, until: float) -> Iterator[float]:
        """The times of the schedule that are after `after` and not after `until`, the last one first."""
        minutes, hours, *_ = self.fields
        at = until // 60 * 60
        while at > after:
            moment = datetime.fromtimestamp(at, UTC)
            if not self._is_day(moment):
                at -= moment.hour * 3600 + moment.minute * 60 + 60
            elif moment.hour not in hours:
                at -= moment.minute * 60 + 60
            else:
                if moment.minute in minutes:
                    yield at
                at -= 60

    def _is_day(self, moment: datetime) -> bool:
        _, _, days, months, weekdays = self.fields
        fits = moment.day in days, moment.isoweekday() % 7 in weekdays
        return moment.month in months and (any(fits) if self.is_either_day else all(fits))


def _numbers(field: str, least: int, most: int) -> frozenset[int]:
    """What a field names; `a/n` goes on to the most."""
    found = set[int]()
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        begin = least if span == "*" else int(first)
        end = int(last) if last else most if span == "*" or step else begin
        size = most - least + 1
        found.update(least + (begin - least + ahead) % size for ahead in range(0, (end - begin) % size + 1, int(step or 1)))
    return frozenset(found)
