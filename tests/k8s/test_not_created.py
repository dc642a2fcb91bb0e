"""The reasons for which pods are not created, by the events of their controller: asked seldom, and only where pods lack."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from streamtopology.k8s.decide.attempts import Place
from streamtopology.k8s.decide.owned_objects import Job, OwnedObject, Pod, Workload
from streamtopology.k8s.instants import format_time
from streamtopology.k8s.io.api import Api, ApiError
from streamtopology.k8s.io.not_created import INTERVAL_SECONDS, PATIENCE_SECONDS, RECENT_SECONDS, NotCreated, lacking
from streamtopology.k8s.io.queue import TopologyKey
from streamtopology.k8s.resources.objects import Object

FLOW = TopologyKey("space", "flow")
LARGE = ("StatefulSet", "flow-large")
LACKING: Mapping[Place, OwnedObject] = {LARGE: Workload(*LARGE, "uid-large", replicas=3)}
COPY = ("Job", "flow-migrate-2")


class Events(Api):
    """Has these events; counts how often it is asked."""

    def __init__(self, *events: Object) -> None:
        self.kept = list(events)
        self.asked = 0

    async def events(self, namespace: str, about: str, reason: str) -> list[Object]:
        assert (namespace, reason) == ("space", "FailedCreate")
        self.asked += 1
        return [event for event in self.kept if event["involvedObject"]["kind"] == about]


class NoRight(Events):
    async def events(self, namespace: str, about: str, reason: str) -> list[Object]:
        raise ApiError(403, "Forbidden", "events is forbidden", "/api/v1/events")


def event(uid: str, at: float, message: str, kind: str = "StatefulSet") -> Object:
    return {"involvedObject": {"kind": kind, "uid": uid}, "lastTimestamp": format_time(at), "message": message}


class Clock:
    now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


def asked(reasons: NotCreated, missing: Mapping[Place, OwnedObject]) -> dict[Place, str]:
    asyncio.run(reasons.ask(FLOW, missing))
    return dict(reasons.reasons(FLOW))


def test_the_newest_event_of_the_same_statefulset_counts() -> None:
    clock = Clock()
    api = Events(
        event("uid-large", clock.now - 10, "exceeded quota"),
        event("uid-large", clock.now - 90, "an older one"),
        event("uid-other", clock.now, "of a namesake"),
    )
    reasons = NotCreated(api, clock)
    assert asked(reasons, LACKING) == {}
    assert api.asked == 0, "pods take a moment"
    clock.now += PATIENCE_SECONDS
    assert asked(reasons, LACKING) == {LARGE: "exceeded quota"}
    clock.now += INTERVAL_SECONDS - 1
    assert asked(reasons, LACKING) == {LARGE: "exceeded quota"}
    assert api.asked == 1
    assert asked(reasons, {}) == {}
    assert asked(reasons, LACKING) == {}, "it begins again"


def test_a_job_that_has_no_pod_is_asked_about_as_a_statefulset_is() -> None:
    clock = Clock()
    copy, pod = Job(*COPY, "uid-copy", epoch=2), Pod("Pod", "flow-migrate-2-x", owner="uid-copy", uid="uid-pod")
    assert lacking({COPY: copy}) == {COPY: copy}
    assert lacking({COPY: copy, ("Pod", pod.name): pod}) == {}
    assert lacking({COPY: replace(copy, done=True)}) == {}
    api = Events(event("uid-copy", clock.now, "no account", "Job"), event("uid-large", clock.now, "exceeded quota"))
    reasons = NotCreated(api, clock)
    asked(reasons, {COPY: copy, **LACKING})
    clock.now += PATIENCE_SECONDS
    assert asked(reasons, {COPY: copy, **LACKING}) == {COPY: "no account", LARGE: "exceeded quota"}


def test_an_event_of_long_ago_is_of_another_time() -> None:
    clock = Clock()
    reasons = NotCreated(Events(event("uid-large", clock.now, "exceeded quota")), clock)
    asked(reasons, LACKING)
    clock.now += RECENT_SECONDS
    assert asked(reasons, LACKING) == {}


def test_an_operator_without_the_right_to_list_events_works() -> None:
    clock = Clock()
    reasons = NotCreated(NoRight(), clock)
    asked(reasons, LACKING)
    clock.now += PATIENCE_SECONDS
    assert asked(reasons, LACKING) == {}
