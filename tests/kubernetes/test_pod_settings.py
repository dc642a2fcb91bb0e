"""Pod settings on a real API server: the examples as users apply them, and the pods that come of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.fake_driver import FakeDrivers
from support.kube.apiserver import ApiServer
from support.kube.flow import QUIET, an_operator, settled
from support.kube.running_operator import Topologies, manifest
from support.waiting import eventually

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def runs(topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers) -> Iterator[Callable[[str, str], None]]:
    """Apply an example and wait until its topology of this name runs."""

    def run(example: str, name: str) -> None:
        api_server.kubectl("apply", f"--namespace={topologies.namespace}", "-f", str(EXAMPLES / example))
        eventually(lambda: topologies.status(name).get("phase") == "Running", 120)
        assert topologies.condition(name, "Degraded") == ("False", "AsExpected")

    with an_operator(api_server, (topologies.namespace,), drivers):
        yield run


def pods(topologies: Topologies, name: str, component: str) -> list[Any]:
    selector = f"app.kubernetes.io/instance={name},app.kubernetes.io/component={component}"
    return topologies.core.list_namespaced_pod(topologies.namespace, label_selector=selector).items


def test_pods_have_init_containers_sidecars_and_ephemeral_volumes(
    topologies: Topologies, runs: Callable[[str, str], None]
) -> None:
    runs("pod-settings.yaml", "orders")
    [driver] = pods(topologies, "orders", "driver")
    assert [(each.name, each.restart_policy) for each in driver.spec.init_containers] == [
        ("broker", None),
        ("metrics", "Always"),
    ]
    assert driver.spec.termination_grace_period_seconds == 120
    security = driver.spec.security_context
    assert (security.supplemental_groups, security.run_as_user) == ([3000], 10001)
    executors = pods(topologies, "orders", "executor")
    assert [[each.name for each in pod.spec.init_containers] for pod in executors] == [["broker"], ["broker"]]
    claims = {f"{pod.metadata.name}-cache" for pod in executors}

    def claimed() -> set[str]:
        found = topologies.core.list_namespaced_persistent_volume_claim(topologies.namespace).items
        return {claim.metadata.name for claim in found}

    eventually(lambda: claimed() == claims)


def test_pods_of_a_gang_name_their_scheduler_queue_and_groups(topologies: Topologies, runs: Callable[[str, str], None]) -> None:
    """No scheduler of that name is here: the played kubelet binds the pods."""
    runs("gang.yaml", "visits")
    every = [*pods(topologies, "visits", "executor"), *pods(topologies, "visits", "driver")]
    assert {pod.spec.scheduler_name for pod in every} == {"yunikorn"}
    assert {(pod.metadata.labels["applicationId"], pod.metadata.labels["queue"]) for pod in every} == {
        ("visits", "root.streams")
    }
    groups = [pod.metadata.annotations["yunikorn.apache.org/task-group-name"] for pod in every]
    assert groups == ["executors"] * 4 + ["driver"]


def test_label_of_pods_is_on_their_workload_and_restarts_no_driver(
    topologies: Topologies, drivers: FakeDrivers, api_server: ApiServer
) -> None:
    large = {"name": "large", "replicas": 1, "cpu": "400m"}
    with an_operator(api_server, (topologies.namespace,), drivers):
        topologies.create(manifest("flow", rebalance=QUIET, executors=[large]))
        eventually(lambda: settled(topologies, 1))
        driver = topologies.driver_pods("flow")
        queue = {"kueue.x-k8s.io/queue-name": "streams"}
        topologies.change("flow", executors=[{**large, "pod": {"labels": queue}}])
        eventually(lambda: settled(topologies, 2))
        labels = topologies.apps.read_namespaced_stateful_set("flow-large", topologies.namespace).metadata.labels
        assert labels["kueue.x-k8s.io/queue-name"] == "streams"
        assert topologies.driver_pods("flow") == driver


def test_refusal_of_a_pod_names_the_field_of_the_manifest(
    topologies: Topologies, drivers: FakeDrivers, api_server: ApiServer
) -> None:
    large = {"name": "large", "pod": {"tolerations": [{"key": "not a key", "operator": "Exists"}]}}
    with an_operator(api_server, (topologies.namespace,), drivers):
        topologies.create(manifest("flow", rebalance=QUIET, executors=[large]))
        eventually(lambda: topologies.condition("flow", "Degraded") == ("True", "ApplyRefused"), 120)
        [message] = [one["message"] for one in topologies.status("flow")["conditions"] if one["type"] == "Degraded"]
        assert "spec.executors, large: pod.tolerations" in message
        assert "not a key" in message
