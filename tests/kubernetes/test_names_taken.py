"""Objects of others that have the names of ours, on a real API server: they are neither changed nor deleted."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes import client
from support.fake_driver import FakeDrivers
from support.kube.apiserver import ApiServer
from support.kube.flow import QUIET, SMALL, an_operator, settled
from support.kube.running_operator import Topologies, manifest
from support.waiting import eventually

LABELS = {
    "app.kubernetes.io/managed-by": "streamtopology-operator",
    "app.kubernetes.io/instance": "flow",
    "app.kubernetes.io/component": "driver",
}


class Foreign:
    """One object of somebody else, and what it is now."""

    def __init__(self, topologies: Topologies, kind: str, labels: dict[str, str]) -> None:
        self._namespace = topologies.namespace
        api = topologies.core.api_client
        self._core, self._policies, self._kind = client.CoreV1Api(api), client.NetworkingV1Api(api), kind
        metadata = client.V1ObjectMeta(name=self.name, labels=labels or None)
        if kind == "NetworkPolicy":
            nothing = client.V1NetworkPolicySpec(pod_selector=client.V1LabelSelector(), policy_types=["Ingress"])
            self._policies.create_namespaced_network_policy(
                self._namespace, client.V1NetworkPolicy(metadata=metadata, spec=nothing)
            )
        elif kind == "ServiceAccount":
            self._core.create_namespaced_service_account(self._namespace, client.V1ServiceAccount(metadata=metadata))
        else:
            secret = client.V1Secret(metadata=metadata, string_data={"password": "mine"})
            self._core.create_namespaced_secret(self._namespace, secret)

    @property
    def name(self) -> str:
        return {"NetworkPolicy": "flow", "ServiceAccount": "flow-driver", "Secret": "flow-spark"}[self._kind]

    def version(self) -> Any:
        read = {
            "NetworkPolicy": self._policies.read_namespaced_network_policy,
            "ServiceAccount": self._core.read_namespaced_service_account,
            "Secret": self._core.read_namespaced_secret,
        }[self._kind]
        return read(self.name, self._namespace).metadata.resource_version

    def delete(self) -> None:
        delete = {
            "NetworkPolicy": self._policies.delete_namespaced_network_policy,
            "ServiceAccount": self._core.delete_namespaced_service_account,
            "Secret": self._core.delete_namespaced_secret,
        }[self._kind]
        delete(self.name, self._namespace)


@pytest.mark.parametrize("kind", ["NetworkPolicy", "ServiceAccount", "Secret"])
@pytest.mark.parametrize("labels", [{}, LABELS], ids=["plain", "labelled-as-ours"])
def test_an_object_of_somebody_else_is_named_and_never_touched(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers, kind: str, labels: dict[str, str]
) -> None:
    theirs = Foreign(topologies, kind, labels)
    before = theirs.version()
    with an_operator(api_server, (topologies.namespace,), drivers):
        topologies.create(manifest("flow", rebalance=QUIET))
        eventually(lambda: topologies.condition("flow", "Degraded") == ("True", "NameTaken"))
        assert f"{kind} {theirs.name} exists and is not of this topology" in message(topologies)
        assert theirs.version() == before
        topologies.delete("flow")
        eventually(lambda: not topologies.exists("flow"))
        assert theirs.version() == before
        topologies.create(manifest("flow", rebalance=QUIET))
        eventually(lambda: topologies.condition("flow", "Degraded") == ("True", "NameTaken"))
        theirs.delete()
        eventually(lambda: settled(topologies, 1), 120)
        assert topologies.condition("flow", "Degraded") == ("False", "AsExpected")


def message(topologies: Topologies) -> str:
    return next(one["message"] for one in topologies.status("flow")["conditions"] if one["type"] == "Degraded")


def test_objects_of_somebody_else_are_all_named(topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers) -> None:
    theirs = [Foreign(topologies, kind, {}) for kind in ("ServiceAccount", "Secret", "NetworkPolicy")]
    with an_operator(api_server, (topologies.namespace,), drivers):
        topologies.create(manifest("flow", rebalance=QUIET))
        eventually(lambda: topologies.condition("flow", "Degraded") == ("True", "NameTaken"))
        said = message(topologies)
        places = ("ServiceAccount flow-driver", "Secret flow-spark", "NetworkPolicy flow")
        assert [f"{place} exists and is not of this topology" in said for place in places] == [True, True, True]
        for each in theirs[:2]:
            each.delete()
        eventually(lambda: "flow-driver" not in message(topologies) and "NetworkPolicy flow exists" in message(topologies), 120)
        theirs[2].delete()
        eventually(lambda: settled(topologies, 1), 120)
        topologies.delete("flow")
        eventually(lambda: not topologies.exists("flow"), 120)


def test_object_of_a_former_topology_that_a_finalizer_keeps_is_named_with_it(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers
) -> None:
    with an_operator(api_server, (topologies.namespace,), drivers):
        topologies.create(manifest("flow", rebalance=QUIET))
        eventually(lambda: settled(topologies, 1), 120)
        hold: dict[str, Any] = {"metadata": {"finalizers": ["example.com/hold"]}}
        topologies.core.patch_namespaced_service_account("flow-driver", topologies.namespace, hold)
        topologies.delete("flow")
        eventually(lambda: not topologies.exists("flow"), 120)
        topologies.create(manifest("flow", rebalance=QUIET))
        eventually(lambda: topologies.condition("flow", "Degraded") == ("True", "NameTaken"), 120)
        assert "ServiceAccount flow-driver" in message(topologies)
        assert "it is being deleted and waits for example.com/hold" in message(topologies)
        let_go: dict[str, Any] = {"metadata": {"finalizers": None}}
        topologies.core.patch_namespaced_service_account("flow-driver", topologies.namespace, let_go)
        eventually(lambda: settled(topologies, 1), 120)
        topologies.delete("flow")
        eventually(lambda: not topologies.exists("flow"), 120)


def test_topology_whose_objects_would_be_those_of_another_makes_none(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers
) -> None:
    """The StatefulSet `flow-a-b` is that of class `a-b` of `flow`, and of class `b` of `flow-a`."""
    with an_operator(api_server, (topologies.namespace,), drivers):
        topologies.create(manifest("flow", rebalance=QUIET, executors=[{**SMALL, "name": "a-b"}]))
        eventually(lambda: settled(topologies, 1), 120)
        pods = topologies.executor_pods("flow", "a-b")
        topologies.create(manifest("flow-a", rebalance=QUIET, executors=[{**SMALL, "name": "b"}]))
        eventually(lambda: topologies.condition("flow-a", "Ready") == ("False", "InvalidManifest"), 120)
        said = next(one["message"] for one in topologies.status("flow-a")["conditions"] if one["type"] == "Ready")
        assert "StatefulSet flow-a-b, which is that of class 'a-b' of the topology 'flow'" in said
        assert topologies.left_of("flow-a") == []
        assert topologies.executor_pods("flow", "a-b") == pods
        topologies.change("flow-a", executors=[{**SMALL, "name": "c"}])
        eventually(lambda: topologies.condition("flow-a", "Ready")[0] == "True", 120)
        topologies.delete("flow-a")
        eventually(lambda: not topologies.exists("flow-a"), 120)
