"""The plain computation that a history is compared with: the results of each operator, a row at a time.

A batch closes the windows that end at or before the watermark of the batches before it. A row is late if an earlier batch has
closed all its windows, or if it has no event time. The parts of a range that Spark planned are as one batch: only the last
one closes windows and moves the watermark.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from streamtopology.lab.faults.rows import Row
from streamtopology.lab.faults.thirds import is_named_bad, raises_on
from streamtopology.lab.faults.topologies import DELAY, WINDOWED, Shape, Windowed

_FIRST_TIME, _LAST_TIME = -62_135_596_800, 253_402_300_800
# No clock of a history is within a day of it: later times move no watermark.
_MOST_AHEAD = 5e9

Result = tuple[int, ...]
# Published rows without their order.
Results = Counter[Result]


class Batch(NamedTuple):
    """A committed batch of a topology of `shape`: its rows by source, the watermark that it closes windows by, and the one of
    the batch before.
    """

    number: int
    shape: Shape
    rows: Mapping[str, Sequence[Row]]
    watermark: float | None
    closed: float | None
    is_final: bool

    @property
    def own(self) -> Sequence[Row]:
        """The rows of the source that most operators read."""
        return self.rows["s"]

    @property
    def sources(self) -> Sequence[str]:
        return self.shape.sources


@dataclass
class Progress:
    """The bounds of the watermark. `may_idle`: a source without rows in two batches may no longer hold it back.

    A source that comes back has reached nothing.
    """

    may_idle: bool
    _newest: dict[str, float] = field(default_factory=dict[str, float])
    _silent: Counter[str] = field(default_factory=Counter[str])
    _within_range: bool = False

    def resumed(self, before: float | None, sources: Sequence[str]) -> float | None:
        """The watermark of a batch of these sources; `before` is the one after the last batch, which may have had others."""
        for gone in self._newest.keys() - set(sources):
            del self._newest[gone]
        return before if self._within_range else _later(before, self._held_by(sources))

    def bounds(self, batch: Batch, before: float | None, within_range: bool) -> tuple[float | None, float | None]:
        """(least, most) that the watermark may be after `batch`; `before` it. `within_range`: it is not the last part."""
        sources = batch.sources
        for source in sources:
            heard = [row[3] for row in batch.rows[source] if row[3] is not None and is_time(row[3]) and row[3] < _MOST_AHEAD]
            if heard:
                self._newest[source] = max(*heard, self._newest.get(source, heard[0]))
            if heard or not within_range:
                self._silent[source] = 0 if heard else self._silent[source] + 1
        self._within_range = within_range
        if within_range:
            return before, before
        sure = [source for source in sources if not self.may_idle or self._silent[source] < 2]
        return _later(before, self._held_by(sources)), _later(before, self._held_by(sure) if sure else self._furthest())

    def _held_by(self, sources: Sequence[str]) -> float | None:
        known = [self._newest[source] for source in sources if source in self._newest]
        return min(known) - DELAY if len(known) == len(sources) else None

    def _furthest(self) -> float | None:
        return max(self._newest.values()) - DELAY if self._newest else None


def is_time(value: float) -> bool:
    """True for the years 1 to 9999; False for NaN, too."""
    return _FIRST_TIME <= value < _LAST_TIME


def last_results(name: str, batches: Sequence[Batch]) -> dict[int, Result]:
    """By key, the fields of the operator's state once all is read and drained."""
    if name in WINDOWED:
        return {}
    rows = [row for batch in batches for row in batch.own]
    if name == "thirds":
        return {key: (count % 3, count % 3) for key, (count,) in _counts(good(rows), "k").items() if count % 3}
    if name in ("counts", "chain"):
        return _counts(rows, "g" if name == "chain" else "k")
    sums = _sums(rows)
    return sums if name == "sums" else {key: fields[:2] for key, fields in sums.items()}


def published(name: str, batches: Sequence[Batch]) -> Iterator[Results]:
    """The rows that a batch gives to the operator's sink, batch by batch."""
    if name in WINDOWED:
        window = WINDOWED[name]
        yield from _joined(window, batches) if name in ("pairs", "near") else _windows(window, batches)
        return
    if name == "thirds":
        yield from _thirds(batches)
        return
    key = "g" if name == "chain" else "k"
    seen: list[Row] = []
    for batch in batches:
        seen += batch.own
        touched = _counts(batch.own, key)
        results = _sums(seen) if name == "sums" else _counts(seen, key)
        yield Counter((value, *result) for value, result in results.items() if value in touched)


def good(rows: Sequence[Row]) -> list[Row]:
    """The rows that the operator `thirds` can process."""
    return [row for row in rows if not raises_on(row[2]) and not is_named_bad(row[2])]


def bad(batch: Batch) -> Results:
    """The rows (k, g, v) of a batch that are set aside."""
    if "thirds" not in batch.shape.operators:
        return Counter()
    return Counter(row[:3] for row in batch.own) - Counter(row[:3] for row in good(batch.own))


def late(name: str, batch: Batch) -> Results:
    """The rows (k, g, v) of a batch that are late for the operator."""
    return Counter(row[:3] for row in batch.own if not _starts(WINDOWED[name], row[3], batch.closed))


def _thirds(batches: Sequence[Batch]) -> Iterator[Results]:
    """(k) with each third of its good rows."""
    counts = Counter[int]()
    for batch in batches:
        found: Results = Counter()
        for row in good(batch.own):
            counts[row[0]] += 1
            found[row[:1]] += counts[row[0]] % 3 == 0
        yield +found


def _counts(rows: Sequence[Row], key: str) -> dict[int, Result]:
    counts = Counter(row[1] if key == "g" else row[0] for row in rows)
    return {value: (count,) for value, count in counts.items()}


def _sums(rows: Sequence[Row]) -> dict[int, Result]:
    values: dict[int, list[int]] = defaultdict(list)
    for row in rows:
        values[row[0]].append(row[2])
    return {value: (len(found), sum(found), max(found)) for value, found in values.items()}


def _starts(window: Windowed, time: float | None, closed: float | None) -> list[int]:
    """The starts of the windows that a row is in and that take it; none if it is late."""
    if time is None or not is_time(time):
        return []
    newest = int(time // window.slide) * window.slide
    starts = range(newest, int(newest - window.size), -window.slide)
    ends_after = None if closed is None else closed - window.lateness
    return [
        start for start in starts if start + window.size > time and (ends_after is None or start + window.size > ends_after)
    ]


def _windows(window: Windowed, batches: Sequence[Batch]) -> Iterator[Results]:
    """(g, start of the window, rows, sum) of the windows that close, and of closed ones that get more rows."""
    open_windows: dict[tuple[int, int], list[int]] = defaultdict(list)
    for batch in batches:
        touched: set[tuple[int, int]] = set()
        for _, group, value, time in batch.own:
            for start in _starts(window, time, batch.closed):
                open_windows[group, start].append(value)
                touched.add((group, start))
        shown: Results = Counter()
        for (group, start), values in list(open_windows.items()):
            end = start + window.size
            if not batch.is_final and (batch.watermark is None or end > batch.watermark):
                continue
            if batch.closed is None or end > batch.closed or (group, start) in touched:
                shown[group, start, len(values), sum(values)] += 1
            if batch.is_final or (batch.watermark is not None and end <= batch.watermark - window.lateness):
                del open_windows[group, start]
        yield shown


def _joined(window: Windowed, batches: Sequence[Batch]) -> Iterator[Results]:
    """(k, v of s, v of t) of each two rows that meet, in the batch of the later one."""
    kept: dict[str, list[Row]] = {"s": [], "t": []}
    for batch in batches:
        found: Results = Counter()
        for source, other in (("s", "t"), ("t", "s")):
            for row in batch.rows[source]:
                if not _is_late(window, row[3], batch.closed):
                    pairs = (
                        (row, match) if source == "s" else (match, row) for match in kept[other] if _meet(window, row, match)
                    )
                    found.update((left[0], left[2], right[2]) for left, right in pairs)
                    kept[source].append(row)
        yield found


def _is_late(window: Windowed, time: float | None, closed: float | None) -> bool:
    if window.within is None:
        return not _starts(window, time, closed)
    return time is None or not is_time(time) or (closed is not None and time <= closed)


def _meet(window: Windowed, one: Row, other: Row) -> bool:
    assert one[3] is not None
    assert other[3] is not None
    if one[0] != other[0]:
        return False
    if window.within is None:
        return one[3] // window.size == other[3] // window.size
    return abs(one[3] - other[3]) <= window.within


def _later(*times: float | None) -> float | None:
    return max((time for time in times if time is not None), default=None)
