"""A topology's Kubernetes objects by hand, as /docs/kubernetes says that the operator makes them: pods without the operator."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamtopology.contract.pods import BLOCKS_PORT, HTTP_PORT, RPC_PORT, app_id, driver_host, routing_map_name
from streamtopology.jobs.pods.configmap_watch import ConfigMapContent
from streamtopology.topology import ExecutorClass, Topology, format_cpu
from support.kube.node import BUSYBOX_IMAGE

Object = dict[str, Any]

SECRET = "not-much-of-a-secret"
DRIVER_MEMORY, DRIVER_HEAP = "1536Mi", 640
EXECUTOR_MEMORY, EXECUTOR_HEAP = "896Mi", 480


@dataclass(frozen=True)
class Image:
    """The image of containers, and the further needs of a pod."""

    name: str
    command: Sequence[str] = ()
    env: Sequence[Object] = ()
    volumes: Sequence[Object] = ()
    mounts: Sequence[Object] = ()
    security: Object = field(default_factory=dict)


def this_machine() -> Image:
    """This machine's own Python, Java and working copy in place of an image: nothing is built, and every change is in it."""
    root = Path(__file__).parents[2]
    python = Path(sys.executable).resolve().parents[1]
    folders = {"usr": Path("/usr"), "etc": Path("/etc"), "code": root}
    if not python.is_relative_to("/usr"):
        folders["python"] = python
    mounts = [{"name": name, "mountPath": str(path)} for name, path in folders.items() if name != "etc"]
    mounts += [{"name": "usr", "mountPath": f"/{name}", "subPath": name} for name in ("lib", "lib64")]
    etc = [path.name for path in (Path("/etc/passwd"), Path("/etc/ssl"), *Path("/etc").glob("java-*")) if path.exists()]
    mounts += [{"name": "etc", "mountPath": f"/etc/{name}", "subPath": name} for name in etc]
    return Image(
        BUSYBOX_IMAGE,
        command=[str(root / ".venv" / "bin" / "streamtopology")],
        env=[{"name": "HOME", "value": "/tmp"}, {"name": "PATH", "value": "/usr/bin:/bin"}],
        volumes=[{"name": name, "hostPath": {"path": str(path)}} for name, path in folders.items()],
        mounts=mounts,
    )


def objects(topology: Topology, namespace: str, image: Image, shared: str) -> list[Object]:
    """Everything but the ConfigMap; the folder `shared` of the node is at the same path in every pod."""
    name = topology.name
    pods = [f"{name}-{each.name}-{ordinal}" for each in topology.executors for ordinal in range(16)]
    return [
        _object("v1", "ServiceAccount", f"{name}-driver"),
        _object("rbac.authorization.k8s.io/v1", "Role", f"{name}-driver", rules=[
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]},
            {"apiGroups": [""], "resources": ["pods"], "resourceNames": pods, "verbs": ["patch"]},
            {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [routing_map_name(name)],
             "verbs": ["get", "list", "watch"]},
        ]),
        _object("rbac.authorization.k8s.io/v1", "RoleBinding", f"{name}-driver",
                roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": f"{name}-driver"},
                subjects=[{"kind": "ServiceAccount", "name": f"{name}-driver", "namespace": namespace}]),
        _object("v1", "Secret", f"{name}-spark", stringData={
            "secret": SECRET, "secret-base64": base64.b64encode(SECRET.encode()).decode(),
        }),
        _object("v1", "Service", f"{name}-driver", spec={
            "clusterIP": "None", "publishNotReadyAddresses": True, "selector": _labels(name, "driver"),
            "ports": [{"name": port, "port": number} for port, number in _PORTS.items()],
        }),
        _deployment(topology, namespace, image, shared),
        *(_stateful_set(topology, each, namespace, image, shared) for each in topology.executors),
    ]  # fmt: skip


def routing_map(name: str, content: ConfigMapContent) -> Object:
    return _object("v1", "ConfigMap", routing_map_name(name), data=content.data, binaryData=content.binary_data)


_PORTS = {"rpc": RPC_PORT, "blocks": BLOCKS_PORT, "http": HTTP_PORT}


def _deployment(topology: Topology, namespace: str, image: Image, shared: str) -> Object:
    name = topology.name
    container = _container(
        image, shared, "driver", {"cpu": "250m", "memory": DRIVER_MEMORY}, {"cpu": "1", "memory": DRIVER_MEMORY},
        {
            "STREAMTOPOLOGY_NAME": name, "STREAMTOPOLOGY_NAMESPACE": namespace, "STREAMTOPOLOGY_MEMORY": str(DRIVER_HEAP),
            "POD_NAME": "metadata.name", "POD_IP": "status.podIP",
        },
    )  # fmt: skip
    container["volumeMounts"].append({"name": "spark-secret", "mountPath": "/etc/streamtopology/spark", "readOnly": True})
    container["ports"] = [{"name": port, "containerPort": number} for port, number in _PORTS.items()]
    container["readinessProbe"] = {"httpGet": {"path": "/readyz", "port": "http"}, "periodSeconds": 1}
    secret = {"name": "spark-secret", "secret": {"secretName": f"{name}-spark", "items": [{"key": "secret", "path": "secret"}]}}
    pod = _pod(image, shared, container, serviceAccountName=f"{name}-driver", terminationGracePeriodSeconds=60)
    pod["volumes"].append(secret)
    return _object("apps/v1", "Deployment", f"{name}-driver", spec={
        "replicas": 1, "strategy": {"type": "Recreate"}, "selector": {"matchLabels": _labels(name, "driver")},
        "template": {"metadata": {"labels": _labels(name, "driver")}, "spec": pod},
    })  # fmt: skip


def _stateful_set(topology: Topology, executor: ExecutorClass, namespace: str, image: Image, shared: str) -> Object:
    name = topology.name
    labels = {**_labels(name, "executor"), "streamtopology.dev/class": executor.name}
    resources = {"cpu": format_cpu(executor.cpu), "memory": EXECUTOR_MEMORY}
    container = _container(
        image, shared, "executor", resources, resources,
        {
            "STREAMTOPOLOGY_NAME": name, "STREAMTOPOLOGY_DRIVER": driver_host(name, namespace),
            "STREAMTOPOLOGY_CLASS": executor.name, "STREAMTOPOLOGY_MEMORY": str(EXECUTOR_HEAP),
            "POD_NAME": "metadata.name", "POD_IP": "status.podIP",
        },
    )  # fmt: skip
    secret = {"secretKeyRef": {"name": f"{name}-spark", "key": "secret-base64"}}
    container["env"].append({"name": "_SPARK_AUTH_SECRET", "valueFrom": secret})
    pod = _pod(image, shared, container, automountServiceAccountToken=False, terminationGracePeriodSeconds=30)
    return _object("apps/v1", "StatefulSet", f"{name}-{executor.name}", spec={
        "replicas": executor.replicas, "serviceName": f"{name}-executors", "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "OnDelete"}, "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": {**labels, "spark-app-selector": app_id(name), "spark-role": "executor"}}, "spec": pod,
        },
    })  # fmt: skip


def _container(
    image: Image, shared: str, name: str, requests: Object, limits: Object, environment: Mapping[str, str]
) -> Object:
    fields = ("metadata.name", "status.podIP")
    env = [
        {"name": key, "valueFrom": {"fieldRef": {"fieldPath": value}}} if value in fields else {"name": key, "value": value}
        for key, value in environment.items()
    ]
    container: Object = {
        "name": name, "image": image.name, "imagePullPolicy": "Never", "args": [name], "env": [*image.env, *env],
        "resources": {"requests": requests, "limits": limits},
        "securityContext": {"readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False},
        "volumeMounts": [
            {"name": "tmp", "mountPath": "/tmp"}, {"name": "scratch", "mountPath": "/var/streamtopology"},
            {"name": "shared", "mountPath": shared}, *image.mounts,
        ],
    }  # fmt: skip
    return {**container, "command": list(image.command)} if image.command else container


def _pod(image: Image, shared: str, container: Object, **spec: Any) -> Object:
    return {
        **spec, "containers": [container], "enableServiceLinks": False, "securityContext": image.security,
        "volumes": [
            {"name": "tmp", "emptyDir": {}}, {"name": "scratch", "emptyDir": {}},
            {"name": "shared", "hostPath": {"path": shared, "type": "Directory"}}, *image.volumes,
        ],
    }  # fmt: skip


def _labels(name: str, component: str) -> dict[str, str]:
    return {"app.kubernetes.io/instance": name, "app.kubernetes.io/component": component}


def _object(api_version: str, kind: str, name: str, **body: Any) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **body}


def as_list(items: Sequence[Object]) -> str:
    """For `kubectl apply -f -`."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)})
