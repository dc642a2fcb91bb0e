"""Who scales a topology on a real API server: the built-in autoscaler, and a real HPA by the CPU that pods use."""

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
    told = topologies.status(name)
    here = (told.get("autoscale") or {}).get("replicas") == executors == len(topologies.executor_pods(name, "large"))
    return here and told.get("phase") == "Running"


def test_the_built_in_autoscaler_adds_executors_that_are_kept_busy_and_takes_idle_ones_away(
    topologies: Topologies, drivers: FakeDrivers
) -> None:
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
