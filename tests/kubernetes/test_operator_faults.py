"""The operator killed at every step, without its API server, as one of two: nothing is lost and nothing done twice."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client
from support.fake_driver import FakeDrivers
from support.kube.apiserver import ApiServer
from support.kube.fake_kubelet import FakeKubelet
from support.kube.running_operator import OperatorProcess, OperatorThread, Topologies, install_crd, manifest
from support.waiting import eventually

from streamtopology.operator import faults
from streamtopology.operator.api import Api, ApiAway
from streamtopology.operator.names import Kind
from streamtopology.operator.settings import Settings

QUIET = {"mode": "Off", "interval": "300ms"}
LARGE = {"name": "large", "replicas": 2, "cpu": "400m", "memory": "1Gi"}
SMALL = {"name": "small", "replicas": 1, "cpu": "150m", "memory": "1Gi"}
OTHER_CODE = {
    "name": "counts", "inputs": ["rows"], "grouping": {"policy": "mixed", "key": "key"}, "run": "count",
    "with": {"emit": "nothing"},
}  # fmt: skip


@pytest.fixture(scope="module")
def kubelet(api_server: ApiServer) -> Iterator[FakeKubelet]:
    install_crd(api_server)
    with api_server.controllers(), FakeKubelet(api_server) as kubelet:
        yield kubelet


@pytest.fixture(scope="module")
def drivers(api_server: ApiServer, kubelet: FakeKubelet) -> Iterator[FakeDrivers]:
    with FakeDrivers(api_server) as drivers:
        yield drivers


@pytest.fixture
def topologies(api_server: ApiServer, namespace: str, drivers: FakeDrivers) -> Iterator[Topologies]:
    with api_server.client() as api:
        yield Topologies(api, namespace)


@pytest.fixture
def operator(api_server: ApiServer, namespace: str, drivers: FakeDrivers) -> OperatorThread:
    return an_operator(api_server, (namespace,), drivers)


def an_operator(api_server: ApiServer, namespaces: tuple[str, ...], drivers: FakeDrivers) -> OperatorThread:
    """One that looks after these namespaces alone."""
    settings = Settings(namespaces=namespaces, image="registry.example/spark:1", driver_url=drivers.url, drain_seconds=20.0)
    return OperatorThread(api_server, settings)


def settled(topologies: Topologies, generation: int) -> bool:
    status = topologies.status("flow")
    seen = status.get("observedGeneration") == generation and status.get("phase") == "Running"
    return seen and "intent" not in status


class Killed(BaseException):
    """Nothing catches it, as nothing catches kill -9."""


def die_at(monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    def reached(name: str) -> None:
        if name == point:
            raise Killed(point)

    monkeypatch.setattr(faults, "point", reached)


FIRST = [
    "before-intent", "after-intent", "after-finalizer", "after-apply-ServiceAccount", "before-make-Secret", "after-make-Secret",
    "before-apply-ConfigMap", "after-apply-ConfigMap", "after-apply-StatefulSet", "before-apply-Deployment",
    "after-apply-Deployment", "before-status", "after-status",
]  # fmt: skip


@pytest.mark.parametrize("point", FIRST)
def test_killed_while_a_topology_is_made(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers, monkeypatch: pytest.MonkeyPatch, point: str
):
    with monkeypatch.context() as patched, an_operator(api_server, (topologies.namespace,), drivers) as doomed:
        die_at(patched, point)
        topologies.create(manifest("flow", rebalance=QUIET))
        eventually(lambda: doomed.is_dead)
    with an_operator(api_server, (topologies.namespace,), drivers):
        eventually(lambda: settled(topologies, 1), 60)
    eventually(lambda: sorted(topologies.executor_pods("flow", "large")) == ["flow-large-0", "flow-large-1"])
    eventually(lambda: len(topologies.driver_pods("flow")) == 1)


CHANGES: dict[str, dict[str, Any]] = {
    "after-intent": {"operators": [OTHER_CODE]},
    "after-apply-ConfigMap": {"operators": [OTHER_CODE]},
    "before-apply-Deployment": {"operators": [OTHER_CODE]},
    "after-apply-Deployment": {"operators": [OTHER_CODE]},
    "before-resize-Pod": {"executors": [{**LARGE, "cpu": "600m"}, SMALL]},
    "after-resize-Pod": {"executors": [{**LARGE, "cpu": "600m"}, SMALL]},
    "before-apply-StatefulSet": {"executors": [{**LARGE, "replicas": 1}, SMALL]},
    "before-delete-StatefulSet": {"executors": [LARGE]},
    "after-delete-StatefulSet": {"executors": [LARGE]},
}


@pytest.mark.parametrize("point", CHANGES)
def test_killed_in_the_middle_of_a_change(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers, monkeypatch: pytest.MonkeyPatch, point: str
):
    changed = CHANGES[point]
    with an_operator(api_server, (topologies.namespace,), drivers) as doomed:
        topologies.create(manifest("flow", rebalance=QUIET))
        eventually(lambda: settled(topologies, 1), 60)
        driver = topologies.driver_pods("flow")
        with monkeypatch.context() as patched:
            die_at(patched, point)
            topologies.change("flow", **changed)
            eventually(lambda: doomed.is_dead)
    with an_operator(api_server, (topologies.namespace,), drivers):
        eventually(lambda: settled(topologies, 2), 60)
    wanted = {one["name"]: one for one in changed.get("executors", [LARGE, SMALL])}
    for name, ordinals in (("large", 2), ("small", 1)):
        executor = wanted.get(name, {"replicas": 0, "cpu": ""})
        pods = {f"flow-{name}-{number}": executor["cpu"] for number in range(executor.get("replicas", ordinals))}
        eventually(lambda name=name, pods=pods: topologies.executor_pods("flow", name) == pods)
    assert (topologies.driver_pods("flow") != driver) is ("operators" in changed), "restarted if it has to be, and only then"


def test_really_killed_and_really_started_again(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers, tmp_path: Path
):
    """The process itself, by kill -9 between the ConfigMap and what follows."""
    environment = {
        "STREAMTOPOLOGY_WATCH_NAMESPACES": topologies.namespace, "STREAMTOPOLOGY_IMAGE": "registry.example/spark:1",
        "STREAMTOPOLOGY_DRIVER_URL": drivers.url,
    }  # fmt: skip
    topologies.create(manifest("flow", rebalance=QUIET))
    with OperatorProcess(
        api_server, tmp_path / "first.log", STREAMTOPOLOGY_CRASH_AT="after-apply-ConfigMap", **environment
    ) as first:
        assert first.process.wait(120) == -signal.SIGKILL, first.said
    assert "flow-routing" in topologies.left_of("flow")
    assert "flow-large" not in topologies.left_of("flow")
    assert "apply ConfigMap flow-routing" in topologies.status("flow")["intent"]["steps"], "recorded before it was done"
    with OperatorProcess(api_server, tmp_path / "second.log", **environment) as second:
        eventually(lambda: second.process.poll() is not None or settled(topologies, 1), 120)
        assert second.process.poll() is None, second.said


@pytest.fixture
def another(api_server: ApiServer) -> Iterator[Topologies]:
    """Those of a second namespace."""
    name = api_server.new_namespace()
    with api_server.client() as api:
        yield Topologies(api, name)
        client.CoreV1Api(api).delete_namespace(name)


def late(monkeypatch: pytest.MonkeyPatch, namespace: str) -> threading.Event:
    """No list of this namespace is answered until the event is set."""
    answered, really = threading.Event(), Api.list

    async def listed(self: Api, kind: Kind, of: str | None, selector: str = "") -> Any:
        if of == namespace and not answered.is_set():
            raise ApiAway(f"{of} cannot be listed yet")
        return await really(self, kind, of, selector)

    monkeypatch.setattr(Api, "list", listed)
    return answered


def test_a_namespace_that_cannot_be_listed_yet_is_left_alone_and_holds_up_no_other(
    topologies: Topologies, another: Topologies, api_server: ApiServer, drivers: FakeDrivers, monkeypatch: pytest.MonkeyPatch
):
    """What is there must not be taken for missing: the driver would be restarted, the routing made anew without its epoch."""
    both = (topologies, another)
    spaces = (topologies.namespace, another.namespace)
    with an_operator(api_server, spaces, drivers):
        for one in both:
            one.create(manifest("flow", rebalance=QUIET))
        eventually(lambda: all(settled(one, 1) for one in both), 60)
        for one in both:
            one.change("flow", rebalance={**QUIET, "tolerance": 0.2})
        eventually(lambda: all(settled(one, 2) for one in both), 60)
    driver = another.driver_pods("flow")
    answered = late(monkeypatch, another.namespace)
    with an_operator(api_server, spaces, drivers):
        for one in both:
            one.change("flow", executors=[{**LARGE, "replicas": 3}, SMALL])
        eventually(lambda: settled(topologies, 3), 60)
        assert another.status("flow")["observedGeneration"] == 2
        assert another.routing("flow")["generation"] == "2"
        answered.set()
        eventually(lambda: settled(another, 3), 60)
    assert another.driver_pods("flow") == driver


def test_an_api_server_that_is_away_and_comes_back(topologies: Topologies, api_server: ApiServer, operator: OperatorThread):
    """Watches break and have expired when it is back; what was changed then is noticed."""
    with operator:
        topologies.create(manifest("flow", rebalance=QUIET))
        eventually(lambda: settled(topologies, 1), 60)
        api_server.stop()
        api_server.start()
        topologies.core.delete_namespaced_service("flow-driver", topologies.namespace)
        topologies.change("flow", executors=[{**LARGE, "replicas": 3}, SMALL])
        eventually(lambda: settled(topologies, 2), 90)
        assert topologies.replicas("flow", "large") == 3
        assert "flow-driver" in topologies.left_of("flow")


def test_an_api_server_that_hangs(topologies: Topologies, api_server: ApiServer, operator: OperatorThread):
    with operator:
        topologies.create(manifest("flow", rebalance=QUIET))
        eventually(lambda: settled(topologies, 1), 60)
        with api_server.frozen():
            pass
        topologies.change("flow", executors=[{**LARGE, "replicas": 3}, SMALL])
        eventually(lambda: settled(topologies, 2), 90)


def test_what_the_api_server_refuses_is_told(topologies: Topologies, operator: OperatorThread):
    """Pod settings are Kubernetes' own: only the API server knows that these do not hold."""
    bad = {"volumes": [{"name": "data", "hostPath": {"path": "/data"}, "emptyDir": {}}]}
    with operator:
        topologies.create(manifest("flow", rebalance=QUIET, executors=[{**LARGE, "pod": bad}, SMALL]))
        eventually(lambda: topologies.condition("flow", "Degraded") == ("True", "ApplyRefused"), 60)
        message = next(one["message"] for one in topologies.status("flow")["conditions"] if one["type"] == "Degraded")
        assert "StatefulSet flow-large" in message
        topologies.change("flow", executors=[LARGE, SMALL])
        eventually(lambda: settled(topologies, 2), 90)
        assert topologies.condition("flow", "Degraded") == ("False", "AsExpected")


def test_two_operators_at_once_do_the_same_and_not_twice(topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers):
    """What a lost lease may lead to for a moment: both act, by server-side apply under the same name."""
    with an_operator(api_server, (topologies.namespace,), drivers), an_operator(api_server, (topologies.namespace,), drivers):
        topologies.create(manifest("flow", rebalance=QUIET))
        eventually(lambda: settled(topologies, 1), 60)
        topologies.change("flow", executors=[{**LARGE, "cpu": "600m"}, SMALL])
        eventually(lambda: settled(topologies, 2), 60)
    eventually(lambda: len(topologies.driver_pods("flow")) == 1)
    eventually(lambda: set(topologies.executor_pods("flow", "large").values()) == {"600m"})
