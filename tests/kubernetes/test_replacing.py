"""Executors that are replaced, on a real API server: each class by itself, and never in silence."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.fake_driver import FakeDrivers
from support.kube.apiserver import ApiServer
from support.kube.fake_kubelet import FakeKubelet, Pod
from support.kube.flow import IMAGE, LARGE, QUIET, SMALL, settled
from support.kube.running_operator import OperatorThread, Topologies, manifest
from support.waiting import eventually

from streamtopology.k8s.decide.conditions import MISSING_SECONDS
from streamtopology.k8s.settings import Settings

OTHER = {"pod": {"annotations": {"team": "streams"}}}
MANY, FEW = {**LARGE, "replicas": 4, "maxUnavailable": 2}, {**SMALL, "replicas": 2}


def is_new(pod: Pod) -> bool:
    return "team" in (pod["metadata"].get("annotations") or {})


@pytest.fixture
def no_room(kubelet: FakeKubelet) -> Iterator[None]:
    """New executors of the small class find no node."""
    kubelet.unschedulable = lambda pod: is_new(pod) and "small" in pod["metadata"]["name"]
    yield
    kubelet.unschedulable = lambda pod: False


def replaced(topologies: Topologies, class_name: str) -> int:
    selector = f"app.kubernetes.io/instance=flow,streamtopology.dev/class={class_name}"
    pods = topologies.core.list_namespaced_pod(topologies.namespace, label_selector=selector).items
    return sum("team" in (pod.metadata.annotations or {}) for pod in pods if pod.metadata.deletion_timestamp is None)


def test_class_whose_pod_finds_no_node_waits_alone_and_says_so(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers, no_room: None
) -> None:
    settings = Settings((topologies.namespace,), IMAGE, driver_url=drivers.url)
    later = 0.0
    with OperatorThread(api_server, settings, lambda: later):
        topologies.create(manifest("flow", rebalance=QUIET, executors=[MANY, FEW]))
        eventually(lambda: settled(topologies, 1), 120)
        topologies.change("flow", executors=[{**MANY, **OTHER}, {**FEW, **OTHER}])
        eventually(lambda: replaced(topologies, "large") == 4, 120)
        eventually(lambda: replaced(topologies, "small") == 1)
        assert topologies.condition("flow", "Degraded") == ("False", "AsExpected"), "a node may be on its way"
        later = MISSING_SECONDS + 1
        eventually(lambda: topologies.condition("flow", "Degraded") == ("True", "ExecutorsMissing"), 60)
        eventually(lambda: ("Warning", "ExecutorsMissing") in {event[:2] for event in topologies.events("flow")})
        assert any("no node takes flow-small-" in text for _, _, text in topologies.events("flow"))
        assert replaced(topologies, "small") == 1, "the other one keeps running"
