"""The operator killed before and after every kind of step: another one continues, nothing is lost and nothing done twice."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.fake_driver import FakeDrivers
from support.kube.apiserver import ApiServer
from support.kube.fake_kubelet import FakeKubelet
from support.kube.flow import COUNTS, IMAGE, LARGE, QUIET, SMALL, an_operator, settled
from support.kube.running_operator import OperatorProcess, OperatorThread, Topologies, manifest
from support.waiting import eventually

from streamtopology.k8s import failpoints, names

# The steps at which it is killed while a topology is created, in their order.
MAKING = [
    f"{side}-{what}"
    for what in (
        "intent", "finalizer", "apply-ServiceAccount", "apply-Role", "apply-RoleBinding", "apply-Service",
        "apply-NetworkPolicy", "apply-PodDisruptionBudget", "make-Secret", "apply-ConfigMap", "apply-StatefulSet",
        "apply-Deployment", "status",
    )
    for side in ("before", "after")
]  # fmt: skip

OTHER_CODE = {"operators": [{**COUNTS, "with": {"emit": "nothing"}}]}
MORE_CPU = {"executors": [{**LARGE, "cpu": "600m"}, SMALL]}
ONE_CLASS = {"executors": [LARGE]}
OTHER_PODS = {"executors": [{**LARGE, "pod": {"annotations": {"team": "streams"}}}, SMALL]}
CHANGES: dict[str, dict[str, Any]] = {
    "after-intent": OTHER_CODE,
    "after-apply-ConfigMap": OTHER_CODE,
    "before-apply-Deployment": OTHER_CODE,
    "after-apply-Deployment": OTHER_CODE,
    "before-resize-Pod": MORE_CPU,
    "after-resize-Pod": MORE_CPU,
    "before-apply-StatefulSet": {"executors": [{**LARGE, "replicas": 1}, SMALL]},
    "before-delete-StatefulSet": ONE_CLASS,
    "after-delete-StatefulSet": ONE_CLASS,
    "before-delete-Pod": OTHER_PODS,
    "after-delete-Pod": OTHER_PODS,
}

PUBLISHING = ["before-apply-ConfigMap", "after-apply-ConfigMap", "after-intent"]
COPYING = ["before-apply-Job", "after-apply-Job", "before-patch-ConfigMap", "after-patch-ConfigMap"]
GIVING_UP = ["after-apply-ConfigMap", "before-delete-Job", "after-delete-Job"]
KEEPING = ["before-patch-StatefulSet", "after-patch-StatefulSet"]
SUSPENDING = ["after-intent", "after-apply-Deployment", "before-apply-StatefulSet", "after-apply-StatefulSet"]
DROPPING = ["before-delete-PodDisruptionBudget", "after-delete-PodDisruptionBudget"]
DELETING = [
    "before-intent", "after-intent", "before-patch-Deployment", "after-patch-Deployment", "before-finalizer", "after-finalizer",
]  # fmt: skip


class Killed(BaseException):
    """Nothing catches it, as nothing catches kill -9."""


class Doomed:
    """Starts operators; `at` starts one that dies at a point."""

    def __init__(self, topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers, patch: pytest.MonkeyPatch) -> None:
        self._arguments = (api_server, (topologies.namespace,), drivers)
        self._patch = patch

    def working(self, **settings: Any) -> OperatorThread:
        """One that lives."""
        return an_operator(*self._arguments, **settings)

    @contextmanager
    def at(self, point: str, nth: int = 1) -> Iterator[None]:
        """From here on an operator dies at its `nth` passage of this point; at the end of the block it has died."""
        assert point in failpoints.POINTS
        passed = 0

        def reached(name: str) -> None:
            nonlocal passed
            passed += name == point
            if name == point and passed == nth:
                raise Killed(point)

        with self._patch.context() as patched:
            patched.setattr(failpoints, "point", reached)
            yield


@pytest.fixture
def doomed(topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers, monkeypatch: pytest.MonkeyPatch) -> Doomed:
    return Doomed(topologies, api_server, drivers, monkeypatch)


def epochs(topologies: Topologies, drivers: FakeDrivers) -> list[int]:
    """The epochs that the driver has gone over to, in their order."""
    return [one["epoch"] for one in drivers.drivers[topologies.namespace, "flow"].history]


def jobs(topologies: Topologies) -> dict[str, str]:
    """Migration Jobs, name -> uid."""
    return {one.metadata.name: one.metadata.uid for one in topologies.batch.list_namespaced_job(topologies.namespace).items}


def intent(topologies: Topologies) -> dict[str, Any]:
    """The steps that status announces."""
    return topologies.status("flow").get("intent") or {}


def test_every_point_is_one_at_which_it_is_killed():
    killed_at = {*MAKING, *CHANGES, *PUBLISHING, *COPYING, *GIVING_UP, *KEEPING, *SUSPENDING, *DROPPING, *DELETING}
    assert killed_at == set(failpoints.POINTS)


def test_a_point_that_is_none_ends_the_process_at_its_start():
    reported = subprocess.run(
        [sys.executable, "-m", "streamtopology.k8s"],
        env={failpoints.VARIABLE: "after-apply-Configmap"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert reported.returncode == 1
    assert "UnknownFailpoint: STREAMTOPOLOGY_CRASH_AT=after-apply-Configmap: expected one of" in reported.stderr


def test_killed_at_each_step_of_its_making_one_after_the_other(topologies: Topologies, doomed: Doomed):
    """Each operator resumes where the former was killed, and gets one step further."""
    topologies.create(manifest("flow", rebalance=QUIET))
    for point in MAKING:
        with doomed.at(point), doomed.working() as operator:
            eventually(lambda operator=operator: operator.is_dead)
    with doomed.working():
        eventually(lambda: settled(topologies, 1))
    eventually(lambda: sorted(topologies.executor_pods("flow", "large")) == ["flow-large-0", "flow-large-1"])
    eventually(lambda: len(topologies.driver_pods("flow")) == 1)


@pytest.mark.parametrize("point", CHANGES)
def test_killed_in_the_middle_of_a_change(topologies: Topologies, doomed: Doomed, point: str):
    changed = CHANGES[point]
    with doomed.working() as operator:
        topologies.create(manifest("flow", rebalance=QUIET))
        eventually(lambda: settled(topologies, 1))
        driver = topologies.driver_pods("flow")
        with doomed.at(point):
            topologies.change("flow", **changed)
            eventually(lambda: operator.is_dead)
    with doomed.working():
        eventually(lambda: settled(topologies, 2))
    wanted = {one["name"]: one for one in changed.get("executors", [LARGE, SMALL])}
    for name, ordinals in (("large", 2), ("small", 1)):
        executor = wanted.get(name, {"replicas": 0, "cpu": ""})
        pods = {f"flow-{name}-{number}": executor["cpu"] for number in range(executor.get("replicas", ordinals))}
        eventually(lambda name=name, pods=pods: topologies.executor_pods("flow", name) == pods)
    assert (topologies.driver_pods("flow") != driver) is ("operators" in changed), "restarted if it has to be, and only then"


@pytest.mark.parametrize("point", PUBLISHING)
def test_killed_as_it_publishes_an_epoch(topologies: Topologies, drivers: FakeDrivers, doomed: Doomed, point: str):
    """At the ConfigMap's second writing: the first brought the topology."""
    with doomed.at(point, nth=2), doomed.working() as operator:
        topologies.create(manifest("flow"))
        eventually(lambda: operator.is_dead)
    assert intent(topologies)["action"] == "Rerouting"
    assert intent(topologies)["steps"] == ["apply ConfigMap flow-routing"], "recorded before it was done"
    assert ("epochNumber" in topologies.routing("flow")) is (point == "after-apply-ConfigMap")
    with doomed.working():
        eventually(lambda: topologies.condition("flow", "Balanced") == ("True", "WithinTolerance"))
        eventually(lambda: settled(topologies, 1))
    assert epochs(topologies, drivers) == list(range(2, topologies.status("flow")["epoch"] + 1)), "each once"


def finish_jobs(topologies: Topologies, kubelet: FakeKubelet) -> None:
    """The pods of migration Jobs end well."""
    selector = "app.kubernetes.io/instance=flow,app.kubernetes.io/component=migration"
    for pod in topologies.core.list_namespaced_pod(topologies.namespace, label_selector=selector).items:
        if pod.status.phase == "Running":
            kubelet.finish(topologies.namespace, pod.metadata.name)


@pytest.mark.parametrize("point", COPYING)
def test_killed_as_state_is_copied_ahead(
    topologies: Topologies, drivers: FakeDrivers, kubelet: FakeKubelet, doomed: Doomed, point: str
):
    def died() -> bool:
        finish_jobs(topologies, kubelet)
        return operator.is_dead

    def taken() -> bool:
        finish_jobs(topologies, kubelet)
        return topologies.status("flow")["epoch"] >= 2

    with doomed.at(point), doomed.working() as operator:
        topologies.create(manifest("flow", migration={"threshold": "1"}))
        eventually(died)
    begun = jobs(topologies)
    assert list(begun) == ([] if point == "before-apply-Job" else ["flow-migrate-2"])
    assert topologies.routing("flow")["epochState"] == ("ready" if point == "after-patch-ConfigMap" else "prepared")
    with doomed.working():
        eventually(taken)
    assert epochs(topologies, drivers)[0] == 2
    assert jobs(topologies).items() >= begun.items(), "it was not begun again"


@pytest.mark.parametrize("point", GIVING_UP)
def test_killed_as_it_gives_up_an_epoch_that_another_topology_has_overtaken(topologies: Topologies, doomed: Doomed, point: str):
    """Nothing may continue to copy for a withdrawn epoch."""
    with doomed.working() as operator:
        topologies.create(manifest("flow", migration={"threshold": "1"}))
        eventually(lambda: list(jobs(topologies)) == ["flow-migrate-2"])
        with doomed.at(point):
            topologies.change("flow", rebalance={**QUIET, "tolerance": 0.3})
            eventually(lambda: operator.is_dead)
    with doomed.working():
        eventually(lambda: settled(topologies, 2))
        eventually(lambda: jobs(topologies) == {})
    assert "epochNumber" not in topologies.routing("flow")


@pytest.mark.parametrize("point", KEEPING)
def test_killed_as_it_scales_pods_of_a_former_version(topologies: Topologies, doomed: Doomed, point: str):
    with doomed.working():
        topologies.create(manifest("flow", rebalance=QUIET))
        eventually(lambda: settled(topologies, 1))
    former = {"metadata": {"annotations": {names.POD_CONTENT: "former"}}}
    topologies.apps.patch_namespaced_stateful_set("flow-large", topologies.namespace, {"spec": {"template": former}})
    for pod in ("flow-large-0", "flow-large-1"):
        topologies.core.patch_namespaced_pod(pod, topologies.namespace, former)
    with doomed.at(point), doomed.working() as operator:
        topologies.change("flow", executors=[{**LARGE, "replicas": 3, "cpu": "600m"}, SMALL])
        eventually(lambda: operator.is_dead)
    with doomed.working():
        eventually(lambda: settled(topologies, 2))
    pods = {f"flow-large-{number}": "600m" for number in range(3)}
    eventually(lambda: topologies.executor_pods("flow", "large") == pods)
    for pod in pods:
        found = topologies.core.read_namespaced_pod(pod, topologies.namespace)
        assert found.metadata.annotations[names.POD_CONTENT] == "former", "neither replaced nor unlike the others"


@pytest.mark.parametrize("point", SUSPENDING)
def test_killed_as_it_suspends(topologies: Topologies, doomed: Doomed, point: str):
    with doomed.working() as operator:
        topologies.create(manifest("flow", rebalance=QUIET))
        eventually(lambda: settled(topologies, 1))
        with doomed.at(point):
            topologies.change("flow", suspend=True)
            eventually(lambda: operator.is_dead)
    assert intent(topologies)["action"] == "Suspending"
    last = "apply StatefulSet flow-large" if "StatefulSet" in point else "apply Deployment flow-driver"
    assert last in intent(topologies)["steps"], "recorded before it was done"
    with doomed.working():
        eventually(lambda: topologies.status("flow")["phase"] == "Suspended")
        eventually(lambda: topologies.executor_pods("flow", "large") == {})
        topologies.change("flow", suspend=False)
        eventually(lambda: settled(topologies, 3))


@pytest.mark.parametrize("point", DROPPING)
def test_killed_as_it_drops_the_disruption_budget(topologies: Topologies, api_server: ApiServer, doomed: Doomed, point: str):
    def budgets() -> str:
        return api_server.kubectl("get", "pdb", f"--namespace={topologies.namespace}", "--output=name").strip()

    with doomed.working():
        topologies.create(manifest("flow", rebalance=QUIET))
        eventually(lambda: settled(topologies, 1))
    assert budgets() == "poddisruptionbudget.policy/flow-driver"
    driver = topologies.driver_pods("flow")
    with doomed.at(point), doomed.working(disruption_budget=False) as operator:
        eventually(lambda: operator.is_dead)
    with doomed.working(disruption_budget=False):
        eventually(lambda: budgets() == "" and settled(topologies, 1))
    assert topologies.driver_pods("flow") == driver


@pytest.mark.parametrize("point", DELETING)
def test_killed_as_it_deletes(topologies: Topologies, doomed: Doomed, point: str):
    with doomed.working() as operator:
        topologies.create(manifest("flow", rebalance=QUIET))
        eventually(lambda: settled(topologies, 1))
        with doomed.at(point):
            topologies.delete("flow")
            eventually(lambda: operator.is_dead)
    assert topologies.exists("flow") is (point != "after-finalizer")
    with doomed.working():
        eventually(lambda: not topologies.exists("flow"))
        eventually(lambda: topologies.left_of("flow") == [])


def test_really_killed_and_really_started_again(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers, tmp_path: Path
):
    """The process itself, by kill -9 between the ConfigMap and what follows."""
    environment = {
        "STREAMTOPOLOGY_WATCH_NAMESPACES": topologies.namespace, "STREAMTOPOLOGY_IMAGE": IMAGE,
        "STREAMTOPOLOGY_DRIVER_URL": drivers.url,
    }  # fmt: skip
    topologies.create(manifest("flow", rebalance=QUIET))
    with OperatorProcess(
        api_server, tmp_path / "first.log", STREAMTOPOLOGY_CRASH_AT="after-apply-ConfigMap", **environment
    ) as first:
        assert first.process.wait(120) == -signal.SIGKILL, first.output
    assert "flow-routing" in topologies.left_of("flow")
    assert "flow-large" not in topologies.left_of("flow")
    assert "apply ConfigMap flow-routing" in intent(topologies)["steps"], "recorded before it was done"
    with OperatorProcess(api_server, tmp_path / "second.log", **environment) as second:
        eventually(lambda: second.process.poll() is not None or settled(topologies, 1), 120)
        assert second.process.poll() is None, second.output
