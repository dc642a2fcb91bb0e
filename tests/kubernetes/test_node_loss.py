"""A node that is lost, on a real API server with Kubernetes' own eviction by taints: its executor gets a successor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client
from support.fake_driver import FakeDrivers
from support.kube.apiserver import ApiServer
from support.kube.fake_kubelet import NODE, FakeKubelet
from support.kube.flow import LARGE, QUIET, an_operator, settled
from support.kube.running_operator import Topologies, manifest
from support.waiting import eventually

UNREACHABLE = "node.kubernetes.io/unreachable"
# In place of Kubernetes' 300 s.
SOON = {"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}


@pytest.fixture
def node(kubelet: FakeKubelet, topologies: Topologies) -> Iterator[str]:
    """A node for `flow-large-1` of the test's namespace."""

    def node_of(pod: dict[str, Any]) -> str:
        metadata = pod["metadata"]
        mine = (metadata["namespace"], metadata["name"]) == (topologies.namespace, "flow-large-1")
        return "node-to-lose" if mine and not kubelet.lost else NODE

    kubelet.add_node("node-to-lose")
    kubelet.node_of = node_of
    yield "node-to-lose"
    kubelet.node_of = lambda pod: NODE
    topologies.core.delete_node("node-to-lose")
    kubelet.lost.clear()


def pod(topologies: Topologies) -> client.V1Pod:
    return topologies.core.read_namespaced_pod("flow-large-1", topologies.namespace)


def made_elsewhere(topologies: Topologies, before: client.V1Pod) -> bool:
    found = topologies.core.list_namespaced_pod(topologies.namespace, field_selector="metadata.name=flow-large-1").items
    return any(now.metadata.uid != before.metadata.uid and now.spec.node_name == NODE for now in found)


def test_executor_of_a_lost_node_is_removed_and_made_elsewhere(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers, kubelet: FakeKubelet, node: str
) -> None:
    """Takes the 30 s in which an executor may end."""
    with an_operator(api_server, (topologies.namespace,), drivers, node_loss_seconds=3.0):
        topologies.create(manifest("flow", rebalance=QUIET, executors=[{**LARGE, "pod": {"tolerations": [SOON]}}]))
        eventually(lambda: settled(topologies, 1))
        before = pod(topologies)
        assert before.spec.node_name == node
        kubelet.lost.add(node)
        topologies.core.patch_node(node, {"spec": {"taints": [{"key": UNREACHABLE, "effect": "NoExecute"}]}})
        eventually(lambda: pod(topologies).metadata.deletion_timestamp is not None)
        reasons = {each.type: each.reason for each in pod(topologies).status.conditions}
        assert reasons["DisruptionTarget"] == "DeletionByTaintManager"
        eventually(lambda: made_elsewhere(topologies, before), 120)
        eventually(lambda: "NodeLost" in topologies.reasons("flow"))
        eventually(lambda: settled(topologies, 1))
