"""Random sequences of what people and other controllers do to a topology, on a real API server.

After each: the topology is served, or a condition names the obstacle; nothing is written any more; objects of others are as
they were; the topology can be deleted.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from kubernetes import client
from support.fake_driver import FakeDrivers
from support.kube.apiserver import ApiServer
from support.kube.flow import IMAGE, LARGE, QUIET, SMALL
from support.kube.running_operator import OperatorThread, Topologies, manifest
from support.waiting import eventually

from streamtopology.k8s.settings import Settings

STEPS = 6
# Looks at a topology at rest, in which nothing may be written.
ANSWERS = 15


class People:
    """Users of a namespace; each method is an action of theirs."""

    def __init__(self, topologies: Topologies, api_server: ApiServer, rng: random.Random) -> None:
        self.topologies = topologies
        self.api_server = api_server
        self.rng = rng
        self.foreign = ""

    def apply(self) -> None:
        replicas = self.rng.randint(1, 3)
        spec = {"executors": [{**LARGE, "replicas": replicas, "cpu": self.rng.choice(["300m", "400m"])}, SMALL]}
        if self.topologies.exists("flow"):
            self.topologies.change("flow", **spec)
        else:
            self.topologies.create(manifest("flow", rebalance=QUIET, **spec))

    def replace(self) -> None:
        """As `kubectl replace` does: without the annotations and finalizers that the operator has added."""
        if self.topologies.exists("flow"):
            bare = {"annotations": None, "finalizers": None}
            self.topologies.patch("flow", {"metadata": bare, "spec": {"executors": [LARGE, SMALL]}})

    def orphan(self) -> None:
        self._delete("--cascade=orphan")

    def delete(self) -> None:
        self._delete("--cascade=background")

    def restore(self) -> None:
        """From an export, with its finalizer."""
        if not self.topologies.exists("flow"):
            return
        exported = self.topologies.get("flow")
        self.delete()
        for name in ("uid", "resourceVersion", "managedFields"):
            exported["metadata"].pop(name, None)
        self.topologies.create(exported)

    def forget(self) -> None:
        """Somebody empties the status."""
        if self.topologies.exists("flow"):
            self.topologies.patch_status("flow", {"status": None})

    def occupy(self) -> None:
        """An object of somebody else takes the name of one of ours, which is missing."""
        if self.foreign or self.topologies.exists("flow") or self.topologies.left_of("flow"):
            return
        body = client.V1ServiceAccount(metadata=client.V1ObjectMeta(name="flow-driver", labels={"team": "other"}))
        self.topologies.core.create_namespaced_service_account(self.topologies.namespace, body)
        self.foreign = self.version()

    def scale(self) -> None:
        """By hand, behind the operator's back."""
        if "flow-large" in self.topologies.left_of("flow"):
            self.api_server.kubectl("-n", self.topologies.namespace, "scale", "sts/flow-large", "--replicas=5")

    def version(self) -> str:
        account: Any = self.topologies.core.read_namespaced_service_account("flow-driver", self.topologies.namespace)
        return account.metadata.resource_version

    def _delete(self, cascade: str) -> None:
        if self.topologies.exists("flow"):
            self.api_server.kubectl("-n", self.topologies.namespace, "delete", "stopo", "flow", cascade, "--wait=false")
            eventually(lambda: not self.topologies.exists("flow"), 120)


def is_explained(topologies: Topologies) -> bool:
    """True once the topology is served, or a condition names the obstacle."""
    topology = topologies.get("flow")
    status = topology.get("status") or {}
    if status.get("observedGeneration") != topology["metadata"]["generation"]:
        return False
    return (status.get("phase") == "Running" and "intent" not in status) or topologies.condition("flow", "Stalled")[0] == "True"


def written(topologies: Topologies) -> dict[str, Any]:
    """The versions of what the operator writes, without the reports of controllers."""
    listed = [topologies.apps.list_namespaced_deployment, topologies.apps.list_namespaced_stateful_set]
    found = [item for each in listed for item in each(topologies.namespace).items]
    maps = topologies.core.list_namespaced_config_map(topologies.namespace).items
    return {
        **{item.metadata.name: item.metadata.generation for item in found},
        **{item.metadata.name: item.metadata.resource_version for item in maps},
        "topology": topologies.get("flow")["metadata"]["generation"],
    }


def looks_again(topologies: Topologies, drivers: FakeDrivers) -> None:
    key = (topologies.namespace, "flow")
    asked = drivers.asked[key]
    eventually(lambda: drivers.asked[key] > asked + ANSWERS, 120)


@pytest.mark.parametrize("seed", range(12))
def test_topology_is_served_or_explained_after_any_sequence_of_actions(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers, seed: int
) -> None:
    people = People(topologies, api_server, random.Random(seed))
    actions: list[Callable[[], None]] = [
        people.apply, people.replace, people.orphan, people.delete, people.restore, people.forget, people.occupy, people.scale,
    ]  # fmt: skip
    settings = Settings(namespaces=(topologies.namespace,), image=IMAGE, driver_url=drivers.url, drain_seconds=20.0)
    with OperatorThread(api_server, settings) as operator:
        people.apply()
        for action in people.rng.choices(actions, k=STEPS):
            if topologies.exists("flow") and people.rng.random() < 0.7:
                eventually(lambda: is_explained(topologies), 120)
            action()
        people.apply()
        eventually(lambda: is_explained(topologies), 120)
        if topologies.status("flow")["phase"] == "Running":
            before = written(topologies)
            looks_again(topologies, drivers)
            assert written(topologies) == before
        assert not people.foreign or people.version() == people.foreign
        people.delete()
        assert not operator.is_dead
