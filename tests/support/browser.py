"""A real Chromium for tests of the page: Debian's, driven by playwright. A tab ends with what it must not have done."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Generator, Iterator
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

# For what a test waits for: far longer than it takes.
MILLISECONDS = 60_000

# The latter keep it from looking for hosts of its maker, which a closed network refuses, many at a time.
_ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
_QUIET = ["--disable-background-networking", "--disable-component-update", "--disable-sync"]


class Tab:
    """One tab: `page` is playwright's. `faults`: what it has logged as an error, and what it asked for from elsewhere."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.faults: list[str] = []
        self.asked: list[str] = []
        page.set_default_timeout(MILLISECONDS)
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("request", self._watched)

    def open(self, address: str) -> None:
        """Open the page at `address` and wait for its first figures."""
        self._host = urlsplit(address).netloc
        self.page.goto(address)
        self.page.wait_for_selector("#head h1:not(.wait)")

    def text(self, selector: str) -> str:
        """Return the text that a person reads there."""
        return self.page.inner_text(selector)

    def wait(self, script: str, argument: object = None) -> None:
        """Wait until the expression holds in the page."""
        self.page.wait_for_function(script, arg=argument)

    def wait_for_text(self, selector: str, part: str) -> None:
        """Wait until the text of an element contains `part`."""
        self.wait("([at, part]) => document.querySelector(at)?.innerText.includes(part)", [selector, part])

    def violations(self) -> list[str]:
        """Return the barriers to people with other eyes and hands that axe finds."""
        found = Axe().run(self.page).response["violations"]
        return [f"{one['id']}: {one['help']}: {[node['html'] for node in one['nodes']]}" for one in found]

    def overflows(self) -> int:
        """Pixels that the page is wider than the window."""
        return self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.faults.append(message.text)

    def _watched(self, request: Request) -> None:
        place = urlsplit(request.url)
        self.asked.append(request.url)
        if place.scheme not in ("data", "about") and place.netloc != self._host:
            self.faults.append(f"it asked for {request.url}")


@pytest.fixture(scope="module")  # not longer: while it runs, playwright's event loop is this thread's, and no test has another
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("no chromium: scripts/browser-packages.sh installs it (Debian: apt-get install chromium)")
    with sync_playwright() as driver:
        arguments = _ARGUMENTS if os.geteuid() == 0 else _ARGUMENTS[1:]
        running = driver.chromium.launch(executable_path=path, args=[*arguments, *_QUIET])
        yield running
        running.close()


@pytest.fixture
def open_tab(browser: Browser) -> Generator[Callable[..., Tab]]:
    """Opens tabs; a test with a fault that it does not take out of `Tab.faults` fails."""
    tabs: list[Tab] = []

    def open_(address: str, width: int = 1280, **emulated: object) -> Tab:
        tab = Tab(browser.new_page(viewport={"width": width, "height": 900}, **emulated))  # pyright: ignore[reportArgumentType]
        tabs.append(tab)
        tab.open(address)
        return tab

    yield open_
    faults = [fault for tab in tabs for fault in tab.faults]
    for tab in tabs:
        tab.page.close()
    assert faults == []
