"""The kept state of owned objects, when answers to our own calls, events and lists arrive in the wrong order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from streamtopology.k8s import names
from streamtopology.k8s.decide.owned_objects import Job
from streamtopology.k8s.io.api import Api, ApiAway
from streamtopology.k8s.io.bodies import ListPart
from streamtopology.k8s.io.cache import LEAST_SECONDS, Cache
from streamtopology.k8s.io.queue import Queue, TopologyKey
from streamtopology.k8s.io.snapshot_watch import SnapshotWatch
from streamtopology.k8s.names import Kind

FLOW = TopologyKey("space", "flow")
Object = dict[str, Any]


def job(version: int, uid: str = "first", *, done: bool = False) -> Object:
    conditions = [{"type": "Complete", "status": "True"}] if done else []
    labels = names.labels("flow", "migration")
    metadata = {"name": "flow-migrate-7", "namespace": "space", "uid": uid, "resourceVersion": str(version), "labels": labels}
    return {"kind": "Job", "metadata": metadata, "status": {"conditions": conditions}}


def jobs(cache: Cache) -> list[tuple[str, bool]]:
    return [(seen.uid, seen.done) for seen in cache.of(FLOW).values() if isinstance(seen, Job)]


def test_an_answer_that_is_older_than_what_an_event_showed_changes_nothing():
    changed: list[TopologyKey] = []
    cache = Cache(changed.append)
    cache.note(job(5))
    cache.note(job(8))  # an event with nothing in it that is kept
    cache.note(job(7, done=True))
    cache.note(job(9, "second"))
    cache.note(job(8, "first", done=True))
    assert jobs(cache) == [("second", False)]
    assert changed == [FLOW, FLOW], "once for each change that a decision could see"


def test_the_end_of_an_object_is_not_the_end_of_its_namesake():
    cache = Cache(lambda _: None)
    cache.note(job(5))
    cache.note(job(9, "second"))
    cache.drop(job(8, "first"))
    assert jobs(cache) == [("second", False)]
    cache.drop(job(10, "second"))
    assert jobs(cache) == []


class Lists(Api):
    """Says that there is nothing, as of `version`; namespaces that are `away` cannot be listed, and nothing ever changes."""

    def __init__(self, version: int, away: set[str] | None = None) -> None:
        self.version = version
        self.away = away or set()

    async def pages(self, kind: Kind, namespace: str | None, selector: str = "") -> AsyncIterator[ListPart]:
        if namespace in self.away:
            raise ApiAway("not yet")
        yield ListPart([], str(self.version), "")

    async def watch(self, kind: Kind, namespace: str | None, selector: str, since: str) -> AsyncIterator[Object]:
        await asyncio.Event().wait()
        raise ApiAway("never")
        yield {}


def after_an_empty_list(version: int) -> list[tuple[str, bool]]:
    """The rest of a Job of version 5."""
    cache = Cache(lambda _: None)
    cache.note(job(5))

    async def story() -> None:
        following = asyncio.create_task(cache.follow(Lists(version), names.JOB, None))
        await cache.listed([names.JOB], None)
        following.cancel()

    asyncio.run(asyncio.wait_for(story(), 20))
    return jobs(cache)


def test_a_list_that_is_older_than_what_was_made_since_does_not_take_it_away():
    """Taken for gone, a ConfigMap would be made again without its epoch."""
    assert after_an_empty_list(version=4) == [("first", False)]
    assert after_an_empty_list(version=6) == []


def test_kind_is_known_only_in_namespaces_where_it_was_listed():
    async def story() -> None:
        api, cache = Lists(1, away={"late"}), Cache(lambda _: None)
        following = [asyncio.create_task(cache.follow(api, names.JOB, namespace)) for namespace in ("space", "late")]
        await cache.listed([names.JOB], "space")
        late = asyncio.create_task(cache.listed([names.JOB], "late"))
        await asyncio.sleep(0)
        assert not late.done()
        api.away.clear()
        await late
        for one in following:
            one.cancel()

    asyncio.run(asyncio.wait_for(story(), 20))


class EndsAtOnce(Lists):
    """Each watch ends at once, as behind a proxy that keeps none; the third one stays. `began`: their times in seconds."""

    def __init__(self) -> None:
        super().__init__(1)
        self.began: list[float] = []

    async def pages(self, kind: Kind, namespace: str | None, selector: str = "") -> AsyncIterator[ListPart]:
        yield ListPart([], str(self.version), "")

    async def watch(self, kind: Kind, namespace: str | None, selector: str, since: str) -> AsyncIterator[Object]:
        self.began.append(time.monotonic())
        if len(self.began) == 3:
            await asyncio.Event().wait()
        return
        yield {}


@pytest.mark.parametrize("snapshots", [False, True])
def test_watches_that_are_ended_at_once_are_begun_again_after_a_pause(snapshots: bool):
    api = EndsAtOnce()

    async def story() -> None:
        watch, cache = SnapshotWatch(Queue(time.monotonic)), Cache(lambda _: None)
        following = watch.follow(api, None) if snapshots else cache.follow(api, names.JOB, None)
        task = asyncio.create_task(following)
        while len(api.began) < 3:
            await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(asyncio.wait_for(story(), 20))
    assert api.began[2] - api.began[0] > LEAST_SECONDS, "twice that, or the first was late"


@pytest.mark.parametrize("other", ["else", None])
def test_object_whose_label_somebody_changes_is_missing_at_its_topology_at_once(other: str | None):
    """It is written again then, with its label: the next list would be seconds or minutes away."""
    changed: list[TopologyKey] = []
    cache = Cache(changed.append)
    cache.note(job(5))
    labelled = job(6)
    labelled["metadata"]["labels"] = {**labelled["metadata"]["labels"], names.INSTANCE: other}
    cache.note(labelled)
    assert jobs(cache) == []
    assert changed[:2] == [FLOW, FLOW]
    cache.note(job(7))
    assert jobs(cache) == [("first", False)]
    assert cache.of(TopologyKey("space", "else")) == {}
