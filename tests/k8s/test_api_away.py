"""An API server that answers only now and then: changes take longer, each try moves on, and a condition says so."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest
from aiohttp import web
from kubernetes.aio.client import ApiClient, Configuration
from support.fake_api import NAME, FakeCluster
from support.operator_world import manifest
from support.virtual_operator import VirtualRelease
from support.virtual_time import run_virtual

from streamtopology.k8s import names
from streamtopology.k8s.io.api import Api, ApiAway, ApiError
from streamtopology.k8s.io.queue import Queue, TopologyKey

FLOW = TopologyKey("space", "flow")


def degraded(cluster: FakeCluster) -> tuple[str, str]:
    conditions = ((cluster.topology or {}).get("status") or {}).get("conditions") or ()
    return next(((one["status"], one["reason"]) for one in conditions if one["type"] == "Degraded"), ("", ""))


@pytest.mark.parametrize("status", [429, 500, 503, None], ids=str)
def test_a_call_that_fails_in_passing_is_sent_again_at_once(status: int | None) -> None:
    """None: the connection is cut. A new topology took 149 s where half of the calls failed."""
    sent: list[str] = []

    async def every_third_is_answered(request: web.Request) -> web.Response:
        sent.append(request.method)
        if len(sent) % 3 == 0:
            return web.Response(body=b'{"metadata": {"name": "flow"}}', content_type="application/json")
        if status is None:
            assert request.transport is not None
            request.transport.abort()
        return web.Response(status=status or 500, body=b'{"reason": "InternalError"}', content_type="application/json")

    async def story() -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", every_third_is_answered)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            async with ApiClient(Configuration(host=f"http://127.0.0.1:{runner.addresses[0][1]}")) as client:
                api = Api(client)
                await api.get(names.TOPOLOGY, "space", "flow")
                await api.patch(names.TOPOLOGY, "space", "flow", {"metadata": {}})
                with pytest.raises((ApiAway, ApiError)):
                    await api.create(names.EVENT, "space", {"reason": "Rerouted"})
        finally:
            await runner.cleanup()

    asyncio.run(story())
    assert sent == ["GET"] * 3 + ["PATCH"] * 3 + ["POST"]


def test_a_call_that_fails_after_a_webhook_has_hung_is_not_sent_again_at_once() -> None:
    """Each of a look's calls to a webhook of 10 s took 30 s, and so much longer every topology that waits for a worker."""
    sent: list[str] = []

    async def says_that_a_webhook_hung(request: web.Request) -> web.Response:
        sent.append(request.method)
        body = b'{"reason": "InternalError", "message": "failed calling webhook: context deadline exceeded"}'
        return web.Response(status=500, body=body, content_type="application/json")

    async def story() -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", says_that_a_webhook_hung)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        looks = count(0.0, 10.0)
        try:
            async with ApiClient(Configuration(host=f"http://127.0.0.1:{runner.addresses[0][1]}")) as client:
                with pytest.raises(ApiError, match="failed calling webhook"):
                    await Api(client, clock=lambda: next(looks)).patch(names.TOPOLOGY, "space", "flow", {"metadata": {}})
        finally:
            await runner.cleanup()

    asyncio.run(story())
    assert sent == ["PATCH"]


def test_looks_that_fail_again_and_again_are_said_until_one_comes_through() -> None:
    async def story() -> None:
        cluster = FakeCluster()
        running = asyncio.create_task(cluster.run())
        release = VirtualRelease(cluster, "operators")
        release.start()
        try:
            cluster.create(manifest(NAME))
            async with asyncio.timeout(600.0):
                while ((cluster.topology or {}).get("status") or {}).get("phase") != "Running":
                    await asyncio.sleep(0.25)
            calls = [0]

            def all_but_the_status() -> bool:
                """Of each look the first write, the status, comes through, and the first step fails."""
                calls[0] += 1
                return calls[0] % 2 == 0

            cluster.fails = all_but_the_status
            cluster.edit({"spec": {"executors": [{"name": "large", "replicas": 1, "cpu": "300m", "memory": "1Gi"}]}})
            async with asyncio.timeout(600.0):
                while degraded(cluster) != ("True", "ApiFailing"):
                    await asyncio.sleep(0.25)
            cluster.fails = lambda: False
            async with asyncio.timeout(300.0):
                while degraded(cluster) != ("False", "AsExpected"):
                    await asyncio.sleep(0.25)
        finally:
            await release.stop()
            running.cancel()

    run_virtual(story())


def test_only_a_retry_lengthens_the_pause_and_a_look_that_moved_on_begins_again() -> None:
    async def story() -> None:
        clock = [0.0]
        queue = Queue(lambda: clock[0])

        async def look(has_moved: bool = False) -> float:
            assert await queue.take() == FLOW
            return queue.failed(FLOW, has_moved)

        queue.add(FLOW)
        assert await look() == 0.5
        for _ in range(30):
            queue.add(FLOW)
            assert await look() == 0.5, "an event came, the pause was not over"
        clock[0] += 0.5
        assert await look() == 1.0
        clock[0] += 1.0
        assert await look() == 2.0
        clock[0] += 2.0
        assert await look(has_moved=True) == 0.5
        clock[0] += 0.5
        assert await queue.take() == FLOW
        queue.add(FLOW)
        delay = queue.failed(FLOW, holds=True)
        queue.add(FLOW)
        assert len(queue) == 0, "an event came, and the calls of a look would have no answer either"
        clock[0] += delay
        assert await queue.take() == FLOW

    asyncio.run(story())
