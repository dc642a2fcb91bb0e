"""The probes say what holds: ready once the cluster is known, healthy while topologies that wait are looked at."""

from __future__ import annotations

import asyncio
import socket

import aiohttp

from streamtopology.k8s.app import serving
from streamtopology.k8s.io.health import HEARD_SECONDS, STUCK_SECONDS, Health
from streamtopology.k8s.io.metrics import OperatorMetrics
from streamtopology.k8s.io.page_app import Listed
from streamtopology.k8s.io.queue import Queue, TopologyKey
from streamtopology.k8s.settings import Settings

KEY = TopologyKey("space", "flow")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_replica_is_ready_standing_by_and_once_a_namespace_is_listed() -> None:
    health = Health()
    assert health.waits_for is None, "it stands by for the lease"
    health.started(Queue(Clock()), ("one", "two"))
    assert health.waits_for == "the lists of owned objects in one, two"
    health.listed("two")
    assert health.waits_for is None, "a namespace that cannot be listed keeps nobody from the others"


def test_a_replica_is_not_ready_while_topologies_cannot_be_listed() -> None:
    clock = Clock()
    health = Health(clock=clock)
    health.started(Queue(clock), (None,))
    health.listed(None)
    clock.now += HEARD_SECONDS + 1
    assert health.waits_for == "StreamTopologies, which could not be listed for a minute"
    health.heard()
    assert health.waits_for is None


def test_a_replica_whose_right_to_list_a_kind_is_gone_everywhere_is_not_ready() -> None:
    clock = Clock()
    health = Health(clock=clock)
    health.started(Queue(clock), ("one", "two"))
    health.listed("one")
    health.refused("pods", "one", "pods is forbidden")
    health.refused("services", "two", "services is forbidden")
    assert health.unready is None, "a namespace that cannot be listed keeps nobody from the others"
    health.refused("pods", "two", "pods is forbidden")
    assert health.unready == "pods is forbidden"
    health.refused("pods", "two", "")
    assert health.unready is None


def test_workers_that_hang_are_a_problem_and_an_empty_queue_is_none() -> None:
    async def story() -> None:
        clock, health = Clock(), Health()
        queue = Queue(clock)
        health.started(queue, (None,))
        clock.now += 10 * STUCK_SECONDS
        assert health.problem is None, "nothing waits"
        queue.add(KEY)
        taken = await queue.take()
        queue.add(TopologyKey("space", "other"))
        clock.now += STUCK_SECONDS + 1
        assert health.problem is not None
        queue.failed(taken)
        assert health.problem is None, "a look that fails has ended"

    asyncio.run(story())


def test_probes_answer_what_the_health_is() -> None:
    async def story() -> None:
        health = Health()
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        listed = Listed(Clock())
        settings = Settings(probe_port=port, metrics_port=0)
        async with serving(OperatorMetrics(), settings, health, listed), aiohttp.ClientSession() as session:

            async def status(path: str) -> int:
                async with session.get(f"http://127.0.0.1:{port}{path}") as answer:
                    return answer.status

            assert (await status("/healthz"), await status("/readyz")) == (200, 200)
            clock = Clock()
            queue = Queue(clock)
            health.started(queue, (None,))
            assert (await status("/healthz"), await status("/readyz")) == (200, 503)
            health.listed(None)
            queue.add(KEY)
            clock.now += STUCK_SECONDS + 1
            assert (await status("/healthz"), await status("/readyz")) == (503, 200)

    asyncio.run(story())
