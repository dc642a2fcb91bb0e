"""Events of a snapshot: one for each new reason of Ready, a Warning where somebody has to look."""

from __future__ import annotations

from typing import Any

import pytest

from streamtopology.k8s.decide.snapshot_events import NORMAL, events_of_snapshot
from streamtopology.k8s.decide.snapshots import FOR_SOMEBODY, SnapshotReason
from streamtopology.k8s.decide.steps import Event


def status(reason: str, message: str = "as it is") -> dict[str, Any]:
    return {"conditions": [{"type": "Ready", "status": "False", "reason": reason, "message": message}]}


def test_new_reason_is_an_event_with_its_message() -> None:
    assert events_of_snapshot({}, status("Starting")) == (Event("Normal", "Starting", "as it is"),)
    assert events_of_snapshot(status("Copying"), status("JobFailed")) == (Event("Warning", "JobFailed", "as it is"),)


def test_reason_that_stays_is_no_event_whatever_its_message_becomes() -> None:
    assert events_of_snapshot(status("Copying", "try 1"), status("Copying", "try 2")) == ()


@pytest.mark.parametrize("reason", sorted(FOR_SOMEBODY))
def test_reason_that_waits_for_somebody_is_a_warning(reason: SnapshotReason) -> None:
    assert reason not in NORMAL
