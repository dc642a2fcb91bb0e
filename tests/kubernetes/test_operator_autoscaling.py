"""Scaling a topology on a real API server: by the built-in autoscaler, and by a real HPA by the CPU that pods use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.fake_driver import FakeDrivers
from support.kube.apiserver import ApiServer
from support.kube.flow import QUIET, SMALL, an_operator
from support.kube.metrics_api import MetricsApi
from support.kube.running_operator import Topologies, manifest
from support.waiting import eventually

EXAMPLE = Path(__file__).parents[2] / "examples" / "autoscale-hpa.yaml"
CLASSES = [{"name": "large", "cpu": "400m", "memory": "1Gi"}, SMALL]


@pytest.fixture
def topologies(api_server: ApiServer, namespace: str, drivers: FakeDrivers) -> Iterator[Topologies]:
    with an_operator(api_server, (namespace,), drivers), api_server.client() as api:
        yield Topologies(api, namespace)


def runs_with(topologies: Topologies, name: str, executors: int) -> bool:
    reported = topologies.status(name)
    here = (reported.get("autoscale") or {}).get("replicas") == executors == len(topologies.executor_pods(name, "large"))
    return here and reported.get("phase") == "Running"


def test_built_in_autoscaler_adds_busy_executors_and_removes_idle_ones(topologies: Topologies, drivers: FakeDrivers) -> None:
    scaled = {"class": "large", "by": "Operator", "replicas": 1, "maxReplicas": 3, "stabilisation": "1s"}
    topologies.create(manifest("flow", executors=CLASSES, autoscale=scaled))
    eventually(lambda: runs_with(topologies, "flow", 3), 90)
    assert "busy" in topologies.status("flow")["autoscale"]["reason"]
    assert any(reason == "Scaling" and "target 70%" in message for _, reason, message in topologies.events("flow"))
    driver = topologies.driver_pods("flow")

    drivers.rows = 500
    try:
        eventually(lambda: runs_with(topologies, "flow", 2), 90)
    finally:
        drivers.rows = 50_000
    assert topologies.get("flow")["spec"]["autoscale"] == scaled | {"minReplicas": 1, "targetUtilisation": 0.7}, "as written"
    assert topologies.driver_pods("flow") == driver, "nothing restarts"


def test_built_in_autoscaler_adds_the_class_that_brings_more_for_its_price(topologies: Topologies) -> None:
    classes = [{"name": "large", "minReplicas": 1, "maxReplicas": 3}, {"name": "small", "maxReplicas": 2}]
    scaled = {"by": "Operator", "classes": classes, "stabilisation": "1s"}
    priced = [{**CLASSES[0], "costPerHour": 1.0}, {**SMALL, "costPerHour": 0.1}]
    executors = [{name: value for name, value in one.items() if name != "replicas"} for one in priced]
    topologies.create(manifest("flow", executors=executors, autoscale=scaled))

    def desired() -> dict[str, int]:
        classes = (topologies.status("flow").get("autoscale") or {}).get("classes", ())
        return {one["name"]: one["desired"] for one in classes}

    def runs_as_desired() -> bool:
        pods = {name: len(topologies.executor_pods("flow", name)) for name in ("large", "small")}
        return pods == desired() and topologies.status("flow").get("phase") == "Running"

    eventually(lambda: desired() == {"large": 3, "small": 2} and runs_as_desired(), 90)
    assert topologies.status("flow")["autoscale"].keys() == {"classes", "at", "reason"}
    messages = [message for _, reason, message in topologies.events("flow") if reason == "Scaling"]
    assert any("for its price one of small brings" in message for message in messages)


def test_a_topology_without_rows_keeps_its_driver_alone_and_rows_start_an_executor(
    topologies: Topologies, drivers: FakeDrivers
) -> None:
    scaled = {"class": "large", "by": "Operator", "replicas": 2, "minReplicas": 0, "maxReplicas": 3, "stabilisation": "1s"}
    topologies.create(manifest("flow", executors=CLASSES[:1], autoscale=scaled))
    eventually(lambda: runs_with(topologies, "flow", 3), 90)
    driver = topologies.driver_pods("flow")
    drivers.idle_seconds = 600.0
    try:
        eventually(lambda: topologies.executor_pods("flow", "large") == {}, 180)
        eventually(lambda: topologies.status("flow")["phase"] == "Asleep")
        assert topologies.condition("flow", "Ready") == ("True", "Asleep")
        assert topologies.status("flow")["autoscale"]["replicas"] == 0
    finally:
        drivers.idle_seconds = None
    eventually(lambda: runs_with(topologies, "flow", 3), 90)
    assert topologies.driver_pods("flow") == driver, "it has run all the time"


def cpu_used(pod: dict[str, Any]) -> float:
    """Cores: nearly all of what the pod's limit lets it have."""
    limit = pod["spec"]["containers"][0]["resources"]["limits"]["cpu"]
    assert limit.endswith("m")
    return 0.98 * int(limit[:-1]) / 1000


def test_the_hpa_of_the_example_scales_by_the_cpu_that_executors_use(topologies: Topologies, api_server: ApiServer) -> None:
    scaled = {"class": "large", "replicas": 3, "maxReplicas": 8}  # as the example's header asks for
    topologies.create(manifest("flights", rebalance=QUIET, executors=CLASSES, autoscale=scaled))
    eventually(lambda: runs_with(topologies, "flights", 3), 90)
    with MetricsApi(api_server, cpu_used):
        api_server.kubectl("apply", f"--namespace={topologies.namespace}", "-f", str(EXAMPLE))
        # 0.98 of what each asks for, where 0.7 is wanted: more until there are as many as may be.
        eventually(lambda: runs_with(topologies, "flights", 8), 90)
