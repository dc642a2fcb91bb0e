"""Pods that a kubelet evicts: reported in its words with the remedy, and in nobody's way afterwards."""

from __future__ import annotations

import random
from typing import Any

import pytest
from support.operator_world import World, condition
from support.reasons import REBALANCED

from streamtopology.k8s import names
from streamtopology.k8s.decide.answers import Judgement
from streamtopology.k8s.decide.evictions import RECENT_SECONDS
from streamtopology.k8s.instants import format_time
from streamtopology.k8s.io.cache import KEPT_EVICTIONS, Cache
from streamtopology.k8s.io.queue import TopologyKey

BEYOND = "Pod ephemeral local storage usage exceeds the total limit of containers 10Gi. "
SHORT = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi. "
LARGE = {"name": "large", "replicas": 2, "cpu": "400m", "memory": "1Gi", "storage": "10Gi"}
SMALL = {"name": "small", "replicas": 1, "cpu": "150m", "memory": "1Gi"}
FLOW = TopologyKey("space", "flow")


def message(world: World, kind: str) -> str:
    return next(one["message"] for one in world.manifest["status"]["conditions"] if one["type"] == kind)


def evict(world: World, pod: str, message: str = BEYOND, *conditions: dict[str, Any]) -> None:
    """Evict an executor, in whose place its StatefulSet has made another before the operator looks."""
    world.evict(pod, message, *conditions)
    world.work()
    world.settle()


def test_executor_beyond_its_storage_is_reported_after_another_runs(world: World) -> None:
    evict(world, "flow-large-1")
    assert condition(world, "Degraded") == ("True", "PodsEvicted")
    sentence = "flow-large-1 was evicted, as it took more of its node's disk than it may: " + BEYOND.strip(" .")
    assert message(world, "Degraded") == f"{sentence}; raise spec.executors, large: storage"
    assert ("PodsEvicted", message(world, "Degraded")) in world.events
    assert world.pod_names("executor") == ["flow-large-0", "flow-large-1", "flow-small-0"]
    assert condition(world, "Ready") == ("True", "Running")


def test_eviction_is_over_after_ten_minutes_and_looked_at_then(world: World) -> None:
    evict(world, "flow-large-1")
    again = world.decide().again_seconds
    assert again is not None
    assert again <= RECENT_SECONDS + 1
    world.now += again
    world.settle()
    assert condition(world, "Degraded") == ("False", "AsExpected")
    assert ("Recovered", "PodsEvicted is over") in world.events


def test_evictions_of_several_pods_are_one_sentence_of_the_last(world: World) -> None:
    evict(world, "flow-large-0")
    world.now += 1
    evict(world, "flow-small-0")
    assert message(world, "Degraded").startswith("flow-small-0 was evicted")
    assert message(world, "Degraded").endswith("raise spec.executors, small: storage (and 1 more)")


def test_eviction_from_a_node_that_is_short_asks_for_no_storage(world: World) -> None:
    evict(world, "flow-large-1", SHORT, {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"})
    assert message(world, "Degraded") == f"flow-large-1 was evicted from its node: {SHORT.strip(' .')}"


def test_evicted_driver_is_the_reason_until_the_next_is_ready(world: World) -> None:
    world.evict(world.pod_names("driver")[0], BEYOND)
    world.work()
    present = next(name for name in world.pod_names("driver") if not name.endswith("-before"))
    status, world.objects["Pod", present]["status"] = world.objects["Pod", present]["status"], {"phase": "Pending"}
    world.carry_out(world.decide())
    assert condition(world, "Ready") == ("False", "DriverFailed")
    assert message(world, "Ready").startswith("the driver starts again: flow-driver-")
    assert message(world, "Ready").endswith("; raise spec.driver.storage")
    world.objects["Pod", present]["status"] = status
    world.settle()
    assert condition(world, "Ready") == ("True", "Running")


@pytest.mark.parametrize("change", ["suspend", "delete"])
def test_evicted_driver_that_kubernetes_keeps_holds_nothing_up(world: World, change: str) -> None:
    world.evict(world.pod_names("driver")[0], BEYOND)
    world.settle()
    if change == "suspend":
        world.change(suspend=True)
        world.settle()
        assert (world.manifest["status"]["phase"], world.pod_names("executor")) == ("Suspended", [])
        return
    world.manifest["metadata"]["deletionTimestamp"] = format_time(world.now)
    for _ in range(2):
        world.carry_out(world.decide())
        world.work()
    assert names.FINALIZER not in world.manifest["metadata"]["finalizers"]


def test_evictions_of_a_former_topology_of_the_name_are_not_reported(world: World) -> None:
    world.manifest["metadata"]["creationTimestamp"] = format_time(world.now + 60)
    evict(world, "flow-large-1")
    assert condition(world, "Degraded") == ("False", "AsExpected")


def test_failed_pre_copy_is_withdrawn_with_the_eviction_of_its_pod(world: World) -> None:
    assert world.driver is not None
    packed = random.Random(1).randbytes(100)
    world.judgement = Judgement("reroute", REBALANCED, 1, world.driver.newest + 1, packed, ("counts",), moved_bytes=2**40)
    world.carry_out(world.decide())
    name = next(name for kind, name in world.objects if kind == "Job")
    job = world.objects["Job", name]
    failed = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "it has reached its limit"}
    job["status"] = {"conditions": [failed]}
    owner = {"kind": "Job", "name": name, "uid": job["metadata"]["uid"], "controller": True}
    template = job["spec"]["template"]
    metadata = {**template["metadata"], "name": f"{name}-x", "namespace": "space", "ownerReferences": [owner]}
    world.put({"kind": "Pod", "metadata": metadata, "spec": template["spec"], "status": {}})
    world.evict(f"{name}-x", BEYOND)
    world.carry_out(world.decide())
    withdrawn = next(text for reason, text in world.events if reason == "MigrationFailed")
    assert "BackoffLimitExceeded: it has reached its limit; " in withdrawn
    assert withdrawn.endswith("raise spec.migration.resources.storage")


def body(version: int, phase: str) -> dict[str, Any]:
    """An executor's pod, which is `Failed` as a kubelet has evicted it."""
    labels = names.labels("flow", "executor", "large")
    metadata = {"name": "flow-large-0", "namespace": "space", "uid": f"uid-{version // 10}", "resourceVersion": str(version)}
    status = {"phase": phase, **({"reason": "Evicted", "message": BEYOND} if phase == "Failed" else {})}
    return {
        "kind": "Pod",
        "metadata": {**metadata, "labels": labels},
        "spec": {"containers": [{"name": "executor"}]},
        "status": status,
    }


def test_pod_that_is_gone_before_anybody_looks_is_remembered() -> None:
    cache = Cache(lambda _: None)
    cache.note({**body(5, "Running"), "metadata": {**body(5, "Running")["metadata"], "name": "flow-large-1"}})
    for number in range(1, KEPT_EVICTIONS + 3):
        cache.note(body(10 * number, "Running"))
        assert len(cache.evicted(FLOW)) == min(number - 1, KEPT_EVICTIONS)
        cache.note(body(10 * number + 1, "Failed"))
        cache.drop(body(10 * number + 2, "Failed"))
    assert [pod.uid for pod in cache.evicted(FLOW)] == [f"uid-{number}" for number in range(3, KEPT_EVICTIONS + 3)]
