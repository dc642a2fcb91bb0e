"""Re-routings under trial: the gain of each is measured, a loss is taken back, and what was predicted is trusted by it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from streamtopology.contract.reasons import EpochCause, EpochReason, RemedyKind
from streamtopology.routing.control.decisions import Outcome, Reroute
from streamtopology.routing.control.slot_model import Floats, common_shift, median_error
from streamtopology.routing.control.window import FEW_BATCHES, MIN_BATCHES, Window, WindowBatch
from streamtopology.routing.epochs.epoch import Epoch
from streamtopology.topology import groupings

# Measured re-routings that are kept, the newest.
MOST_OUTCOMES = 64

# A re-routing that gained less than this share of what was predicted puts the next judgement off, longer each time.
DISAPPOINTING = 0.25

# Intervals that a judgement is put off at most.
LONGEST_PATIENCE = 4

# Each of `FEW_BATCHES` that is slower by this share shows that a re-routing was wrong: every batch under it is dear.
PLAIN_LOSS = 0.5

# Standard errors beyond which a loss is no noise.
LOSS_ERRORS = 1.0

# Share of a batch up to which a loss is not taken back: switching twice would cost more.
LEAST_LOSS = 0.02

# A gain that is less than predicted by more than this share lowers the trust in the next ones.
OFF = 1 / 3

# A prediction counts for this share of it at least, so that a large gain is tried again some day.
LEAST_TRUST = 0.1

# Share of the trust missing that comes back with a prediction that held, or a judgement that changes nothing.
REGAINED = 0.25


@dataclass(frozen=True)
class Trial:
    """A re-routing that has been decided and not been measured yet.

    `former`: the epoch that it is to be compared with, and `before`: the batches under it that had rows, at least one.
    """

    decision: Reroute
    former: Epoch
    before: tuple[WindowBatch, ...]

    @staticmethod
    def of(decision: Reroute, former: Epoch, window: Sequence[WindowBatch]) -> Trial | None:
        """The trial of `decision`; None if no rows were seen in `window` under `former`, so that nothing can be compared."""
        before = tuple(batch for batch in window if batch.epoch == former.number and batch.source_rows)
        return Trial(decision, former, before) if before else None

    @property
    def epoch(self) -> int:
        return self.decision.epoch.number

    @property
    def is_asked_for(self) -> bool:
        """True if its policy brings keys near each other, whatever the controller finds that it gains (decision 49).

        `auto` does so only for seconds that it saves.
        """
        nearer = any(stage.kind is RemedyKind.LOCALITY for stage in self.decision.epoch.reason.stages)
        routes = (self.former.routes[operator] for operator in self.decision.plans if operator in self.former.routes)
        return nearer and any(groupings.get(route.policy).plans_jointly for route in routes)

    def outcome(self, after: Sequence[WindowBatch]) -> Outcome | None:
        """Its gain, by the batches under it; None while these are too few to see more than a plain loss.

        Rows that became dearer at all slots meanwhile would have been so without it.
        """
        per_row = _per_row(after)
        if len(per_row) < FEW_BATCHES:
            return None
        dearer = common_shift([batch.timings for batch in self.before], [batch.timings for batch in after])
        before, error_before = _median_and_error(dearer * _per_row(self.before))
        if len(per_row) < MIN_BATCHES and per_row.min() <= (1 + PLAIN_LOSS) * before:
            return None
        rows = float(np.median([batch.source_rows for batch in after if batch.source_rows]))
        now, error = _median_and_error(per_row)
        return Outcome(
            epoch=self.epoch,
            predicted_gain_seconds=self.decision.predicted_gain_seconds,
            measured_gain_seconds=(before - now) * rows,
            batch_seconds_before=before * rows,
            error_seconds=float(np.hypot(error, error_before)) * rows,
        )

    def taken_back(self, current: Epoch, outcome: Outcome) -> Reroute:
        """The decision to route as before. A prediction gives way to the measured loss, divided evenly among the plans."""
        lost = -outcome.measured_gain_seconds
        reason = EpochReason(EpochCause.TAKEN_BACK, epoch=self.epoch, lost_seconds=lost)
        plans = {
            name: replace(
                plan,
                table=table,
                predicted_seconds_before=plan.predicted_seconds_after + lost / len(self.decision.plans),
                predicted_seconds_after=plan.predicted_seconds_after,
                imbalance_before=plan.imbalance_after,
                imbalance_after=plan.imbalance_before,
                theta_reached=False,
            )
            for name, plan in self.decision.plans.items()
            if (table := self.former.routes[name].table) is not None
        }
        epoch = replace(self.former, number=current.number + 1, reason=reason)
        return Reroute(epoch, plans, lost, self.decision.cost_seconds)


class Trials:
    """Re-routings under trial, one at a time, and what their outcomes make of the controller.

    `patience`: intervals until the next judgement. `trust`: the share of a predicted gain that is believed.
    """

    def __init__(self) -> None:
        self.outcomes: deque[Outcome] = deque(maxlen=MOST_OUTCOMES)
        self.patience = 1
        self.trust = 1.0
        self._awaited: tuple[int, float] | None = None
        self._pending: Trial | None = None
        self._lost: tuple[Trial, Outcome] | None = None

    @property
    def is_pending(self) -> bool:
        """True while the gain of a re-routing is not known."""
        return self._pending is not None

    def begin(self, decision: Reroute, now: float, trial: Trial | None) -> None:
        """Wait until the epoch of `decision` runs, and then for the outcome of its `trial`, if it has one."""
        self._awaited, self._pending, self._lost = (decision.epoch.number, now), trial, None

    def awaited(self, current_epoch: int, now: float, patience_seconds: float) -> int | None:
        """The epoch that was decided and does not run yet; given up after `patience_seconds`."""
        if self._awaited is None:
            return None
        epoch, decided_at = self._awaited
        if current_epoch < epoch and now - decided_at < patience_seconds:
            return epoch
        if current_epoch < epoch:
            self._pending = None
        self._awaited = None
        return None

    def measure(self, window: Window) -> None:
        """Note the outcome of the trial once enough batches ran under it."""
        trial = self._pending
        outcome = trial.outcome(window.since(trial.epoch)) if trial is not None else None
        if trial is None or outcome is None:
            return
        self._pending = None
        self.outcomes.append(outcome)
        predicted = outcome.predicted_gain_seconds
        disappointed = predicted > 0 and outcome.measured_gain_seconds < DISAPPOINTING * predicted
        self.patience = min(2 * self.patience, LONGEST_PATIENCE) if disappointed else 1
        if predicted - outcome.measured_gain_seconds > max(OFF * abs(predicted), outcome.error_seconds):
            self.trust = max(self.trust / 2, LEAST_TRUST)
        else:
            self.regain_trust()
        least = max(LOSS_ERRORS * outcome.error_seconds, LEAST_LOSS * outcome.batch_seconds_before)
        if outcome.measured_gain_seconds < -least and not trial.is_asked_for:
            self._lost = trial, outcome

    def take_back(self, current: Epoch) -> Reroute | None:
        """The decision to undo the newest re-routing that lost, once; None where another epoch has followed it."""
        lost, self._lost = self._lost, None
        if lost is None:
            return None
        trial, outcome = lost
        return trial.taken_back(current, outcome) if current.number == trial.epoch else None

    def regain_trust(self) -> None:
        """Believe a little more of the next prediction."""
        self.trust += REGAINED * (1 - self.trust)


def _per_row(batches: Sequence[WindowBatch]) -> Floats:
    """Seconds a row of each batch that had rows."""
    return np.array([batch.seconds_per_row for batch in batches if batch.source_rows])


def _median_and_error(values: Floats) -> tuple[float, float]:
    middle = float(np.median(values))
    return middle, median_error(values - middle, len(values))
