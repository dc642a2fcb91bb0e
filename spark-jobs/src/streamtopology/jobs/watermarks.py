"""Event time: how far each source has come, and what that lets windows close.

The watermark of a batch is what was known when the batch before it was committed: the minimum over the sources of
(newest event time - delay). A source that has been silent for its idle timeout no longer holds the others back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from streamtopology.routing.report import SourceReport
from streamtopology.routing.topology import Source

END_OF_TIME = 253402300799.0
"""The watermark when the input has ended for good: the end of the year 9999, the last that a timestamp can be shown in."""


class Watermarks:
    """`clock` gives processing time in seconds; event times are epoch seconds. The watermark never goes back."""

    def __init__(self, sources: Iterable[Source], clock: Callable[[], float]) -> None:
        self._delays = {s.name: s.watermark for s in sources if s.watermark is not None}
        self._clock = clock
        self._newest: dict[str, float] = {}
        self._heard = dict.fromkeys(self._delays, clock())
        self._watermark: float | None = None

    def restore(self, newest: Mapping[str, float], watermark: float | None) -> None:
        """Take up the event times of the newest commit, and the watermark after it: an idle source may be behind it."""
        self._watermark = watermark
        self._newest = {name: time for name, time in newest.items() if name in self._delays}
        self._move()

    def advance(self, reports: Iterable[SourceReport]) -> None:
        """What the tasks of a committed batch saw."""
        for report in reports:
            for source, newest in report.max_event_time.items():
                self._heard[source] = self._clock()
                self._newest[source] = max(newest, self._newest.get(source, newest))
        self._move()

    def end(self) -> None:
        """The input has ended for good: whatever has an event time is late from now on."""
        if self._delays:
            self._watermark = END_OF_TIME

    def newest(self) -> dict[str, float]:
        return dict(self._newest)

    def current(self) -> float | None:
        """None: no event time has been seen of some source that still counts."""
        return self._watermark

    def _move(self) -> None:
        now = self._clock()
        counted = [
            name
            for name, mark in self._delays.items()
            if now - self._heard[name] <= mark.idle_seconds or len(self._delays) == 1
        ]
        if not counted or any(name not in self._newest for name in counted):
            return
        held = min(self._newest[name] - self._delays[name].delay_seconds for name in counted)
        self._watermark = held if self._watermark is None else max(held, self._watermark)
