"""The operator is upgraded on a real API server while topologies run: their pods stay until their turn comes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client
from support.fake_driver import FakeDrivers
from support.kube.apiserver import ApiServer
from support.kube.fake_kubelet import FakeKubelet
from support.kube.flow import COUNTS, IMAGE, QUIET, SMALL
from support.kube.running_operator import OperatorProcess, Topologies, manifest
from support.waiting import eventually

pytestmark = pytest.mark.timeout(1500)

# In every pod template of the former operator: the present one makes others.
FORMER_USER = 4711

NEXT_IMAGE = "registry.example/spark:2"
LARGE = {"name": "large", "replicas": 2, "cpu": "400m", "memory": "1Gi"}
NAMES = [f"flow-{number}" for number in range(10)]


@pytest.fixture
def environment(topologies: Topologies, drivers: FakeDrivers) -> dict[str, str]:
    return {
        "STREAMTOPOLOGY_WATCH_NAMESPACES": topologies.namespace, "STREAMTOPOLOGY_IMAGE": IMAGE,
        "STREAMTOPOLOGY_DRIVER_URL": drivers.url,
    }  # fmt: skip


def settled(topologies: Topologies, name: str) -> bool:
    here = topologies.get(name)
    status = here.get("status") or {}
    seen = status.get("observedGeneration") == here["metadata"]["generation"] and status.get("phase") == "Running"
    return seen and "intent" not in status


def pods(topologies: Topologies) -> dict[str, tuple[str, str]]:
    """Pod -> (uid, image), of all topologies."""
    found = topologies.core.list_namespaced_pod(topologies.namespace).items
    return {
        pod.metadata.name: (pod.metadata.uid, pod.spec.containers[0].image)
        for pod in found
        if pod.metadata.deletion_timestamp is None
    }


def images(topologies: Topologies, name: str) -> set[str]:
    return {image for pod, (_, image) in pods(topologies).items() if pod.startswith(f"{name}-")}


def users(topologies: Topologies, name: str) -> set[int]:
    found = topologies.core.list_namespaced_pod(topologies.namespace).items
    return {pod.spec.security_context.run_as_user for pod in found if pod.metadata.name.startswith(f"{name}-")}


def config_maps(topologies: Topologies) -> dict[str, dict[str, str]]:
    return {name: topologies.routing(name) for name in NAMES}


def wait(operator: OperatorProcess, condition: Callable[[], bool]) -> None:
    eventually(lambda: operator.process.poll() is not None or condition(), 600)
    assert operator.process.poll() is None, operator.output


@pytest.fixture
def running(topologies: Topologies, api_server: ApiServer, environment: dict[str, str], tmp_path: Path) -> Topologies:
    """Ten topologies that the former operator has brought up, and left."""
    former_environment = {**environment, "STREAMTOPOLOGY_POD_USER": str(FORMER_USER)}
    with OperatorProcess(api_server, tmp_path / "former.log", **former_environment) as former:
        for name in NAMES:
            topologies.create(manifest(name, rebalance=QUIET, executors=[LARGE, SMALL]))
        wait(former, lambda: all(settled(topologies, name) for name in NAMES))
    return topologies


def test_ten_running_topologies_keep_their_pods_when_the_operator_is_upgraded(
    running: Topologies, api_server: ApiServer, environment: dict[str, str], tmp_path: Path
) -> None:
    before, given = pods(running), config_maps(running)
    assert {image for _, image in before.values()} == {IMAGE}
    environment |= {"STREAMTOPOLOGY_IMAGE": NEXT_IMAGE, "STREAMTOPOLOGY_UPGRADE_SECONDS": "86400"}
    with OperatorProcess(api_server, tmp_path / "present.log", **environment) as present:
        eventually(lambda: all("a former version" in _reconfiguring(running, name) for name in NAMES), 600)
        assert (pods(running), config_maps(running)) == (before, given), "it has seen all of them, and left them as they are"

        for name in NAMES:
            running.change(name, rebalance={**QUIET, "tolerance": 0.3})
        wait(present, lambda: all(settled(running, name) for name in NAMES))
        assert pods(running) == before, "another routing restarts nothing"

        running.change("flow-1", executors=[{**LARGE, "replicas": 3, "cpu": "600m"}, SMALL])
        wait(present, lambda: settled(running, "flow-1") and len(running.executor_pods("flow-1", "large")) == 3)
        added = pods(running).keys() - before.keys()
        assert added == {"flow-1-large-2"}
        assert {name: pods(running)[name] for name in before} == before, "pods are resized in place and added, not replaced"
        assert pods(running)["flow-1-large-2"][1] == IMAGE, "one topology runs one image"
        assert users(running, "flow-1") == {FORMER_USER}, "and its pods are of one template"
        assert set(running.executor_pods("flow-1", "large").values()) == {"600m"}

        running.change("flow-2", operators=[{**COUNTS, "with": {"emit": "nothing"}}])
        wait(present, lambda: settled(running, "flow-2") and images(running, "flow-2") == {NEXT_IMAGE})
        others = {name: one for name, one in before.items() if not name.startswith("flow-2-")}
        assert others.items() <= pods(running).items(), "what restarts anyway gets the new pods, the others keep theirs"
        assert FORMER_USER not in users(running, "flow-2")


def _reconfiguring(topologies: Topologies, name: str) -> str:
    conditions = topologies.status(name)["conditions"]
    return next(one["message"] for one in conditions if one["type"] == "Reconfiguring")


@pytest.fixture
def next_finds_no_room(kubelet: FakeKubelet) -> Iterator[None]:
    """Pods with the next image find no node: the first topology of the roll-out is also the last."""
    kubelet.unschedulable = lambda pod: pod["spec"]["containers"][0]["image"] == NEXT_IMAGE
    yield
    kubelet.unschedulable = lambda pod: False


def test_roll_out_that_broke_a_topology_ends_there_also_for_the_next_process(
    running: Topologies,
    api_server: ApiServer,
    drivers: FakeDrivers,
    environment: dict[str, str],
    tmp_path: Path,
    next_finds_no_room: None,
) -> None:
    environment |= {"STREAMTOPOLOGY_IMAGE": NEXT_IMAGE, "STREAMTOPOLOGY_UPGRADE_SECONDS": "0.2"}

    def upgraded() -> list[str]:
        return [name for name in NAMES if NEXT_IMAGE in images(running, name)]

    with OperatorProcess(api_server, tmp_path / "first.log", **environment) as first:
        wait(first, lambda: len(upgraded()) == 1)
        (broken,) = upgraded()
        wait(first, lambda: running.condition(broken, "Ready")[1] == "DriverNotScheduled")
    other = (running.namespace, next(name for name in NAMES if name != broken))
    asked = drivers.asked[other]
    with OperatorProcess(api_server, tmp_path / "second.log", **environment) as second:
        wait(second, lambda: drivers.asked[other] > asked + 20)
        assert upgraded() == [broken]


def test_a_roll_out_takes_one_topology_after_the_other(
    running: Topologies, api_server: ApiServer, environment: dict[str, str], tmp_path: Path
) -> None:
    under_way: list[set[str]] = []

    def all_upgraded() -> bool:
        listed: list[dict[str, Any]] = client.CustomObjectsApi(running.core.api_client).list_namespaced_custom_object(
            "streamtopology.dev", "v1alpha1", running.namespace, "streamtopologies"
        )["items"]
        intents = {one["metadata"]["name"]: one["status"].get("intent") or {} for one in listed}
        under_way.append({name for name, intent in intents.items() if intent.get("action") == "Upgrading"})
        return {image for _, image in pods(running).values()} == {NEXT_IMAGE} and not under_way[-1]

    environment |= {"STREAMTOPOLOGY_IMAGE": NEXT_IMAGE, "STREAMTOPOLOGY_UPGRADE_SECONDS": "0.2"}
    with OperatorProcess(api_server, tmp_path / "present.log", **environment) as present:
        wait(present, all_upgraded)
    assert max(map(len, under_way)) == 1
    assert all("Upgrading" in running.reasons(name) for name in NAMES)
