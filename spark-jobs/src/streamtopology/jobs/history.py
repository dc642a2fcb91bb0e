"""What a run has done so far: one value per committed batch and per re-routing.

The driver appends; the live view, the metrics, the report and the picture only read. Nothing here decides anything.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from streamtopology.routing.report import LoadReport, SourceReport


@dataclass(frozen=True)
class SlotInfo:
    """One executor slot of the run; `index` is the slot number that instances are placed on.

    It is not `present` any more when the run goes on without it; its number stays its own.
    """

    index: int
    executor: str
    class_name: str
    cpu: float
    present: bool = True


@dataclass(frozen=True)
class Messages:
    """Reports that an operator's instances sent in one batch to choosers that learn, and their size on the wire."""

    count: int
    bytes: int


@dataclass(frozen=True)
class BatchOutcome:
    """One committed batch.

    `seconds` is the wall time from taking the batch to its commit record, failed attempts included; `rows` the source
    rows read; `epoch` the newest by which all keys were routed, and while state is `moving` by portions to that of a later
    one, the one before; `capacities` rows/s per operator and instance as the controller estimated them when the batch was done.
    """

    number: int
    attempt: int
    epoch: int
    rows: int
    seconds: float
    committed_at: float
    reports: tuple[LoadReport, ...]
    source_reports: tuple[SourceReport, ...]
    capacities: dict[tuple[str, int], float] = field(default_factory=dict)
    imbalance: dict[str, float] = field(default_factory=dict)
    messages: dict[str, Messages] = field(default_factory=dict)
    moving: bool = False


@dataclass(frozen=True)
class Reconfiguration:
    """One re-routing of one operator, as `report.json` lists it (seconds, bytes; gains as shares of batch time).

    `batch` is the first under the new epoch; state moved with that and so many `batches` in all.
    """

    epoch: int
    batch: int
    operator: str
    reason: str
    keys_moved: int
    bytes_moved: int
    plan_seconds: float
    published_to_active_seconds: float
    predicted_gain: float
    batches: int = 1
    measured_gain: float | None = None


@dataclass(frozen=True)
class Event:
    """Something a person should read: an executor lost, a plan not executed and why, a bad tuple set aside."""

    at: float
    batch: int
    text: str


KEPT_WHOLE = 64
"""Newest batches whose reports keep their arrays per key and bucket, for a controller that asks for several at once."""

Listener = Callable[["History"], None]


class History:
    """The record of one run; safe to read from other threads."""

    def __init__(self, topology: str, slots: tuple[SlotInfo, ...], policies: dict[str, str]) -> None:
        self.topology = topology
        self.slots = slots
        self.policies = dict(policies)
        self.phase = "starting"
        self._batches: list[BatchOutcome] = []
        self._reconfigurations: list[Reconfiguration] = []
        self._events: list[Event] = []
        self._lock = threading.Lock()
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        """Call `listener(history)` after every change, in the driver's thread."""
        self._listeners.append(listener)

    def slots_are(self, slots: Iterable[SlotInfo]) -> None:
        """Take note of the slots that there are now, those that are gone included."""
        now = tuple(slots)
        if now != self.slots:
            self.slots = now
            self._changed()

    @property
    def batches(self) -> tuple[BatchOutcome, ...]:
        with self._lock:
            return tuple(self._batches)

    @property
    def reconfigurations(self) -> tuple[Reconfiguration, ...]:
        with self._lock:
            return tuple(self._reconfigurations)

    @property
    def events(self) -> tuple[Event, ...]:
        with self._lock:
            return tuple(self._events)

    def enter(self, phase: str) -> None:
        """Name what the run is doing now: `starting executors`, `warming up`, `running`, `draining`, `done`."""
        self.phase = phase
        self._changed()

    def is_ready(self) -> bool:
        """Whether batches run, or have all been run."""
        return self.phase in ("running", "draining", "done")

    def batch_done(self, outcome: BatchOutcome) -> None:
        with self._lock:
            self._batches.append(outcome)
            if len(self._batches) > KEPT_WHOLE:
                self._batches[-KEPT_WHOLE - 1] = _without_keys(self._batches[-KEPT_WHOLE - 1])
        self._changed()

    def rerouted(self, change: Reconfiguration) -> None:
        with self._lock:
            self._reconfigurations.append(change)
        self._changed()

    def gain_measured(self, epoch: int, gain: float) -> None:
        """Fill in the measured gain of the re-routing that `epoch` was, once enough batches ran under it."""
        with self._lock:
            self._reconfigurations = [
                Reconfiguration(**{**vars(change), "measured_gain": gain}) if change.epoch == epoch else change
                for change in self._reconfigurations
            ]
        self._changed()

    def event(self, at: float, batch: int, text: str) -> None:
        with self._lock:
            self._events.append(Event(at, batch, text))
        self._changed()

    def _changed(self) -> None:
        for listener in self._listeners:
            listener(self)


def _without_keys(outcome: BatchOutcome) -> BatchOutcome:
    """An older batch: its totals stay, the arrays per key and bucket (32 kB an instance) go."""
    return replace(outcome, reports=tuple(_totals(report) for report in outcome.reports))


def _totals(report: LoadReport) -> LoadReport:
    return LoadReport(
        report.operator, report.instance, report.slot, report.rows, report.busy_seconds, report.task_seconds,
        report.state_keys, report.state_bytes, report.late_rows, report.bad_rows, onward=report.onward,
    )  # fmt: skip
