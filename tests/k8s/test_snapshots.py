"""The decision about a StreamTopologySnapshot, from its first look to its end."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.snapshots import topology

from streamtopology.contract.pods import USER
from streamtopology.k8s.decide.owned_objects import Ended, Eviction, Job, Pod
from streamtopology.k8s.decide.snapshots import FOR_SOMEBODY, SnapshotReason, SnapshotView, decide_snapshot, rival_of

JOB = Job("Job", "nightly-snapshot", "uid-3", owner="uid-2")
REPORT = json.dumps({"batch": 7, "bytes": 4096})


def view(**changed: Any) -> SnapshotView:
    body = {
        "metadata": {"name": "nightly", "namespace": "space", "uid": "uid-2", "generation": 1},
        "spec": {"topology": "flow", "to": "/backup/nightly"},
    }
    return replace(SnapshotView(body, topology(), "/checkpoint", "image:1", None, (), "", "", 1e9), **changed)


def pod(exit_code: int, message: str) -> Pod:
    return Pod("Pod", "nightly-snapshot-x", "uid-4", owner="uid-3", phase="Failed", ended=Ended(exit_code, "", message))


def test_copy_that_was_evicted_names_the_storage_to_raise() -> None:
    beyond = Eviction("Pod ephemeral local storage usage exceeds the total limit of containers 64Mi", 1e9, by_limit=True)
    evicted = replace(pod(137, beyond.message), component="snapshot", evicted=beyond)
    status = decide_snapshot(view(job=JOB, pods=(evicted,)), USER).status
    assert "containers 64Mi; raise spec.migration.resources.storage of the topology" in status["message"]


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
    ],
)
def test_snapshot_that_cannot_begin_says_why_and_waits(changed: dict[str, Any], reason: str) -> None:
    decision = decide_snapshot(view(**changed), USER)
    assert (decision.job, decision.status["phase"]) == (None, "Pending")
    assert decision.status["conditions"][0]["reason"] == reason
    waits_for_somebody = str(reason in FOR_SOMEBODY)
    assert conditions(decision.status)["Stalled"] == waits_for_somebody != conditions(decision.status)["Reconciling"]
    assert decision.again_seconds is not None


def test_job_that_does_not_start_is_reported_with_its_obstacle() -> None:
    decision = decide_snapshot(view(job=JOB, not_created="exceeded quota"), USER)
    assert decision.job is None
    assert decision.status["conditions"][0]["reason"] == "JobNotStarted"
    assert "exceeded quota" in decision.status["message"]


def test_pod_that_no_node_takes_is_the_obstacle_of_its_job() -> None:
    waits = Pod("Pod", "nightly-snapshot-x", "uid-4", owner="uid-3", unschedulable="Insufficient cpu")
    status = decide_snapshot(view(job=JOB, pods=(waits,)), USER).status
    assert status["conditions"][0]["reason"] == "JobNotStarted"
    assert "no node takes nightly-snapshot-x: Insufficient cpu" in status["message"]


def test_suspended_job_is_reported_as_one_that_waits_for_somebody() -> None:
    status = decide_snapshot(view(job=replace(JOB, suspended=True)), USER).status
    assert status["conditions"][0]["reason"] == "JobNotStarted"
    assert "it is suspended (spec.suspend)" in status["message"]


def test_copy_that_is_tried_again_says_why_the_last_try_failed() -> None:
    status = decide_snapshot(view(job=JOB, pods=(pod(1, "no space left"),)), USER).status
    assert (status["phase"], status["conditions"][0]["reason"]) == ("Running", "Copying")
    assert "try 2 of 4; the last one failed: no space left" in status["message"]


@pytest.mark.parametrize(
    "checkpoint",
    ["/backup/nightly", "file:///backup/nightly/", "/backup", "/backup/x/..", "/backup/nightly/deep", "file:/backup%2Fnightly"],
)
def test_place_that_is_in_or_around_the_checkpoint_fails_for_good(checkpoint: str) -> None:
    decision = decide_snapshot(view(checkpoint=checkpoint), USER)
    assert (decision.job, decision.again_seconds) == (None, None)
    assert (decision.status["phase"], decision.status["conditions"][0]["reason"]) == ("Failed", "SamePlace")


@pytest.mark.parametrize("checkpoint", ["/backup/nightly-2", "/backup/night", "s3://backup/nightly"])
def test_place_next_to_the_checkpoint_is_taken(checkpoint: str) -> None:
    assert decide_snapshot(view(checkpoint=checkpoint), USER).job is not None


def test_second_snapshot_of_a_place_fails_and_names_the_first() -> None:
    decision = decide_snapshot(view(rival="hourly"), USER)
    assert (decision.job, decision.status["conditions"][0]["reason"]) == (None, "PlaceTaken")
    assert "'hourly'" in decision.status["message"]


def test_older_snapshot_of_the_place_is_the_rival_unless_it_failed() -> None:
    first, second = (
        {"metadata": {"name": name, "creationTimestamp": at}, "spec": {"topology": "flow", "to": to}}
        for name, at, to in (("b", "2026-01-01T00:00:00Z", "/backup"), ("a", "2026-01-02T00:00:00Z", "/backup/a"))
    )
    assert (rival_of(second, [first, second]), rival_of(first, [first, second])) == ("b", "")
    other = {**first, "spec": {"topology": "other", "to": "/backup"}}
    assert rival_of(second, [other, second]) == "b", "whatever topology it is of"
    failed = {**first, "status": {"phase": "Failed"}}
    assert rival_of(second, [failed, second]) == ""


def test_checkpoint_of_another_topology_is_no_place_for_a_copy() -> None:
    decision = decide_snapshot(view(holder="other"), USER)
    assert (decision.job, decision.status["phase"]) == (None, "Failed")
    assert decision.status["conditions"][0]["reason"] == "PlaceTaken"
    assert "spec.to is the checkpoint of 'other'" in decision.status["message"]


def test_completed_copy_has_the_batch_and_bytes_of_its_pod() -> None:
    done = view(job=replace(JOB, done=True), pods=(pod(1, "killed"), pod(0, REPORT)))
    status = decide_snapshot(done, USER).status
    assert (status["phase"], status["batch"], status["bytes"]) == ("Completed", 7, 4096)
    assert (status["uri"], conditions(status)["Ready"]) == ("/backup/nightly", "True")


def test_figures_of_a_pod_that_is_deleted_before_its_job_is_done_are_kept() -> None:
    seen = view(job=JOB, pods=(pod(0, REPORT),))
    running = decide_snapshot(seen, USER).status
    assert (running["phase"], running["batch"]) == ("Running", 7)
    later = view(job=replace(JOB, done=True), body=seen.body | {"status": running})
    status = decide_snapshot(later, USER).status
    assert (status["phase"], status["batch"], status["bytes"]) == ("Completed", 7, 4096)
    assert "as of batch 7" in status["message"]


def test_completed_copy_whose_pod_is_gone_is_complete_without_figures() -> None:
    status = decide_snapshot(view(job=replace(JOB, done=True)), USER).status
    assert status["phase"] == "Completed"
    assert "batch" not in status


def test_failed_copy_is_stalled_with_the_pods_last_words() -> None:
    failed = view(job=replace(JOB, failed="BackoffLimitExceeded: too often"), pods=(pod(1, "is not empty"),))
    status = decide_snapshot(failed, USER).status
    assert (status["phase"], conditions(status)["Stalled"]) == ("Failed", "True")
    assert "is not empty" in status["message"]


def test_job_without_a_pod_is_withdrawn_once_its_topology_is_gone() -> None:
    refused = "serviceaccount flow-driver not found"
    decision = decide_snapshot(view(topology=None, job=JOB, not_created=refused), USER)
    assert (decision.withdrawn, decision.job) == (JOB, None)
    assert (decision.status["phase"], decision.status["conditions"][0]["reason"]) == ("Failed", "TopologyGone")
    assert refused in decision.status["message"]


@pytest.mark.parametrize(
    "changed",
    [
        {"topology": None},
        {"topology": None, "not_created": "exceeded quota", "pods": (replace(pod(0, ""), ended=None),)},
        {"not_created": "exceeded quota"},
    ],
    ids=["its pod is on the way", "its pod copies", "its topology is there"],
)
def test_job_whose_pod_may_still_copy_is_kept(changed: dict[str, Any]) -> None:
    decision = decide_snapshot(view(job=JOB, **changed), USER)
    assert (decision.withdrawn, decision.status["phase"]) == (None, "Running")


@pytest.mark.parametrize("phase", ["Completed", "Failed"])
def test_ended_snapshot_makes_no_second_job_when_its_job_is_deleted(phase: str) -> None:
    seen = view()
    seen.body["status"] = {"phase": phase}
    decision = decide_snapshot(seen, USER)
    assert (decision.job, decision.status) == (None, {"phase": phase})


def test_page_has_a_line_for_each_reason() -> None:
    page = (Path(__file__).parents[2] / "docs" / "run" / "operations.md").read_text(encoding="utf-8")
    section = page.partition("\n## Snapshots\n")[2].partition("\n## ")[0]
    named = re.findall(r"^\| `(\w+)`", section, re.MULTILINE)
    assert sorted(named) == sorted(reason.value for reason in SnapshotReason if reason is not SnapshotReason.SETTLED)
