"""The calls to the API server, over HTTP, to one whose answers a test chooses: empty ones, null ones, and those of others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest
import yaml
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.aio.client import ApiClient, Configuration

from streamtopology.k8s import names
from streamtopology.k8s.io.api import Api, ApiAway, ApiError, unnoted
from streamtopology.k8s.io.bodies import yaml_of
from streamtopology.k8s.io.cache import Cache
from streamtopology.k8s.io.metrics import PREFIX, OperatorMetrics
from streamtopology.k8s.io.queue import Queue
from streamtopology.k8s.io.snapshot_watch import SnapshotWatch

Result = TypeVar("Result")
EMPTY_LISTS: dict[str, Any] = {
    "null": {"items": None, "metadata": {"resourceVersion": "7", "continue": None}},
    "empty": {"items": [], "metadata": {"resourceVersion": "7", "continue": ""}},
    "missing": {"metadata": {"resourceVersion": "7"}},
    "null metadata": {"items": None, "metadata": None},
    "nothing": {},
}
NO_OBJECTS = {
    "nothing": b"",
    "null": b"null",
    "list": b"[]",
    "page": b"<html>sign in</html>",
    "half": b'{"items": [',
    "bytes": b"\xff",
}


@asynccontextmanager
async def answering(
    *bodies: bytes,
    status: int = 200,
    watched: set[str] | None = None,
    sent: list[tuple[str, bytes]] | None = None,
    answered: Callable[[str, str], None] = unnoted,
) -> AsyncIterator[Api]:
    """An API server that answers its calls with these, the last one again and again.

    `watched` gets the paths of watches, `sent` the type and content of each body, `answered` what an `Api` notes of a call.
    """
    left = list(bodies)

    async def answer(request: web.Request) -> web.Response:
        if sent is not None:
            sent.append((request.content_type, await request.read()))
        if watched is not None and "watch" in request.query:
            watched.add(request.path)
        return web.Response(status=status, body=left.pop(0) if len(left) > 1 else left[0], content_type="application/json")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server: Any = site._server
    try:
        async with ApiClient(Configuration(host=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")) as client:
            yield Api(client, answered=answered)
    finally:
        await runner.cleanup()


def asked(call: Callable[[Api], Awaitable[Result]], *bodies: Any, status: int = 200) -> Result:
    """The result of a call that gets these answers."""

    async def story() -> Result:
        written = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in bodies]
        async with answering(*written, status=status) as api:
            return await call(api)

    return asyncio.run(story())


async def watched(api: Api) -> list[Any]:
    return [event async for event in api.watch(names.TOPOLOGY, None, "", "7")]


@pytest.mark.parametrize("kind", EMPTY_LISTS)
def test_list_of_nothing_is_empty_however_it_is_written(kind: str) -> None:
    async def listed(api: Api) -> list[Any]:
        return [item async for page in api.pages(names.POD, "space") for item in page.items]

    found = EMPTY_LISTS[kind]
    assert asked(listed, found) == []
    assert asked(lambda api: api.events("space", "Job", "FailedCreate"), found) == []
    version = 7 if found.get("metadata") else 0
    assert asked(lambda api: api.versions(names.TOPOLOGY, None), found) == ([], version)


@pytest.mark.parametrize("kind", EMPTY_LISTS)
def test_watches_follow_a_list_of_nothing_however_it_is_written(kind: str) -> None:
    paths = {names.JOB.path(None), names.SNAPSHOT.path(None)}

    async def story() -> None:
        watched = set[str]()
        cache, snapshots = Cache(lambda _: None), SnapshotWatch(Queue(asyncio.get_running_loop().time))
        async with answering(json.dumps(EMPTY_LISTS[kind]).encode(), watched=watched) as api, asyncio.timeout(60):
            following = [
                asyncio.ensure_future(each) for each in (cache.follow(api, names.JOB, None), snapshots.follow(api, None))
            ]
            while watched != paths and not any(one.done() for one in following):
                await asyncio.sleep(0.01)
            assert watched == paths
            for one in following:
                one.cancel()

    asyncio.run(story())


def test_items_of_a_list_are_in_all_its_parts_and_name_their_kind() -> None:
    async def listed(api: Api) -> list[Any]:
        return [(item["kind"], item["metadata"]["name"]) async for page in api.pages(names.POD, None) for item in page.items]

    first = {"items": [{"metadata": {"name": "a"}}], "metadata": {"continue": "more", "resourceVersion": "7"}}
    second = {"items": [{"metadata": {"name": "b"}, "status": None}], "metadata": {"resourceVersion": "7"}}
    assert asked(listed, first, second) == [("Pod", "a"), ("Pod", "b")]


def test_right_that_the_answer_does_not_grant_is_none() -> None:
    for answer in ({"status": None}, {}, {"status": {"allowed": None}}, {"status": {"allowed": False}}):
        assert asked(lambda api: api.may("patch", names.POD, "space"), answer) is False
    assert asked(lambda api: api.may("patch", names.POD, "space"), {"status": {"allowed": True}}) is True


@pytest.mark.parametrize("kind", NO_OBJECTS)
def test_answer_that_is_no_object_is_no_answer(kind: str) -> None:
    """A gateway's sign-in page with status 200, for one: the call is tried again, and ends no process."""
    with pytest.raises(ApiAway, match="topologies"):
        asked(lambda api: api.versions(names.TOPOLOGY, None), NO_OBJECTS[kind])
    with pytest.raises(ApiError) as refused:
        asked(lambda api: api.get(names.POD, "space", "pod"), NO_OBJECTS[kind], status=502)
    assert refused.value.status == 502


@pytest.mark.parametrize(
    "line", [b"null\n", b"{}\n", b'{"type": "ADDED"}\n', b'{"type": "ADDED", "object": {"metadata": null}}\n', b"<html>\n"]
)
def test_line_of_a_watch_that_is_no_event_breaks_the_watch(line: bytes) -> None:
    with pytest.raises(ApiAway, match="watching streamtopologies"):
        asked(watched, line)


@pytest.mark.parametrize("details", [None, "a text", {}, {"causes": None}, {"causes": [{"field": None}]}])
def test_refusal_is_one_whatever_its_details_say(details: object) -> None:
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": None, "details": details}
    with pytest.raises(ApiError) as refused:
        asked(watched, {"type": "ERROR", "object": status})
    assert (refused.value.status, refused.value.reason, refused.value.fields) == (410, "Expired", ())
    with pytest.raises(ApiError) as refused:
        asked(lambda api: api.get(names.POD, "space", "pod"), status, status=422)
    assert (refused.value.status, refused.value.fields) == (422, ())


def test_calls_are_counted_by_their_answer() -> None:
    """A refusal is one of them, and so is no answer at all."""
    metrics = OperatorMetrics()

    def count(method: str, code: str) -> float | None:
        return metrics.registry.get_sample_value(f"{PREFIX}api_requests_total", {"method": method, "code": code})

    async def story() -> None:
        async with answering(b"{}", answered=metrics.api_answered) as api:
            await api.get(names.POD, "space", "pod")
        async with answering(b"{}", status=503, answered=metrics.api_answered) as api:
            with pytest.raises(ApiError):
                await api.patch(names.POD, "space", "pod", {})
        async with ApiClient(Configuration(host="http://127.0.0.1:1")) as nowhere:
            with pytest.raises(ApiAway):
                await Api(nowhere, answered=metrics.api_answered).get(names.POD, "space", "pod")

    asyncio.run(story())
    assert (count("GET", "200"), count("PATCH", "503"), count("GET", "none")) == (1, 3, 3), "each try"


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_apply_is_yaml_of_the_same_texts(text: str) -> None:
    """The API server reads it as YAML, in which JSON's escapes of an emoji are two characters that are none."""
    body = {"data": {"a": text, text: "b"}}
    assert yaml.safe_load(yaml_of(body)) == body


def test_body_of_an_apply_is_sent_as_it_is() -> None:
    body = {"kind": "ConfigMap", "metadata": {"name": "x", "namespace": "space"}, "data": {"a": "😀 Zürich 東京"}}
    sent: list[tuple[str, bytes]] = []

    async def story() -> None:
        async with answering(b"{}", sent=sent) as api:
            await api.apply(body)

    asyncio.run(story())
    assert sent == [("application/apply-patch+yaml", yaml_of(body))]
