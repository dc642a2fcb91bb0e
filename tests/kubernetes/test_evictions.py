"""Pods that a kubelet evicts, with the controllers of Kubernetes that replace them."""

from __future__ import annotations

from support.fake_driver import FakeDrivers
from support.kube.apiserver import ApiServer
from support.kube.fake_kubelet import FakeKubelet
from support.kube.flow import LARGE, QUIET, SMALL, an_operator, settled
from support.kube.running_operator import Topologies, manifest
from support.waiting import eventually

BEYOND = "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. "


def test_evicted_executor_is_an_event_that_names_the_limit(
    topologies: Topologies, api_server: ApiServer, kubelet: FakeKubelet, drivers: FakeDrivers
) -> None:
    with an_operator(api_server, (topologies.namespace,), drivers):
        topologies.create(manifest("flow", rebalance=QUIET, executors=[{**LARGE, "storage": "1Gi"}, SMALL]))
        eventually(lambda: settled(topologies, 1), 120)
        before = topologies.uids("flow")
        kubelet.evict(topologies.namespace, "flow-large-1", BEYOND)
        eventually(lambda: "PodsEvicted" in topologies.reasons("flow"), 120)
        [text] = [text for _, reason, text in topologies.events("flow") if reason == "PodsEvicted"]
        assert "flow-large-1 was evicted" in text
        assert "the total limit of containers 1Gi; raise spec.executors, large: storage" in text
        eventually(lambda: topologies.condition("flow", "Degraded") == ("True", "PodsEvicted"), 120)
        eventually(lambda: topologies.uids("flow").keys() == before.keys() and topologies.uids("flow") != before, 120)


def test_evicted_driver_that_kubernetes_keeps_does_not_hold_suspension_up(
    topologies: Topologies, api_server: ApiServer, kubelet: FakeKubelet, drivers: FakeDrivers
) -> None:
    with an_operator(api_server, (topologies.namespace,), drivers):
        topologies.create(manifest("flow", rebalance=QUIET, driver={"storage": "1Gi"}))
        eventually(lambda: settled(topologies, 1), 120)
        [evicted] = topologies.driver_pods("flow")
        kubelet.evict(topologies.namespace, evicted, BEYOND)
        eventually(lambda: len(topologies.driver_pods("flow")) == 2, 120)
        eventually(lambda: settled(topologies, 1), 120)
        topologies.change("flow", suspend=True)
        eventually(lambda: topologies.status("flow")["phase"] == "Suspended", 120)
        assert topologies.driver_pods("flow") == [evicted]
        eventually(lambda: topologies.executor_pods("flow", "large") == {})
