"""The decision about a StreamTopologySnapshot: its Job, if it is to be made now, and its status. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamtopology.contract.conditions import ConditionType
from streamtopology.contract.reasons import Documented
from streamtopology.k8s import names
from streamtopology.k8s.decide.conditions import Condition
from streamtopology.k8s.decide.owned_objects import Job, Pod
from streamtopology.k8s.instants import format_time
from streamtopology.k8s.resources import snapshot
from streamtopology.k8s.resources.objects import Object, Owner
from streamtopology.topology import Topology

LOOK_SECONDS = 15.0
"""Between two looks at a snapshot that waits for something that no watch shows."""


class SnapshotPhase(Documented):
    """The phases of a snapshot."""

    PENDING = "Pending", "its Job is not made yet"
    RUNNING = "Running", "its Job copies"
    COMPLETED = "Completed", "the copy is whole"
    FAILED = "Failed", "there is no copy, and no further try"


class SnapshotReason(Documented):
    """Reasons of a snapshot's conditions."""

    NO_TOPOLOGY = "NoTopology", "no topology of this name is in the namespace"
    INVALID_MANIFEST = "InvalidManifest", "the topology's manifest has mistakes"
    NO_IMAGE = "NoImage", "neither spec.image of the topology nor the operator's --image is set"
    NOTHING_COMMITTED = "NothingCommitted", "the topology has not committed a batch yet"
    SAME_PLACE = "SamePlace", "the copy would be in the topology's own checkpoint"
    STARTING = "Starting", "the Job is made"
    NOT_STARTED = "JobNotStarted", "the Job's pod is not created, or cannot start"
    COPYING = "Copying", "the Job copies"
    COMPLETED = "Completed", "(True) the copy is whole"
    FAILED = "JobFailed", "the Job has failed for good"
    SETTLED = "Settled", "(False) nothing is being brought about"


@dataclass(frozen=True)
class SnapshotView:
    """A snapshot and what surrounds it. `topology`: None where the name is unknown, a text with the mistakes of its manifest.

    `checkpoint`: of the topology's last committed batch, "" before the first one. `job`: the snapshot's own; `pods`: that
    Job's. `obstacle`: why its pod is not created or cannot start, "" where nothing is known.
    """

    body: Object
    topology: Topology | str | None
    checkpoint: str
    image: str | None
    job: Job | None
    pods: tuple[Pod, ...]
    obstacle: str
    now: float

    @property
    def status(self) -> Object:
        return self.body.get("status") or {}

    @property
    def owner(self) -> Owner:
        metadata = self.body["metadata"]
        of = str(self.body["spec"]["topology"])
        return Owner(metadata["name"], metadata["namespace"], metadata["uid"], names.SNAPSHOT, of)


@dataclass(frozen=True)
class SnapshotDecision:
    """`job`: to create, if any. `again_seconds`: until the next look, if one is due without a change."""

    status: Object
    job: Object | None = None
    again_seconds: float | None = None


def decide_snapshot(seen: SnapshotView, user: int | None) -> SnapshotDecision:
    """The next step of a snapshot. One that has completed or failed stays so, whatever becomes of its Job."""
    if seen.status.get("phase") in (SnapshotPhase.COMPLETED, SnapshotPhase.FAILED):
        return SnapshotDecision(seen.status)
    if seen.job is not None:
        return _of_job(seen, seen.job)
    if isinstance(found := _ready_to_copy(seen), tuple):
        return SnapshotDecision(_status(seen, SnapshotPhase.PENDING, *found), again_seconds=LOOK_SECONDS)
    place = str(seen.body["spec"]["to"])
    job = snapshot.job(seen.owner, found, seen.image or "", user, seen.checkpoint, place)
    return SnapshotDecision(_status(seen, SnapshotPhase.PENDING, SnapshotReason.STARTING, "its Job is made"), job)


def _ready_to_copy(seen: SnapshotView) -> Topology | tuple[SnapshotReason, str]:
    """The topology to copy, or the reason why it cannot be copied now, with the remedy."""
    name = seen.owner.topology
    if seen.topology is None:
        return SnapshotReason.NO_TOPOLOGY, f"there is no StreamTopology {name!r} in this namespace: create it, or delete this"
    if isinstance(seen.topology, str):
        return SnapshotReason.INVALID_MANIFEST, f"the manifest of {name!r} has mistakes, correct it: {seen.topology}"
    if not seen.image:
        return SnapshotReason.NO_IMAGE, f"{name!r} has no image: set its spec.image, or the operator's --image"
    if not seen.checkpoint:
        text = f"{name!r} has not committed a batch yet: the copy begins after its first one"
        return SnapshotReason.NOTHING_COMMITTED, text
    if _place(seen.body["spec"]["to"]) in (_place(seen.checkpoint), _place(seen.topology.checkpoint or "")):
        text = f"spec.to is the checkpoint of {name!r} itself: create a snapshot with another place"
        return SnapshotReason.SAME_PLACE, text
    return seen.topology


def _of_job(seen: SnapshotView, job: Job) -> SnapshotDecision:
    if job.done:
        figures = _reported(seen.pods)
        at = f" as of batch {figures['batch']}" if "batch" in figures else ""
        text = f"{seen.owner.topology!r}{at} is in {seen.body['spec']['to']}; spec.restore.from takes it"
        return SnapshotDecision(_status(seen, SnapshotPhase.COMPLETED, SnapshotReason.COMPLETED, text) | figures)
    if job.failed:
        why = next((f" ({pod.ended.message})" for pod in seen.pods if pod.ended and pod.ended.message), "")
        text = f"the copy failed {snapshot.TRIES} times at most, {job.failed}{why}: correct it and create another snapshot"
        return SnapshotDecision(_status(seen, SnapshotPhase.FAILED, SnapshotReason.FAILED, text))
    if seen.obstacle:
        text = f"the Job {job.name} does not start: {seen.obstacle}"
        status = _status(seen, SnapshotPhase.RUNNING, SnapshotReason.NOT_STARTED, text)
        return SnapshotDecision(status, again_seconds=LOOK_SECONDS)
    text = f"the Job {job.name} copies to {seen.body['spec']['to']}"
    return SnapshotDecision(_status(seen, SnapshotPhase.RUNNING, SnapshotReason.COPYING, text), again_seconds=LOOK_SECONDS)


def _reported(pods: tuple[Pod, ...]) -> dict[str, int]:
    """Batch and bytes, as the pod that succeeded has reported them; empty where no pod is left to say."""
    for pod in pods:
        if pod.ended is not None and pod.ended.exit_code == 0:
            try:
                report: Mapping[str, Any] = json.loads(pod.ended.message)
                return {"batch": int(report["batch"]), "bytes": int(report["bytes"])}
            except (ValueError, KeyError, TypeError):  # a sidecar's, or cut off
                continue
    return {}


def _status(seen: SnapshotView, phase: SnapshotPhase, reason: SnapshotReason, message: str) -> Object:
    done, stalled = phase is SnapshotPhase.COMPLETED, phase is SnapshotPhase.FAILED
    settled = (SnapshotReason.SETTLED.value, "nothing is being brought about")
    conditions = (
        Condition(ConditionType.READY, "True" if done else "False", reason.value, message),
        Condition(
            ConditionType.RECONCILING,
            "False" if done or stalled else "True",
            *(settled if done or stalled else (reason.value, message)),
        ),
        Condition(ConditionType.STALLED, "True" if stalled else "False", *((reason.value, message) if stalled else settled)),
    )
    return {
        "phase": phase.value,
        "observedGeneration": seen.body["metadata"].get("generation", 1),
        "uri": seen.body["spec"]["to"],
        "message": message,
        "conditions": [_written(seen, one) for one in conditions],
    }


def _written(seen: SnapshotView, condition: Condition) -> Object:
    known = {one["type"]: one for one in seen.status.get("conditions") or ()}.get(condition.type)
    same = known is not None and known["status"] == condition.status
    return {
        "type": str(condition.type),
        "status": condition.status,
        "observedGeneration": seen.body["metadata"].get("generation", 1),
        "lastTransitionTime": known["lastTransitionTime"] if known is not None and same else format_time(seen.now),
        "reason": condition.reason,
        "message": condition.message,
    }


def _place(uri: str) -> str:
    return uri.removeprefix("file://").rstrip("/")
