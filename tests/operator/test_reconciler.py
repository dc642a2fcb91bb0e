"""The loop's bookkeeping: what was written by us is no news, what somebody changed meanwhile is."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest
from support.kube.running_operator import DeskBeside
from support.operator_world import SETTINGS, Object, manifest

from streamtopology.operator import names
from streamtopology.operator.api import Api
from streamtopology.operator.apply import Applier
from streamtopology.operator.cache import Cache
from streamtopology.operator.metrics import Metrics
from streamtopology.operator.names import Kind
from streamtopology.operator.queue import Key, Queue
from streamtopology.operator.reconciler import Reconciler
from streamtopology.operator.scrape import Scraper

FLOW = Key("space", "flow")
UNREADABLE = manifest(operators=[])
"""Nothing is made of it: all that is written is its status."""

Change = Callable[[Object], None]


class OneTopology(Api):
    """An API server that has one topology and nothing else. `meanwhile` comes to it before our next write of status."""

    def __init__(self, topology: Object) -> None:
        self.topology = topology
        self.meanwhile: Change | None = None
        self.event: Object | None = None

    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        return None

    async def create(self, kind: Kind, namespace: str, body: Object) -> Object:
        return body

    async def patch(self, kind: Kind, namespace: str, name: str, body: Object, subresource: str | None = None) -> Object:
        assert (kind, subresource) == (names.TOPOLOGY, "status")
        if self.meanwhile is not None:
            self.meanwhile(self.topology)
            self.event = self._next()
        self.topology.setdefault("status", {}).update(body["status"])
        return self._next()

    def _next(self) -> Object:
        version = int(self.topology["metadata"]["resourceVersion"])
        self.topology["metadata"]["resourceVersion"] = str(version + 1)
        return copy.deepcopy(self.topology)


def another_spec(topology: Object) -> None:
    topology["spec"]["suspend"] = True
    topology["metadata"]["generation"] += 1


def deletion(topology: Object) -> None:
    topology["metadata"]["deletionTimestamp"] = "2023-11-14T22:13:20Z"


def pause(topology: Object) -> None:
    topology["metadata"]["annotations"] = {names.PAUSE: "true"}


def looked_at_again(meanwhile: Change | None) -> bool:
    """Whether one look at a new topology, with all events told, leads to another."""

    async def story() -> bool:
        queue = Queue(lambda: 0.0)
        cache, api = Cache(queue.add), OneTopology(copy.deepcopy(UNREADABLE))
        async with aiohttp.ClientSession() as session:
            planner: Any = DeskBeside()
            scraper = Scraper(session, planner, queue.add, lambda: 0.0)
            reconciler = Reconciler(Applier(api, cache), cache, scraper, planner, queue, SETTINGS, Metrics(), lambda: 0.0)
            reconciler.saw(copy.deepcopy(api.topology))
            assert await queue.take() == FLOW
            api.meanwhile = meanwhile
            await reconciler.reconcile(FLOW)
            queue.done(FLOW)
            for event in filter(None, (api.event, api.topology)):
                reconciler.saw(copy.deepcopy(event))
            return len(queue) == 1

    return asyncio.run(asyncio.wait_for(story(), 20))


@pytest.mark.parametrize("meanwhile", [another_spec, deletion, pause])
def test_a_change_that_a_write_of_ours_overtakes_is_looked_at(meanwhile: Change):
    """Its event comes after our write's answer, which contains it, and is passed over as older."""
    assert looked_at_again(meanwhile)


def test_our_own_write_is_no_news():
    assert not looked_at_again(None)
