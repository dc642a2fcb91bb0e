"""The trace of a committed batch, from times that the driver and its tasks have recorded: a pure function.

No attribute has a key or a value of the stream: names of operators, sources and executors, counts and seconds only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from streamtopology.jobs.driver.progress import BatchInProgress
from streamtopology.jobs.driver.timeline import LostAttempt, Timeline
from streamtopology.jobs.plan.results import InstanceResult, SourceResult
from streamtopology.jobs.plan.span import Span
from streamtopology.jobs.rerouting.port import CommittedAttempt
from streamtopology.routing.epochs.placement import Placement
from streamtopology.tracing.span import SpanEvent, TraceSpan, Value

# Tasks of the first stage, or instances of an operator, that have a span of their own: those that ended last.
MOST_PARTS = 16

# Attributes of our own, without their prefix.
Ours = Mapping[str, Value]


def batch_span(batch: BatchInProgress, done: CommittedAttempt) -> TraceSpan:
    """Return the root span of the batch: its plan chosen, its attempts, commit, publication, and what was learned of it."""
    line, at = batch.timeline, batch.timeline.epoch_seconds
    first = line.lost[0].submitted_at if line.lost else line.submitted_at
    attributes: Ours = {
        "topology": batch.plan.topology.name,
        "batch": batch.number,
        "epoch": done.attempt.epoch,
        "attempt": done.attempt.attempt,
        "rows": done.rows,
        "seconds": done.seconds,
    }
    return TraceSpan(
        "batch",
        line.began_epoch,
        at(line.judged_at),
        _ours(attributes),
        _reroutings(batch, done),
        [
            TraceSpan("choose plan", line.began_epoch, at(first)),
            *(_lost(line, attempt) for attempt in line.lost),
            _attempt(batch, done),
            TraceSpan("commit", at(line.collected_at), at(line.committed_at)),
            TraceSpan("publish", at(line.committed_at), at(line.published_at)),
            TraceSpan("learn and judge", at(line.published_at), at(line.judged_at)),
        ],
    )


def _reroutings(batch: BatchInProgress, done: CommittedAttempt) -> list[SpanEvent]:
    """The change of routing that the batch began with, if there was one, and the state that moved with it."""
    attempt, reason = done.attempt, batch.plan.epoch.reason
    if not attempt.hands_over:
        return []
    moved: Ours = {
        "epoch": attempt.epoch,
        "previous_epoch": -1 if attempt.previous_epoch is None else attempt.previous_epoch,
        "cause": str(reason.cause),
        "stages": ", ".join(sorted({stage.stage for stage in reason.stages})),
        "keys_moved": sum(done.results.keys_moved.values()),
        "bytes_moved": sum(done.results.bytes_moved.values()),
        "is_complete": attempt.switch is None,
    }
    return [SpanEvent("rerouted", batch.timeline.epoch_seconds(batch.timeline.submitted_at), _ours(moved))]


def _lost(line: Timeline, lost: LostAttempt) -> TraceSpan:
    attributes = {**_ours({"attempt": lost.number}), "error.type": lost.kind}
    began_at, ended_at = line.epoch_seconds(lost.submitted_at), line.epoch_seconds(lost.ended_at)
    return TraceSpan("attempt", began_at, ended_at, attributes, failure=lost.reason)


def _attempt(batch: BatchInProgress, done: CommittedAttempt) -> TraceSpan:
    """The attempt that was committed: its stages in their order."""
    line, placement = batch.timeline, batch.plan.placement
    by_operator = groupby(
        sorted(done.results.instances, key=lambda result: result.report.operator), key=lambda result: result.report.operator
    )
    operators = [_operator(line, placement, name, list(instances)) for name, instances in by_operator]
    return TraceSpan(
        "attempt",
        line.epoch_seconds(line.submitted_at),
        line.epoch_seconds(line.collected_at),
        _ours({"attempt": done.attempt.attempt, "executors": done.attempt.partitions}),
        children=[*_reading(line, placement, done.results.source_tasks), *sorted(operators, key=lambda span: span.began_at)],
    )


def _reading(line: Timeline, placement: Placement, tasks: Sequence[SourceResult]) -> list[TraceSpan]:
    """The first stage. One that was prefetched began before its batch."""
    if not tasks:
        return []
    parts = [(task.span, {"executor": _slot(placement, task.report.slot), "rows": task.report.rows}) for task in tasks]
    rows, ahead = sum(task.report.rows for task in tasks), any(task.report.ahead for task in tasks)
    return [_whole(line, "read", {"rows": rows, "tasks": len(tasks), "prefetched": ahead}, parts)]


def _operator(line: Timeline, placement: Placement, name: str, instances: Sequence[InstanceResult]) -> TraceSpan:
    """An operator: from the first start of a task with an instance of it to the end of the last instance."""
    reports = [result.report for result in instances]
    parts = [
        (
            result.span,
            {
                "instance": report.instance,
                "executor": _slot(placement, report.slot),
                "rows": report.rows,
                "busy_seconds": report.busy_seconds,
            },
        )
        for result, report in zip(instances, reports, strict=True)
    ]
    rows = sum(report.rows for report in reports)
    return _whole(line, f"operator {name}", {"operator": name, "rows": rows, "instances": len(instances)}, parts)


def _whole(line: Timeline, name: str, attributes: Ours, parts: Sequence[tuple[Span, Ours]]) -> TraceSpan:
    """A stage's span from those of its tasks; the last of these are parts of it."""
    began_at, ended_at = min(span.began_at for span, _ in parts), max(span.ended_at for span, _ in parts)
    last = sorted(parts, key=lambda part: part[0].ended_at)[-MOST_PARTS:]
    tasks = [
        TraceSpan("task", line.epoch_seconds(span.began_at), line.epoch_seconds(span.ended_at), _ours(of_task))
        for span, of_task in last
    ]
    return TraceSpan(name, line.epoch_seconds(began_at), line.epoch_seconds(ended_at), _ours(attributes), children=tasks)


def _slot(placement: Placement, slot: int) -> str:
    """The name of an executor slot; empty for rows that Spark reads itself."""
    return placement.slots[slot] if 0 <= slot < len(placement.slots) else ""


def _ours(attributes: Ours) -> dict[str, Value]:
    """Names that OpenTelemetry has no convention for are in a space of our own."""
    return {f"streamtopology.{name}": value for name, value in attributes.items()}
