"""From a committed batch to its entry in the history."""

from __future__ import annotations

from streamtopology.jobs.exchange.learning import messages
from streamtopology.jobs.observe.outcome import BatchOutcome
from streamtopology.jobs.rerouting.port import CommittedAttempt
from streamtopology.routing.control.slot_model import SlotModel


def batch_outcome(done: CommittedAttempt, model: SlotModel | None, bound: float = 0.0) -> BatchOutcome:
    """Return the batch's outcome, with each instance's capacity where `model` knows it, and the capacity `bound`."""
    reports = tuple(result.report for result in done.results.instances)
    capacities: dict[tuple[str, int], float] = {}
    for report in reports:
        if model is not None and report.operator in model.rates:
            capacities[report.operator, report.instance] = float(model.rates[report.operator][report.slot])
    return BatchOutcome(
        number=done.attempt.number,
        attempt=done.attempt.attempt,
        epoch=routing_epoch(done),
        rows=done.rows,
        seconds=done.seconds,
        committed_at=done.started_at + done.seconds,
        reports=reports,
        source_reports=tuple(done.results.sources),
        capacities=capacities,
        messages=messages(done.results.learning_reports),
        rows_out=_rows_out(done),
        moving=done.attempt.switch is not None,
        bound=bound,
        remote_seconds=done.results.remote_seconds,
    )


def _rows_out(done: CommittedAttempt) -> dict[str, int]:
    """Return the rows that the batch gave to each sink."""
    rows: dict[str, int] = {}
    for result in done.results.instances:
        for sink, count in result.rows_out.items():
            rows[sink] = rows.get(sink, 0) + count
    return rows


def routing_epoch(done: CommittedAttempt) -> int:
    """Return the newest epoch that routed all keys of the batch."""
    return done.attempt.epoch if done.attempt.switch is None else done.attempt.switch.follows
