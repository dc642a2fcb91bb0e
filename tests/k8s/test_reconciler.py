"""The loop's bookkeeping: our own writes trigger nothing, changes by others do."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from support.kube.running_operator import PlannerInProcess
from support.operator_world import SETTINGS, Object, manifest

from streamtopology.k8s import names
from streamtopology.k8s.decide.answers import PlanningRequest, Target
from streamtopology.k8s.decide.steps import Event
from streamtopology.k8s.io.api import Api, ApiAway, ApiError
from streamtopology.k8s.io.apply import Applier
from streamtopology.k8s.io.cache import Cache
from streamtopology.k8s.io.metrics import OperatorMetrics
from streamtopology.k8s.io.not_created import NotCreated
from streamtopology.k8s.io.ownership import TopologyClaims
from streamtopology.k8s.io.queue import Queue, TopologyKey
from streamtopology.k8s.io.reconcile_spans import ReconcileSpans
from streamtopology.k8s.io.reconciler import Reconciler
from streamtopology.k8s.io.refusals import unwritten
from streamtopology.k8s.io.scrape import Scraper
from streamtopology.k8s.names import Kind
from streamtopology.topology import Rebalance

FLOW = TopologyKey("space", "flow")
UNREADABLE = manifest(operators=[])
# Nothing is made of it: all that is written is its status.
UNREADABLE["metadata"]["annotations"] = {names.SERVED_BY: SETTINGS.namespace}

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
    topology["metadata"]["annotations"] |= {names.PAUSE: "true"}


class WithoutEvents(OneTopology):
    """Answers everything but events, at which it hangs."""

    def __init__(self, topology: Object) -> None:
        super().__init__(topology)
        self.tried: list[str] = []

    async def create(self, kind: Kind, namespace: str, body: Object) -> Object:
        if kind is names.EVENT:
            self.tried.append(body["reason"])
            raise ApiAway("no answer in time")
        return body


Story = Callable[[Reconciler, Queue, Scraper], Awaitable[None]]
Series = dict[tuple[str, str], float]


class SlowPlanner(PlannerInProcess):
    """Takes a moment to forget, as a planning process does."""

    async def forget(self, uid: str) -> None:
        await asyncio.sleep(0.01)
        await super().forget(uid)


def play(api: OneTopology, story: Story, begun: bool = True, metrics: OperatorMetrics | None = None) -> None:
    """A reconciler that has seen the topology of `api`, and looks at it when the story says so."""
    measured = metrics or OperatorMetrics()

    async def played() -> None:
        queue = Queue(lambda: 0.0)
        cache = Cache(queue.add)
        async with aiohttp.ClientSession() as session:
            planner: Any = SlowPlanner()
            scraper = Scraper(session, planner, queue.add, lambda: 0.0)
            reconciler = Reconciler(
                Applier(api, cache), cache, NotCreated(api, lambda: 0.0), TopologyClaims(api, SETTINGS, lambda: 0.0), scraper,
                queue, SETTINGS, measured, lambda: 0.0, ReconcileSpans(measured, lambda: 0.0),
            )  # fmt: skip
            if begun:
                reconciler.begin(None)
            reconciler.saw(copy.deepcopy(api.topology))
            await story(reconciler, queue, scraper)
            scraper.close()

    asyncio.run(asyncio.wait_for(played(), 20))


async def look(reconciler: Reconciler, queue: Queue) -> None:
    key = await queue.take()
    await reconciler.reconcile(key)
    queue.done(key)


def looked_at_again(meanwhile: Change | None) -> bool:
    """True if one reconciliation of a new topology, with all events delivered, leads to another."""
    api, again = OneTopology(copy.deepcopy(UNREADABLE)), []
    api.meanwhile = meanwhile

    async def story(reconciler: Reconciler, queue: Queue, scraper: Scraper) -> None:
        await look(reconciler, queue)
        for event in filter(None, (api.event, api.topology)):
            reconciler.saw(copy.deepcopy(event))
        again.append(len(queue) == 1)

    play(api, story)
    return again == [True]


@pytest.mark.parametrize("meanwhile", [another_spec, deletion, pause])
def test_a_change_that_a_write_of_ours_overtakes_is_looked_at(meanwhile: Change):
    """Its event comes after our write's answer, which contains it, and is passed over as older."""
    assert looked_at_again(meanwhile)


def test_own_write_of_status_causes_no_second_look():
    assert not looked_at_again(None)


def of(uid: str, version: int) -> Object:
    body = copy.deepcopy(UNREADABLE)
    body["metadata"] |= {"uid": uid, "resourceVersion": str(version)}
    return body


def test_events_of_a_topology_that_is_gone_do_not_touch_its_namesake():
    async def story(reconciler: Reconciler, queue: Queue, scraper: Scraper) -> None:
        reconciler.saw(of("second", 9))
        reconciler.saw(of("uid-1", 7))
        reconciler.lost(of("uid-1", 8))
        assert reconciler.known() == {FLOW: 9}
        reconciler.lost(of("second", 10))
        assert reconciler.known() == {}

    play(OneTopology(of("uid-1", 1)), story)


def test_a_namesake_that_comes_while_the_first_is_put_away_is_looked_at():
    async def story(reconciler: Reconciler, queue: Queue, scraper: Scraper) -> None:
        scraper.want(
            FLOW, Target("uid-1", "pod", "http://127.0.0.1:9", 100.0, PlanningRequest("flow", Rebalance(), False, False))
        )
        reconciler.lost(of("uid-1", 2))
        await queue.take()
        putting_away = asyncio.create_task(reconciler.reconcile(FLOW))
        await asyncio.sleep(0)
        assert not putting_away.done()
        reconciler.saw(of("second", 3))
        await putting_away
        queue.done(FLOW)
        assert len(queue) == 1

    play(OneTopology(of("uid-1", 1)), story)


def test_unnoticed_deletion_is_detected_when_status_cannot_be_written():
    api = OneTopology(of("uid-1", 1))

    def gone(topology: Object) -> None:
        raise ApiError(404, "NotFound", "there is none", names.TOPOLOGY.path("space", "flow", "status"))

    async def story(reconciler: Reconciler, queue: Queue, scraper: Scraper) -> None:
        api.meanwhile = gone
        await look(reconciler, queue)
        assert reconciler.known() == {}
        await look(reconciler, queue)
        assert len(queue) == 0

    play(api, story)


def test_a_topology_is_left_alone_until_what_it_owns_is_known():
    """Else an existing ConfigMap would be recreated without its epoch, and the driver restarted."""
    api = OneTopology(of("uid-1", 1))

    async def story(reconciler: Reconciler, queue: Queue, scraper: Scraper) -> None:
        await look(reconciler, queue)
        assert "status" not in api.topology
        reconciler.begin("elsewhere")
        assert len(queue) == 0
        reconciler.begin("space")
        await look(reconciler, queue)
        assert api.topology["status"]["phase"] == "Invalid"

    play(api, story, begun=False)


def conditions(metrics: OperatorMetrics) -> Series:
    """(condition, reason) -> value of the series of FLOW."""
    return {
        (sample.labels["condition"], sample.labels["reason"]): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "streamtopology_operator_condition"
        and (sample.labels["namespace"], sample.labels["topology"]) == ("space", "flow")
    }


def test_conditions_are_metrics_with_the_present_reason_until_the_topology_is_gone():
    """The series of an alert: a driver that is down takes its own series with it."""
    api, metrics = OneTopology(of("uid-1", 1)), OperatorMetrics()

    async def story(reconciler: Reconciler, queue: Queue, scraper: Scraper) -> None:
        await look(reconciler, queue)
        others = {("Stalled", "InvalidManifest"): 1.0, ("Reconciling", "Settled"): 0.0}
        assert conditions(metrics) == {("Ready", "InvalidManifest"): 0.0, **others}
        metrics.show_conditions("space", "flow", [{"type": "Ready", "status": "True", "reason": "Running"}])
        metrics.show_conditions("space", "other", [{"type": "Ready", "status": "True", "reason": "Running"}])
        assert conditions(metrics) == {("Ready", "Running"): 1.0, **others}
        reconciler.lost(of("uid-1", 9))
        await look(reconciler, queue)
        assert conditions(metrics) == {}
        assert metrics.registry.get_sample_value("streamtopology_operator_condition", other) == 1.0

    other = {"namespace": "space", "topology": "other", "condition": "Ready", "reason": "Running"}
    play(api, story, metrics=metrics)


def test_a_topology_that_does_not_run_has_no_imbalance():
    """The alert about it is for what runs: the last batch of a suspended or completed topology says nothing any more."""
    api, metrics = OneTopology(of("uid-1", 1)), OperatorMetrics()

    async def story(reconciler: Reconciler, queue: Queue, scraper: Scraper) -> None:
        metrics.imbalance_ratio.labels("space", "flow").set(0.9)
        metrics.tuples_stalled.labels("space", "flow").set(100)
        await look(reconciler, queue)
        for name in ("imbalance_ratio", "tuples_stalled"):
            gauge = metrics.registry.get_sample_value(
                f"streamtopology_operator_{name}", {"namespace": "space", "topology": "flow"}
            )
            assert gauge is None

    play(api, story, metrics=metrics)


def test_an_event_that_gets_no_answer_is_reported_so_that_no_other_is_tried():
    api = WithoutEvents(manifest())
    applier = Applier(api, Cache(lambda _: None))
    assert not asyncio.run(applier.post(api.topology, FLOW, Event("Normal", "Running", "batches run"), 0.0))
    assert api.tried == ["Running"]


@pytest.mark.parametrize(
    ("status", "times", "is_claimed", "path", "is_event"),
    [
        (422, 1, True, names.TOPOLOGY.path("space", "flow", "status"), True),
        (500, 2, True, names.TOPOLOGY.path("space", "flow", "status"), False),
        (500, 3, True, names.TOPOLOGY.path("space", "flow", "status"), True),
        (403, 1, False, names.TOPOLOGY.path("space", "flow"), True),
        (403, 1, True, names.TOPOLOGY.path("space", "flow"), False),
        (403, 1, True, names.DEPLOYMENT.path("space", "flow-driver"), False),
    ],
)
def test_refusal_of_the_topology_itself_is_an_event(status: int, times: int, is_claimed: bool, path: str, is_event: bool):
    """Not of its finalizer, nor of an object: those are conditions."""
    event = unwritten(ApiError(status, "Forbidden", "a policy of the owner's", path), times, is_claimed)
    assert (event is not None) == is_event
    assert event is None or "a policy of the owner's" in event.message
