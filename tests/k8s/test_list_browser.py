"""The operator's list in a real browser: its words and links, eyes and hands of all kinds, hostile names, a lost operator."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from streamtopology.k8s.io.page_app import Listed, page_app

if TYPE_CHECKING:  # the plugins are imported by pytest, which then explains their assertions
    from support.browser import Tab

pytest_plugins = ("support.browser",)
pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("browser")]

OpenTab = Callable[..., "Tab"]
PROXY = "/api/v1/namespaces/operators/services/streamtopology:page/proxy"


def topology(name: str, phase: str, namespace: str = "streams", **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace}, "status": {"phase": phase, **status}}


FAILED = {"type": "Ready", "status": "False", "reason": "DriverFailed", "message": "the driver ended with code 3"}
REROUTED = {"epoch": 4, "operator": "delays", "keysMoved": 12, "at": "2027-01-15T07:59:00Z"}
FLIGHTS = topology("flights", "Running", throughput=51000, imbalance=0.12, lastRerouting=REROUTED)
TOPOLOGIES = [FLIGHTS, topology("broken", "Failed", conditions=[FAILED]), topology("asleep", "Asleep", namespace="night")]


class Served:
    """The page, also where the API server's proxy would have it, from a thread of its own."""

    def __init__(self) -> None:
        self.topologies = TOPOLOGIES
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self.port = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(60)

    async def _start(self) -> int:
        listed = Listed(lambda: 1_800_000_000.0)
        listed.follow(lambda: self.topologies)
        app = page_app(listed, ())
        app.add_subapp(PROXY, page_app(listed, ()))
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return self._runner.addresses[0][1]

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)

    def address(self, path: str = "") -> str:
        return f"http://127.0.0.1:{self.port}{path}/"


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served()
    yield served
    served.close()


def opened(open_tab: OpenTab, address: str, **emulated: Any) -> Tab:
    tab = open_tab(address, **emulated)
    tab.wait_for_text("#list", "flights")
    return tab


def test_topology_in_need_is_the_first_row_and_in_the_title(served: Served, open_tab: OpenTab) -> None:
    tab = opened(open_tab, served.address())
    assert "broken" in tab.text("tbody tr:first-child")
    assert "the driver ended with code 3" in tab.text("tbody tr:first-child")
    assert tab.text("#summary") == "3 topologies, 1 of them in need of somebody"
    row = tab.text("tbody tr:last-child")
    assert all(part in row for part in ("flights", "51.0 k", "12 %", "60 s ago", "epoch 4, 12 keys of delays"))
    assert "streamtopology ui flights -n streams" in row


def test_link_behind_the_proxy_leads_to_the_topologys_page(served: Served, open_tab: OpenTab) -> None:
    tab = opened(open_tab, served.address(PROXY))
    link = tab.page.get_attribute("tbody tr:last-child a", "href")
    assert link == "/api/v1/namespaces/streams/services/flights-driver:http/proxy/"


@pytest.mark.parametrize("emulated", [{"color_scheme": "light"}, {"color_scheme": "dark"}, {"forced_colors": "active"}])
def test_list_has_no_barrier_that_axe_finds(served: Served, open_tab: OpenTab, emulated: dict[str, str]) -> None:
    tab = opened(open_tab, served.address(), bypass_csp=True, **emulated)
    assert tab.violations() == []


@pytest.mark.parametrize("width", [360, 768, 1600])
def test_list_fits_every_window(served: Served, open_tab: OpenTab, width: int) -> None:
    served.topologies = [*TOPOLOGIES, topology("x" * 63, "Running", namespace="y" * 63)]
    assert opened(open_tab, served.address(), width=width).overflows() <= 0


def test_hostile_names_stay_text(served: Served, open_tab: OpenTab) -> None:
    served.topologies = [FLIGHTS, topology("<img src=x onerror=alert(1)>", "Failed", namespace="\u202eevil")]
    tab = opened(open_tab, served.address(PROXY))
    assert "<img src=x" in tab.text("tbody tr:first-child")
    assert tab.page.locator("#list img").count() == 0


def test_lost_operator_is_reported_and_the_list_stays(served: Served, open_tab: OpenTab) -> None:
    tab = opened(open_tab, served.address())
    served.topologies = None  # pyright: ignore[reportAttributeAccessIssue] - each answer is an error now
    tab.page.wait_for_selector("#notice:not([hidden])")
    assert "flights" in tab.text("#list")
    served.topologies = [FLIGHTS]
    tab.page.wait_for_selector("#notice[hidden]", state="attached")
    assert tab.text("#summary") == "1 topology, none in need of somebody"
    tab.faults.clear()  # the browser logs each failed request
