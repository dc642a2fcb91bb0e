"""The operator's list in a real browser: its words and links, eyes and hands of all kinds, hostile names, a lost operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from support.served_list import FLIGHTS, PROXY, TOPOLOGIES, ServedList, topology

if TYPE_CHECKING:  # the plugins are imported by pytest, which then explains their assertions
    from support.browser import Tab

pytest_plugins = ("support.browser",)
pytestmark = pytest.mark.timeout(300)

OpenTab = Callable[..., "Tab"]


@pytest.fixture
def served() -> Iterator[ServedList]:
    served = ServedList()
    yield served
    served.close()


def opened(open_tab: OpenTab, address: str, **emulated: Any) -> Tab:
    tab = open_tab(address, **emulated)
    tab.wait_for_text("#list", "flights")
    return tab


def test_topology_in_need_is_the_first_row_and_in_the_title(served: ServedList, open_tab: OpenTab) -> None:
    tab = opened(open_tab, served.address())
    assert "broken" in tab.text("tbody tr:first-child")
    assert "the driver ended with code 3" in tab.text("tbody tr:first-child")
    assert tab.text("#summary") == "3 topologies, 1 of them in need of somebody"
    assert tab.page.title() == "1 topology needs somebody"
    row = tab.text("tbody tr:last-child")
    assert all(part in row for part in ("flights", "51.0 k", "12 %", "60 s ago", "epoch 4, 12 keys of delays"))
    assert "streamtopology ui flights -n streams" in row


def test_link_behind_the_proxy_leads_to_the_topologys_page(served: ServedList, open_tab: OpenTab) -> None:
    tab = opened(open_tab, served.address(PROXY))
    link = tab.page.get_attribute("tbody tr:last-child a", "href")
    assert link == "/api/v1/namespaces/streams/services/flights-driver:http/proxy/"


@pytest.mark.parametrize("emulated", [{"color_scheme": "light"}, {"color_scheme": "dark"}, {"forced_colors": "active"}])
def test_list_has_no_barrier_that_axe_finds(served: ServedList, open_tab: OpenTab, emulated: dict[str, str]) -> None:
    tab = opened(open_tab, served.address(), bypass_csp=True, **emulated)
    assert tab.violations() == []


@pytest.mark.parametrize("width", [360, 768, 1600])
def test_list_fits_every_window(served: ServedList, open_tab: OpenTab, width: int) -> None:
    served.topologies = [*TOPOLOGIES, topology("x" * 63, "Running", namespace="y" * 63)]
    assert opened(open_tab, served.address(), width=width).overflows() <= 0


def test_hostile_names_stay_text(served: ServedList, open_tab: OpenTab) -> None:
    served.topologies = [FLIGHTS, topology("<img src=x onerror=alert(1)>", "Failed", namespace="\u202eevil")]
    tab = opened(open_tab, served.address(PROXY))
    assert "<img src=x" in tab.text("tbody tr:first-child")
    assert tab.page.locator("#list img").count() == 0


def test_lost_operator_is_reported_and_the_list_stays(served: ServedList, open_tab: OpenTab) -> None:
    tab = opened(open_tab, served.address())
    served.topologies = None  # pyright: ignore[reportAttributeAccessIssue] - each answer is an error now
    tab.page.wait_for_selector("#notice:not([hidden])")
    assert "flights" in tab.text("#list")
    served.topologies = [FLIGHTS]
    tab.page.wait_for_selector("#notice[hidden]", state="attached")
    assert tab.text("#summary") == "1 topology, none in need of somebody"
    tab.faults.clear()  # the browser logs each failed request
