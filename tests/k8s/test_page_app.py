"""The operator's page over a real socket: files, headers, who is refused, and a replica that stands by."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestServer

from streamtopology.k8s.decide.listing import LISTING_VERSION
from streamtopology.k8s.io import page_app as module
from streamtopology.k8s.io.page_app import LISTING, Listed, page_app
from streamtopology.k8s.settings import read_settings
from streamtopology.web.page_http import HEADERS, page_files

FOLDER = Path(module.__file__).parent / "page"
SCRIPT = (FOLDER / "list.js").read_text()
HOSTILE = {"metadata": {"name": "<img src=x onerror=alert(1)>", "namespace": "\u202eabc"}, "spec": {}}


@asynccontextmanager
async def asking(listed: Listed, names: Sequence[str] = ()) -> AsyncIterator[Any]:
    """A function from path, method and headers to the answer and its text."""
    async with TestServer(page_app(listed, names)) as server, aiohttp.ClientSession() as session:

        async def ask(path: str, method: str = "GET", **headers: str) -> tuple[aiohttp.ClientResponse, str]:
            async with session.request(method, server.make_url(path), headers=headers) as answer:
                return answer, await answer.text()

        yield ask


def leading() -> Listed:
    listed = Listed(lambda: 1_800_000_000.0)
    listed.follow(lambda: [HOSTILE])
    return listed


@pytest.mark.parametrize("path", [*page_files("streamtopology.k8s.io"), LISTING])
def test_page_is_served_with_a_strict_policy(path: str) -> None:
    async def story() -> None:
        async with asking(leading()) as ask:
            answer, _ = await ask(path)
            assert answer.status == 200
            assert {name: answer.headers[name] for name in HEADERS} == HEADERS

    asyncio.run(story())


def test_value_is_versioned_and_carries_hostile_names_as_text() -> None:
    async def story() -> None:
        async with asking(leading()) as ask:
            answer, _ = await ask(LISTING)
            value = await answer.json()
            assert (value["version"], value["topologies"][0]["name"]) == (LISTING_VERSION, HOSTILE["metadata"]["name"])
            assert answer.headers["Content-Type"].startswith("application/json")

    asyncio.run(story())


def test_replica_that_stands_by_says_so() -> None:
    async def story() -> None:
        async with asking(Listed(lambda: 0.0)) as ask:
            answer, text = await ask(LISTING)
            assert (answer.status, "stands by" in text) == (503, True)
            assert (await ask("/"))[0].status == 200

    asyncio.run(story())


def test_foreign_names_other_sites_and_changes_are_refused() -> None:
    async def story() -> None:
        async with asking(leading(), ["stopo.example.com"]) as ask:
            assert (await ask(LISTING, Host="evil.example.com"))[0].status == 421
            assert (await ask(LISTING, Host="stopo.example.com"))[0].status == 200
            assert (await ask(LISTING, Origin="https://evil.example.com"))[0].status == 403
            refused, text = await ask(LISTING, "POST")
            assert (refused.status, refused.headers["Allow"]) == (405, "GET,HEAD")
            assert "only reads" in text
            missing, text = await ask("/../etc/passwd")
            assert (missing.status, HEADERS.items() <= dict(missing.headers).items()) == (404, True)
            assert "there is / with a page" in text

    asyncio.run(story())


def test_script_fits_markup_value_and_look() -> None:
    markup = (FOLDER / "index.html").read_text()
    assert f"const VERSION = {LISTING_VERSION};" in SCRIPT
    assert set(re.findall(r"byId\('([\w-]+)'\)", SCRIPT)) <= set(re.findall(r'id="([\w-]+)"', markup))
    read = set(re.findall(r"\bone\.(\w+)", SCRIPT))
    assert read <= {"name", "namespace", "state", "phase", "text", "executors", "rows_per_second", "imbalance"} | {
        "rerouting",
        "rerouted_at",
    }
    for name in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "http://", "https://", "eval("):
        assert name not in SCRIPT
    assert re.findall(r"\s(?:on\w+|style)=|<style|<script>", markup) == []


def test_page_is_off_unless_it_has_a_port() -> None:
    assert read_settings([], {}).page_port is None
    assert read_settings([], {"STREAMTOPOLOGY_PAGE_PORT": ""}).page_port is None
    given = read_settings(["--page-port=8082"], {"STREAMTOPOLOGY_PAGE_HOSTS": "Stopo.example.com, "})
    assert (given.page_port, given.page_hosts) == (8082, ("stopo.example.com",))
