"""One of several replicas works: the Lease on a real API server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from kubernetes import client
from kubernetes.aio.client import ApiClient
from support.kube.apiserver import ApiServer
from support.kube.running_operator import configuration_of

from streamtopology.operator.leader import LEASE_NAME, LeaseLostError, lead

LEASE_SECONDS = 5


class Replica:
    """A replica that only notes when it works."""

    def __init__(self, api: ApiClient, namespace: str, identity: str) -> None:
        self.works = asyncio.Event()
        self.stop = asyncio.Event()
        self.task = asyncio.create_task(lead(api, namespace, identity, LEASE_SECONDS, self._work))

    async def _work(self) -> None:
        self.works.set()
        try:
            await self.stop.wait()
        finally:
            self.works.clear()


def story(api_server: ApiServer, namespace: str, tell: Callable[[Replica, Replica], Awaitable[None]]) -> None:
    async def told() -> None:
        configuration = await configuration_of(api_server)
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

    asyncio.run(told())


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
    async def fails() -> None:
        raise RuntimeError("the work itself has failed")

    async def told() -> None:
        async with ApiClient(await configuration_of(api_server)) as api:
            with pytest.raises(RuntimeError, match="itself has failed"):
                await asyncio.wait_for(lead(api, namespace, "only", LEASE_SECONDS, fails), 30)

    asyncio.run(told())
    assert holder(api_server, namespace) is None
