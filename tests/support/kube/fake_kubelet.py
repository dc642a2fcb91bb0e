"""Scheduler and kubelet played on an API server without nodes: pods become Running and Ready, and are resized in place.

The one fake of the harness: what a pod's processes would do is not played. Tests that need a real kubelet use `Node`.
"""

from __future__ import annotations

import copy
import datetime
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any, Literal, Self, cast

import urllib3
from kubernetes import client, watch

from support.kube.apiserver import ApiServer

NODE = "fake-node"
Pod = dict[str, Any]  # as JSON
Resizes = Literal["done", "deferred", "infeasible"]

_WATCH_SECONDS = 1  # a changed switch reaches pods without an event of their own with the next list
_MERGE = "application/merge-patch+json"


class FakeKubelet:
    """A context manager that looks after the pods of all namespaces, in a thread. Survives the API server's absence.

    Switches, which may be changed at any time: `unschedulable` says of a pod (JSON) that it finds no room and stays
    Pending; `resizes` says what becomes of a changed CPU or memory; `node_of` names the node that a pod gets, and `lost` has
    nodes whose kubelet does nothing any more.
    """

    def __init__(self, api: ApiServer) -> None:
        self.unschedulable: Callable[[Pod], bool] = lambda pod: False
        self.resizes: Resizes = "done"
        self.node_of: Callable[[Pod], str] = lambda pod: NODE
        self.lost: set[str] = set()
        self._api = api
        self._stopping = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="fake-kubelet", daemon=True)

    def __enter__(self) -> Self:
        self.add_node(NODE)
        self._thread.start()
        return self

    def add_node(self, name: str) -> None:
        with self._api.client() as api:
            core = client.CoreV1Api(api)
            room = {"cpu": "1000", "memory": "1000Gi", "pods": "10000"}
            ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "played"}
            try:
                core.create_node(client.V1Node(metadata=client.V1ObjectMeta(name=name)))
            except client.ApiException as problem:
                if problem.status != 409:  # left by an earlier one: there is one such node for a test session
                    raise
            core.patch_node_status(name, {"status": {"capacity": room, "allocatable": room, "conditions": [ready]}})

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def finish(self, namespace: str, name: str, exit_code: int = 0, message: str = "") -> None:
        """The pod's containers end with a termination message: it has succeeded or failed for good, as a Job's does."""
        with self._api.client() as api:
            core = client.CoreV1Api(api)
            pod = cast(Pod, api.sanitize_for_serialization(core.read_namespaced_pod(name, namespace)))
            core.patch_namespaced_pod_status(name, namespace, {"status": _ended(pod, exit_code, message)}, _content_type=_MERGE)

    def evict(self, namespace: str, name: str, message: str) -> None:
        """The pod has taken more of its node's disk than it may: it has failed for good, with this message."""
        with self._api.client() as api:
            core = client.CoreV1Api(api)
            pod = cast(Pod, api.sanitize_for_serialization(core.read_namespaced_pod(name, namespace)))
            status = {**_ended(pod, 137, ""), "reason": "Evicted", "message": message}
            core.patch_namespaced_pod_status(name, namespace, {"status": status}, _content_type=_MERGE)

    def _run(self) -> None:
        with self._api.client() as api:
            core = client.CoreV1Api(api)
            while not self._stopping.is_set():
                try:
                    self._look_after_all(core)
                except (urllib3.exceptions.HTTPError, OSError):  # the API server is away, which tests arrange
                    self._stopping.wait(0.1)
                except client.ApiException as problem:
                    if problem.status not in {0, 409, 410, 429, 500, 503}:  # 0: TLS broke off
                        self._failure = problem
                        return
                    self._stopping.wait(0.1)

    def _look_after_all(self, core: client.CoreV1Api) -> None:
        """List, then watch for a moment: so that neither an event nor a changed switch is missed."""
        answer = cast(Any, core.list_pod_for_all_namespaces(_preload_content=False, _request_timeout=5))
        pods = json.loads(answer.data)
        for pod in pods["items"]:
            self._look_after(core, pod)
        events = watch.Watch().stream(
            core.list_pod_for_all_namespaces,
            resource_version=pods["metadata"]["resourceVersion"],
            timeout_seconds=_WATCH_SECONDS,
            _request_timeout=5,
        )
        for event in cast(Iterator[dict[str, Any]], events):
            if event["type"] != "DELETED":
                self._look_after(core, event["raw_object"])

    def _look_after(self, core: client.CoreV1Api, pod: Pod) -> None:
        """By name and uid: the object of an event may be gone, and its successor have its name."""
        metadata, status = pod["metadata"], pod["status"]
        name, namespace = metadata["name"], metadata["namespace"]
        try:
            if pod["spec"].get("nodeName") in self.lost:
                return
            if "deletionTimestamp" in metadata:
                this = client.V1Preconditions(uid=metadata["uid"])
                core.delete_namespaced_pod(
                    name, namespace, body=client.V1DeleteOptions(grace_period_seconds=0, preconditions=this)
                )
            elif "nodeName" not in pod["spec"]:
                self._schedule(core, pod)
            elif status["phase"] in {"Pending", "Running"}:
                wanted = _running(pod, self.resizes)
                if any(status.get(field) != value for field, value in wanted.items()):
                    _tell(core, pod, wanted)
        except client.ApiException as problem:
            is_another = problem.status == 422 and "metadata.uid" in str(problem.body)
            if not is_another and problem.status not in {403, 404, 409}:
                raise  # else its namespace ends, or it is gone, or has changed: the next event shows it

    def _schedule(self, core: client.CoreV1Api, pod: Pod) -> None:
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        if not self.unschedulable(pod):
            target = client.V1ObjectReference(kind="Node", name=self.node_of(pod))
            binding = client.V1Binding(metadata=client.V1ObjectMeta(name=name, uid=pod["metadata"]["uid"]), target=target)
            core.create_namespaced_pod_binding(name, namespace, binding, _preload_content=False)
        elif not any(each["type"] == "PodScheduled" for each in pod["status"].get("conditions", [])):
            reported = _stamped("PodScheduled", "False", "Unschedulable", "0/1 nodes are available: 1 Insufficient cpu.")
            _tell(core, pod, {"conditions": [reported]})


def _tell(core: client.CoreV1Api, pod: Pod, status: dict[str, Any]) -> None:
    """Writes these fields of the status, if the pod is still the same."""
    metadata = pod["metadata"]
    body = {"metadata": {"uid": metadata["uid"]}, "status": status}
    core.patch_namespaced_pod_status(metadata["name"], metadata["namespace"], body, _content_type=_MERGE)


def _running(pod: Pod, resizes: Resizes) -> dict[str, Any]:
    """The status that a kubelet gives a running pod. What is already there keeps its times."""
    before = {each["name"]: each for each in pod["status"].get("containerStatuses", [])}
    containers = [_container(each, before.get(each["name"]), resizes) for each in pod["spec"]["containers"]]
    conditions = [
        _condition(pod, kind) or _stamped(kind, "True") for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    ]
    as_asked = [each.get("resources", {}) for each in pod["spec"]["containers"]]
    if [each["resources"] for each in containers] != as_asked:
        reason = {"deferred": "Deferred", "infeasible": "Infeasible"}[resizes]
        reported = _condition(pod, "PodResizePending")
        if not reported or reported["reason"] != reason:
            reported = _stamped("PodResizePending", "True", reason, f"Node didn't have enough resource: cpu ({resizes})")
        conditions.append(reported)
    address = _address(pod["metadata"]["uid"])
    return {
        "phase": "Running",
        "observedGeneration": pod["metadata"].get("generation", 1),
        "startTime": pod["status"].get("startTime") or _now(),
        "hostIP": "127.0.0.1",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": conditions,
        "containerStatuses": containers,
    }


def _container(spec: dict[str, Any], before: dict[str, Any] | None, resizes: Resizes) -> dict[str, Any]:
    if before is None:
        resources = spec.get("resources", {})
        return {
            "name": spec["name"], "image": spec["image"], "imageID": "", "containerID": f"fake://{spec['name']}",
            "ready": True, "started": True, "restartCount": 0, "state": {"running": {"startedAt": _now()}},
            "resources": copy.deepcopy(resources), **_allocated(resources),
        }  # fmt: skip
    if resizes != "done":
        return before
    resources = spec.get("resources", {})
    return {**before, "resources": copy.deepcopy(resources), **_allocated(resources)}


def _allocated(resources: dict[str, Any]) -> dict[str, Any]:
    return {"allocatedResources": dict(resources["requests"])} if resources.get("requests") else {}


def _ended(pod: Pod, exit_code: int, message: str) -> dict[str, Any]:
    """The status of a pod whose containers ended with `exit_code`."""
    reason = "Completed" if exit_code == 0 else "Error"
    ended = {"terminated": {"exitCode": exit_code, "reason": reason, "finishedAt": _now(), "message": message}}
    containers = [
        {**each, "ready": False, "started": False, "state": ended} for each in pod["status"].get("containerStatuses", [])
    ]
    kept = [each for each in pod["status"].get("conditions", []) if each["type"] not in {"Ready", "ContainersReady"}]
    over = [_stamped(kind, "False", "PodCompleted") for kind in ("Ready", "ContainersReady")]
    phase = "Succeeded" if exit_code == 0 else "Failed"
    return {"phase": phase, "conditions": [*kept, *over], "containerStatuses": containers}


def _condition(pod: Pod, kind: str) -> dict[str, Any] | None:
    """The condition as it is, where it holds."""
    conditions = pod["status"].get("conditions", [])
    return next((each for each in conditions if each["type"] == kind and each["status"] == "True"), None)


def _stamped(kind: str, status: str, reason: str = "", message: str = "") -> dict[str, Any]:
    output = {key: value for key, value in (("reason", reason), ("message", message)) if value}
    return {"type": kind, "status": status, "lastTransitionTime": _now(), **output}


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _address(uid: str) -> str:
    """An address of the pod's own, always the same."""
    number = int(uid.replace("-", "")[:6], 16)
    return f"10.{88 + (number >> 16) % 100}.{number >> 8 & 255}.{number & 255}"
