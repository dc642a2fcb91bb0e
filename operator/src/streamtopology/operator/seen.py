"""What is kept of an owned object: the few fields that decisions read, small and comparable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamtopology.operator import names
from streamtopology.routing.routing_map import Outline
from streamtopology.routing.topology import QuantityError, parse_cpu, parse_memory

Resources = tuple[float, int]
"""CPU limit in cores and memory limit in bytes of a pod's own container; 0 where there is none."""


@dataclass(frozen=True)
class Seen:
    """Any owned object. `content`: digest of what we applied last; `version`: for order only."""

    kind: str
    name: str
    uid: str
    version: int = field(default=0, compare=False)
    content: str = ""
    deleting: bool = False


@dataclass(frozen=True)
class Workload(Seen):
    """A Deployment or StatefulSet. `essence`: what somebody else may have changed in it, see `essence`.

    `restart_generation`: the driver's, None where its template does not say.
    """

    replicas: int = 0
    restart_generation: int | None = None
    ready: int = 0
    essence: tuple[object, ...] = ()


@dataclass(frozen=True)
class RoutingMap(Outline, Seen):
    """The ConfigMap between operator and driver, without the epoch itself."""


@dataclass(frozen=True)
class Resizing:
    """A resize that the kubelet has not carried out: `reason` is Deferred, Infeasible, InProgress or Error."""

    reason: str
    message: str


@dataclass(frozen=True)
class Ended:
    """How the container's last run ended."""

    exit_code: int
    reason: str
    message: str


@dataclass(frozen=True)
class Pod(Seen):
    """A pod of the driver, an executor or a migration. `waiting`: why it does not run, in the kubelet's words."""

    component: str = ""
    class_name: str = ""
    ordinal: int = 0
    ip: str = ""
    http_port: int = names.DRIVER_HTTP_PORT
    phase: str = "Pending"
    ready: bool = False
    resources: Resources = (0.0, 0)
    pod_content: str = ""
    unschedulable: str = ""
    waiting: tuple[str, str] | None = None
    ended: Ended | None = None
    resizing: Resizing | None = None


@dataclass(frozen=True)
class Job(Seen):
    """A migration Job: `done` when it has copied, `failed` with its reason when Kubernetes has given it up."""

    epoch: int = 0
    done: bool = False
    failed: str = ""


def see(body: Mapping[str, Any]) -> Seen:
    """The part of an object (with `apiVersion` and `kind`) that decisions read."""
    metadata = body["metadata"]
    annotations = metadata.get("annotations") or {}
    common: dict[str, Any] = {
        "kind": body["kind"],
        "name": metadata["name"],
        "uid": metadata.get("uid", ""),
        "version": int(metadata.get("resourceVersion") or 0),
        "content": annotations.get(names.CONTENT, ""),
        "deleting": "deletionTimestamp" in metadata,
    }
    match body["kind"]:
        case "Deployment" | "StatefulSet":
            status = body.get("status") or {}
            ready = int(status.get("readyReplicas") or 0)
            template = body["spec"]["template"].get("metadata") or {}
            restart = (template.get("annotations") or {}).get(names.RESTART_GENERATION)
            return Workload(
                **common,
                replicas=int(body["spec"].get("replicas", 1)),
                restart_generation=_number(restart) if restart else None,
                ready=ready,
                essence=essence(body),
            )
        case "ConfigMap":
            return RoutingMap(**common, **vars(Outline.from_data(body.get("data") or {})))
        case "Pod":
            return _pod(common, body)
        case "Job":
            return _job(common, body)
        case _:
            return Seen(**common)


def essence(workload: Mapping[str, Any]) -> tuple[object, ...]:
    """Replicas, images, arguments, resources and our annotation of the template, however the quantities are written."""
    template = workload["spec"]["template"]
    annotations = (template.get("metadata") or {}).get("annotations") or {}
    ours = tuple(sorted((name, value) for name, value in annotations.items() if name.startswith("streamtopology.dev/")))
    containers = tuple(
        (container["name"], container.get("image"), tuple(container.get("args") or ()), _resources(container))
        for container in template["spec"]["containers"]
    )
    return (int(workload["spec"].get("replicas", 1)), ours, containers)


def _resources(container: Mapping[str, Any]) -> Resources:
    limits = (container.get("resources") or {}).get("limits") or {}
    try:
        return (parse_cpu(limits["cpu"]) if "cpu" in limits else 0.0, parse_memory(limits.get("memory", 0)))
    except QuantityError:  # written by somebody else, in a form that we never write: unlike anything of ours
        return (-1.0, -1)


def _number(text: object) -> int:
    try:
        return int(str(text))
    except ValueError:  # damaged by hand: what we apply next is another text, so it is put right
        return 0


def _pod(common: Mapping[str, Any], body: Mapping[str, Any]) -> Pod:
    metadata, spec, status = body["metadata"], body["spec"], body.get("status") or {}
    labels = metadata.get("labels") or {}
    container = _own_container(spec["containers"])
    told = _own_container(status.get("containerStatuses") or [{}], container["name"])
    conditions = {condition["type"]: condition for condition in status.get("conditions") or ()}
    scheduled = conditions.get("PodScheduled", {})
    waiting = (told.get("state") or {}).get("waiting")
    ended = (told.get("state") or {}).get("terminated") or (told.get("lastState") or {}).get("terminated")
    return Pod(
        **common,
        component=labels.get(names.COMPONENT, ""),
        class_name=labels.get(names.CLASS, ""),
        ordinal=_ordinal(metadata["name"]),
        ip=status.get("podIP", ""),
        http_port=_http_port(container),
        phase=status.get("phase", "Pending"),
        ready=conditions.get("Ready", {}).get("status") == "True",
        resources=_resources(container),
        pod_content=(metadata.get("annotations") or {}).get(names.POD_CONTENT, ""),
        unschedulable=scheduled.get("message", "") if scheduled.get("status") == "False" else "",
        waiting=(waiting.get("reason", ""), waiting.get("message", "")) if waiting else None,
        ended=Ended(ended["exitCode"], ended.get("reason", ""), ended.get("message", "").strip()) if ended else None,
        resizing=_resizing(conditions),
    )


def _own_container(containers: Sequence[Mapping[str, Any]], name: str | None = None) -> Mapping[str, Any]:
    """Ours, whatever sidecars something has injected."""
    ours = (name,) if name else ("driver", "executor", "migrate")
    return next((container for container in containers if container.get("name") in ours), containers[0])


def _ordinal(pod: str) -> int:
    tail = pod.rpartition("-")[2]
    return int(tail) if tail.isdecimal() else 0


def _http_port(container: Mapping[str, Any]) -> int:
    ports = [port["containerPort"] for port in container.get("ports") or () if port.get("name") == "http"]
    return int(ports[0]) if ports else names.DRIVER_HTTP_PORT


def _resizing(conditions: Mapping[str, Mapping[str, Any]]) -> Resizing | None:
    pending, in_progress = conditions.get("PodResizePending"), conditions.get("PodResizeInProgress")
    if pending and pending.get("status") == "True":
        return Resizing(pending.get("reason", "Deferred"), pending.get("message", ""))
    if in_progress and in_progress.get("status") == "True":
        return Resizing(in_progress.get("reason") or "InProgress", in_progress.get("message", ""))
    return None


def _job(common: Mapping[str, Any], body: Mapping[str, Any]) -> Job:
    conditions = {c["type"]: c for c in (body.get("status") or {}).get("conditions") or () if c.get("status") == "True"}
    failed = conditions.get("Failed")
    return Job(
        **common,
        epoch=_ordinal(body["metadata"]["name"]),
        done="Complete" in conditions,
        failed=f"{failed.get('reason', '')}: {failed.get('message', '')}" if failed else "",
    )
