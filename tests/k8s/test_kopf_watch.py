"""The ends of kopf's watch: stopped, refused, broken, or by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import kopf
import pytest
from kopf._cogs.clients.errors import APIForbiddenError
from kopf._cogs.clients.watching import WatchingError
from kubernetes.aio.client import Configuration

from streamtopology.k8s.io.api import ApiError
from streamtopology.k8s.io.watchdog import WatchBroken
from streamtopology.k8s.kopf_handlers import watch_topologies
from streamtopology.k8s.settings import Settings


async def ended(monkeypatch: pytest.MonkeyPatch, run_tasks: Callable[..., Awaitable[None]], is_stopped: bool) -> None:
    """Watch with kopf's tasks replaced by `run_tasks`."""

    async def no_tasks(**_: object) -> list[Any]:
        return []

    monkeypatch.setattr(kopf, "spawn_tasks", no_tasks)
    monkeypatch.setattr(kopf, "run_tasks", run_tasks)
    stopped = asyncio.Event()
    if is_stopped:
        stopped.set()
    reconciler: Any = None
    await watch_topologies(reconciler, Configuration(), Settings(), lambda _: None, stopped)


async def silently(*_: object, **__: object) -> None:
    pass


def test_watch_that_is_stopped_ends_well(monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(ended(monkeypatch, silently, is_stopped=True))


def test_watch_that_ends_by_itself_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """kopf takes the cancellation of one of its tasks for its own end, and says nothing."""
    with pytest.raises(WatchBroken, match="ended by itself"):
        asyncio.run(ended(monkeypatch, silently, is_stopped=False))


def test_error_event_of_the_api_server_is_a_broken_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise WatchingError("Error in the watch-stream: storage is (re)initializing")

    with pytest.raises(WatchBroken, match="initializing"):
        asyncio.run(ended(monkeypatch, broken, is_stopped=False))


def test_token_that_is_not_valid_any_more_is_a_broken_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one may be in its file the next time; the process ended with a traceback of kopf's."""

    async def refused(*_: object, **__: object) -> None:
        raise kopf.LoginError("Ran out of valid credentials.")

    with pytest.raises(WatchBroken, match="the operator's token is not valid"):
        asyncio.run(ended(monkeypatch, refused, is_stopped=False))


def test_refusal_of_the_api_server_is_an_error_with_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(*_: object, **__: object) -> None:
        raise APIForbiddenError(None, status=403, headers={})

    with pytest.raises(ApiError) as error:
        asyncio.run(ended(monkeypatch, refused, is_stopped=False))
    assert error.value.status == 403
