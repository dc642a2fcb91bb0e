"""The costs and gains of each published epoch: time to plan it, time until active, state moved, gain measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from streamtopology.contract.reasons import SOURCE, EpochReason
from streamtopology.contract.stats import Rerouting
from streamtopology.jobs.observe.history import History
from streamtopology.jobs.plan.results import Results
from streamtopology.jobs.rerouting.port import CommittedAttempt
from streamtopology.routing.control.decisions import Outcome
from streamtopology.routing.epochs.epoch import Epoch


@dataclass
class _Published:
    """A published epoch, until its gain is known."""

    reason: EpochReason
    published_at: float
    plan_seconds: float
    predicted_gain: Mapping[str, float]
    active_after: float | None = None


@dataclass
class _Moved:
    """State that has moved, by node, since a batch first ran under `epoch`."""

    epoch: int
    first_batch: int
    batches: int = 0
    keys: Counter[str] = field(default_factory=Counter[str])
    bytes: Counter[str] = field(default_factory=Counter[str])

    def add(self, results: Results) -> None:
        self.batches += 1
        self.keys.update(results.keys_moved)
        self.bytes.update(results.bytes_moved)


class EpochLedger:
    """Keeps account of published epochs, and writes each re-routing into `history`. `clock` is monotonic seconds."""

    def __init__(self, history: History, clock: Callable[[], float]) -> None:
        self._history = history
        self._clock = clock
        self._published: dict[int, _Published] = {}
        self._moved: _Moved | None = None
        self._newest_outcome = -1

    def published(self, epoch: Epoch, published_at: float, plan_seconds: float, predicted_gain: Mapping[str, float]) -> None:
        """Note a new epoch. `predicted_gain`: by operator, as a share of a usual batch."""
        self._published[epoch.number] = _Published(epoch.reason, published_at, plan_seconds, predicted_gain)

    def active(self, epoch: int) -> None:
        """Note that a batch is recorded to run under `epoch`."""
        published = self._published.get(epoch)
        if published is not None and published.active_after is None:
            published.active_after = self._clock() - published.published_at

    def committed(self, done: CommittedAttempt) -> None:
        """Add what a batch moved; a re-routing is written when all of its state has moved or another has superseded it."""
        if not done.attempt.hands_over:
            return
        epoch = done.attempt.epoch
        if self._moved is not None and self._moved.epoch != epoch:
            self._write(self._moved)
            self._moved = None
        if self._moved is None:
            self._moved = _Moved(epoch, done.attempt.number)
        self._moved.add(done.results)
        if done.attempt.switch is None:
            self._write(self._moved)
            self._moved = None

    def note_gains(self, outcomes: Sequence[Outcome]) -> None:
        """Write the measured gains that are new in `outcomes`, each as a share of what such a batch took before its epoch."""
        for outcome in outcomes:
            if outcome.epoch > self._newest_outcome:
                self._newest_outcome = outcome.epoch
                self._history.gain_measured(outcome.epoch, outcome.measured_gain_seconds / outcome.batch_seconds_before)

    def _write(self, moved: _Moved) -> None:
        published = self._published.get(moved.epoch)
        if published is None:
            return
        self._published = {number: each for number, each in self._published.items() if number > moved.epoch}
        changed = set(published.predicted_gain) | {node for node, keys in moved.keys.items() if keys} or {SOURCE}
        for operator in sorted(changed):
            self._history.rerouted(
                Rerouting(
                    epoch=moved.epoch,
                    batch=moved.first_batch,
                    operator=operator,
                    reason=published.reason,
                    keys_moved=moved.keys[operator],
                    bytes_moved=moved.bytes[operator],
                    plan_seconds=published.plan_seconds,
                    published_to_active_seconds=published.active_after or 0.0,
                    predicted_gain=published.predicted_gain.get(operator, 0.0),
                    batches=moved.batches,
                )
            )
