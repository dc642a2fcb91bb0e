"""A person at the page of a real run sees which executor is slow, the re-routing, its reason and what it brought."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:  # the plugins are imported by pytest, which then explains their assertions
    from support.browser import Tab
    from support.topologies import Runner, Running

from support.feeding import Feed
from support.manifests import counting, files, manifest, memory_sink

from streamtopology.topology import parse

pytest_plugins = ("support.topologies", "support.browser")
pytestmark = pytest.mark.timeout(600)

SLOW_CPU = 0.1
SUMMARY = "#executors-summary"
CARD = "#reroutings .card"


def figures(address: str) -> tuple[dict[str, Any], dict[str, float], dict[str, float]]:
    """`/stats`, the metrics without labels, and each executor's load by the metrics."""
    with urlopen(f"{address}stats", timeout=60) as answer:
        stats = json.load(answer)
    with urlopen(f"{address}metrics", timeout=60) as answer:
        samples = [one for family in text_string_to_metric_families(answer.read().decode()) for one in family.samples]
    loads = {one.labels["executor"]: one.value for one in samples if one.name == "streamtopology_executor_load_ratio"}
    return stats, {one.name: one.value for one in samples if not one.labels}, loads


def test_page_shows_the_slow_executor_the_rerouting_and_its_reason(runner: Runner, open_tab: Callable[..., Tab]) -> None:
    feed = Feed(runner.folder / "rows", 12_000)
    operator = counting("words", **{"with": {"costPerTuple": "20us"}})

    def watched(mode: str) -> dict[str, Any]:
        sinks, rebalance = [memory_sink("watched", "words")], {"interval": "3s", "mode": mode}
        return manifest("watched", [files(feed.folder)], [operator], sinks, trigger={}, rebalance=rebalance)

    with runner.running(watched("Recommend")) as running:
        running.wait_until(lambda: running.history.is_ready())
        feed.files(running, 3)
        tab = open_tab(running.history.address)
        runner.embedded.resize("small", SLOW_CPU)
        feed.until(running, lambda: re.search(r"^small-0 works .* its fair share", tab.text(SUMMARY)), waiting=2)
        running.run.apply(parse(watched("Auto")), fit_limits=False)
        feed.until(running, lambda: "small-0" in tab.text("#reroutings-body"), waiting=2)
        feed.files(running, 12)
        compare(tab, running)
        assert tab.faults == []
    tab.wait_for_text("#notice", "No answer for")
    tab.faults.clear()  # of the driver that has ended


def compare(tab: Tab, running: Running) -> None:
    """Every figure of the first screen is that of `/stats` and `/metrics`, and the mark is that of the newest re-routing."""
    stats, metrics, loads = figures(running.history.address)
    tab.wait_for_text(".figures", f"Batch\n{stats['batch']}")
    shown = tab.text(".figures")
    rate, bound = (number(stats[name]) for name in ("rows_per_second", "bound_rows_per_second"))
    assert rate in shown.replace("\n", "").replace("k rows/s", " k rows/s")
    assert f"bound {bound} rows/s" in shown
    assert f"{100 * stats['rows_per_second'] / stats['bound_rows_per_second']:.0f}%" in shown
    assert f"{stats['last_batch']['rows']:,} rows" in shown
    assert metrics["streamtopology_source_rows_total"] == running.rows
    assert f"epoch {stats['epoch']}" in tab.text(".who")
    assert metrics["streamtopology_epoch"] == stats["epoch"]
    for executor, load in loads.items():
        row = tab.page.get_by_role("row").filter(has=tab.page.get_by_role("rowheader", name=executor, exact=True))
        assert f"{load:.2f} ×" in row.inner_text()
    change = running.history.reconfigurations[-1]
    card = tab.page.locator(CARD).first
    assert f"batch {change.batch}" in card.inner_text()
    assert re.search(r"predicted\s+\d+ %", card.inner_text())
    tab.page.locator(".flag").last.focus()
    tab.page.wait_for_selector("#tip:not([hidden])")
    assert tab.text(f"{CARD} .why") in tab.text("#tip")


def number(value: float) -> str:
    """As the page writes it: three digits."""
    thousands = value / 1000
    return f"{thousands:.{max(0, 2 - len(str(int(thousands))) + 1)}f} k"
