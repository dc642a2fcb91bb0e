"""The seconds of merging a part, by operator: measured, bounded, and what the planner and the routers go by."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtopology.routing.control.decisions import TopologyFacts
from streamtopology.routing.control.part_seconds import ENOUGH, KEPT, LEAST_SECONDS, MOST_SECONDS, PART_SECONDS, PartSeconds
from streamtopology.routing.epochs.epoch import Route
from streamtopology.routing.load.load_report import LoadReport
from streamtopology.routing.table.table import RoutingTable
from streamtopology.topology import parse

SLOW = 90e-3
SPEEDS = np.array([1.0, 0.25])


def report(parts: int, seconds: float, instance: int = 0, operator: str = "sums") -> LoadReport:
    return LoadReport(operator, instance, instance, 100, 0.1, 0.2, parts_merged=parts, merge_seconds=seconds)


def measured(each: Sequence[float], parts: int = 3) -> PartSeconds:
    """After batches with `parts` parts that took `each` of these seconds."""
    known = PartSeconds()
    for seconds in each:
        known.measure([report(parts, parts * seconds)], None)
    return known


def test_estimate_follows_a_slow_merge_and_back() -> None:
    known = measured([SLOW] * 2)
    assert known.estimates() == {"sums": PART_SECONDS}, "two batches may be off"
    known.measure([report(3, 3 * SLOW)], None)
    assert known.estimates()["sums"] == pytest.approx(SLOW)
    for _ in range(KEPT // 2 + 1):
        known.measure([report(10, 10 * 5e-6)], None)
    assert known.estimates()["sums"] == pytest.approx(5e-6)


@pytest.mark.parametrize("at", range(ENOUGH + 2))
def test_estimate_is_not_ruined_by_an_outlier(at: int) -> None:
    each = [5e-6] * (ENOUGH + 2)
    each[at] = 30.0
    for seen in range(1, len(each) + 1):
        assert measured(each[:seen]).estimates()["sums"] in (pytest.approx(PART_SECONDS), pytest.approx(5e-6))


def test_batches_without_parts_measure_nothing() -> None:
    known = measured([SLOW] * 4)
    for _ in range(2 * KEPT):
        known.measure([report(0, 0.0), report(0, 1.0, 1)], None)
    assert known.estimates()["sums"] == pytest.approx(SLOW)
    assert not measured([1.0] * 4, parts=0).estimates()


def test_estimate_is_of_a_slot_of_speed_1() -> None:
    known = PartSeconds()
    for _ in range(ENOUGH):
        known.measure([report(2, 2e-5), report(2, 8e-5, 1)], SPEEDS)
    assert known.estimates()["sums"] == pytest.approx(1e-5)


ANY = st.floats() | st.sampled_from([0.0, -1.0, math.nan, math.inf, -math.inf, 1e300, 5e-324])


@given(st.lists(st.tuples(st.integers(-2, 5), ANY, st.integers(-1, 3)), max_size=30), st.lists(ANY, min_size=1, max_size=3))
def test_estimate_is_a_positive_number_whatever_was_measured(given_: list[tuple[int, float, int]], speeds: list[float]) -> None:
    known = PartSeconds()
    for parts, seconds, slot in given_:
        known.measure([report(parts, seconds, slot)], np.array(speeds))
    assert all(LEAST_SECONDS <= seconds <= MOST_SECONDS for seconds in known.estimates().values())


def test_operators_that_are_gone_are_forgotten() -> None:
    known = measured([SLOW] * 5)
    known.measure([report(1, SLOW, operator="others")], None)
    known.keep({"others": None})
    assert set(known.estimates()) == {"others"}


def test_facts_have_the_estimate_where_parts_are_merged_and_else_the_prior() -> None:
    operators = [
        {"name": "sums", "inputs": ["s"], "grouping": {"policy": "auto", "key": "k"}, "run": "count"},
        {"name": "more", "inputs": ["s"], "grouping": {"policy": "auto", "key": "k"}, "run": "count"},
        {
            "name": "cut",
            "inputs": ["s"],
            "grouping": {"policy": "auto", "key": "k"},
            "run": "filter",
            "with": {"where": "k > 1"},
        },
    ]
    spec = {
        "executors": [{"name": "a", "replicas": 2, "cpu": "1"}],
        "sources": [{"name": "s", "format": "parquet", "schema": "k BIGINT", "options": {"path": "/in"}}],
        "operators": operators,
        "sinks": [],
        "checkpoint": "/checkpoint",
    }
    api, kind = "streamtopology.dev/v1alpha1", "StreamTopology"
    topology = parse({"apiVersion": api, "kind": kind, "metadata": {"name": "t"}, "spec": spec})
    route = Route("auto", RoutingTable.uniform(range(2)), (0, 1))
    routes = {one.name: route for one in topology.operators}
    facts = TopologyFacts.of(routes, (1.0, 1.0), True, topology.operators, {"sums": SLOW, "cut": SLOW})
    assert {name: costs.seconds for name, costs in facts.splitting.items()} == {"sums": SLOW, "more": PART_SECONDS, "cut": 0.0}
