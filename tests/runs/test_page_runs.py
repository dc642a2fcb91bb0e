"""The page of a topology that runs on real executors, as a browser gets it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.request import Request, urlopen

import pytest

from streamtopology.contract.environment import PAGE_HOSTS
from streamtopology.contract.page import Page, read_page

if TYPE_CHECKING:  # the plugins are imported by pytest, which then explains their assertions
    from support.topologies import Runner

from support.feeding import Feed
from support.manifests import counting, files, manifest, memory_sink

pytest_plugins = ("support.topologies",)
pytestmark = pytest.mark.timeout(300)


def test_page_of_a_run_with_split_keys_draws_all_its_work(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PAGE_HOSTS, "hub.example.com")
    feed = Feed(runner.folder / "rows")
    given = manifest(
        "drawn", [files(feed.folder)], [counting(policy="partial-key")], [memory_sink("drawn", "counts")], trigger={}
    )

    def page(since: int) -> Page:
        with urlopen(f"{running.history.address}page.json?since={since}", timeout=60) as answer:
            return read_page(json.load(answer))

    with runner.running(given) as running:
        running.wait_until(lambda: running.history.is_ready())
        feed.files(running, 4)
        drawn = page(-1)
        by_name = Request(running.history.address, headers={"Host": "hub.example.com"})
        with urlopen(by_name, timeout=60) as answer:
            assert b"<title>StreamTopology</title>" in answer.read()
    assert (drawn.topology, str(drawn.activity), drawn.mode) == ("drawn", "running", "Auto")
    assert sum(batch.rows for batch in drawn.batches) == 4 * feed.size
    assert {executor.name for executor in drawn.executors} == {"large-0", "large-1", "small-0"}
    assert [node.name for node in drawn.nodes] == ["rows", "counts", "drawn"]
    assert [(edge.from_node, edge.to_node, edge.key) for edge in drawn.edges] == [
        ("rows", "counts", ("key",)),
        ("counts", "drawn", ()),
    ]
    assert drawn.stages == ("(source)", "counts.partial", "counts")
    counts = drawn.nodes[1]
    assert (counts.limits, counts.instances) == (True, 3)
    assert counts.state_keys >= len(feed.expected)
    assert drawn.edges[0].rows_per_second == pytest.approx(drawn.rows_per_second, rel=0.01)
    heaviest = drawn.keys[0]
    assert (heaviest.operator, heaviest.label) == ("counts", str(feed.expected.most_common(1)[0][0]))
    assert all(executor.busy for executor in drawn.executors)
