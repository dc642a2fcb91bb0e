"""Random sequences of what people and clusters do to snapshots, with the whole operator on a real API server.

Afterwards, with the topology there and pods that copy to their end, each snapshot that was not deleted has completed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack, suppress

import pytest
from kubernetes import client
from support.fake_driver import FakeDrivers
from support.kube.apiserver import ApiServer
from support.kube.fake_kubelet import FakeKubelet
from support.kube.flow import QUIET, an_operator
from support.kube.running_operator import OperatorThread, Topologies, manifest
from support.kube.snapshots import Snapshots, install_snapshots
from support.waiting import eventually

STEPS = 25


class People:
    """Each method is an action; one whose object is gone meanwhile has no effect."""

    def __init__(
        self, topologies: Topologies, snapshots: Snapshots, restart: Callable[[], OperatorThread], rng: random.Random
    ) -> None:
        self.topologies = topologies
        self.snapshots = snapshots
        self.rng = rng
        self.present: dict[str, str] = {}
        self._start = restart
        self.operator = restart()

    def act(self) -> None:
        actions = (
            self.create, self.create, self.delete, self.replace, self.delete_job, self.delete_pod, self.empty, self.finish,
            self.fail, self.let_go, self.restart,
        )  # fmt: skip
        with suppress(client.ApiException):
            self.rng.choice(actions)()

    def create(self) -> None:
        name = f"copy-{len(self.present)}-{self.rng.randrange(10**6)}"
        self._create(name, f"s3://backup/{name}")

    def delete(self) -> None:
        name = self._one()
        self.snapshots.delete(name)
        del self.present[name]

    def replace(self) -> None:
        """Another snapshot of the same name and place, while the Job of the former one may be there."""
        name = self._one()
        self.snapshots.delete(name)
        self._create(name, self.present.pop(name))

    def delete_job(self) -> None:
        job = f"{self._one()}-snapshot"
        self.topologies.batch.delete_namespaced_job(job, self.topologies.namespace, propagation_policy="Background")

    def delete_pod(self) -> None:
        """One that ended while it is being deleted would take its report with it."""
        name = self._one()
        for pod in self.snapshots.running(name):
            self.topologies.core.delete_namespaced_pod(pod, self.topologies.namespace)
            eventually(lambda pod=pod: pod not in self.snapshots.running(name))

    def empty(self) -> None:
        self.snapshots.empty(self._one())

    def finish(self) -> None:
        self.snapshots.end_running(self._one(), 0)

    def fail(self) -> None:
        self.snapshots.end_running(self._one(), 1)

    def let_go(self) -> None:
        """The topology is deleted, or comes back."""
        if self.topologies.exists("flow"):
            self.topologies.delete("flow")
        else:
            self.topologies.create(manifest("flow", rebalance=QUIET))

    def restart(self) -> None:
        self.operator.__exit__()
        self.operator = self._start()

    def _create(self, name: str, place: str) -> None:
        self.snapshots.create(name, place)
        self.present[name] = place

    def _one(self) -> str:
        if not self.present:
            self.create()
        return self.rng.choice(sorted(self.present))

    def is_seen(self) -> bool:
        """True once each snapshot has a status, or the operator cannot have one for it; sometimes nobody waits for that."""
        return self.rng.random() < 0.1 or all(self.snapshots.status(name).get("phase") for name in self.present)

    def come_to_their_end(self) -> bool:
        """True once all have completed; ends the pods that copy."""
        left = [name for name in self.present if self.snapshots.status(name).get("phase") != "Completed"]
        for name in left:
            with suppress(client.ApiException):
                self.snapshots.end_running(name, 0)
        return not left


def is_there(topologies: Topologies) -> bool:
    """True if the topology stays; creates it where it is gone."""
    with suppress(client.ApiException):  # gone, or not gone yet
        if not topologies.exists("flow"):
            topologies.create(manifest("flow", rebalance=QUIET))
        return "deletionTimestamp" not in topologies.get("flow")["metadata"]
    return False


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # kopf's, where it is stopped as it starts
@pytest.mark.parametrize("seed", range(4))
def test_snapshots_complete_after_any_sequence_of_actions(
    topologies: Topologies, api_server: ApiServer, kubelet: FakeKubelet, drivers: FakeDrivers, seed: int
) -> None:
    install_snapshots(api_server)
    with ExitStack() as operators:

        def start() -> OperatorThread:
            return an_operator(api_server, (topologies.namespace,), drivers).__enter__()

        topologies.create(manifest("flow", rebalance=QUIET))
        people = People(topologies, Snapshots(topologies, kubelet), start, random.Random(seed))
        operators.callback(lambda: people.operator.__exit__())
        for _ in range(STEPS):
            eventually(people.is_seen)
            people.act()
        eventually(lambda: is_there(topologies), 120)
        eventually(people.come_to_their_end, 300)
        assert not people.operator.is_dead
        assert all("batch" in people.snapshots.status(name) for name in people.present)
