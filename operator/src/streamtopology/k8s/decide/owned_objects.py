"""Owned objects as decisions see them: the few fields that they read, small and comparable."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamtopology.contract.pods import HTTP_PORT, HTTP_PORT_NAME, driver_name
from streamtopology.contract.routing_configmap import Outline
from streamtopology.k8s import names
from streamtopology.k8s.decide.completion import Completion, read_completion
from streamtopology.k8s.decide.fields import items_at, mapping_at
from streamtopology.k8s.decide.own_fields import Differences, own_container, own_values, pod_values
from streamtopology.k8s.instants import parse_time
from streamtopology.topology import QuantityError, parse_cpu, parse_memory

# Kinds whose objects are always to be as we write them. A ConfigMap is compared by its parts; the others are made once.
COMPARED = frozenset(kind.kind for kind in names.OWNED if kind not in (names.SECRET, names.CONFIG_MAP, names.JOB))

# The kubelet's reason in the status of a pod, and the exit code of a process that it has killed.
EVICTED, KILLED = "Evicted", 137

# CPU limit in cores and memory limit in bytes of a pod's own container; 0 where there is none.
Resources = tuple[float, int]


@dataclass(frozen=True)
class OwnedObject:
    """Any owned object. `owner`: uid of its controller, "" if it has none; `content`: digest of the content applied last;
    `values`: those of our fields (own_fields.py), of kinds in `COMPARED` and of pods; `version`: for order only.
    `held_by`: the finalizers that its deletion waits for. `is_orphan`: a topology's operator has made it, and nobody owns it.
    `differences`: by the content that they were compared with, which each decision asks for.
    """

    kind: str
    name: str
    uid: str
    version: int = field(default=0, compare=False)
    owner: str = ""
    content: str = ""
    values: str = "{}"
    deleting: bool = False
    held_by: tuple[str, ...] = ()
    is_orphan: bool = False
    differences: dict[str, Differences] = field(default_factory=dict[str, Differences], compare=False, repr=False)

    @property
    def held(self) -> str:
        """The sentence for an object whose deletion waits; empty for another."""
        return f"{self.kind} {self.name} is being deleted and waits for {', '.join(self.held_by)}" if self.held_by else ""


@dataclass(frozen=True)
class Workload(OwnedObject):
    """A Deployment or StatefulSet.

    `failure`: why the pods of a Deployment cannot be made. `restart_generation`: the driver's, None where its template has
    none. `completed`: the run that has come to its end. `pod_content`: of its template; `pod_settings`: the
    digest that a StatefulSet has of the manifest's. `image`: as we wrote it; `resources`: of our own container. `revision`: a
    StatefulSet's name for its present template, "" until it has seen it; `restarted_at`: of the last `kubectl rollout restart`.
    """

    replicas: int = 0
    failure: str = ""
    restart_generation: int | None = None
    completed: Completion | None = None
    pod_content: str = ""
    pod_settings: str = ""
    image: str = ""
    resources: Resources = (0.0, 0)
    revision: str = ""
    restarted_at: str = ""


@dataclass(frozen=True)
class ObservedRoutingMap(Outline, OwnedObject):
    """The ConfigMap between operator and driver, without the epoch itself."""


@dataclass(frozen=True)
class Resizing:
    """A resize that the kubelet has not carried out: `reason` is Deferred, Infeasible, InProgress or Error."""

    reason: str
    message: str


@dataclass(frozen=True)
class Ended:
    """The end of the container's last run."""

    exit_code: int
    reason: str
    message: str


@dataclass(frozen=True)
class Eviction:
    """The end of a pod by its kubelet, `at` in seconds since 1970.

    `by_limit`: the pod took more storage than it may; else its node was short of memory, storage or processes.
    """

    message: str
    at: float
    by_limit: bool


@dataclass(frozen=True)
class Pod(OwnedObject):
    """A pod of the driver, an executor or a migration. `waiting`: the kubelet's reason and message for why it does not run.

    `since`: its creation, or its end if it is being deleted, in seconds since 1970. `node_lost`: it is being deleted because
    its node is gone or unfit. `resources`: its limits, `requests`: what it asks for, as much unless admission has changed it.
    `revision`: the StatefulSet's name for the template that it was made of.
    """

    component: str = ""
    class_name: str = ""
    ordinal: int = 0
    ip: str = ""
    http_port: int = HTTP_PORT
    since: float = math.inf
    phase: str = "Pending"
    ready: bool = False
    node_lost: bool = False
    resources: Resources = (0.0, 0)
    requests: Resources = (0.0, 0)
    pod_content: str = ""
    revision: str = ""
    restarted_at: str = ""
    unschedulable: str = ""
    waiting: tuple[str, str] | None = None
    ended: Ended | None = None
    evicted: Eviction | None = None
    resizing: Resizing | None = None

    @property
    def is_over(self) -> bool:
        """True if the pod has ended for good, as an evicted one has."""
        return self.phase in ("Succeeded", "Failed")


@dataclass(frozen=True)
class Job(OwnedObject):
    """A Job that copies state: `done` when it has copied everything, `failed` with a reason when Kubernetes has given up on it.

    `since`: its creation, in seconds since 1970. `suspended`: it gets no pod until somebody, as a queue of Jobs, lets it.
    """

    epoch: int = 0
    since: float = math.inf
    done: bool = False
    failed: str = ""
    suspended: bool = False


def owned_object(body: Mapping[str, Any]) -> OwnedObject:
    """The part of an object (with `apiVersion` and `kind`) that decisions read."""
    metadata = body["metadata"]
    annotations = mapping_at(metadata, "annotations")
    common: dict[str, Any] = {
        "kind": body["kind"],
        "name": metadata["name"],
        "uid": metadata.get("uid", ""),
        "version": int(metadata.get("resourceVersion") or 0),
        "owner": next((each["uid"] for each in items_at(metadata, "ownerReferences") if each.get("controller")), ""),
        "content": annotations.get(names.CONTENT, ""),
        "values": _values(body),
        "deleting": "deletionTimestamp" in metadata,
        "held_by": tuple(metadata.get("finalizers") or ()) if "deletionTimestamp" in metadata else (),
        "is_orphan": _is_orphan(metadata),
    }
    match body["kind"]:
        case "Deployment" | "StatefulSet":
            template = body["spec"]["template"]
            noted = mapping_at(template, "metadata", "annotations")
            restart = noted.get(names.RESTART_GENERATION)
            container = own_container(_containers(template))
            return Workload(
                **common,
                replicas=int(body["spec"].get("replicas", 1)),
                failure=_failure(mapping_at(body, "status")),
                restart_generation=_number(restart) if restart else None,
                completed=read_completion(annotations.get(names.COMPLETED)),
                pod_content=noted.get(names.POD_CONTENT, ""),
                pod_settings=annotations.get(names.POD_SETTINGS, ""),
                image=annotations.get(names.IMAGE, ""),
                resources=_resources(container),
                revision=_present_revision(body),
                restarted_at=noted.get(names.RESTARTED_AT, ""),
            )
        case "ConfigMap":
            return ObservedRoutingMap(
                **common, **vars(Outline.from_data(mapping_at(body, "data"), mapping_at(body, "binaryData")))
            )
        case "Pod":
            return _pod(common, body)
        case "Job":
            return _job(common, body)
        case _:
            return OwnedObject(**common)


def _is_orphan(metadata: Mapping[str, Any]) -> bool:
    """True if the topology in its labels was deleted without it. Its name is the one that they call for: a copy that somebody
    has made under another name is theirs."""
    labels, name = mapping_at(metadata, "labels"), metadata["name"]
    topology = labels.get(names.INSTANCE, "")
    called = (driver_name(topology), names.executor_class(topology, labels.get(names.CLASS, "")))
    ours = labels.get(names.MANAGED_BY) == names.MANAGER and names.CONTENT in mapping_at(metadata, "annotations")
    is_left = not metadata.get("ownerReferences") and "deletionTimestamp" not in metadata
    return ours and is_left and name in (*called, names.migration(topology, _ordinal(name)))


def _values(body: Mapping[str, Any]) -> str:
    if body["kind"] == names.POD.kind:
        return pod_values(mapping_at(body, "spec"))
    return own_values(body) if body["kind"] in COMPARED else "{}"


def _failure(status: Mapping[str, Any]) -> str:
    failed = _conditions(status).get("ReplicaFailure", {})
    return failed.get("message", "") if failed.get("status") == "True" else ""


def _present_revision(body: Mapping[str, Any]) -> str:
    status = mapping_at(body, "status")
    is_seen = status.get("observedGeneration") == body["metadata"].get("generation")
    return status.get("updateRevision", "") if is_seen else ""


def resources_of(pod: Mapping[str, Any]) -> Resources:
    """Those of our own container in a pod."""
    return _resources(own_container(_containers(pod)))


def _resources(container: Mapping[str, Any], kind: str = "limits") -> Resources:
    amounts = mapping_at(container, "resources", kind)
    try:
        return (parse_cpu(amounts["cpu"]) if "cpu" in amounts else 0.0, parse_memory(amounts.get("memory", 0)))
    except QuantityError:  # someone else wrote a form that we never write: unequal to anything of ours
        return (-1.0, -1)


def _number(text: object) -> int:
    try:
        return int(str(text))
    except ValueError:  # damaged by hand: the next apply repairs it
        return 0


def _pod(common: Mapping[str, Any], body: Mapping[str, Any]) -> Pod:
    metadata, status = body["metadata"], mapping_at(body, "status")
    labels = mapping_at(metadata, "labels")
    container = own_container(_containers(body))
    reported = own_container(status.get("containerStatuses") or [{}], container.get("name"))
    conditions = _conditions(status)
    scheduled = conditions.get("PodScheduled", {})
    waiting = mapping_at(reported, "state").get("waiting")
    evicted = _eviction(status)
    return Pod(
        **common,
        component=labels.get(names.COMPONENT, ""),
        class_name=labels.get(names.CLASS, ""),
        ordinal=_ordinal(metadata["name"]),
        ip=status.get("podIP", ""),
        http_port=_http_port(container),
        since=_since(metadata),
        phase=status.get("phase", "Pending"),
        ready=conditions.get("Ready", {}).get("status") == "True",
        node_lost=_is_evicted(conditions.get("DisruptionTarget", {})),
        resources=_resources(container),
        requests=_resources(container, "requests"),
        pod_content=mapping_at(metadata, "annotations").get(names.POD_CONTENT, ""),
        revision=labels.get(names.POD_REVISION, ""),
        restarted_at=mapping_at(metadata, "annotations").get(names.RESTARTED_AT, ""),
        unschedulable=scheduled.get("message", "") if scheduled.get("status") == "False" else "",
        waiting=(waiting.get("reason", ""), waiting.get("message", "")) if waiting else None,
        ended=_ended(reported, evicted),
        evicted=evicted,
        resizing=_resizing(conditions),
    )


def _ended(reported: Mapping[str, Any], evicted: Eviction | None) -> Ended | None:
    """The end of the container's last run; that of an evicted pod has the kubelet's reason, as the container has none."""
    ended = mapping_at(reported, "state", "terminated") or mapping_at(reported, "lastState", "terminated")
    if evicted is not None:
        return Ended(ended.get("exitCode") or KILLED, EVICTED, evicted.message)
    return Ended(ended.get("exitCode", KILLED), ended.get("reason", ""), ended.get("message", "").strip()) if ended else None


def _eviction(status: Mapping[str, Any]) -> Eviction | None:
    """The kubelet's own: an eviction through the API deletes the pod. Only that of a node's shortage is a disruption."""
    if status.get("phase") != "Failed" or status.get("reason") != EVICTED:
        return None
    conditions = items_at(status, "conditions")
    times = [parse_time(one["lastTransitionTime"]) for one in conditions if one.get("lastTransitionTime")]
    by_limit = _conditions(status).get("DisruptionTarget", {}).get("status") != "True"
    message = " ".join(status.get("message", "").split()).rstrip(".")
    return Eviction(message, max(times, default=-math.inf), by_limit)


def _is_evicted(disruption: Mapping[str, Any]) -> bool:
    """True if Kubernetes deletes the pod because of a taint of its node: unreachable, not ready, out of service."""
    return disruption.get("status") == "True" and disruption.get("reason") == "DeletionByTaintManager"


def _since(metadata: Mapping[str, Any]) -> float:
    moment = metadata.get("deletionTimestamp") or metadata.get("creationTimestamp")
    return parse_time(moment) if moment else math.inf


def _containers(of: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Those of a pod or a pod template; at least one, which may say nothing."""
    return mapping_at(of, "spec").get("containers") or [{}]


def _conditions(status: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """By their type."""
    return {one.get("type", ""): one for one in items_at(status, "conditions")}


def _ordinal(pod: str) -> int:
    tail = pod.rpartition("-")[2]
    return int(tail) if tail.isdecimal() else 0


def _http_port(container: Mapping[str, Any]) -> int:
    named = (port for port in items_at(container, "ports") if port.get("name") == HTTP_PORT_NAME)
    return next((int(port.get("containerPort") or HTTP_PORT) for port in named), HTTP_PORT)


def _resizing(conditions: Mapping[str, Mapping[str, Any]]) -> Resizing | None:
    pending, in_progress = conditions.get("PodResizePending"), conditions.get("PodResizeInProgress")
    if pending and pending.get("status") == "True":
        return Resizing(pending.get("reason", "Deferred"), pending.get("message", ""))
    if in_progress and in_progress.get("status") == "True":
        return Resizing(in_progress.get("reason") or "InProgress", in_progress.get("message", ""))
    return None


def _job(common: Mapping[str, Any], body: Mapping[str, Any]) -> Job:
    found = _conditions(mapping_at(body, "status"))
    conditions = {kind: one for kind, one in found.items() if one.get("status") == "True"}
    failed = conditions.get("Failed")
    return Job(
        **common,
        epoch=_ordinal(body["metadata"]["name"]),
        since=_since(body["metadata"]),
        done="Complete" in conditions,
        failed=f"{failed.get('reason', '')}: {failed.get('message', '')}" if failed else "",
        suspended=bool(mapping_at(body, "spec").get("suspend")),
    )
