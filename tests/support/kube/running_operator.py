"""The operator against a real API server: in a thread of the test, or as a process that can be killed."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from kubernetes import client
from kubernetes.aio import config as aio_config
from kubernetes.aio.client import Configuration

from streamtopology.contract.stats_question import Question
from streamtopology.k8s.app import operate
from streamtopology.k8s.decide.answers import FIRST_QUESTION, Judged, PlanningRequest
from streamtopology.k8s.io.metrics import OperatorMetrics
from streamtopology.k8s.io.server_clock import ServerClock
from streamtopology.k8s.planning.judge import Judge
from streamtopology.k8s.settings import Settings
from support.kube.cluster import Cluster

CRD = Path(__file__).parents[3] / "crds" / "streamtopologies.streamtopology.dev.yaml"
GROUP, VERSION, PLURAL = "streamtopology.dev", "v1alpha1", "streamtopologies"


def install_crd(cluster: Cluster) -> None:
    """The CRD, as users install it; waits until it is served."""
    cluster.kubectl("apply", "--server-side", "-f", str(CRD))
    cluster.served("crd/streamtopologies.streamtopology.dev")


def manifest(name: str, **spec: Any) -> dict[str, Any]:
    """A small topology for executors of two classes."""
    return {
        "apiVersion": "streamtopology.dev/v1alpha1",
        "kind": "StreamTopology",
        "metadata": {"name": name},
        "spec": {
            "sources": [{"name": "rows", "format": "parquet", "schema": "key BIGINT", "options": {"path": "/data"}}],
            "operators": [
                {"name": "counts", "inputs": ["rows"], "grouping": {"policy": "mixed", "key": "key"}, "run": "count"}
            ],
            "executors": [
                {"name": "large", "replicas": 2, "cpu": "400m", "memory": "1Gi"},
                {"name": "small", "replicas": 1, "cpu": "150m", "memory": "1Gi"},
            ],
            "rebalance": {"interval": "300ms"},
            "checkpoint": "/checkpoint",
            **spec,
        },
    }


class PlannerInProcess:
    """The planner in the test's own process: a new planning process for each operator would take seconds."""

    def __init__(self) -> None:
        self._judge = Judge(time.monotonic)
        self._known: dict[str, Question] = {}

    async def judge(self, uid: str, answer: bytes, request: PlanningRequest) -> Judged:
        judged = await asyncio.to_thread(self._judge.judge, uid, answer, request)
        self._known[uid] = judged.known
        return judged

    def known(self, uid: str) -> Question:
        return self._known.get(uid, FIRST_QUESTION)

    async def forget(self, uid: str) -> None:
        self._known.pop(uid, None)
        self._judge.forget(uid)


class LaterClock(ServerClock):
    """The API server's, as it will be in `later` seconds: for what takes long."""

    def __init__(self, later: Callable[[], float]) -> None:
        super().__init__(time.time)
        self._later = later

    def now(self) -> float:
        return super().now() + self._later()


class OperatorThread:
    """The whole operator, kopf and watches included, in a thread; a context manager. `later`: seconds that its clock is ahead.

    `kubeconfig`: the access of somebody else than the cluster's administrator.
    """

    def __init__(
        self, cluster: Cluster, settings: Settings, later: Callable[[], float] = float, kubeconfig: Path | None = None
    ) -> None:
        self._kubeconfig = kubeconfig or cluster.kubeconfig
        self._settings = settings
        self._clock = LaterClock(later)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="operator", daemon=True)
        self._is_stopping = False
        self.metrics = OperatorMetrics()

    def __enter__(self) -> Self:
        self._task = self._loop.create_task(self._operate())
        self._thread.start()
        return self

    @property
    def is_dead(self) -> bool:
        """True if it has ended by itself, of an error."""
        return not self._thread.is_alive()

    def __exit__(self, *_: object) -> None:
        if not self.is_dead:
            self._is_stopping = True
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(30)
        assert not self._thread.is_alive(), "the operator does not stop"

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._task)
        except BaseException as error:
            if not (self._is_stopping and isinstance(error, asyncio.CancelledError)):
                logging.getLogger(__name__).warning("the operator has died", exc_info=error)
        finally:
            self._loop.close()

    async def _operate(self) -> None:
        access = await configuration_of(self._kubeconfig)
        await operate(access, self._settings, self.metrics, PlannerInProcess(), self._clock)


async def configuration_of(kubeconfig: Path) -> Configuration:
    configuration = Configuration()
    await aio_config.load_kube_config(str(kubeconfig), client_configuration=configuration)
    return configuration


class OperatorProcess:
    """`streamtopology-operator` as a process, by the command that the image runs; a context manager."""

    def __init__(self, cluster: Cluster, log: Path, **environment: str) -> None:
        self._log = log
        self._environment = {
            **os.environ, "KUBECONFIG": str(cluster.kubeconfig), "STREAMTOPOLOGY_LEADER_ELECTION": "false",
            "STREAMTOPOLOGY_PROBE_PORT": "0", "STREAMTOPOLOGY_METRICS_PORT": "0", **environment,
        }  # fmt: skip

    def __enter__(self) -> Self:
        with self._log.open("a") as log:
            command = [sys.executable, "-m", "streamtopology.k8s"]
            self.process = subprocess.Popen(command, env=self._environment, stdout=log, stderr=log)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    @property
    def output(self) -> str:
        return self._log.read_text()


class Topologies:
    """The StreamTopologies of one namespace, and what they own, as a user of kubectl sees them."""

    def __init__(self, api: client.ApiClient, namespace: str) -> None:
        self.namespace = namespace
        self.core = client.CoreV1Api(api)
        self.apps = client.AppsV1Api(api)
        self.batch = client.BatchV1Api(api)
        self._custom = client.CustomObjectsApi(api)

    def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        return self._custom.create_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL, manifest)

    def get(self, name: str) -> dict[str, Any]:
        return self._custom.get_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL, name)

    def exists(self, name: str) -> bool:
        try:
            self.get(name)
        except client.ApiException as error:
            if error.status == 404:
                return False
            raise
        return True

    def patch(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._custom.patch_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL, name, body)

    def patch_status(self, name: str, body: dict[str, Any]) -> None:
        self._custom.patch_namespaced_custom_object_status(GROUP, VERSION, self.namespace, PLURAL, name, body)

    def change(self, name: str, **spec: Any) -> dict[str, Any]:
        return self.patch(name, {"spec": spec})

    def delete(self, name: str) -> None:
        self._custom.delete_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL, name)

    def let_go(self) -> None:
        """Take the finalizers from all of them, so that they go with their namespace."""
        for item in self._listed():
            try:
                self.patch(item["metadata"]["name"], {"metadata": {"finalizers": None}})
            except client.ApiException as error:
                if error.status != 404:  # gone meanwhile
                    raise

    def phases(self) -> set[str]:
        """Of all of them."""
        return {(item.get("status") or {}).get("phase", "") for item in self._listed()}

    def _listed(self) -> list[dict[str, Any]]:
        return self._custom.list_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL)["items"]

    def status(self, name: str) -> dict[str, Any]:
        return self.get(name).get("status") or {}

    def condition(self, name: str, kind: str) -> tuple[str, str]:
        """(status, reason)."""
        for one in self.status(name).get("conditions") or ():
            if one["type"] == kind:
                return one["status"], one["reason"]
        return "Unknown", ""

    def routing(self, name: str) -> Any:
        """The routing ConfigMap's data."""
        return self.core.read_namespaced_config_map(f"{name}-routing", self.namespace).data

    def events(self, name: str) -> list[tuple[str, str, str]]:
        """(type, reason, message), as `kubectl describe` shows them."""
        found = self.core.list_namespaced_event(self.namespace, field_selector=f"involvedObject.name={name}").items
        return [(event.type, event.reason, event.message) for event in found]

    def reasons(self, name: str) -> set[str]:
        return {reason for _, reason, _ in self.events(name)}

    def replicas(self, name: str, class_name: str) -> int:
        return self.apps.read_namespaced_stateful_set(f"{name}-{class_name}", self.namespace).spec.replicas

    def driver_pods(self, name: str) -> list[str]:
        selector = f"app.kubernetes.io/instance={name},app.kubernetes.io/component=driver"
        pods = self.core.list_namespaced_pod(self.namespace, label_selector=selector).items
        return [pod.metadata.name for pod in pods if pod.metadata.deletion_timestamp is None]

    def executor_pods(self, name: str, class_name: str) -> dict[str, str]:
        """Pod -> CPU limit in its spec."""
        selector = f"app.kubernetes.io/instance={name},streamtopology.dev/class={class_name}"
        pods = self.core.list_namespaced_pod(self.namespace, label_selector=selector).items
        alive = [pod for pod in pods if pod.metadata.deletion_timestamp is None]
        return {pod.metadata.name: pod.spec.containers[0].resources.limits["cpu"] for pod in alive}

    def uids(self, name: str) -> dict[str, str]:
        """Pod -> uid, of all of its pods that stay."""
        pods = self.core.list_namespaced_pod(self.namespace, label_selector=f"app.kubernetes.io/instance={name}").items
        return {pod.metadata.name: pod.metadata.uid for pod in pods if pod.metadata.deletion_timestamp is None}

    def left_of(self, name: str) -> list[str]:
        """The objects that a topology has left behind."""
        selector = f"app.kubernetes.io/instance={name}"
        listed = [
            self.core.list_namespaced_pod, self.core.list_namespaced_config_map, self.core.list_namespaced_secret,
            self.core.list_namespaced_service, self.core.list_namespaced_service_account, self.apps.list_namespaced_deployment,
            self.apps.list_namespaced_stateful_set, self.batch.list_namespaced_job,
        ]  # fmt: skip
        return [item.metadata.name for each in listed for item in each(self.namespace, label_selector=selector).items]
