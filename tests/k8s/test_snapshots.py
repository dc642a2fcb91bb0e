"""The decision about a StreamTopologySnapshot, from its first look to its end."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from support.snapshots import topology

from streamtopology.contract.pods import USER
from streamtopology.k8s.decide.owned_objects import Ended, Job, Pod
from streamtopology.k8s.decide.snapshots import SnapshotView, decide_snapshot

JOB = Job("Job", "nightly-snapshot", "uid-3", owner="uid-2")
REPORT = json.dumps({"batch": 7, "bytes": 4096})


def view(**changed: Any) -> SnapshotView:
    body = {
        "metadata": {"name": "nightly", "namespace": "space", "uid": "uid-2", "generation": 1},
        "spec": {"topology": "flow", "to": "/backup/nightly"},
    }
    return replace(SnapshotView(body, topology(), "/checkpoint", "image:1", None, (), "", 1e9), **changed)


def pod(exit_code: int, message: str) -> Pod:
    return Pod("Pod", "nightly-snapshot-x", "uid-4", owner="uid-3", ended=Ended(exit_code, "", message))


def conditions(status: dict[str, Any]) -> dict[str, str]:
    return {one["type"]: one["status"] for one in status["conditions"]}


def test_snapshot_of_a_topology_with_a_committed_batch_gets_its_job() -> None:
    decision = decide_snapshot(view(), USER)
    assert decision.job is not None
    assert decision.job["metadata"]["name"] == "nightly-snapshot"
    assert decision.status["phase"] == "Pending"
    assert conditions(decision.status) == {"Ready": "False", "Reconciling": "True", "Stalled": "False"}


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"topology": None}, "NoTopology"),
        ({"topology": "spec.sources: missing"}, "InvalidManifest"),
        ({"image": None}, "NoImage"),
        ({"checkpoint": ""}, "NothingCommitted"),
        ({"checkpoint": "file:///backup/nightly/"}, "SamePlace"),
    ],
)
def test_snapshot_that_cannot_begin_says_why_and_waits(changed: dict[str, Any], reason: str) -> None:
    decision = decide_snapshot(view(**changed), USER)
    assert (decision.job, decision.status["phase"]) == (None, "Pending")
    assert decision.status["conditions"][0]["reason"] == reason
    assert decision.again_seconds is not None


def test_job_that_does_not_start_is_reported_with_its_obstacle() -> None:
    decision = decide_snapshot(view(job=JOB, obstacle="exceeded quota"), USER)
    assert decision.job is None
    assert decision.status["conditions"][0]["reason"] == "JobNotStarted"
    assert "exceeded quota" in decision.status["message"]


def test_completed_copy_has_the_batch_and_bytes_of_its_pod() -> None:
    done = view(job=replace(JOB, done=True), pods=(pod(1, "killed"), pod(0, REPORT)))
    status = decide_snapshot(done, USER).status
    assert (status["phase"], status["batch"], status["bytes"]) == ("Completed", 7, 4096)
    assert (status["uri"], conditions(status)["Ready"]) == ("/backup/nightly", "True")


def test_completed_copy_whose_pod_is_gone_is_complete_without_figures() -> None:
    status = decide_snapshot(view(job=replace(JOB, done=True)), USER).status
    assert status["phase"] == "Completed"
    assert "batch" not in status


def test_failed_copy_is_stalled_with_the_pods_last_words() -> None:
    failed = view(job=replace(JOB, failed="BackoffLimitExceeded: too often"), pods=(pod(1, "is not empty"),))
    status = decide_snapshot(failed, USER).status
    assert (status["phase"], conditions(status)["Stalled"]) == ("Failed", "True")
    assert "is not empty" in status["message"]


@pytest.mark.parametrize("phase", ["Completed", "Failed"])
def test_ended_snapshot_makes_no_second_job_when_its_job_is_deleted(phase: str) -> None:
    seen = view()
    seen.body["status"] = {"phase": phase}
    decision = decide_snapshot(seen, USER)
    assert (decision.job, decision.status) == (None, {"phase": phase})
