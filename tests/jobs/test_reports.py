"""Reports of tasks on their way to the driver."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from streamtopology.contract.errors import InvalidInput
from streamtopology.jobs.checkpoint import StateRef
from streamtopology.jobs.errors import PrecopyUnusable
from streamtopology.jobs.exchange.collect import collect
from streamtopology.jobs.exchange.envelope import Envelope, EnvelopeKind
from streamtopology.jobs.exchange.reports import Report, decode, encode
from streamtopology.jobs.plan.results import (
    Compacted,
    FailureKind,
    InstanceResult,
    MovedState,
    Results,
    SourceResult,
    TaskFailure,
)
from streamtopology.jobs.plan.span import Span
from streamtopology.jobs.worker.stage_tasks import kind_of
from streamtopology.routing.load.bucket_rows import BucketRows
from streamtopology.routing.load.load_report import LoadReport, SourceReport

INSTANCE = InstanceResult(
    LoadReport("counts", 2, 1, 307, 0.5, 0.6, bucket_rows=BucketRows.of(np.array([0, 7, 0, 0, 0, 0, 0, 300]))),
    "state/counts/2/7-1.delta",
    {"sink": ("a", "b")},
    "dead",
    Span("boot", 12.0, 12.5),
    ("copy",),
    {"busy": 1},
    compacted=Compacted(StateRef(None, ("state/counts/2/5-1.delta",), 3, 100), snapshot="state/counts/2/5-1.snapshot"),
)
SOURCE = SourceResult(
    SourceReport(1, 50, 0.9, 0.9, {"s": 3.0}, bad_rows={"s": 1}), Span("boot", 12.0, 13.0), ({"input": "s", "reason": "why"},)
)
MOVED = MovedState((("counts", 3, 100), ("sums", 1, 8)), seconds=0.25)
FAILURE = TaskFailure("operator 'counts', instance 2", "no", FailureKind.PRECOPY_UNUSABLE, "Traceback")


@pytest.mark.parametrize("report", [SOURCE, MOVED, FAILURE])
def test_report_survives_the_way_to_the_driver(report: Report) -> None:
    assert decode(encode(report)) == report


def test_result_of_instance_survives_the_way_to_the_driver() -> None:
    back = decode(encode(INSTANCE))
    assert isinstance(back, InstanceResult)
    assert encode(back) == encode(INSTANCE)
    assert back.report.bucket_rows.dense().tolist() == [0, 7, 0, 0, 0, 0, 0, 300]
    assert (back.delta, back.outputs, back.dead_letters) == (INSTANCE.delta, INSTANCE.outputs, INSTANCE.dead_letters)
    assert back.compacted == INSTANCE.compacted
    assert (back.span, back.adopted, back.learning_report) == (INSTANCE.span, ("copy",), {"busy": 1})


def test_unknown_report_names_the_likely_cause() -> None:
    with pytest.raises(ValueError, match="different versions"):
        decode(b"X{}")


def test_collected_reports_are_summed_by_node() -> None:
    envelope = Envelope()
    for report in (INSTANCE, SOURCE, MOVED, MOVED, FAILURE):
        envelope.add_bytes(EnvelopeKind.REPORT, "", 0, 0, encode(report))
    results: Results = collect([envelope.seal()[0].to_pybytes()])
    assert results.keys_moved == {"counts": 6, "sums": 2}
    assert results.bytes_moved == {"counts": 200, "sums": 16}
    assert results.moving_seconds == 0.25
    both = replace(INSTANCE, moving_seconds=0.5), replace(INSTANCE, moving_seconds=0.125)
    assert Results([*both, INSTANCE], handing_seconds=0.25).moving_seconds == 0.875, "of instances of one slot"
    assert (results.sources, results.set_aside) == ([SOURCE.report], list(SOURCE.set_aside))
    assert results.learning_reports == [("counts", {"busy": 1})]
    assert results.failure(FailureKind.EXPLAINED, FailureKind.PRECOPY_UNUSABLE) == FAILURE
    assert results.failure(FailureKind.UNEXPECTED) is None


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (PrecopyUnusable("gone"), FailureKind.PRECOPY_UNUSABLE),
        (InvalidInput("wrong"), FailureKind.EXPLAINED),
        (KeyError("k"), FailureKind.UNEXPECTED),
    ],
)
def test_error_has_the_kind_the_driver_acts_by(error: Exception, kind: FailureKind) -> None:
    assert kind_of(error) is kind
