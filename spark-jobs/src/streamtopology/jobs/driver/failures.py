"""The failures that the tasks of an attempt reported, as exceptions of the driver."""

from __future__ import annotations

from streamtopology.jobs.driver.attempt_runner import LargeEnvelope, TaskResubmitted
from streamtopology.jobs.errors import AnotherDriver, BatchTooLarge, PrecopyUnusable, TopologyFailed
from streamtopology.jobs.plan.results import FailureKind, Results


def raise_failures(results: Results) -> None:
    """Raise BatchTooLarge, LargeEnvelope, PrecopyUnusable, TaskResubmitted or TopologyFailed if a task reported a failure."""
    if (too_large := results.failure(FailureKind.TOO_LARGE)) is not None:
        raise BatchTooLarge(too_large.message)
    if results.failure(FailureKind.LARGE_ENVELOPE) is not None:
        raise LargeEnvelope
    if (unusable := results.failure(FailureKind.PRECOPY_UNUSABLE)) is not None:
        raise PrecopyUnusable(unusable.message)
    if results.failure(FailureKind.RESUBMITTED) is not None:
        raise TaskResubmitted
    if (explained := results.failure(FailureKind.EXPLAINED)) is not None:
        raise TopologyFailed(explained.message)
    if (unexpected := results.failure(FailureKind.UNEXPECTED)) is not None:
        raise TopologyFailed(f"{unexpected.where}: {unexpected.message}\n{unexpected.traceback}")


def another_driver(checkpoint: str, event: str) -> AnotherDriver:
    """The error of a driver that has found another one's `event` on its checkpoint."""
    return AnotherDriver(
        f"{event} by another driver on checkpoint {checkpoint}; only one driver may run a topology: stop one of the two"
    )
