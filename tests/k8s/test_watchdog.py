"""The watch of topologies while StreamTopologies are not served: in a clock's time, without a cluster."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from streamtopology.k8s import names
from streamtopology.k8s.io.api import Api, ApiError
from streamtopology.k8s.io.health import HEARD_SECONDS, Health
from streamtopology.k8s.io.queue import Queue
from streamtopology.k8s.io.watchdog import MISSING_SECONDS, PATIENCE_SECONDS, NotServedError, WatchBroken, Watchdog
from streamtopology.k8s.names import Kind

Object = dict[str, Any]


class Clock:
    """Seconds, which pass by sleeping alone."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


class Serving(Api):
    """An API server that serves StreamTopologies, of which there are none, from a time on."""

    def __init__(self, clock: Clock, since: float) -> None:
        self.clock = clock
        self.since = since
        self.lists: list[float] = []

    @property
    def is_served(self) -> bool:
        return self.clock.now >= self.since

    def check(self) -> None:
        if not self.is_served:
            raise ApiError(404, "NotFound", "the server could not find the requested resource", names.TOPOLOGY.path(None))

    async def versions(self, kind: Kind, namespace: str | None) -> tuple[list[Object], int]:
        self.lists.append(self.clock.now)
        self.check()
        return [], 1


class NoTopologies:
    """A reconciler that knows none."""

    def known(self) -> dict[Any, int]:
        return {}


def hear(api: Serving, health: Health) -> list[float]:
    """Run it until its watch has begun while StreamTopologies are served; the times at which watches began."""
    begun: list[float] = []

    async def watch() -> None:
        begun.append(api.clock.now)
        api.check()

    reconciler: Any = NoTopologies()
    watchdog = Watchdog(api, reconciler, (None,), health, watch, api.clock, api.clock.sleep)
    asyncio.run(asyncio.wait_for(watchdog.run(), 60))
    return begun


def test_operator_ends_when_topologies_are_not_served_for_ten_minutes() -> None:
    clock = Clock()
    api, began = Serving(clock, since=float("inf")), clock.now
    with pytest.raises(NotServedError, match="apply the resource definition"):
        hear(api, Health(clock=clock))
    assert clock.now - began > PATIENCE_SECONDS
    assert len(api.lists) <= PATIENCE_SECONDS / MISSING_SECONDS + 3, "it pauses between lists"


def test_topologies_that_are_served_again_are_watched_again() -> None:
    clock = Clock()
    health = Health(clock=clock)
    health.started(Queue(clock), (None,))
    health.listed(None)
    api = Serving(clock, since=clock.now + PATIENCE_SECONDS / 2)
    first, last = hear(api, health)
    assert first < api.since <= last <= api.since + MISSING_SECONDS
    assert health.waits_for is None
    clock.now += HEARD_SECONDS + 1
    assert health.waits_for is not None


def test_watch_that_the_api_server_breaks_is_begun_again_after_a_pause() -> None:
    """As while the server's cache of topologies begins again, after their definition has changed."""
    clock = Clock()
    begun: list[float] = []

    async def watch() -> None:
        begun.append(clock.now)
        if len(begun) < 4:
            raise WatchBroken("the watch broke: storage is (re)initializing")

    reconciler: Any = NoTopologies()
    api = Serving(clock, since=0)
    watchdog = Watchdog(api, reconciler, (None,), Health(clock=clock), watch, clock, clock.sleep)
    asyncio.run(asyncio.wait_for(watchdog.run(), 60))
    assert len(begun) == 4
    assert all(later - earlier >= MISSING_SECONDS for earlier, later in itertools.pairwise(begun))


def test_watch_that_is_stopped_during_a_list_is_not_begun_again() -> None:
    """A change that comes after the stop is none that the watch has missed."""
    clock = Clock()
    begun: list[float] = []

    async def scenario() -> None:
        stopped = asyncio.Event()

        class Stopping(Serving):
            async def versions(self, kind: Kind, namespace: str | None) -> tuple[list[Object], int]:
                stopped.set()
                await asyncio.sleep(0.01)
                return [{"namespace": "space", "name": "new", "resourceVersion": "5"}], 5

            async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
                return None

        class Knows(NoTopologies):
            def manifest(self, key: object) -> None:
                return None

        async def watch() -> None:
            begun.append(clock.now)
            await stopped.wait()

        reconciler: Any = Knows()
        api = Stopping(clock, since=0)
        await asyncio.wait_for(Watchdog(api, reconciler, (None,), Health(clock=clock), watch, clock, clock.sleep).run(), 60)

    asyncio.run(scenario())
    assert len(begun) == 1
