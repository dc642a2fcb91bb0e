"""`streamtopology state watermark`: the event time that a stopped topology has reached, and its correction."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime

from streamtopology.contract.reasons import EpochCause, EpochReason
from streamtopology.jobs.checkpoint import BatchRecord, Checkpoint, CheckpointError, CommitRecord
from streamtopology.jobs.columnar.event_times import is_event_time
from streamtopology.jobs.driver.commit import closed_until
from streamtopology.jobs.driver.publisher import Publisher
from streamtopology.jobs.driver.watermarks import END_OF_TIME
from streamtopology.jobs.plan.as_of import plan_as_of
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.jobs.runtime.raised_lateness import forgotten_before
from streamtopology.topology import Topology


def watermark_text(uri: str) -> str:
    """The watermark of the checkpoint at `uri` and the newest event times behind it, for people. Raises CheckpointError."""
    checkpoint = Checkpoint.attach(uri)
    commit = _newest(checkpoint)
    lines = [
        f"{uri}, as of batch {commit.batch}",
        f"watermark     {_shown(commit.watermark_after)}",
        f"closed until  {_shown(closed_until(commit, checkpoint.batch_records(commit.batch)))}",
        *(f"newest        {_shown(time)} in {name}" for name, time in sorted(commit.max_event_times.items())),
        *(f"silent since  {_shown(time)} by the clock: {name}" for name, time in sorted(commit.silent_since.items())),
    ]
    return "\n".join(lines)


def set_watermark(uri: str, arguments: str, topology: Topology, seconds: float) -> str:
    """Commit a batch without rows after which the watermark is `seconds` (epoch seconds), and no newest time is later.

    Windows after it that were closed are open again, empty; those before it that were forgotten stay closed. The newest batch
    is published first: its output is named by its own commit record alone. `arguments`: manifest and work folder, for the
    command that takes it back. Raises CheckpointError, and what a sink raises.
    """
    checkpoint = Checkpoint.attach(uri)
    commit = _newest(checkpoint)
    publisher = Publisher.of(checkpoint, topology, manifest.resolve().parent)
    try:
        publisher.publish_again(commit, plan_as_of(checkpoint, commit).topology)
    finally:
        publisher.close()
    number = commit.batch + 1
    attempt = 1 + max((record.attempt for record in checkpoint.batch_records(number)), default=0)
    before = _record_of(checkpoint, commit)
    closed = closed_until(commit, [before])
    closed = closed if is_event_time(closed) else None
    still_closed = None if closed is None else min(closed, seconds)
    epoch = _epoch_after(checkpoint, commit, closed, seconds)
    times = {name: min(time, seconds) for name, time in commit.max_event_times.items() if is_event_time(time)}
    recorded = checkpoint.record(replace(before, batch=number, attempt=attempt, epoch=epoch, watermark=still_closed))
    set_ = replace(commit, batch=number, attempt=attempt, epoch=epoch, outputs={}, rows_in=0)
    set_ = replace(set_, watermark_after=seconds, max_event_times=times)
    if not recorded or not checkpoint.commit(set_):
        raise CheckpointError(f"batch {number} was committed to {uri} meanwhile: stop the topology first")
    return (
        f"{uri}: watermark {_shown(commit.watermark_after)} -> {_shown(seconds)}, as of batch {number}\n"
        "rows of later windows are in time; those of them that were closed are emitted again, with the rows that come now\n"
        f"to take it back: `streamtopology state rollback {arguments} --to {commit.batch}`"
    )


def _epoch_after(checkpoint: Checkpoint, commit: CommitRecord, closed: float | None, seconds: float) -> int:
    """The epoch of the batch that sets the watermark: a new one, routed alike, if other windows count as forgotten then."""
    plan = ExecutionPlan.from_json(checkpoint.read_epoch(commit.epoch))
    forgotten = forgotten_before(plan, closed, seconds)
    if forgotten == dict(plan.forgotten_until):
        return commit.epoch
    reason = EpochReason(EpochCause.RESTARTED, changes=(f"watermark set to {_shown(seconds)}",))
    epoch = replace(plan.epoch, number=1 + max(checkpoint.epochs()), reason=reason)
    checkpoint.write_epoch(epoch.number, replace(plan, epoch=epoch, forgotten_until=forgotten).to_json())
    return epoch.number


def _record_of(checkpoint: Checkpoint, commit: CommitRecord) -> BatchRecord:
    for record in checkpoint.batch_records(commit.batch):
        if record.attempt == commit.attempt:
            return record
    what = f"attempt {commit.attempt} at batch {commit.batch}"
    raise CheckpointError(f"{checkpoint.uri} has no record of {what}: put it back from a copy, or go back to an earlier batch")


def _newest(checkpoint: Checkpoint) -> CommitRecord:
    commit = checkpoint.last_commit()
    if commit is None:
        raise CheckpointError(f"{checkpoint.uri} has no committed batch yet, and so no watermark")
    return commit


def _shown(time: float | None) -> str:
    if time is None:
        return "none"
    if not is_event_time(time):
        return f"{time}, which is no event time and reads as none" if math.isfinite(time) else f"{time}, which reads as none"
    text = datetime.fromtimestamp(time, UTC).isoformat().replace("+00:00", "Z")
    return f"{text} (closed for good)" if time == END_OF_TIME else text
