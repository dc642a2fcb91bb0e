"""One of several replicas works: the Lease on a real API server."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from kubernetes import client
from kubernetes.aio.client import ApiClient
from support.fake_driver import FakeDrivers
from support.kube.apiserver import ApiServer
from support.kube.flow import COUNTS, IMAGE, LARGE, QUIET, SMALL, settled
from support.kube.running_operator import OperatorProcess, Topologies, configuration_of, manifest
from support.waiting import eventually

from streamtopology.k8s.io.leader import LEASE_NAME, LeaseLostError, lead
from streamtopology.k8s.settings import Settings

LEASE_SECONDS = 5


class Replica:
    """A replica that only notes when it works."""

    def __init__(self, api: ApiClient, namespace: str, identity: str) -> None:
        self.works = asyncio.Event()
        self.stop = asyncio.Event()
        self.task = asyncio.create_task(lead(api, namespace, identity, LEASE_SECONDS, self._work))

    async def _work(self, leads: Callable[[], bool]) -> None:
        assert leads()
        self.works.set()
        try:
            await self.stop.wait()
        finally:
            self.works.clear()


def story(api_server: ApiServer, namespace: str, tell: Callable[[Replica, Replica], Awaitable[None]]) -> None:
    async def reported() -> None:
        configuration = await configuration_of(api_server.kubeconfig)
        async with ApiClient(configuration) as one, ApiClient(configuration) as other:
            first = Replica(one, namespace, "first")
            await asyncio.wait_for(first.works.wait(), 30)
            second = Replica(other, namespace, "second")
            try:
                await tell(first, second)
            finally:
                for replica in (first, second):
                    replica.task.cancel()
                await asyncio.gather(first.task, second.task, return_exceptions=True)

    asyncio.run(reported())


def holder(api_server: ApiServer, namespace: str) -> str | None:
    with api_server.client() as api:
        return client.CoordinationV1Api(api).read_namespaced_lease(LEASE_NAME, namespace).spec.holder_identity


def test_only_one_works_and_when_it_stops_the_other_takes_over(api_server: ApiServer, namespace: str):
    async def tell(first: Replica, second: Replica) -> None:
        await asyncio.sleep(2 * LEASE_SECONDS / 5)
        assert not second.works.is_set()
        first.stop.set()
        await asyncio.wait_for(first.task, 10)
        await asyncio.wait_for(second.works.wait(), 30)
        assert holder(api_server, namespace) == "second"

    story(api_server, namespace, tell)


def test_a_replica_that_dies_is_replaced_when_its_lease_has_run_out(api_server: ApiServer, namespace: str):
    async def tell(first: Replica, second: Replica) -> None:
        first.task.cancel()
        await asyncio.wait_for(second.works.wait(), 60)
        assert holder(api_server, namespace) == "second"

    story(api_server, namespace, tell)


def test_a_replica_that_cannot_renew_its_lease_stops_working(api_server: ApiServer, namespace: str):
    async def tell(first: Replica, second: Replica) -> None:
        with api_server.frozen():
            with pytest.raises(LeaseLostError, match="another replica takes over"):
                await asyncio.wait_for(first.task, 60)
            assert not first.works.is_set()
            assert not second.works.is_set()
        await asyncio.wait_for(second.works.wait(), 60)

    story(api_server, namespace, tell)


def test_work_that_fails_ends_the_replica_with_its_error(api_server: ApiServer, namespace: str):
    async def fails(_: Callable[[], bool]) -> None:
        raise RuntimeError("the work itself has failed")

    async def reported() -> None:
        async with ApiClient(await configuration_of(api_server.kubeconfig)) as api:
            with pytest.raises(RuntimeError, match="itself has failed"):
                await asyncio.wait_for(lead(api, namespace, "only", LEASE_SECONDS, fails), 30)

    asyncio.run(reported())
    assert holder(api_server, namespace) is None


@contextmanager
def stopped(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Inside, the process stands still, and its connections stay open."""
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def written(topologies: Topologies) -> dict[str, object]:
    """Each object's version of its wanted state: it shows whether anybody has written to what drives the topology."""
    routing = topologies.core.read_namespaced_config_map("flow-routing", topologies.namespace)
    workloads = [
        *topologies.apps.list_namespaced_stateful_set(topologies.namespace).items,
        *topologies.apps.list_namespaced_deployment(topologies.namespace).items,
    ]
    return {"routing": routing.metadata.resource_version} | {one.metadata.name: one.metadata.generation for one in workloads}


def test_an_operator_that_was_stopped_finds_its_lease_lost_and_writes_over_nothing(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers, tmp_path: Path
):
    """Two whole operators. The first one stands still (SIGSTOP) while the second takes over; when it continues, what it hears
    first are the second's deeds, and what it knows of the topology is old. It takes about a minute, for
    the lease is as long as users have it."""

    def replica(name: str) -> OperatorProcess:
        return OperatorProcess(
            api_server, tmp_path / f"{name}.log", POD_NAME=name, POD_NAMESPACE=topologies.namespace,
            STREAMTOPOLOGY_LEADER_ELECTION="true", STREAMTOPOLOGY_WATCH_NAMESPACES=topologies.namespace,
            STREAMTOPOLOGY_IMAGE=IMAGE, STREAMTOPOLOGY_DRIVER_URL=drivers.url,
        )  # fmt: skip

    topologies.create(manifest("flow", rebalance=QUIET))
    with replica("first") as first:
        eventually(lambda: settled(topologies, 1), 120)
        with replica("second") as second:
            eventually(lambda: "second waits for the lease" in second.output)
            with stopped(first.process):
                topologies.change(
                    "flow",
                    executors=[{**LARGE, "replicas": 3}, SMALL],
                    operators=[{**COUNTS, "grouping": {"policy": "fields", "key": "key"}}],
                )
                eventually(lambda: settled(topologies, 2), 120)
                assert holder(api_server, topologies.namespace) == "second"
                before = written(topologies)
            assert first.process.wait(60) == 1, first.output
            assert "another replica takes over" in first.output
            assert written(topologies) == before, first.output
            topologies.change("flow", executors=[LARGE, SMALL])
            eventually(lambda: settled(topologies, 3))
            assert second.process.poll() is None, second.output


def test_watches_of_fifty_namespaces_leave_the_lease_its_connection(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers, tmp_path: Path
):
    others = [f"{topologies.namespace}-{number}" for number in range(49)]
    for name in others:
        topologies.core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=name)))
    with OperatorProcess(
        api_server,
        tmp_path / "log",
        POD_NAME="many",
        POD_NAMESPACE=topologies.namespace,
        STREAMTOPOLOGY_LEADER_ELECTION="true",
        STREAMTOPOLOGY_WATCH_NAMESPACES=",".join([*others, topologies.namespace]),
        STREAMTOPOLOGY_IMAGE=IMAGE,
        STREAMTOPOLOGY_DRIVER_URL=drivers.url,
    ) as operator:
        topologies.create(manifest("flow", rebalance=QUIET))
        eventually(lambda: settled(topologies, 1), 300)
        settled_at = renewed(api_server, topologies.namespace)
        a_lease_later = settled_at + timedelta(seconds=Settings.lease_seconds)
        eventually(lambda: renewed(api_server, topologies.namespace) > a_lease_later, 120)
        assert operator.process.poll() is None, operator.output


def renewed(api_server: ApiServer, namespace: str) -> datetime:
    with api_server.client() as api:
        return client.CoordinationV1Api(api).read_namespaced_lease(LEASE_NAME, namespace).spec.renew_time
