"""Executors that leave, on a real API server: their pods end only after the driver has committed a batch without them."""

from __future__ import annotations

from typing import Any

import pytest
from support.fake_driver import FakeDrivers
from support.kube.apiserver import ApiServer
from support.kube.fake_kubelet import FakeKubelet
from support.kube.flow import IMAGE, LARGE, QUIET, SMALL, an_operator, settled
from support.kube.running_operator import OperatorThread, Topologies, manifest
from support.waiting import eventually

from streamtopology.k8s.settings import Settings


def change(topologies: Topologies) -> dict[str, Any]:
    return topologies.status("flow").get("intent") or {}


def decided(topologies: Topologies, replicas: int) -> bool:
    """Decide in status, as an autoscaler does, until the operator has begun the change."""
    topologies.patch_status("flow", {"status": {"autoscale": {"desired": replicas}}})
    return change(topologies).get("target") == f"{replicas} large, 1 small"


def test_an_executor_in_the_middle_that_is_missing_ends_no_other(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers
) -> None:
    """large-1 never came: two slots of three are there, and large-2 is one of them, with state."""
    key = (topologies.namespace, "flow")
    drivers.missing[key] = {"large-1"}
    with an_operator(api_server, (topologies.namespace,), drivers):
        topologies.create(manifest("flow", rebalance=QUIET, executors=[{**LARGE, "replicas": 3}, SMALL]))
        eventually(lambda: topologies.condition("flow", "Ready") == ("True", "Running"), 120)
        with drivers.failing(*key, "500"):
            topologies.change("flow", executors=[LARGE, SMALL])
            eventually(lambda: change(topologies).get("target") == "2 large, 1 small")
            asked = drivers.asked[key]
            eventually(lambda: drivers.asked[key] > asked + 5)
            assert topologies.replicas("flow", "large") == 3
            assert change(topologies)["action"] == "Scaling"
        eventually(lambda: topologies.replicas("flow", "large") == 2)
        assert drivers.stats(key, -1)["replicas"] == {"large": 2, "small": 1}
    del drivers.missing[key]


@pytest.fixture
def no_room(kubelet: FakeKubelet) -> Any:
    """The fifth large executor finds no node."""
    kubelet.unschedulable = lambda pod: pod["metadata"]["name"] == "flow-large-4"
    yield
    kubelet.unschedulable = lambda pod: False


def test_a_later_decision_within_a_generation_has_its_own_time_to_hand_over(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers, no_room: None
) -> None:
    """As of an autoscaler, which decides in status: the change before has lasted longer than executors may take."""
    key, settings = (topologies.namespace, "flow"), Settings((topologies.namespace,), IMAGE, driver_url=drivers.url)
    scaled = {"class": "large", "by": "Nobody", "replicas": 3, "maxReplicas": 5}
    executors = [{"name": "large", "cpu": "400m"}, SMALL]
    hour = 0.0
    with OperatorThread(api_server, settings, lambda: hour):
        topologies.create(manifest("flow", rebalance=QUIET, executors=executors, autoscale=scaled))
        eventually(lambda: settled(topologies, 1), 120)
        eventually(lambda: decided(topologies, 5))
        eventually(lambda: topologies.replicas("flow", "large") == 5)
        hour = 3600.0
        with drivers.failing(*key, "500"):
            eventually(lambda: decided(topologies, 2))
            asked = drivers.asked[key]
            eventually(lambda: drivers.asked[key] > asked + 5)
            assert topologies.replicas("flow", "large") == 5
        eventually(lambda: topologies.replicas("flow", "large") == 2)
        assert topologies.get("flow")["metadata"]["generation"] == 1
