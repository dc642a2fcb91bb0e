"""Errors of user code and data become reports to the driver, which stops the run; the Spark task itself does not fail."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from streamtopology.contract.errors import StreamTopologyError
from streamtopology.jobs.checkpoint import AlreadyWritten
from streamtopology.jobs.errors import BatchTooLarge, PrecopyUnusable
from streamtopology.jobs.exchange.outbox import Outbox
from streamtopology.jobs.plan.results import FailureKind, TaskFailure


@contextmanager
def reporting_failures(outbox: Outbox, where: str, dry: bool) -> Iterator[None]:
    """Report an error raised inside as a TaskFailure. In a dry attempt it is ignored: user code may refuse dummy rows."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the driver raises it again
        if not dry:
            outbox.report(TaskFailure(where, str(error) or repr(error), kind_of(error), traceback.format_exc()))


def kind_of(error: Exception) -> FailureKind:
    """The kind of failure that `error` is to the driver."""
    if isinstance(error, PrecopyUnusable):
        return FailureKind.PRECOPY_UNUSABLE
    if isinstance(error, BatchTooLarge):
        return FailureKind.TOO_LARGE
    if isinstance(error, AlreadyWritten):
        return FailureKind.RESUBMITTED
    return FailureKind.EXPLAINED if isinstance(error, StreamTopologyError) else FailureKind.UNEXPECTED
