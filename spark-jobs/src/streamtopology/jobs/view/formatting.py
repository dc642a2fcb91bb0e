"""Texts on operators and re-routings, the same in the live view, the logs and the picture."""

from __future__ import annotations

from streamtopology.contract.formatting import count, counted, duration, percent, rate, size
from streamtopology.contract.page import RunEvent
from streamtopology.contract.phases import Phase
from streamtopology.contract.reason_text import describe
from streamtopology.contract.reasons import PARTIAL, SOURCE, EpochCause, Hold, HoldReason
from streamtopology.contract.stats import Rerouting
from streamtopology.jobs.observe.figures import (
    heaviest_operator,
    imbalance_before_and_after,
    judged_imbalance,
    rate_before_and_after,
    recent_rate,
    speed_change,
    warm_throughput,
)
from streamtopology.jobs.observe.history import History
from streamtopology.jobs.observe.outcome import BatchOutcome

_LONG_SECONDS = 3.0
_IDLE_SECONDS = 10.0
NOTICEABLY_HIGHER = 0.01  # what rounds to the same percentage is not called higher
_SLOWER = 0.9  # the speed of executors from which it, not the routing, explains a lower throughput
_NOTICEABLE = 0.05  # runs of the same input differ by as much


def shown_name(stage: str) -> str:
    """The name that the user gave the operator, and its half if the grouping splits keys: `counts (parts of keys)`."""
    return f"{stage.removesuffix(PARTIAL)} (parts of keys)" if stage.endswith(PARTIAL) else stage


def policy_text(history: History, stage: str) -> str:
    """The policy that routes the rows of a stage; parts of a key are merged at one instance."""
    if history.last is not None and any(report.operator == stage + PARTIAL for report in history.last.reports):
        return "merges the parts"
    return history.policies.get(stage.removesuffix(PARTIAL), "")


def imbalance_text(batch: BatchOutcome, operator: str) -> str:
    """`imbalance 12 %`, or that there is nothing to judge."""
    judged = judged_imbalance(batch, operator)
    return "too few rows to judge" if judged is None else f"imbalance {percent(judged)}"


def activity_text(history: History) -> str:
    """The activity of the run, with a batch that takes long: `running batch 7 for 12 s, about 730,000 rows`."""
    batch = history.running
    if batch is None or history.activity.phase is not Phase.RUNNING or batch.seconds < _LONG_SECONDS:
        return str(history.activity)
    rows = f", about {batch.rows:,} rows" if batch.rows else ""
    return f"{history.activity} batch {batch.number} for {duration(batch.seconds)}{rows}"


def rate_text(history: History) -> str:
    """The rate of rows now, or that no rows have come for some time."""
    idle = history.idle_seconds
    if idle is not None and idle >= _IDLE_SECONDS:
        return f"no new rows for {duration(idle)}"
    return rate(recent_rate(history.batches))


def late_text(history: History) -> str:
    """The rows that have been left out as late so far: `12 rows late`; "" without any."""
    late = sum(history.totals.late_rows.values())
    return f"{counted(late, 'row', 'rows')} late" if late else ""


def event_line(event: RunEvent) -> str:
    return f"batch {event.batch}: {event.text}" if event.batch >= 0 else event.text


def changed(change: Rerouting) -> str:
    """The effect of a re-routing: `tail moved 412 keys, 1.20 MB`. Before any state, tables move shares of rows only."""
    if change.operator == SOURCE:
        if change.changes_shares:
            return "sources are read in other shares"
        reason = change.reason
        return f"no keys moved ({reason.text})" if reason.cause is EpochCause.UNKNOWN and reason.text else "no keys moved"
    if not change.keys_moved:
        if change.changes_shares:
            return f"{shown_name(change.operator)} gets rows in other shares"
        return f"{shown_name(change.operator)} moved no keys"
    return f"{shown_name(change.operator)} moved {count(change.keys_moved)} keys, {size(change.bytes_moved)}"


def rerouting(change: Rerouting) -> str:
    """One line on a re-routing: `epoch 3 at batch 14: tail moved 412 keys, 1.20 MB, predicted gain 38 %`.

    A re-routing that was applied, or decided by the operator on Kubernetes, has no predicted gain here.
    """
    text = f"epoch {change.epoch} at batch {change.batch}: {changed(change)}"
    if change.predicted_gain:
        text += f", predicted gain {percent(change.predicted_gain)}"
    return text if change.measured_gain is None else f"{text}, measured {percent(change.measured_gain)}"


def verdict(history: History, baseline: History | None) -> str:
    """The answer to "did it help?": against the same input under fixed routing, else against the run's own start."""
    rate, fixed = (warm_throughput(run) if run else None for run in (history, baseline))
    before, after = imbalance_before_and_after(history)
    if not history.was_rerouted:
        judged = after if before is None else before
        return f"nothing was re-routed: {'too few rows to judge' if judged is None else f'imbalance {percent(judged)}'}"
    if rate and fixed:
        return _compared(rate / fixed, "the throughput of fixed routing", speed_change(history, baseline))
    change = "re-routed" if before is None or after is None else f"imbalance {imbalance_change(before, after)}"
    slow, fast = rate_before_and_after(history)
    if not slow or not fast:
        return change
    return f"{change}; {_compared(fast / slow, 'the rows/s of before', speed_change(history, None))}"


def imbalance_change(before: float | None, after: float | None) -> str:
    """`57 % -> 11 %`, and plainly if it is higher than before."""
    text = f"{percent(before)} -> {percent(after)}"
    if before is None or after is None or after < before + NOTICEABLY_HIGHER:
        return text
    return f"{text}, higher than before"


def still_unbalanced(history: History, tolerance: float) -> str:
    """The imbalance at the end and the controller's reason to leave it; empty if it is within `tolerance` or not judged."""
    before, after = imbalance_before_and_after(history)
    rerouted = history.was_rerouted
    at_end = after if rerouted or before is None else before
    heaviest = heaviest_operator(history)
    if at_end is None or at_end <= tolerance or heaviest is None:
        return ""
    change = imbalance_change(before, after) if rerouted else percent(at_end)
    text = f"{shown_name(heaviest)} {change}, tolerance {percent(tolerance)}; not re-routed{' again' if rerouted else ''}"
    return text if history.hold is None else f"{text}: {_hold_at_end(history.hold)}"


def _hold_at_end(hold: Hold) -> str:
    match hold.reason:
        case HoldReason.NOT_DUE:
            return f"the run ended {hold.due_seconds:.1f} s before the next judgement (rebalance.interval)"
        case HoldReason.TOO_FEW_BATCHES:
            return f"the run ended too soon, with {describe(hold)}"
        case HoldReason.BALANCED:
            return f"by the loads and capacities that the controller expects, {describe(hold)}"
        case _:
            return describe(hold)


def _compared(ratio: float, base: str, speed: float | None) -> str:
    """Whether it helped; where the executors themselves became slower meanwhile, at the speed that they had."""
    if speed is not None and speed <= _SLOWER and ratio < 1 + _NOTICEABLE:
        at_same_speed = _compared(ratio / speed, base, None)
        return f"the machine got slower ({speed:.2f}x); at the same speed {at_same_speed}"
    if ratio >= 1 + _NOTICEABLE:
        return f"re-routing helped: {ratio:.1f}x {base}"
    if ratio > 1 - _NOTICEABLE:
        return f"re-routing made no difference: {ratio:.2f}x {base}"
    return f"re-routing did not help: {ratio:.2f}x {base}"
