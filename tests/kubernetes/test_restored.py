"""Topologies and objects that come back from a backup, or were left when a topology went: on a real API server."""

from __future__ import annotations

from typing import Any

from kubernetes import client
from support.fake_driver import FakeDrivers
from support.kube.apiserver import ApiServer
from support.kube.flow import LARGE, QUIET, an_operator, settled
from support.kube.running_operator import Topologies, manifest
from support.waiting import eventually


def export_of(topologies: Topologies) -> dict[str, Any]:
    """`kubectl get -o yaml`, without what the API server refuses in a `create`."""
    exported = topologies.get("flow")
    for name in ("uid", "resourceVersion", "managedFields"):
        exported["metadata"].pop(name, None)
    assert exported["metadata"]["finalizers"]
    return exported


def test_topology_restored_with_its_finalizer_can_be_deleted(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers
) -> None:
    """The finalizer is the restoring client's, which server-side apply would leave."""
    with an_operator(api_server, (topologies.namespace,), drivers):
        topologies.create(manifest("flow", rebalance=QUIET))
        eventually(lambda: settled(topologies, 1), 120)
        exported = export_of(topologies)
        topologies.delete("flow")
        eventually(lambda: not topologies.exists("flow"), 120)
        topologies.create(exported)
        eventually(lambda: settled(topologies, 1), 120)
        topologies.delete("flow")
        eventually(lambda: not topologies.exists("flow"), 120)


def test_orphans_of_a_deleted_topology_are_adopted_with_their_pods(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers
) -> None:
    with an_operator(api_server, (topologies.namespace,), drivers):
        topologies.create(manifest("flow", rebalance=QUIET))
        eventually(lambda: settled(topologies, 1), 120)
        secret, executors = spark_secret(topologies), topologies.executor_pods("flow", "large")
        api_server.kubectl("-n", topologies.namespace, "delete", "stopo", "flow", "--cascade=orphan", "--wait=false")
        eventually(lambda: not topologies.exists("flow"), 120)
        left = set(topologies.left_of("flow"))
        assert {"flow-driver", "flow-large", "flow-routing", "flow-spark"} <= left
        uid = topologies.create(manifest("flow", rebalance=QUIET))["metadata"]["uid"]
        eventually(lambda: settled(topologies, 1), 120)
        assert topologies.condition("flow", "Degraded") == ("False", "AsExpected")
        assert topologies.executor_pods("flow", "large") == executors
        after = spark_secret(topologies)
        assert after.data == secret.data
        assert [owner.uid for owner in after.metadata.owner_references] == [uid]
        topologies.delete("flow")
        eventually(lambda: not topologies.left_of("flow"), 120)


def test_class_left_by_a_former_topology_is_deleted_and_what_others_own_is_not(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers
) -> None:
    with an_operator(api_server, (topologies.namespace,), drivers):
        topologies.create(manifest("flow", rebalance=QUIET))
        eventually(lambda: settled(topologies, 1), 120)
        executors = topologies.executor_pods("flow", "large")
        api_server.kubectl("-n", topologies.namespace, "delete", "stopo", "flow", "--cascade=orphan", "--wait=false")
        eventually(lambda: not topologies.exists("flow"), 120)
        theirs = copy_of(topologies, "flow-small", "flow-theirs")
        topologies.create(manifest("flow", rebalance=QUIET, executors=[LARGE]))
        eventually(lambda: settled(topologies, 1), 120)
        eventually(lambda: "flow-small" not in topologies.left_of("flow"), 120)
        assert topologies.executor_pods("flow", "large") == executors
        assert topologies.condition("flow", "Degraded") == ("False", "AsExpected")
        topologies.delete("flow")
        eventually(lambda: topologies.left_of("flow") == ["flow-theirs"], 120)
        found: Any = topologies.apps.read_namespaced_stateful_set("flow-theirs", topologies.namespace)
        assert (found.metadata.uid, found.metadata.owner_references) == (theirs.metadata.uid, None)
        topologies.apps.delete_namespaced_stateful_set("flow-theirs", topologies.namespace)


def copy_of(topologies: Topologies, name: str, other: str) -> Any:
    """A StatefulSet that somebody has made of this one, labels and annotations included, without pods yet."""
    found: Any = topologies.apps.read_namespaced_stateful_set(name, topologies.namespace)
    metadata = client.V1ObjectMeta(name=other, labels=found.metadata.labels, annotations=found.metadata.annotations)
    found.spec.replicas = 0
    body = client.V1StatefulSet(metadata=metadata, spec=found.spec)
    return topologies.apps.create_namespaced_stateful_set(topologies.namespace, body)


def spark_secret(topologies: Topologies) -> Any:
    return topologies.core.read_namespaced_secret("flow-spark", topologies.namespace)
