"""The record of a run: one value per committed batch and per re-routing, as far as memory allows, and sums over all.

The driver appends. The live view, the metrics, the report and the picture only read, and nothing here decides anything.
It keeps the newest batches, the first few, and sums over all, so a run of a year takes the memory of a run of an hour.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Generic, TypeVar

from streamtopology.contract.page import RunEvent
from streamtopology.contract.phases import Activity, Phase
from streamtopology.contract.reasons import Binding, EpochReason, Hold
from streamtopology.contract.stats import LostAttempts, Rerouting, Slot
from streamtopology.jobs.observe.divided import Divided, divided
from streamtopology.jobs.observe.outcome import BatchOutcome, RunTotals
from streamtopology.routing.control.window import MIN_BATCHES
from streamtopology.routing.load.key_label import with_label, with_labels


@dataclass(frozen=True)
class RunningBatch:
    """The batch that runs now. `rows`: about how many it reads, None if unknown; `began`: by the monotonic `clock`.

    `lost`: attempts at it; None if none was lost.
    """

    number: int
    rows: int | None
    began: float
    clock: Callable[[], float]
    lost: LostAttempts | None = None

    @property
    def seconds(self) -> float:
        """For how long it has run."""
        return self.clock() - self.began


# Newest batches that are kept, and their load reports, about 1.2 kB each.
KEPT_BATCHES, KEPT_REPORTS = 1000, 256_000

# Newest batches whose reports keep their arrays per key and bucket, for a controller that asks for several at once, and these
# reports, up to 30 kB each; no answer has as many (`observed_batches.MOST_TIMINGS`).
KEPT_WHOLE, KEPT_WHOLE_REPORTS = 64, 8192

# Of either, however many reports they have: twice as many batches as a judgement needs.
LEAST_BATCHES = 2 * MIN_BATCHES

# First batches that are kept for good: what a re-routing is compared with.
KEPT_OPENING = 32

KEPT_CHANGES = 1000
KEPT_EVENTS = 1000

Listener = Callable[["History"], None]


class History:
    """The record of one run; safe to read from other threads. If it `hides_keys`, it never holds a key of the stream."""

    def __init__(
        self,
        topology: str,
        slots: tuple[Slot, ...],
        policies: dict[str, str],
        clock: Callable[[], float] = time.monotonic,
        hides_keys: bool = False,
    ) -> None:
        self.topology = topology
        self.slots = slots
        self.policies = dict(policies)
        self.activity = Activity(Phase.STARTING)
        self.address = ""
        self.stopped_by = ""
        """The command of another terminal that has stopped the run."""
        self.running: RunningBatch | None = None
        self._clock = clock
        self._hides_keys = hides_keys
        self._idle_since = clock()
        self._input_waits = False
        self.hold: Hold | None = None
        self.binding: Binding | None = None
        """The constraint that bounds the batches, as of the last judgement."""
        self.part_seconds: Mapping[str, float] = {}
        """Of merging a part of a key, as measured, by operator whose keys are divided."""
        self.divided = Divided()
        """The keys that routers divided in the newest batch."""
        self.recommended: EpochReason | None = None
        """The reason of the re-routing that mode Recommend would make."""
        self.totals = RunTotals()
        """Sums over all batches, those that are not kept any more included."""
        self.opening: tuple[BatchOutcome, ...] = ()
        """The first batches of the run."""
        self.first_change: int | None = None
        """The batch of the first re-routing."""
        self.was_rerouted = False
        """True if a re-routing moved keys or shares of rows; an epoch may change neither."""
        self._batches: Recent[BatchOutcome] = Recent(KEPT_BATCHES)
        self._reconfigurations: Recent[Rerouting] = Recent(KEPT_CHANGES)
        self._events: Recent[RunEvent] = Recent(KEPT_EVENTS)
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        """Call `listener(history)` after every change, in the thread that made it: the driver's, or one that has an event."""
        self._listeners.append(listener)

    def slots_are(self, slots: Iterable[Slot]) -> None:
        """Take note of the slots that there are now, those that are gone included."""
        now = tuple(slots)
        if now != self.slots:
            self.slots = now
            self._changed()

    def served_at(self, address: str) -> None:
        """Take note of the address of the run's page."""
        self.address = address
        self._changed()

    @property
    def batches(self) -> tuple[BatchOutcome, ...]:
        """The newest batches, oldest first."""
        return self._batches.kept()

    @property
    def last(self) -> BatchOutcome | None:
        """The newest batch; None before the first."""
        return self._batches.last()

    @property
    def newest(self) -> int:
        """The number of the newest batch; -1 before the first."""
        last = self.last
        return -1 if last is None else last.number

    @property
    def reconfigurations(self) -> tuple[Rerouting, ...]:
        """The newest re-routings, oldest first."""
        return self._reconfigurations.kept()

    @property
    def rerouting_count(self) -> int:
        """The number of all re-routings."""
        return self._reconfigurations.appended

    @property
    def events(self) -> tuple[RunEvent, ...]:
        """The newest events, oldest first."""
        return self._events.kept()

    def batches_since(self, seen: int) -> tuple[int, tuple[BatchOutcome, ...]]:
        """The number of all batches, and those after the first `seen` as far as they are kept."""
        return self._batches.since(seen)

    def reconfigurations_since(self, seen: int) -> tuple[int, tuple[Rerouting, ...]]:
        """The number of all re-routings, and those after the first `seen` as far as they are kept."""
        return self._reconfigurations.since(seen)

    def events_since(self, seen: int) -> tuple[int, tuple[RunEvent, ...]]:
        """The number of all events, and those after the first `seen` as far as they are kept."""
        return self._events.since(seen)

    def enter(self, phase: Phase, detail: str = "") -> None:
        """Take note of what the run is doing now; `detail` is the text for people where it says more than the phase."""
        self.activity = Activity(phase, detail)
        self._idle_since = self._clock()
        if phase is Phase.DONE:
            self.running = None
        self._changed()

    def starting(self, detail: str) -> None:
        """The run starts, and does or waits for what `detail` says."""
        self.enter(Phase.STARTING, detail)

    def is_ready(self) -> bool:
        """True once batches run, or all have run."""
        return self.activity.phase in (Phase.RUNNING, Phase.DONE)

    def batch_begins(self, number: int, rows: int | None) -> None:
        """Take note of a batch that begins, of about as many source rows; None if their number is unknown."""
        self.running = RunningBatch(number, rows, self._clock(), self._clock)
        self._input_waits = False
        self._changed()

    def attempt_lost(self, lost: LostAttempts) -> None:
        """Take note of the lost attempts at the batch that runs."""
        if self.running is not None:
            self.running = replace(self.running, lost=lost)
            self._changed()

    def input_waits(self, waits: bool) -> None:
        """Take note whether the sources hold input that no batch reads, as while Spark plans one or waits for its trigger."""
        self._input_waits = waits

    @property
    def idle_seconds(self) -> float | None:
        """For how long the sources have had no rows; None while a batch runs, input waits for one, or none can run."""
        if self.running is not None or self._input_waits or self.activity.phase is not Phase.RUNNING:
            return None
        return self._clock() - self._idle_since

    def batch_done(self, outcome: BatchOutcome) -> None:
        self.running = None
        if self._hides_keys:
            outcome = outcome.with_hidden_keys()
        if outcome.rows:
            self._idle_since = self._clock()
        self.totals = self.totals.plus(outcome)
        self.divided = divided(outcome, self.policies)
        if len(self.opening) < KEPT_OPENING:
            self.opening = (*self.opening, outcome.without_keys())
        self._batches.append(outcome)
        self._batches.change(self._fitting(KEPT_WHOLE, KEPT_WHOLE_REPORTS), BatchOutcome.without_keys)
        self._batches.keep(self._fitting(KEPT_BATCHES, KEPT_REPORTS))
        self._changed()

    def _fitting(self, batches: int, reports: int) -> int:
        """As many batches as have so many reports together, at most `batches`."""
        of_batch = max(len(self.slots) * len(self.policies), 1)
        return min(batches, max(reports // of_batch, LEAST_BATCHES))

    def rerouted(self, change: Rerouting) -> None:
        if self.first_change is None:
            self.first_change = change.batch
        self.was_rerouted |= bool(change.keys_moved or change.predicted_gain or change.changes_shares)
        if (last := self._batches.last()) is not None:
            change = replace(change, reason=with_labels(change.reason, last.reports))
        self._reconfigurations.append(change)
        self._changed()

    def judged(self, verdict: Hold | EpochReason | None) -> None:
        """Take note of the controller's verdict: a reason to leave the routing as it is, the reason of a re-routing that it
        recommends only, or None for one that it makes.

        A hold that only waits for the next judgement does not replace the verdict of the last one.
        """
        was_judged = self.recommended is not None or (self.hold is not None and not self.hold.reason.is_waiting)
        if was_judged and isinstance(verdict, Hold) and verdict.reason.is_waiting:
            return
        self.hold = verdict if isinstance(verdict, Hold) else None
        self.recommended = verdict if isinstance(verdict, EpochReason) else None

    def bound_by(self, constraint: Binding | None) -> None:
        """Take note of the constraint that bounds the batches; None where a new routing has yet to show it.

        Its key is named as the reports that are kept name it: by its hash if this run hides keys.
        """
        last = self._batches.last()
        self.binding = with_label(constraint, last.reports) if constraint is not None and last is not None else constraint

    def gain_measured(self, epoch: int, gain: float) -> None:
        """Fill in the measured gain of the re-routing that `epoch` was, once enough batches ran under it."""
        self._reconfigurations.change_all(
            lambda change: replace(change, measured_gain=gain) if change.epoch == epoch else change
        )
        self._changed()

    def event(self, at: float, batch: int, text: str) -> None:
        self._events.append(RunEvent(at, batch, text))
        self._changed()

    def _changed(self) -> None:
        for listener in self._listeners:
            listener(self)


Item = TypeVar("Item")


class Recent(Generic[Item]):
    """The newest `most` items, and the number of all that were ever appended; safe to use from several threads."""

    def __init__(self, most: int) -> None:
        self._items: deque[Item] = deque(maxlen=most)
        self._appended = 0
        self._lock = threading.Lock()

    def append(self, item: Item) -> None:
        with self._lock:
            self._items.append(item)
            self._appended += 1

    @property
    def appended(self) -> int:
        """The number of all items, those that are not kept any more included."""
        return self._appended

    def kept(self) -> tuple[Item, ...]:
        """The items that are kept, oldest first."""
        with self._lock:
            return tuple(self._items)

    def last(self) -> Item | None:
        """The newest item; None before the first."""
        with self._lock:
            return self._items[-1] if self._items else None

    def since(self, seen: int) -> tuple[int, tuple[Item, ...]]:
        """The number of all items, and those after the first `seen` as far as they are kept. Costs as much as it returns."""
        with self._lock:
            wanted = min(self._appended - seen, len(self._items))
            newest = list(islice(reversed(self._items), max(wanted, 0)))
            return self._appended, tuple(reversed(newest))

    def change(self, back: int, changed: Callable[[Item], Item]) -> None:
        """Replace the item `back` places before the newest one, if it is kept."""
        with self._lock:
            if back < len(self._items):
                self._items[-1 - back] = changed(self._items[-1 - back])

    def keep(self, newest: int) -> None:
        """Forget all but the newest items."""
        with self._lock:
            while len(self._items) > newest:
                self._items.popleft()

    def change_all(self, changed: Callable[[Item], Item]) -> None:
        """Replace each item that is kept."""
        with self._lock:
            for index, item in enumerate(self._items):
                self._items[index] = changed(item)
