"""The StreamTopologySnapshots of a namespace on a real API server, and the pods of their Jobs, which a test ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kubernetes import client

from support.kube.apiserver import ApiServer
from support.kube.cluster import Cluster
from support.kube.fake_kubelet import FakeKubelet
from support.kube.running_operator import GROUP, VERSION, Topologies
from support.waiting import eventually

CRD = Path(__file__).parents[3] / "crds" / "streamtopologysnapshots.streamtopology.dev.yaml"
NAME, PLURAL = "streamtopologysnapshots.streamtopology.dev", "streamtopologysnapshots"


def install_snapshots(cluster: Cluster) -> None:
    """Their definition, as users install it; waits until it is served."""
    cluster.kubectl("apply", "--server-side", "-f", str(CRD))
    cluster.served(f"crd/{NAME}")


def remove_snapshots(api_server: ApiServer) -> None:
    api_server.kubectl("delete", "crd", NAME, "--ignore-not-found", "--timeout=120s")


def snapshot(name: str = "nightly", to: str = "s3://backup/nightly", topology: str = "flow") -> dict[str, Any]:
    return {
        "apiVersion": "streamtopology.dev/v1alpha1",
        "kind": "StreamTopologySnapshot",
        "metadata": {"name": name},
        "spec": {"topology": topology, "to": to},
    }


class Snapshots:
    """Those next to `topologies`, as a user of kubectl sees them."""

    def __init__(self, topologies: Topologies, kubelet: FakeKubelet) -> None:
        self.namespace = topologies.namespace
        self._core = topologies.core
        self._batch = topologies.batch
        self._custom = client.CustomObjectsApi(topologies.core.api_client)
        self._kubelet = kubelet

    def create(self, *arguments: str, **named: str) -> None:
        body = snapshot(*arguments, **named)
        self._custom.create_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL, body)

    def names(self) -> list[str]:
        listed = self._custom.list_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL)["items"]
        return [body["metadata"]["name"] for body in listed]

    def status(self, name: str = "nightly") -> dict[str, Any]:
        body = self._custom.get_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL, name)
        return body.get("status") or {}

    def delete(self, name: str = "nightly") -> None:
        self._custom.delete_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL, name)

    def reason(self, name: str = "nightly") -> str:
        """Of the condition Ready."""
        found = (one for one in self.status(name).get("conditions") or () if one["type"] == "Ready")
        return next((one["reason"] for one in found), "")

    def comes_to(self, phase: str, name: str = "nightly") -> dict[str, Any]:
        """The status, once it has this phase."""
        eventually(lambda: self.status(name).get("phase") == phase, 120)
        return self.status(name)

    def is_refused_by(self, reason: str, name: str = "nightly") -> str:
        """The message, once Ready has this reason."""
        eventually(lambda: self.reason(name) == reason, 120)
        return str(self.status(name)["message"])

    def events(self, name: str = "nightly") -> list[tuple[str, str]]:
        """Type and reason of those posted so far, the oldest first."""
        about = f"involvedObject.kind=StreamTopologySnapshot,involvedObject.name={name}"
        listed = self._core.list_namespaced_event(self.namespace, field_selector=about).items
        ordered = sorted(listed, key=lambda event: int(event.metadata.resource_version))
        return [(event.type, event.reason) for event in ordered]

    def jobs(self) -> dict[str, Any]:
        """Those of snapshots, by name."""
        selector = "app.kubernetes.io/component=snapshot"
        listed = self._batch.list_namespaced_job(self.namespace, label_selector=selector).items
        return {job.metadata.name: job for job in listed}

    def running(self, name: str = "nightly") -> list[str]:
        """The Job's pods that run."""
        listed = self._core.list_namespaced_pod(self.namespace, label_selector=f"job-name={name}-snapshot").items
        return [pod.metadata.name for pod in listed if pod.status.phase == "Running"]

    def finish(self, name: str = "nightly", batch: int = 7) -> None:
        """The copy of the Job's pod is whole, and those that the Job is to delete are gone."""
        gone = list(self.drops(name))
        self._end(name, 0, json.dumps({"batch": batch, "bytes": 4096, "dropped": gone}))

    def drops(self, name: str) -> dict[str, str]:
        """Identity and place of the copies that the Job deletes; waits for the Job."""
        eventually(lambda: f"{name}-snapshot" in self.jobs(), 120)
        args = self.jobs()[f"{name}-snapshot"].spec.template.spec.containers[0].args
        return {args[at + 1]: args[at + 2] for at, word in enumerate(args) if word == "--drop"}

    def fail(self, message: str, name: str = "nightly") -> None:
        """The Job's pod fails, and the Job with it: it has no further try."""
        eventually(lambda: len(self.running(name)) == 1, 120)
        self._batch.patch_namespaced_job(f"{name}-snapshot", self.namespace, {"spec": {"backoffLimit": 0}})
        self._end(name, 1, message)

    def end_running(self, name: str, exit_code: int) -> None:
        """End the Job's pods that run, if any."""
        for pod in self.running(name):
            self._kubelet.finish(self.namespace, pod, exit_code, json.dumps({"batch": 7, "bytes": 4096}))

    def empty(self, name: str) -> None:
        """Take everything from the status."""
        self._custom.patch_namespaced_custom_object_status(GROUP, VERSION, self.namespace, PLURAL, name, {"status": None})

    def _end(self, name: str, exit_code: int, message: str) -> None:
        eventually(lambda: len(self.running(name)) == 1, 120)
        self._kubelet.finish(self.namespace, self.running(name)[0], exit_code, message)
