"""What all owned objects have in common: who owns them, their labels, the digest of their content, how their pods run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamtopology.operator import names
from streamtopology.operator.names import Kind
from streamtopology.routing.topology import PodSettings, write_pod

Object = dict[str, Any]

USER = 10001
"""User and group of every process in our images."""

SCRATCH = (("tmp", "/tmp"), ("scratch", "/var/streamtopology"))
"""The folders that a process may write to; the rest of its file system is read-only."""


@dataclass(frozen=True)
class Owner:
    """The StreamTopology that owns the objects."""

    name: str
    namespace: str
    uid: str

    def reference(self) -> Object:
        return {
            "apiVersion": names.TOPOLOGY.api_version, "kind": names.TOPOLOGY.kind,
            "name": self.name, "uid": self.uid, "controller": True, "blockOwnerDeletion": True,
        }  # fmt: skip


def owned(
    owner: Owner, kind: Kind, name: str, component: str, class_name: str | None = None, **body: Any
) -> Object:  # fmt: skip
    """An object of this kind with owner, labels and, over all of it, the digest of its content."""
    made: Object = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {
            "name": name,
            "namespace": owner.namespace,
            "labels": names.labels(owner.name, component, class_name),
            "ownerReferences": [owner.reference()],
        },
        **body,
    }
    made["metadata"]["annotations"] = {names.CONTENT: digest(made)}
    return made


def digest(value: object) -> str:
    """Twelve hex digits that change when the value does."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def pod_template(
    owner: Owner, component: str, container: Object, settings: PodSettings, *,
    annotations: Mapping[str, str], class_name: str | None = None, labels: Mapping[str, str] | None = None,
    volumes: Sequence[Object] = (), **spec: Any,
) -> Object:  # fmt: skip
    """A pod template around our container, locked down, with the user's settings merged in.

    Its annotation `POD_CONTENT` is a digest of all that only a new pod can change: everything but resources.
    """
    theirs = write_pod(settings)
    ours = {**container, "securityContext": _container_security()}
    ours["env"] = [*container.get("env", []), *theirs.pop("env", [])]  # pyright: ignore[reportGeneralTypeIssues]
    mounts = [{"name": name, "mountPath": path} for name, path in SCRATCH]
    ours["volumeMounts"] = [*mounts, *container.get("volumeMounts", []), *theirs.pop("volumeMounts", [])]  # pyright: ignore[reportGeneralTypeIssues]
    if env_from := theirs.pop("envFrom", None):
        ours["envFrom"] = env_from
    scratch = [{"name": name, "emptyDir": {}} for name, _ in SCRATCH]
    pod_labels = {**dict(theirs.pop("labels", {})), **(labels or {}), **names.labels(owner.name, component, class_name)}  # pyright: ignore
    pod_annotations = {**dict(theirs.pop("annotations", {})), **annotations}  # pyright: ignore
    pod_spec: Object = {
        **spec,
        "containers": [ours],
        "volumes": [*scratch, *volumes, *theirs.pop("volumes", [])],  # pyright: ignore[reportGeneralTypeIssues]
        "enableServiceLinks": False,
        "securityContext": _pod_security(),
        **theirs,
    }
    without_resources = {**pod_spec, "containers": [_lasting(ours)]}
    content = digest([without_resources, {**pod_annotations, names.RESTART_GENERATION: ""}, pod_labels])
    return {
        "metadata": {"labels": pod_labels, "annotations": {**pod_annotations, names.POD_CONTENT: content}},
        "spec": pod_spec,
    }


def limits(cpu: str, memory: str) -> Object:
    """Requests equal to limits: what the capacity model calls an executor of so much CPU must not be less, nor more."""
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": cpu, "memory": memory}}


def from_field(name: str, path: str) -> Object:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _lasting(container: Object) -> Object:
    """The container without what changes in place; the heap goes with the memory limit, so it is left out, too."""
    env = [variable for variable in container["env"] if variable["name"] != "STREAMTOPOLOGY_MEMORY"]
    return {**{name: value for name, value in container.items() if name != "resources"}, "env": env}


def _container_security() -> Object:
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def _pod_security() -> Object:
    return {
        "runAsNonRoot": True, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    }  # fmt: skip
