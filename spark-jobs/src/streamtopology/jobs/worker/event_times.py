"""The event times that one task sees of a source: the newest of each partition, and the rows too far ahead to count."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from streamtopology.jobs.columnar.event_times import event_micros
from streamtopology.topology import Watermark

MICROS = 1_000_000


class EventTimes:
    """`newest`: by partition, epoch seconds. `rows_ahead`: rows whose time is more than the watermark's `maxAhead` later than
    `now` (epoch seconds); these times move no watermark.
    """

    def __init__(self, watermark: Watermark, now: float) -> None:
        self._column = watermark.column
        self._latest = (now + watermark.max_ahead_seconds) * MICROS
        self.newest: dict[str, float] = {}
        self.rows_ahead = 0

    def note(self, rows: pa.RecordBatch, partitions: Sequence[str], places: np.ndarray | None) -> None:
        """Take note of `rows`. `places` (int32[n]): which of `partitions` each is from, neighbours mostly the same; None: all
        are from the only one.
        """
        times, valid = event_micros(rows.column(self._column))
        starts = np.zeros(1, np.int64) if places is None else np.flatnonzero(np.diff(places, prepend=-1))
        for start, end in zip(starts, [*starts[1:], len(times)], strict=True):
            partition = partitions[0 if places is None else places[start]]
            self._note(partition, times[start:end] if valid is None else times[start:end][valid[start:end]])

    def _note(self, partition: str, times: np.ndarray) -> None:
        newest = times.max(initial=np.iinfo(np.int64).min)
        if newest > self._latest:
            ahead = times > self._latest
            self.rows_ahead += int(ahead.sum())
            times = times[~ahead]
            newest = times.max(initial=np.iinfo(np.int64).min)
        if len(times):
            seconds = float(newest) / MICROS
            self.newest[partition] = max(seconds, self.newest.get(partition, seconds))
