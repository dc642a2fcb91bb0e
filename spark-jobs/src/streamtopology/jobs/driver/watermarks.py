"""Watermarks: the event time that each source has reached, and so the windows that can close.

The watermark of a batch is the minimum over the partitions of all sources of (newest event time - delay), as of the commit
of the previous batch. It is fixed before the batch, so that a retried batch closes the same windows.

Each partition of a Kafka source has its own watermark, because its partitions are read at different speeds. Any other
source has one. A partition in which polls find nothing for its source's idle timeout no longer holds the others back:
one silent partition would otherwise keep every window open. Silence lasts through restarts: a job that cron starts once
a day polls once in each run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from streamtopology.jobs.checkpoint import CommitRecord
from streamtopology.jobs.columnar.event_times import FIRST_SECOND, LAST_SECOND, is_event_time
from streamtopology.topology import Source

# The watermark after the final end of the input: the end of the year 9999, the last one that a timestamp can show.
END_OF_TIME = float(LAST_SECOND)

# The partition of a source that is not partitioned.
WHOLE = ""


class Poll(NamedTuple):
    """The moment at which the sources were asked for a batch's rows: between `after` and `before`, epoch seconds by a clock
    that is never set while the process lives.
    """

    after: float
    before: float


class _Partition(NamedTuple):
    source: str
    name: str


class Watermarks:
    """Event times are epoch seconds. The watermark never goes back.

    A batch's rows are judged by two of them: it closes what `current` has passed, and a row is late if its window was closed
    by an earlier batch, so if `closed_until` has passed it.
    """

    def __init__(self, sources: Iterable[Source]) -> None:
        self._marks = {source.name: source.watermark for source in sources if source.watermark is not None}
        self._newest: dict[_Partition, float] = {}
        self._silent_since: dict[_Partition, float] = {}
        self._idle: set[_Partition] = set()
        self._heard: set[_Partition] = set()
        self._watermark: float | None = None
        self._closed_until: float | None = None
        self._within_range = False

    def restore(self, commit: CommitRecord, closed_until: float | None) -> None:
        """Restore what the newest commit has. `closed_until`: the watermark by which its batch closed windows."""
        self._closed_until = closed_until
        self._watermark = _latest(commit.watermark_after, closed_until)
        self._newest = self._by_partition(commit.max_event_times)
        self._silent_since = self._by_partition(commit.silent_since)
        self._within_range = commit.range_end is not None
        if not self._within_range:
            self._move()

    def advance(self, seen: Mapping[str, Mapping[str, float]], poll: Poll | None) -> None:
        """Advance by a committed batch, in which sources and their partitions had these newest event times.

        `poll`: of the batch's rows and those of the batches before it that had none; None if nobody asked for rows, or if not
        all are read that a poll found, so that their absence says nothing.
        """
        self.hear(seen)
        self._within_range = False
        self._closed_until = self._watermark
        if poll is not None:
            for partition in self._known() - self._heard:
                self._found_nothing(partition, poll)
            self._heard.clear()
        self._move()

    def hear(self, seen: Mapping[str, Mapping[str, float]]) -> None:
        """Note the newest event times of a committed batch that is not the last one of its planned range.

        The watermark stays that before the range until all of it is read: where it is cut must not decide what is late.
        """
        self._within_range = True
        heard = {_Partition(source, name): time for source, times in seen.items() for name, time in times.items()}
        for partition, time in heard.items():
            if partition.source in self._marks and is_event_time(time):
                self._hear(partition, time)
        self._heard |= heard.keys()

    def end(self) -> None:
        """End the input for good: any row with an event time is late from now on."""
        if self._marks:
            self._watermark = self._closed_until = END_OF_TIME

    def newest(self) -> dict[str, float]:
        """Return the newest event time by partition: `source`, or `source/topic/partition`."""
        return {_joined(partition): time for partition, time in self._newest.items()}

    def silent_since(self) -> dict[str, float]:
        """Return the epoch second of the first poll in vain since the newest event time, by partition as `newest` names it."""
        return {_joined(partition): time for partition, time in self._silent_since.items()}

    def held_back_by(self) -> list[str]:
        """Return the silent partitions, as `newest` names them, without which the watermark would be further."""
        counted = self._known() - self._idle
        without = self._held_by(counted - self._silent_since.keys())
        if without is None or (self._watermark is not None and without <= self._watermark):
            return []
        behind = (partition for partition in counted & self._silent_since.keys() if self._held(partition) < without)
        return sorted(_joined(partition) for partition in behind)

    def current(self) -> float | None:
        """Return the watermark; None if some source that still counts has shown no event time yet."""
        return self._watermark

    def closed_until(self) -> float | None:
        """Return the watermark by which the newest batch closed windows; None if it closed none."""
        return self._closed_until

    def has_passed(self, due: float | None) -> bool:
        """True if the watermark has passed `due` and moved since the newest batch closed windows; never within a range."""
        if self._within_range:
            return False
        watermark = self._watermark
        return watermark is not None and watermark != self._closed_until and due is not None and due <= watermark

    def _hear(self, partition: _Partition, time: float) -> None:
        self._newest[partition] = max(time, self._newest.get(partition, time))
        for heard in (partition, _Partition(partition.source, WHOLE)):
            self._silent_since.pop(heard, None)
            self._idle.discard(heard)
        if partition.name != WHOLE:
            self._newest.pop(_Partition(partition.source, WHOLE), None)  # of a source that had another format

    def _found_nothing(self, partition: _Partition, poll: Poll) -> None:
        since = self._silent_since[partition] = min(self._silent_since.get(partition, poll.before), poll.before)
        if poll.after - since >= self._marks[partition.source].idle_seconds:
            self._idle.add(partition)

    def _known(self) -> set[_Partition]:
        """All partitions that have shown an event time, and each source that has shown none, as a whole."""
        seen = {partition.source for partition in self._newest}
        return {*self._newest, *(_Partition(source, WHOLE) for source in self._marks if source not in seen)}

    def _move(self) -> None:
        self._watermark = _latest(self._watermark, self._held_by(self._known() - self._idle))

    def _held_by(self, counted: set[_Partition]) -> float | None:
        """The watermark of these partitions; None if there is none, or if one has shown no event time."""
        held = min((self._held(partition) for partition in counted), default=-math.inf)
        return None if held == -math.inf else max(held, FIRST_SECOND)

    def _held(self, partition: _Partition) -> float:
        return self._newest.get(partition, -math.inf) - self._marks[partition.source].delay_seconds

    def _by_partition(self, times: Mapping[str, float]) -> dict[_Partition, float]:
        named = {_Partition(*_parted(name)): time for name, time in times.items()}
        return {partition: time for partition, time in named.items() if partition.source in self._marks}


def _joined(partition: _Partition) -> str:
    return "/".join(part for part in partition if part != WHOLE)


def _parted(name: str) -> tuple[str, str]:
    source, _, partition = name.partition("/")
    return source, partition


def _latest(*times: float | None) -> float | None:
    return max((time for time in times if time is not None), default=None)
