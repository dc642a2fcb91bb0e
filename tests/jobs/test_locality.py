"""Locality in the data plane: what instances count of the rows that they send on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
from support.stages import SLOTS, Flow, manifest, random_table
from support.stories import some_rows

from streamtopology.jobs.columnar.keys import KeyColumns
from streamtopology.jobs.exchange.downstream_counts import PAIRS
from streamtopology.routing.load.load_report import Onward, merge

CHAIN = manifest(
    [
        {"name": "first", "inputs": ["s"], "grouping": {"policy": "locality", "key": "k"}, "run": "count",
         "with": {"emit": "tuples"}},
        {"name": "second", "inputs": ["first"], "grouping": {"policy": "locality", "key": "g"}, "run": "count"},
        {"name": "aside", "inputs": ["first"], "grouping": {"policy": "fields", "key": "g"}, "run": "count"},
    ],
    {"s": "k BIGINT, g STRING, v BIGINT"},
)  # fmt: skip


def hashes(table: pa.Table, column: str) -> np.ndarray:
    return KeyColumns.from_arrow(table.combine_chunks().to_batches()[0], (column,)).hashes


def test_pairs_and_rows_that_stay_are_those_of_a_plain_count(tmp_path: Path) -> None:
    flow = Flow(tmp_path, CHAIN)
    random = np.random.default_rng(3)
    for _ in range(3):
        tables = {name: random_table(random, SLOTS, np.arange(9, dtype=np.uint64)) for name in ("first", "second")}
        flow.router.reroute(tables)
        table = some_rows(random)
        flow.batch(s=table)
        first, second = hashes(table, "k"), hashes(table, "g")
        report = merge([t.report for t in flow.router.done[-1].results.instances if t.report.operator == "first"])
        stayed = int(np.sum(tables["first"].lookup(first) == tables["second"].lookup(second)))
        aside = flow.router.plan.epoch.routes["aside"].table
        assert aside is not None
        assert report.onward == {
            "second": Onward(table.num_rows, stayed),
            "aside": Onward(table.num_rows, int(np.sum(tables["first"].lookup(first) == aside.lookup(second)))),
        }
        assert report.key_pairs.keys() == {"second"}, "pairs are counted where operators are planned together"
        pairs = report.key_pairs["second"]
        found = dict(
            zip(zip(pairs.upstream.tolist(), pairs.downstream.tolist(), strict=True), pairs.rows.tolist(), strict=True)
        )
        assert found == Counter(zip(first.tolist(), second.tolist(), strict=True))
        assert pairs.seen == table.num_rows


def test_rows_for_another_index_at_the_same_executor_stay(tmp_path: Path) -> None:
    flow = Flow(tmp_path, CHAIN)
    flow.slots = (0, 2)  # each has the instances of two indices
    table = some_rows(np.random.default_rng(1))
    flow.batch(s=table)
    done = flow.router.done[-1]
    routes = flow.router.plan.epoch.routes
    places = [
        np.array(
            [done.attempt.partition_of(instance) for instance in routes[name].table.lookup(hashes(table, column)).tolist()]
        )
        for name, column in (("first", "k"), ("second", "g"))
    ]
    report = merge([result.report for result in done.results.instances if result.report.operator == "first"])
    assert report.onward["second"] == Onward(table.num_rows, int(np.sum(places[0] == places[1])))


def test_the_pairs_of_a_report_are_bounded(tmp_path: Path) -> None:
    flow = Flow(tmp_path, CHAIN)
    n = 6 * PAIRS
    flow.batch(s=pa.table({"k": np.arange(n), "g": [str(number) for number in range(n)], "v": np.zeros(n, np.int64)}))
    reports = [result.report for result in flow.router.done[-1].results.instances if result.report.operator == "first"]
    assert all(len(report.key_pairs["second"].rows) <= PAIRS for report in reports)
    assert merge(reports).key_pairs["second"].seen == n
