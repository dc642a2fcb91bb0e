"""The record behind the page: what it needs of batches that the history may have dropped, kept as they come."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from streamtopology.contract.page import PageBatch
from streamtopology.contract.stats import Rerouting
from streamtopology.jobs.observe.epoch_stories import by_epoch
from streamtopology.jobs.observe.fair_share import RECENT_BATCHES, MeasuredBatch, measure, recent_loads
from streamtopology.jobs.observe.history import History
from streamtopology.jobs.observe.outcome import BatchOutcome
from streamtopology.jobs.observe.stats import Standing
from streamtopology.jobs.view.page.keys import ShownKey, heavy_keys
from streamtopology.jobs.view.page.reroutings import why
from streamtopology.jobs.view.page.state import MOST_BATCHES, Recorded, build_page, timeline_batch
from streamtopology.jobs.view.verdict import Balance, judge
from streamtopology.topology import Rebalance, Topology

# Batches ahead of a re-routing in which its reason is looked for.
_BATCHES_BEFORE = 60


class PageRecord:
    """Follows `history` as a listener of it. `topology` returns the one that runs, None before it is known.

    `run`: of this process; `clock`: seconds since 1970.
    """

    def __init__(self, history: History, topology: Callable[[], Topology | None], run: str, clock: Callable[[], float]) -> None:
        self._history = history
        self._topology = topology
        self._run = run
        self._clock = clock
        self._lock = threading.Lock()
        self._seen = 0
        self._seen_changes = 0
        self._recent: deque[MeasuredBatch] = deque(maxlen=RECENT_BATCHES)
        self._batches: deque[PageBatch] = deque(maxlen=MOST_BATCHES)
        self._balance: Balance | None = None
        self._reasons: dict[int, str] = {}
        self._keys: Sequence[ShownKey] = ()
        self._keys_of: int | None = None
        history.listen(self._take)
        self._take(history)

    def page(self, standing: Standing, since: int) -> dict[str, Any]:
        """The JSON value now, with the batches after the number `since`."""
        with self._lock:
            recent = tuple(self._recent)
            keys = self._heavy_keys(recent)
            recorded = Recorded(tuple(self._batches), self._balance, recent, keys, dict(self._reasons))
        page = build_page(self._history, standing, recorded, self._topology(), self._run, self._clock(), since)
        return page.to_wire()

    def _heavy_keys(self, recent: Sequence[MeasuredBatch]) -> Sequence[ShownKey]:
        """The heaviest keys of the newest batch, found once for all who ask: that takes long with many executors."""
        last = self._history.last
        if last is not None and last.number != self._keys_of:
            self._keys_of, self._keys = last.number, heavy_keys(last, recent_loads(recent))
        return self._keys

    def _take(self, history: History) -> None:
        """Take note of the batches and re-routings that are new."""
        if history.totals.batches == self._seen and history.rerouting_count == self._seen_changes:
            return
        topology = self._topology()  # ahead of the lock: its owner may hold one of its own while it calls
        tolerance = (topology.rebalance if topology is not None else Rebalance()).tolerance
        with self._lock:
            self._seen, batches = history.batches_since(self._seen)
            for batch in batches:
                measured = measure(batch)
                self._recent.append(measured)
                self._batches.append(timeline_batch(batch, measured))
                self._balance = judge(self._balance, tuple(self._recent), tolerance)
            self._seen_changes, changes = history.reconfigurations_since(self._seen_changes)
            if changes:
                self._explain(history, {change.epoch for change in changes}, tolerance)

    def _explain(self, history: History, epochs: set[int], tolerance: float) -> None:
        names = {slot.index: slot.executor for slot in history.slots}
        grouped = by_epoch(history.reconfigurations)
        for epoch in epochs & grouped.keys():
            before = _before(history, grouped[epoch][0])
            self._reasons[epoch] = why(grouped[epoch], before, names, tolerance)
        self._reasons = {epoch: reason for epoch, reason in self._reasons.items() if epoch in grouped}


def _before(history: History, change: Rerouting) -> list[BatchOutcome]:
    """The newest batches ahead of a re-routing."""
    return [batch for batch in history.batches if batch.number < change.batch][-_BATCHES_BEFORE:]
