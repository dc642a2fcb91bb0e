"""Pictures of the pages for README and docs, made in Chromium from the report of a run, and from a made-up list.

PYTHONPATH=tests python scripts/page_pictures.py build/demo        (as `make demo` leaves it)
"""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright
from support.served_list import PROXY, ServedList

from streamtopology.jobs.admin.page_of import page_of_report

IMAGES = Path("docs/images")
ADDRESS = "http://127.0.0.1:{port}/"
PORT = 8788


def picture(browser: Browser, name: str, width: int, height: int, part: str | None = None, scheme: str = "light") -> None:
    """Write `name`.png: the first screen of this size, or the panel `part` of it."""
    tab = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme, device_scale_factor=1.5)  # pyright: ignore[reportArgumentType]
    tab.goto(ADDRESS.format(port=PORT))
    tab.wait_for_selector("#executors-body [role=table]")
    (tab.locator(part) if part else tab).screenshot(path=IMAGES / f"{name}.png")
    tab.close()


def picture_of_the_list(browser: Browser) -> None:
    """Write page-list.png, as it looks behind the API server's proxy."""
    served = ServedList()
    tab = browser.new_page(viewport={"width": 1024, "height": 270}, device_scale_factor=1.5)
    tab.goto(served.address(PROXY))
    tab.wait_for_selector("tbody tr")
    tab.screenshot(path=IMAGES / "page-list.png")
    tab.close()
    served.close()


def draw() -> None:
    """Draw all of them."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"])
        picture(browser, "page", 1280, 900)
        picture(browser, "page-timeline", 1280, 900, "#timeline")
        picture(browser, "page-phone", 390, 844, scheme="dark")
        picture_of_the_list(browser)
        browser.close()


if __name__ == "__main__":
    page_of_report(Path(sys.argv[1]), PORT, False, draw)
