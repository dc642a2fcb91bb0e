"""The whole of it, as a user has it: the chart, a manifest, unequal executors, changes and losses; every word counted once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.kube.chart import NAMESPACE as OPERATOR
from support.kube.chart import installed
from support.kube.node import Node
from support.kube.processes import ProcessFailed
from support.waiting import eventually
from support.word_stream import WordStream

from streamtopology.jobs.top import Unreachable, asking_the_cluster

pytestmark = pytest.mark.timeout(1200)

NAME = "words"
START_SECONDS, STEP_SECONDS = 400, 200

Status = Mapping[str, Any]


def manifest(shared: Path) -> dict[str, Any]:
    """Requests of 1.5 CPUs with those of the operator; the rest is room for a third small executor or larger ones."""
    pod = {
        "volumes": [{"name": "shared", "hostPath": {"path": str(shared), "type": "Directory"}}],
        "volumeMounts": [{"name": "shared", "mountPath": str(shared)}],
    }
    return {
        "apiVersion": "streamtopology.dev/v1alpha1",
        "kind": "StreamTopology",
        "metadata": {"name": NAME},
        "spec": {
            "imagePullPolicy": "Never",
            "sources": [{"name": "lines", "format": "text", "options": {"path": f"{shared}/lines", "maxFilesPerTrigger": 1}}],
            "operators": [
                {"name": "split", "inputs": ["lines"], "run": "map",
                 "with": {"select": ["unnest(string_split(value, ' ')) AS word"]}},
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
            "trigger": {"interval": "500ms"},
            "checkpoint": f"{shared}/checkpoint",
        },
    }  # fmt: skip


class Cluster:
    """The topology as its user sees it: kubectl, and what `streamtopology top` asks for."""

    def __init__(self, node: Node, namespace: str) -> None:
        self.node = node
        self.namespace = namespace
        self._ask = asking_the_cluster(NAME, namespace, None)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.node.kubectl("-n", self.namespace, *arguments, stdin=stdin)

    def patch(self, *changes: tuple[str, Any]) -> None:
        """Values at paths of the spec."""
        operations = [{"op": "replace", "path": f"/spec/{path}", "value": value} for path, value in changes]
        self.kubectl("patch", "stopo", NAME, "--type=json", "-p", json.dumps(operations))

    def events(self) -> dict[str, list[str]]:
        """Reason -> messages."""
        told: dict[str, list[str]] = {}
        for event in json.loads(self.kubectl("get", "events", "-o", "json"))["items"]:
            if event["involvedObject"]["kind"] == "StreamTopology":
                told.setdefault(event["reason"], []).append(event["message"])
        return told

    def pods(self) -> dict[str, dict[str, Any]]:
        return {pod["metadata"]["name"]: pod for pod in json.loads(self.kubectl("get", "pods", "-o", "json"))["items"]}

    def uids(self) -> dict[str, str]:
        return {name: pod["metadata"]["uid"] for name, pod in self.pods().items()}

    def driver(self) -> str:
        (name,) = (name for name in self.pods() if name.startswith(f"{NAME}-driver"))
        return name

    def stats(self) -> Mapping[str, Any]:
        """What the driver tells now; an empty answer while it is away."""
        try:
            return self._ask(-1)
        except Unreachable:
            return {}

    def policy(self, operator: str) -> str:
        """What the driver routes to `operator` by now; empty while it is away."""
        return self.stats().get("policies", {}).get(operator, "")

    def settles(self, met: Callable[[Status], bool] = lambda status: True, seconds: float = STEP_SECONDS) -> Status:
        """Until all of the present generation has come through, and `met` holds of the status besides; that status."""
        status: Status = {}

        def settled() -> bool:
            nonlocal status
            found = json.loads(self.kubectl("get", "stopo", NAME, "-o", "json"))
            status = found.get("status") or {}
            current = status.get("observedGeneration") == found["metadata"]["generation"]
            return current and status.get("phase") == "Running" and "intent" not in status and met(status)

        try:
            eventually(settled, seconds)
        except AssertionError:
            pytest.fail(f"waited in vain\n{self.picture()}")
        return status

    def picture(self) -> str:
        """What to look at when it does not work."""
        logs = [f"--- {pod}\n{self.kubectl('logs', pod, '--tail=25')}" for pod in self.pods()]
        operator = self.node.kubectl("-n", OPERATOR, "logs", "deployment/streamtopology", "--tail=40")
        return "\n".join([self.kubectl("describe", "stopo", NAME), *logs, operator])


@pytest.fixture
def cluster(node: Node, images: dict[str, str], namespace: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """The operator is installed, nothing is applied."""
    monkeypatch.setenv("KUBECONFIG", str(node.kubeconfig))
    with installed(node):
        made = Cluster(node, namespace)
        yield made
        made.kubectl("delete", "stopo", "--all", "--wait=true", "--timeout=120s")


def condition(status: Status, kind: str) -> tuple[str, str]:
    found = [one for one in status.get("conditions") or () if one["type"] == kind]
    return (found[0]["status"], found[0]["reason"]) if found else ("", "")


def is_balanced(status: Status) -> bool:
    return condition(status, "Balanced") == ("True", "WithinTolerance")


def slots(stats: Mapping[str, Any]) -> dict[str, float]:
    """CPU of the executors that work is placed on."""
    return {slot["executor"]: slot["cpu"] for slot in stats.get("slots") or () if slot["present"]}


def quota(cluster: Cluster, pod: str) -> str:
    return cluster.pods()[pod]["status"]["containerStatuses"][0]["resources"]["limits"]["cpu"]


def gone(cluster: Cluster) -> bool:
    kinds = "stopo,deployments,statefulsets,pods,configmaps,secrets,services,roles,rolebindings,serviceaccounts,jobs,pdb,netpol"
    left = cluster.kubectl("get", kinds, "-l", f"app.kubernetes.io/instance={NAME}", "-o", "name")
    return left.strip() == ""


def test_a_topology_balances_itself_lives_through_changes_and_losses_and_counts_every_word_once(
    cluster: Cluster, tmp_path: Path
) -> None:
    stream = WordStream(tmp_path)
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(manifest(tmp_path)))
    with stream.flowing():
        # It starts, and its work leaves the small executors by itself.
        cluster.settles(lambda status: condition(status, "Ready") == ("True", "Running"), START_SECONDS)
        status = cluster.settles(lambda status: bool(status.get("reroutings")) and is_balanced(status))
        assert status["imbalance"] <= 0.25
        assert slots(cluster.stats()) == {"large-0": 0.5, "small-0": 0.2, "small-1": 0.2}
        told = cluster.events()
        assert any("imbalance" in message and "saves" in message for message in told["Rerouting"])
        assert any("moved" in message for message in told["Rerouted"])
        pods = cluster.uids()

        # A policy is changed while batches run.
        cluster.patch(("operators/1/grouping/policy", "fields"))
        cluster.settles(lambda _: cluster.policy("counts") == "fields")
        assert any("policy" in message for message in cluster.events()["Routing"])
        cluster.patch(("operators/1/grouping/policy", "mixed"))
        cluster.settles(lambda _: cluster.policy("counts") == "mixed")

        # A class gets more CPU in place; its share of the work follows.
        before = cluster.settles()["epoch"]
        cluster.patch(("executors/1/cpu", "350m"))
        cluster.settles(lambda _: quota(cluster, "words-small-0") == quota(cluster, "words-small-1") == "350m")
        cluster.settles(lambda status: status.get("epoch", 0) > before and is_balanced(status))
        assert slots(cluster.stats()) == {"large-0": 0.5, "small-0": 0.35, "small-1": 0.35}
        cluster.patch(("executors/1/cpu", "200m"))
        cluster.settles(lambda _: quota(cluster, "words-small-0") == quota(cluster, "words-small-1") == "200m")

        # More executors, and fewer.
        cluster.kubectl("scale", f"stopo/{NAME}", "--replicas=3")
        cluster.settles(lambda _: "small-2" in slots(cluster.stats()), START_SECONDS)
        cluster.kubectl("scale", f"stopo/{NAME}", "--replicas=2")
        cluster.settles(lambda _: "words-small-2" not in cluster.pods())
        assert cluster.uids() == pods, "nothing was restarted"

        # An executor, the operator and the driver are lost, one after the other.
        cluster.kubectl("delete", "pod", "words-large-0", "--wait=false")
        cluster.settles(lambda _: cluster.uids().get("words-large-0") not in (None, pods["words-large-0"]), START_SECONDS)
        cluster.node.kubectl("-n", OPERATOR, "delete", "pod", "--all", "--wait=false")
        driver = cluster.driver()
        cluster.kubectl("delete", "pod", driver, "--wait=false", "--grace-period=0", "--force")
        eventually(lambda: driver not in cluster.pods(), STEP_SECONDS)
        cluster.settles(lambda _: cluster.stats().get("phase") == "running", START_SECONDS)
    stream.feed(1)
    assert stream.counted() == stream.expected

    # Nothing is left of it.
    cluster.kubectl("delete", "stopo", NAME, "--timeout=120s")
    eventually(lambda: gone(cluster), STEP_SECONDS)
    with pytest.raises(ProcessFailed, match="NotFound"):
        cluster.kubectl("get", "stopo", NAME)
