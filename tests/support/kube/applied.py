"""A topology on a node as its user sees it: kubectl, and what `streamtopology top` asks for."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from streamtopology.jobs.admin.ask_cluster import Unreachable, asking_the_cluster
from streamtopology.topology.crd import GROUP, PLURAL, VERSION
from support.kube.chart import NAMESPACE as OPERATOR
from support.kube.node import Node
from support.waiting import eventually

NAME = "words"
START_SECONDS, STEP_SECONDS = 400, 200
OWN_OPERATOR = Path(__file__).parents[2] / "node" / "code" / "words.py"

Status = Mapping[str, Any]


# The ConfigMap that has the operator `Split`, which `word_count` runs.
CODE = "own-code"


def word_count(shared: Path) -> dict[str, Any]:
    """Requests of 1.5 CPUs with those of the operator; the rest is room for a third small executor or larger ones."""
    pod = {
        "volumes": [
            {"name": "shared", "hostPath": {"path": str(shared), "type": "Directory"}},
            {"name": "code", "configMap": {"name": CODE}},
        ],
        "volumeMounts": [{"name": "shared", "mountPath": str(shared)}, {"name": "code", "mountPath": "/opt/code"}],
    }
    return {
        "apiVersion": "streamtopology.dev/v1alpha1",
        "kind": "StreamTopology",
        "metadata": {"name": NAME},
        "spec": {
            "imagePullPolicy": "Never",
            "sources": [{"name": "lines", "format": "text", "options": {"path": f"{shared}/lines", "maxFilesPerTrigger": 1}}],
            "operators": [
                {"name": "split", "inputs": ["lines"], "run": "/opt/code/words.py:Split"},
                {"name": "counts", "inputs": ["split"], "grouping": {"policy": "mixed", "key": "word"}, "run": "count",
                 "with": {"costPerTuple": "40us"}},
            ],
            "sinks": [{"name": "counts", "input": "counts", "format": "parquet", "options": {"path": f"{shared}/counts"}}],
            "driver": {"cpu": "500m", "memory": "1536Mi", "pod": pod},
            "executors": [
                {"name": "large", "replicas": 1, "cpu": "500m", "memory": "1Gi", "pod": pod},
                {"name": "small", "cpu": "200m", "memory": "1Gi", "pod": pod},
            ],
            "autoscale": {"class": "small", "by": "External", "replicas": 2, "minReplicas": 1, "maxReplicas": 3},
            "rebalance": {"interval": "3s", "tolerance": 0.25},
            "migration": {"threshold": "1"},
            "trigger": {"interval": "500ms"},
            "checkpoint": f"{shared}/checkpoint",
        },
    }  # fmt: skip


class AppliedTopology:
    """The topology `name`, once it is applied to `namespace`. KUBECONFIG names the node."""

    def __init__(self, node: Node, namespace: str, name: str = NAME) -> None:
        self.node = node
        self.namespace = namespace
        self.name = name
        self._ask = asking_the_cluster(name, namespace, None)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.node.kubectl("-n", self.namespace, *arguments, stdin=stdin)

    def apply(self, manifest: Mapping[str, Any]) -> None:
        """The topology, and before it the code that `word_count` runs."""
        self.kubectl("create", "configmap", CODE, f"--from-file={OWN_OPERATOR}")
        self.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))

    def patch(self, *changes: tuple[str, Any]) -> None:
        """Values at paths of the spec."""
        operations = [{"op": "replace", "path": f"/spec/{path}", "value": value} for path, value in changes]
        self.kubectl("patch", "stopo", self.name, "--type=json", "-p", json.dumps(operations))

    def events(self) -> dict[str, list[str]]:
        """Reason -> messages."""
        reported: dict[str, list[str]] = {}
        for event in self._listed("events"):
            if event["involvedObject"]["kind"] == "StreamTopology":
                reported.setdefault(event["reason"], []).append(event["message"])
        return reported

    def pods(self) -> dict[str, dict[str, Any]]:
        return {pod["metadata"]["name"]: pod for pod in self._listed("pods")}

    def _listed(self, kind: str, group: str = "api/v1") -> list[dict[str, Any]]:
        return self.node.read(f"/{group}/namespaces/{self.namespace}/{kind}")["items"]

    def resource(self) -> dict[str, Any]:
        """The topology as the API server has it."""
        return self.node.read(f"/apis/{GROUP}/{VERSION}/namespaces/{self.namespace}/{PLURAL}/{self.name}")

    def uids(self) -> dict[str, str]:
        """Of the driver's and the executors' pods."""
        return {name: pod["metadata"]["uid"] for name, pod in self.pods().items() if f"{self.name}-migrate-" not in name}

    def posts(self, reason: str, *parts: str, seconds: float = STEP_SECONDS) -> None:
        """Wait for an event of `reason` that has all `parts` in its message; it is posted after the status is written."""
        eventually(lambda: any(all(part in message for part in parts) for message in self.events().get(reason, ())), seconds)

    def copied_epochs(self) -> list[str]:
        """Epochs whose state a Job pre-copied before their first batch: the Job lasts an hour; the driver lists re-routings."""
        jobs = self._listed("jobs", "apis/batch/v1")
        done = [job["metadata"]["name"].rpartition("-")[2] for job in jobs if job["status"].get("succeeded")]
        active = {str(change["epoch"]) for change in self.stats().get("reconfigurations", ())}
        return [epoch for epoch in done if epoch in active]

    def copies_logged(self) -> str:
        """The driver's log lines on pre-copied state."""
        return "\n".join(line for line in self.kubectl("logs", self.driver()).splitlines() if "are pre-copied" in line)

    def driver(self) -> str:
        (name,) = (name for name in self.pods() if name.startswith(f"{self.name}-driver"))
        return name

    def stats(self) -> Mapping[str, Any]:
        """The driver's current answer; empty while it is away."""
        try:
            return self._ask(-1)
        except Unreachable:
            return {}

    def admitted_pods(self) -> set[str]:
        """Pods whose executors are warm, and so given work."""
        return {executor["pod"] for executor in self.stats().get("executors") or () if executor["admitted"]}

    def policy(self, operator: str) -> str:
        """The driver's current route of `operator`; empty while it is away."""
        return self.stats().get("policies", {}).get(operator, "")

    def settles(self, met: Callable[[Status], bool] = lambda status: True, seconds: float = STEP_SECONDS) -> Status:
        """Until all of the present generation has come through, and `met` holds of the status besides; that status."""
        status: Status = {}

        def settled() -> bool:
            nonlocal status
            found = self.resource()
            status = found.get("status") or {}
            current = status.get("observedGeneration") == found["metadata"]["generation"]
            return current and status.get("phase") == "Running" and "intent" not in status and met(status)

        try:
            eventually(settled, seconds)
        except AssertionError:
            pytest.fail(f"waited in vain\n{self.picture()}")
        return status

    def picture(self) -> str:
        """Logs and objects to look at after a failure."""
        logs = [f"--- {pod}\n{self.kubectl('logs', pod, '--tail=25')}" for pod in self.pods()]
        operator = self.node.kubectl("-n", OPERATOR, "logs", "deployment/streamtopology", "--tail=40")
        return "\n".join([self.kubectl("describe", "stopo", self.name), *logs, operator])


def condition(status: Status, kind: str) -> tuple[str, str]:
    found = [one for one in status.get("conditions") or () if one["type"] == kind]
    return (found[0]["status"], found[0]["reason"]) if found else ("", "")


def is_balanced(status: Status) -> bool:
    return condition(status, "Balanced") == ("True", "WithinTolerance")


def slots(stats: Mapping[str, Any]) -> dict[str, float]:
    """CPU of the executors that work is placed on."""
    return {slot["executor"]: slot["cpu"] for slot in stats.get("slots") or () if slot["present"]}
