"""The life of a topology on a real API server, from `kubectl apply` to its end; the driver is a fake at its HTTP port."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.fake_driver import FakeDrivers
from support.kube.apiserver import ApiServer
from support.kube.fake_kubelet import FakeKubelet
from support.kube.running_operator import OperatorThread, Topologies, install_crd
from support.waiting import eventually

from streamtopology.operator.settings import Settings


@pytest.fixture(scope="module")
def kubelet(api_server: ApiServer) -> Iterator[FakeKubelet]:
    install_crd(api_server)
    with api_server.controllers(), FakeKubelet(api_server) as kubelet:
        yield kubelet


@pytest.fixture(scope="module")
def drivers(api_server: ApiServer) -> Iterator[FakeDrivers]:
    with FakeDrivers(api_server) as drivers:
        yield drivers


@pytest.fixture(scope="module")
def operator(api_server: ApiServer, kubelet: FakeKubelet, drivers: FakeDrivers) -> Iterator[OperatorThread]:
    settings = Settings(image="registry.example/spark:1", driver_url=drivers.url, drain_seconds=20.0)
    with OperatorThread(api_server, settings) as operator:
        yield operator


@pytest.fixture
def topologies(api_server: ApiServer, namespace: str, operator: OperatorThread) -> Iterator[Topologies]:
    with api_server.client() as api:
        yield Topologies(api, namespace)


def manifest(name: str, **spec: Any) -> dict[str, Any]:
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


def running(topologies: Topologies, name: str) -> bool:
    return topologies.status(name).get("phase") == "Running" and topologies.condition(name, "Reconfiguring")[0] == "False"


def test_apply_and_watch_it_balance_itself(topologies: Topologies):
    topologies.create(manifest("flow"))
    eventually(lambda: running(topologies, "flow"))
    eventually(lambda: topologies.condition("flow", "Balanced") == ("True", "WithinTolerance"))
    status = topologies.status("flow")
    assert status["executors"] == {"ready": 3, "wanted": 3, "summary": "3/3"}
    assert status["epoch"] >= 2
    assert {"Rerouting", "Rerouted", "Running"} <= topologies.reasons("flow")
