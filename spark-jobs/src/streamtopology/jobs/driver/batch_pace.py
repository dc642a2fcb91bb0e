"""The rows that are done within the time that a topology allows for a batch (`trigger.latency`), as measured so far."""

from __future__ import annotations

import math
import statistics
from collections import deque
from dataclasses import dataclass, field

# Rows of a run's first batch: nothing is measured yet, and it comes in cold.
FIRST_ROWS = 1_000

# A batch has at most that many times the rows of the largest one before: few rows do not show what is fixed.
GROWTH = 4

_RECENT = 5
# Differences up to this share leave the number of rows as it is: another part than the prefetched one is read again.
_STEADY = 0.2


@dataclass(frozen=True)
class _Measured:
    rows: int
    seconds: float
    working: float

    @property
    def overhead(self) -> float:
        """Seconds in which no row was worked on: fixed, or of moving rows."""
        return self.seconds - self.working


@dataclass
class BatchPace:
    """Models a batch as *fixed seconds + rows x seconds a row*, by the newest ones. It is in no checkpoint.

    Fixed seconds are those that batches of fewer rows took, too: what is more than that grows with the rows.

    Not safe for several threads, but a reader at worst sees the number of one batch before.
    """

    _recent: deque[_Measured] = field(default_factory=lambda: deque(maxlen=_RECENT))
    # The overhead of the newest batch of each size, a power of 4.
    _of_size: dict[int, float] = field(default_factory=dict[int, float])
    _largest: int = 0
    _rows: float = math.inf
    _of_latency: float | None = None

    def measured(self, rows: int, seconds: float, working: float) -> None:
        """Learn from a committed batch of `rows`, as its descriptors have them; `working`: seconds that grow with the rows."""
        if rows > 0 and seconds > 0:
            self._recent.append(_Measured(rows, seconds, min(max(working, 0.0), seconds)))
            self._of_size[_size(rows)] = self._recent[-1].overhead
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
        overhead = statistics.median(one.overhead for one in self._recent)
        rows = statistics.median_low(one.rows for one in self._recent)
        fixed = min(overhead, *(of_size for size, of_size in self._of_size.items() if size <= _size(rows)))
        of_row = sum(one.working for one in self._recent) / sum(one.rows for one in self._recent) + (overhead - fixed) / rows
        most = GROWTH * max(self._largest, FIRST_ROWS)
        return max(min(max(latency - fixed, fixed) / of_row, most), 1.0) if of_row > 0 else float(most)


def _size(rows: int) -> int:
    """The power of 4 that `rows` reaches."""
    return (rows.bit_length() - 1) // 2
