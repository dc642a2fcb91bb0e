"""The topology `flow` of the tests in which the operator, or its API server, comes to harm."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from streamtopology.k8s.settings import Settings
from support.fake_driver import FakeDrivers
from support.kube.apiserver import ApiServer
from support.kube.running_operator import OperatorThread, Topologies

IMAGE = "registry.example/spark:1"
# No re-routing of the controller's own in between.
QUIET = {"mode": "Off", "interval": "300ms"}

LARGE = {"name": "large", "replicas": 2, "cpu": "400m", "memory": "1Gi"}
SMALL = {"name": "small", "replicas": 1, "cpu": "150m", "memory": "1Gi"}
COUNTS = {"name": "counts", "inputs": ["rows"], "grouping": {"policy": "mixed", "key": "key"}, "run": "count"}


def an_operator(api_server: ApiServer, namespaces: tuple[str, ...], drivers: FakeDrivers, **others: Any) -> OperatorThread:
    """One that looks after these namespaces alone. `others`: settings in place of the defaults."""
    common = Settings(namespaces=namespaces, image=IMAGE, driver_url=drivers.url, drain_seconds=20.0)
    return OperatorThread(api_server, replace(common, **others))


def settled(topologies: Topologies, generation: int) -> bool:
    status = topologies.status("flow")
    seen = status.get("observedGeneration") == generation and status.get("phase") == "Running"
    return seen and "intent" not in status
