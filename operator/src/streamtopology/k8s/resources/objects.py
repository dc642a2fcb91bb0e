"""The common parts of owned objects: owner, labels, the digest of the content, the pod template."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from streamtopology.contract.pods import WRITABLE
from streamtopology.k8s import names
from streamtopology.k8s.names import Kind
from streamtopology.topology import PodSettings, Topology, format_memory, write_pod

Object = dict[str, Any]

# Kubernetes' name for what a pod takes of its node's disk.
STORAGE = "ephemeral-storage"


@dataclass(frozen=True)
class Owner:
    """The StreamTopology that owns the objects, or another resource about one, which is then `of`."""

    name: str
    namespace: str
    uid: str
    kind: Kind = names.TOPOLOGY
    of: str = ""

    @property
    def topology(self) -> str:
        """The topology that the objects are labelled with."""
        return self.of or self.name

    def reference(self) -> Object:
        return {
            "apiVersion": self.kind.api_version,
            "kind": self.kind.kind,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }


def owned(
    owner: Owner,
    kind: Kind,
    name: str,
    component: str,
    class_name: str | None = None,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    **body: Any,
) -> Object:
    """An object of this kind with its owner, its labels and `labels`, `annotations` and the digest of all of it."""
    made: Object = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {
            "name": name,
            "namespace": owner.namespace,
            "labels": {**(labels or {}), **names.labels(owner.topology, component, class_name)},
            "ownerReferences": [owner.reference()],
            **({"annotations": dict(annotations)} if annotations else {}),
        },
        **body,
    }
    made["metadata"]["annotations"] = {**(annotations or {}), names.CONTENT: digest(made)}
    return made


def digest(value: object) -> str:
    """Twelve hex digits of the value's hash."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def pod_template(
    owner: Owner,
    component: str,
    container: Object,
    settings: PodSettings,
    *,
    user: int | None,
    annotations: Mapping[str, str],
    class_name: str | None = None,
    labels: Mapping[str, str] | None = None,
    volumes: Sequence[Object] = (),
    storage_bytes: int | None = None,
    **spec: Any,
) -> Object:
    """A pod template around our container, locked down, with the user's settings merged in. `user`: None, if the platform
    gives one. `storage_bytes`: what our container may take of the node's disk, its volumes included.

    Its annotation `POD_CONTENT` is a digest of all that only a new pod can change: everything but the resources that the
    kubelet changes in place. The heap, a variable, is part of it: the JVM takes it once, as it starts.
    """
    theirs = write_pod(settings)
    ours = {**container, "resources": _with_storage(container["resources"], storage_bytes)}
    ours["securityContext"] = _container_security()
    ours["env"] = [*container.get("env", []), *theirs.pop("env", [])]  # pyright: ignore[reportGeneralTypeIssues]
    mounts = [{"name": name, "mountPath": path} for name, path in WRITABLE.items()]
    ours["volumeMounts"] = [*mounts, *container.get("volumeMounts", []), *theirs.pop("volumeMounts", [])]  # pyright: ignore[reportGeneralTypeIssues]
    if env_from := theirs.pop("envFrom", None):
        ours["envFrom"] = env_from
    scratch = [{"name": name, "emptyDir": _at_most(storage_bytes)} for name in WRITABLE]
    pod_labels = {**dict(theirs.pop("labels", {})), **(labels or {}), **names.labels(owner.topology, component, class_name)}  # pyright: ignore
    pod_annotations = {**dict(theirs.pop("annotations", {})), **annotations}  # pyright: ignore
    pod_spec: Object = {
        **spec,
        "containers": [ours],
        "volumes": [*scratch, *volumes, *theirs.pop("volumes", [])],  # pyright: ignore[reportGeneralTypeIssues]
        "enableServiceLinks": False,
        "securityContext": {**_pod_security(user), **dict(theirs.pop("securityContext", {}))},  # pyright: ignore
        **theirs,
    }
    without_resources = {**pod_spec, "containers": [_lasting(ours)]}
    content = digest([without_resources, {**pod_annotations, names.RESTART_GENERATION: ""}, pod_labels])
    return {
        "metadata": {"labels": pod_labels, "annotations": {**pod_annotations, names.POD_CONTENT: content}},
        "spec": pod_spec,
    }


def with_pull_secrets(topology: Topology, pod: PodSettings) -> PodSettings:
    """The settings of a pod with the topology's pull secrets before its own."""
    shared = [{"name": name} for name in topology.image_pull_secrets]
    own = [each for each in pod.image_pull_secrets if each.get("name") not in topology.image_pull_secrets]
    return replace(pod, image_pull_secrets=(*shared, *own))


def adjustment(workload: Object) -> Object:
    """The strategic merge patch that gives a Deployment or StatefulSet the replicas and resources of `workload`, and leaves
    the rest of its pod template as it is."""
    spec = workload["spec"]
    container = spec["template"]["spec"]["containers"][0]
    changed = {"name": container["name"], "resources": container["resources"]}
    return {"spec": {"replicas": spec["replicas"], "template": {"spec": {"containers": [changed]}}}}


def limits(cpu: str, memory: str) -> Object:
    """Requests equal to limits: an executor must have exactly the CPU that the capacity model expects."""
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": cpu, "memory": memory}}


def _with_storage(resources: Object, storage_bytes: int | None) -> Object:
    """Requests and limits with an equal amount of ephemeral storage, if there is a limit of it."""
    if storage_bytes is None:
        return resources
    return {kind: {**amounts, STORAGE: format_memory(storage_bytes)} for kind, amounts in resources.items()}


def _at_most(storage_bytes: int | None) -> Object:
    """An emptyDir. Each may take all of the storage: the kubelet counts them, the log and the container's layer together.

    The size is for pods with sidecars, whose limits the kubelet adds to ours.
    """
    return {} if storage_bytes is None else {"sizeLimit": format_memory(storage_bytes)}


def service_port(name: str, port: int, protocol: str = "tcp") -> Object:
    """A port of a Service. `protocol`: what is spoken there: a service mesh need not guess."""
    return {"name": name, "port": port, "targetPort": port, "protocol": "TCP", "appProtocol": protocol}


def from_field(name: str, path: str) -> Object:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _lasting(container: Object) -> Object:
    """The container without the fields that change in place."""
    storage = container["resources"]["limits"].get(STORAGE)
    lasting = {"resources": {STORAGE: storage}} if storage else {}
    return {**{name: value for name, value in container.items() if name != "resources"}, **lasting}


def _container_security() -> Object:
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def _pod_security(user: int | None) -> Object:
    given = {} if user is None else {"runAsUser": user, "runAsGroup": user, "fsGroup": user}
    return {"runAsNonRoot": True, **given, "seccompProfile": {"type": "RuntimeDefault"}}
