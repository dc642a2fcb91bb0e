"""The reasons for which pods are not created, by the events of their controller: asked seldom, and only where pods lack."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from streamtopology.k8s.decide.owned_objects import Workload
from streamtopology.k8s.instants import format_time
from streamtopology.k8s.io.api import Api, ApiError, Object
from streamtopology.k8s.io.not_created import INTERVAL_SECONDS, PATIENCE_SECONDS, RECENT_SECONDS, NotCreated
from streamtopology.k8s.io.queue import Key

FLOW = Key("space", "flow")
LARGE = {"large": Workload("StatefulSet", "flow-large", "uid-large", replicas=3)}


class Events(Api):
    """Has these events; counts how often it is asked."""

    def __init__(self, *events: Object) -> None:
        self.kept = list(events)
        self.asked = 0

    async def events(self, namespace: str, about: str, reason: str) -> list[Object]:
        assert (namespace, about, reason) == ("space", "StatefulSet", "FailedCreate")
        self.asked += 1
        return self.kept


class NoRight(Events):
    async def events(self, namespace: str, about: str, reason: str) -> list[Object]:
        raise ApiError(403, "Forbidden", "events is forbidden", "/api/v1/events")


def event(uid: str, at: float, message: str) -> Object:
    return {"involvedObject": {"uid": uid}, "lastTimestamp": format_time(at), "message": message}


class Clock:
    now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


def asked(reasons: NotCreated, missing: Mapping[str, Workload]) -> dict[str, Any]:
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
    assert asked(reasons, LARGE) == {}
    assert api.asked == 0, "pods take a moment"
    clock.now += PATIENCE_SECONDS
    assert asked(reasons, LARGE) == {"large": "exceeded quota"}
    clock.now += INTERVAL_SECONDS - 1
    assert asked(reasons, LARGE) == {"large": "exceeded quota"}
    assert api.asked == 1
    assert asked(reasons, {}) == {}
    assert asked(reasons, LARGE) == {}, "it begins again"


def test_an_event_of_long_ago_is_of_another_time() -> None:
    clock = Clock()
    reasons = NotCreated(Events(event("uid-large", clock.now, "exceeded quota")), clock)
    asked(reasons, LARGE)
    clock.now += RECENT_SECONDS
    assert asked(reasons, LARGE) == {}


def test_an_operator_without_the_right_to_list_events_works() -> None:
    clock = Clock()
    reasons = NotCreated(NoRight(), clock)
    asked(reasons, LARGE)
    clock.now += PATIENCE_SECONDS
    assert asked(reasons, LARGE) == {}
