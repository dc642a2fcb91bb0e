"""The rows that are done within the time that a topology allows for a batch (`trigger.latency`), as measured so far."""

from __future__ import annotations

import math
import statistics
from collections import deque
from dataclasses import dataclass, field

FIRST_ROWS = 1_000
"""Rows of a run's first batch: nothing is measured yet, and it comes in cold."""

GROWTH = 4
"""A batch has at most that many times the rows of the largest one before: few rows do not show what is fixed."""

_RECENT = 5
_STEADY = 0.2
"""Differences up to this share leave the number of rows as it is: another part than the prefetched one is read again."""


@dataclass(frozen=True)
class _Measured:
    rows: int
    seconds: float
    working: float


@dataclass
class BatchPace:
    """Models a batch as *fixed seconds + rows x seconds a row*, by the newest ones. It is in no checkpoint.

    Not safe for several threads, but a reader at worst sees the number of one batch before.
    """

    _recent: deque[_Measured] = field(default_factory=lambda: deque(maxlen=_RECENT))
    _largest: int = 0
    _rows: float = math.inf
    _of_latency: float | None = None

    def measured(self, rows: int, seconds: float, working: float) -> None:
        """Learn from a committed batch of `rows`, as its descriptors have them; `working`: seconds that grow with the rows."""
        if rows > 0 and seconds > 0:
            self._recent.append(_Measured(rows, seconds, min(max(working, 0.0), seconds)))
            self._largest = max(self._largest, rows)

    def most_rows(self, latency: float | None) -> float:
        """Return the rows that the next batch may have; inf without a latency.

        Where the fixed seconds alone take half of it or more, as much time goes into rows as into them: less would not keep up.
        """
        if latency is None:
            return math.inf
        wanted = self._within(latency)
        if latency != self._of_latency or abs(wanted - self._rows) > _STEADY * self._rows:
            self._rows, self._of_latency = wanted, latency
        return self._rows

    def _within(self, latency: float) -> float:
        if not self._recent:
            return FIRST_ROWS
        fixed = statistics.median(one.seconds - one.working for one in self._recent)
        of_row = sum(one.working for one in self._recent) / sum(one.rows for one in self._recent)
        most = GROWTH * max(self._largest, FIRST_ROWS)
        return max(min(max(latency - fixed, fixed) / of_row, most), 1.0) if of_row > 0 else float(most)
