"""The decision about a StreamTopologySnapshot: its Job, if it is to be made now, and its status. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from streamtopology.contract.conditions import ConditionType
from streamtopology.contract.reasons import Documented
from streamtopology.k8s import names
from streamtopology.k8s.decide.conditions import Condition, job_obstacle
from streamtopology.k8s.decide.evictions import sentence
from streamtopology.k8s.decide.fields import items_at, mapping_at
from streamtopology.k8s.decide.owned_objects import Job, Pod
from streamtopology.k8s.decide.places import StoragePlace, as_seen_from, checkpoint_owner, overlap, place_of
from streamtopology.k8s.instants import format_time
from streamtopology.k8s.resources import snapshot
from streamtopology.k8s.resources.checkpoint_job import TRIES
from streamtopology.k8s.resources.objects import Object, Owner
from streamtopology.topology import Topology

# Between two looks at a snapshot that waits for something that no watch shows.
LOOK_SECONDS = 15.0


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
    SAME_PLACE = "SamePlace", "the copy would be in the topology's own checkpoint, or around it"
    PLACE_TAKEN = "PlaceTaken", "an older snapshot, or another topology's checkpoint, has this place, or one in or around it"
    NAME_TAKEN = "NameTaken", "a Job of this snapshot's name exists and is not its own"
    JOB_REFUSED = "JobRefused", "the API server refuses the Job"
    TOPOLOGY_GONE = "TopologyGone", "the topology was deleted before a pod of the Job was created"
    STARTING = "Starting", "the Job is made"
    NOT_STARTED = "JobNotStarted", "the Job's pod is not created, or cannot start"
    COPYING = "Copying", "the Job copies"
    COMPLETED = "Completed", "(True) the copy is whole"
    FAILED = "JobFailed", "the Job has failed for good"
    SETTLED = "Settled", "(False) nothing is being brought about"


# Reasons of Ready=False while a snapshot that has not failed waits for somebody to act.
FOR_SOMEBODY = frozenset(
    {SnapshotReason.INVALID_MANIFEST, SnapshotReason.NO_IMAGE, SnapshotReason.NAME_TAKEN, SnapshotReason.JOB_REFUSED}
)


@dataclass(frozen=True)
class SnapshotView:
    """A snapshot and what surrounds it. `topology`: None where the name is unknown, a text with the mistakes of its manifest.

    `checkpoint`: of the topology's last committed batch, "" before the first one. `job`: the snapshot's own; `pods`: that
    Job's, newest first. `not_created`: why the cluster creates no pod of it, "" where nothing is known. `rival`: an older
    snapshot whose place this one would share, `holder`: a topology whose checkpoint that place is; "" without one. `surplus`:
    identity and place of the copies that go once this one is whole.
    """

    body: Object
    topology: Topology | str | None
    checkpoint: str
    image: str | None
    job: Job | None
    pods: tuple[Pod, ...]
    not_created: str
    rival: str
    now: float
    holder: str = ""
    surplus: tuple[tuple[str, str], ...] = ()

    @property
    def status(self) -> Object:
        return mapping_at(self.body, "status")

    @property
    def owner(self) -> Owner:
        metadata = self.body["metadata"]
        of = str(self.body["spec"]["topology"])
        return Owner(metadata["name"], metadata["namespace"], metadata["uid"], names.SNAPSHOT, of)


@dataclass(frozen=True)
class SnapshotDecision:
    """`job`: to create, `withdrawn`: to delete, if any. `again_seconds`: until the next look, if it is due without a change.

    `dropped`: the identities of copies that are gone; their snapshots go, too.
    """

    status: Object
    job: Object | None = None
    withdrawn: Job | None = None
    again_seconds: float | None = None
    dropped: tuple[str, ...] = ()


def decide_snapshot(seen: SnapshotView, user: int | None) -> SnapshotDecision:
    """The next step of a snapshot. One that has completed or failed stays so, whatever becomes of its Job."""
    if is_ended(seen.body):
        return SnapshotDecision(seen.status)
    if seen.job is not None:
        return _of_job(seen, seen.job)
    if isinstance(found := _ready_to_copy(seen), tuple):
        return SnapshotDecision(_status(seen, SnapshotPhase.PENDING, *found), again_seconds=LOOK_SECONDS)
    if (refused := _refused_place(seen, found)) is not None:
        return SnapshotDecision(_status(seen, SnapshotPhase.FAILED, *refused))
    place = str(seen.body["spec"]["to"])
    job = snapshot.job(seen.owner, found, seen.image or "", user, seen.checkpoint, place, seen.surplus)
    return SnapshotDecision(_status(seen, SnapshotPhase.PENDING, SnapshotReason.STARTING, "its Job is made"), job)


def without_job(seen: SnapshotView, reason: SnapshotReason, problem: str) -> Object:
    """The status of a snapshot whose Job could not be made; it is tried again."""
    return _status(seen, SnapshotPhase.PENDING, reason, problem)


def is_ended(body: Object) -> bool:
    """True if the snapshot has completed or failed: it stays so."""
    return mapping_at(body, "status").get("phase") in (SnapshotPhase.COMPLETED, SnapshotPhase.FAILED)


def rival_of(body: Object, others: Iterable[Object], topologies: Iterable[Object] = ()) -> str:
    """The name of an older snapshot whose place overlaps, "" without one. A failed one holds no place."""
    known = {_key(topology): topology for topology in topologies}
    mine = target_of_snapshot(body, known)
    rivals = (
        other
        for other in others
        if _age(other) < _age(body)
        and mapping_at(other, "status").get("phase") != SnapshotPhase.FAILED
        and mine.overlaps(target_of_snapshot(other, known))
    )
    return next((as_seen_from(mine.namespace, other) for other in rivals), "")


def holder_of(body: Object, topologies: Iterable[Object]) -> str:
    """The topology whose checkpoint the snapshot's place is, or is in or around; "" without one."""
    bodies = tuple(topologies)
    return checkpoint_owner(target_of_snapshot(body, {_key(topology): topology for topology in bodies}), bodies)


def target_of_snapshot(body: Object, topologies: Mapping[tuple[str, str], Object]) -> StoragePlace:
    """The place that a snapshot copies to: its Job has the volumes of its topology's driver."""
    namespace, spec = str(body["metadata"].get("namespace", "")), body["spec"]
    return place_of(str(spec["to"]), topologies.get((namespace, str(spec["topology"])), {}), namespace)


def _key(body: Object) -> tuple[str, str]:
    return str(body["metadata"].get("namespace", "")), str(body["metadata"]["name"])


def _age(body: Object) -> tuple[str, str, str]:
    metadata = body["metadata"]
    return metadata.get("creationTimestamp", ""), metadata["name"], metadata.get("namespace", "")


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
    return seen.topology


def _refused_place(seen: SnapshotView, topology: Topology) -> tuple[SnapshotReason, str] | None:
    """The reason why the copy cannot be where it is asked for; the place is for good, so no later look changes that."""
    place, name = str(seen.body["spec"]["to"]), seen.owner.topology
    if any(overlap(place, other) for other in (seen.checkpoint, topology.checkpoint or "") if other):
        text = f"spec.to is the checkpoint of {name!r}, or in or around it: create a snapshot with a place of its own"
        return SnapshotReason.SAME_PLACE, text
    if seen.holder:
        text = f"spec.to is the checkpoint of {seen.holder!r}, or in or around it: create a snapshot with a place of its own"
        return SnapshotReason.PLACE_TAKEN, text
    if seen.rival:
        text = f"spec.to is the place of the snapshot {seen.rival!r}, or in or around it: create a snapshot with another place"
        return SnapshotReason.PLACE_TAKEN, text
    return None


def _of_job(seen: SnapshotView, job: Job) -> SnapshotDecision:
    ended = [(pod, pod.ended) for pod in seen.pods if pod.ended and pod.ended.exit_code]
    place, failures = seen.body["spec"]["to"], [sentence(pod) or end.message for pod, end in ended]
    why, figures = next((f": {message}" for message in failures if message), ""), _figures(seen)
    if job.done:
        at = f" as of batch {figures['batch']}" if "batch" in figures else ""
        text = f"{seen.owner.topology!r}{at} is in {place}; spec.restore.from takes it"
        status = _status(seen, SnapshotPhase.COMPLETED, SnapshotReason.COMPLETED, text) | figures
        return SnapshotDecision(status, dropped=_dropped(seen.pods))
    if job.failed:
        text = f"the Job {job.name} failed ({job.failed}){why}; correct that and create another snapshot"
        return SnapshotDecision(_status(seen, SnapshotPhase.FAILED, SnapshotReason.FAILED, text))
    if seen.topology is None and seen.not_created and not seen.pods:
        return _stranded(seen, job)
    if obstacle := job_obstacle(job, seen.pods, seen.not_created):
        text = f"the Job {job.name} does not start: {obstacle}"
        status = _status(seen, SnapshotPhase.RUNNING, SnapshotReason.NOT_STARTED, text)
        return SnapshotDecision(status, again_seconds=LOOK_SECONDS)
    again = f", try {len(failures) + 1} of {TRIES}; the last one failed{why}" if failures else ""
    text = f"the Job {job.name} copies to {place}{again}"
    status = _status(seen, SnapshotPhase.RUNNING, SnapshotReason.COPYING, text) | figures
    return SnapshotDecision(status, again_seconds=LOOK_SECONDS)


def _stranded(seen: SnapshotView, job: Job) -> SnapshotDecision:
    """Give up a Job that never had a pod: its ServiceAccount went with the topology, so it would wait for its deadline."""
    text = (
        f"{seen.owner.topology!r} was deleted before the copy began, and no pod is created without it "
        f"({seen.not_created}): create another snapshot once there is such a topology"
    )
    status = _status(seen, SnapshotPhase.FAILED, SnapshotReason.TOPOLOGY_GONE, text)
    return SnapshotDecision(status, withdrawn=job)


def _figures(seen: SnapshotView) -> dict[str, int]:
    """Batch and bytes of the copy, from its pod or as noted before: the pod may be deleted before its Job is done."""
    noted = {name: int(seen.status[name]) for name in ("batch", "bytes") if name in seen.status}
    report = _report(seen.pods)
    return {name: int(report[name]) for name in ("batch", "bytes")} if report else noted


def _dropped(pods: tuple[Pod, ...]) -> tuple[str, ...]:
    """The identities of the copies that the Job has deleted. Where no pod is left to say, the next Job's finds them gone."""
    return tuple(map(str, _report(pods).get("dropped", ())))


def _report(pods: tuple[Pod, ...]) -> Mapping[str, Any]:
    """What the pod that succeeded has reported; empty where no pod is left to say."""
    for pod in pods:
        if pod.ended is not None and pod.ended.exit_code == 0:
            try:
                report: Mapping[str, Any] = json.loads(pod.ended.message)
                if int(report["batch"]) >= 0 and int(report["bytes"]) >= 0:
                    return report
            except (ValueError, KeyError, TypeError):  # a sidecar's, or cut off
                continue
    return {}


def _status(seen: SnapshotView, phase: SnapshotPhase, reason: SnapshotReason, message: str) -> Object:
    done, stalled = phase is SnapshotPhase.COMPLETED, phase is SnapshotPhase.FAILED or reason in FOR_SOMEBODY
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
    known = {one["type"]: one for one in items_at(seen.status, "conditions")}.get(condition.type)
    same = known is not None and known["status"] == condition.status
    return {
        "type": str(condition.type),
        "status": condition.status,
        "observedGeneration": seen.body["metadata"].get("generation", 1),
        "lastTransitionTime": known["lastTransitionTime"] if known is not None and same else format_time(seen.now),
        "reason": condition.reason,
        "message": condition.message,
    }
