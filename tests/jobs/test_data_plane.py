"""Results of a topology do not depend on where its keys live, what moves when, or what is lost on the way."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from support.stages import SLOTS, Flow, Loss, manifest, random_table
from support.stories import CHAIN, COUNTS, MIXED, played, some_rows, stories

from streamtopology.jobs.columnar.keys import KeyColumns
from streamtopology.jobs.connectors.sources.assignment import deal
from streamtopology.jobs.connectors.sources.descriptors import Descriptor

Rows = list[dict[str, Any]]

FEW = settings(max_examples=5, phases=[Phase.explicit, Phase.reuse, Phase.generate])  # seeds do not shrink


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@FEW
@given(stories)
def test_counts_and_quantiles_of_a_chain_are_those_of_a_group_by(story: tuple[int, Sequence[Mapping[str, Any]]]) -> None:
    with TemporaryDirectory() as folder:
        flow = Flow(Path(folder), CHAIN)
        seen: Rows = []
        updates: Counter[str] = Counter()
        for random in played(flow, *story, CHAIN):
            table = some_rows(random)
            commit = flow.batch(s=table)
            assert commit.rows_in == table.num_rows
            seen += table.to_pylist()
            updates.update(set(table.column("g").to_pylist()))
            counts = {row["k"]: row["count"] for row in flow.state("counts")}
            assert len(counts) == len(flow.state("counts")), "a key is at one instance only"
            assert counts == Counter(row["k"] for row in seen)
            groups = {row["g"]: row["count"] for row in flow.state("groups")}
            assert groups == Counter(row["g"] for row in seen)
            assert quantiles_of(flow.published("spread"), table) == quantiles_expected(seen, table)


def quantiles_of(published: pa.Table, table: pa.Table) -> dict[Any, tuple[int, int, int]]:
    """The newest updates: one for each key of the last batch."""
    keys = set(table.column("k").to_pylist())
    newest = published.slice(published.num_rows - len(keys)).to_pylist()
    return {row["k"]: (row["count"], row["q50"], row["q90"]) for row in newest}


def quantiles_expected(seen: Rows, table: pa.Table) -> dict[Any, tuple[int, int, int]]:
    expected = {}
    for key in set(table.column("k").to_pylist()):
        values = sorted(row["v"] for row in seen if row["k"] == key)
        n = len(values)
        expected[key] = (n, values[math.ceil(n / 2) - 1], values[math.ceil(n * 9 / 10) - 1])
    return expected


@pytest.mark.parametrize("every", [1, 3])
@FEW
@given(stories)
def test_a_split_edge_gives_the_sums_of_a_group_by(every: int, story: tuple[int, Sequence[Mapping[str, Any]]]) -> None:
    given = split(every)
    with TemporaryDirectory() as folder:
        flow = Flow(Path(folder), given)
        seen: Rows = []
        for random in played(flow, *story, given):
            table = some_rows(random)
            number = flow.batch(s=table).batch
            seen += table.to_pylist()
            held = sum(row["agg_rows"] for row in flow.state("sums.partial"))
            merged = sum(row["agg_rows"] for row in flow.state("sums"))
            assert held + merged == len(seen), "every tuple is with a partial or merged, once"
            if number % every == 0:
                assert (held, sums_of(flow.state("sums"))) == (0, sums_expected(seen))
        flow.drain()
        assert flow.state("sums.partial") == []
        assert sums_of(flow.state("sums")) == sums_expected(seen)


def split(every: int, policy: str = "partial-key") -> dict[str, Any]:
    sums = {
        "name": "sums", "inputs": ["s"], "grouping": MIXED | {"policy": policy}, "aggregateEvery": every,
        "run": "aggregate", "with": {"aggregates": {"n": "count()", "total": "sum(v)", "most": "max(v)"}},
    }  # fmt: skip
    if policy != "partial-key":
        del sums["aggregateEvery"]
    return manifest([sums], {"s": "k BIGINT, g STRING, v BIGINT"})


def sums_of(state: Rows) -> dict[Any, tuple[int, int, int]]:
    assert len({row["k"] for row in state}) == len(state)
    return {row["k"]: (row["agg_rows"], row["agg_sum_v"], row["agg_max_v"]) for row in state}


def sums_expected(seen: Rows) -> dict[Any, tuple[int, int, int]]:
    values: dict[Any, list[int]] = defaultdict(list)
    for row in seen:
        values[row["k"]].append(row["v"])
    return {key: (len(found), sum(found), max(found)) for key, found in values.items()}


WINDOWS = manifest(
    [
        {"name": "twice", "inputs": ["a"], "run": "map", "with": {"select": ["k", "ts", "v * 2 AS v"]}},
        {"name": "both", "inputs": ["a", "twice"], "grouping": MIXED, "run": "aggregate",
         "with": {"aggregates": {"total": "sum(v)"}}},
        {"name": "minutes", "inputs": ["a"], "grouping": MIXED, "run": "window-aggregate",
         "with": {"time": "ts", "size": "60s", "aggregates": {"n": "count()", "total": "sum(v)"}}},
        {"name": "pairs", "inputs": ["a", "b"], "grouping": MIXED, "run": "window-join",
         "with": {"time": "ts", "size": "60s", "select": ["a.k AS k", "a.v AS v", "b.w AS w"]}},
    ],
    {"a": "k BIGINT, ts BIGINT, v BIGINT", "b": "k BIGINT, ts BIGINT, w BIGINT"},
    watermarks={name: {"column": "ts", "delay": "20s"} for name in "ab"},
)  # fmt: skip


@settings(FEW, max_examples=3)  # SQL in every worker: the dearest of these
@given(stories)
def test_windows_joins_and_a_diamond_see_every_tuple_once(story: tuple[int, Sequence[Mapping[str, Any]]]) -> None:
    with TemporaryDirectory() as folder:
        flow = Flow(Path(folder), WINDOWS)
        batches: list[dict[str, Rows]] = []
        for random in played(flow, *story, WINDOWS):
            tables = {
                "a": timed_rows(random, len(batches), v=random.integers(0, 9, 60)),
                "b": timed_rows(random, len(batches), w=random.integers(0, 9, 60)),
            }
            flow.batch(**tables)
            batches.append({name: table.to_pylist() for name, table in tables.items()})
            total: Counter[int] = Counter()
            for row in (row for batch in batches for row in batch["a"]):
                total[row["k"]] += 3 * row["v"]
            assert {row["k"]: row["agg_sum_v"] for row in flow.state("both")} == total
            flow.state("pairs"), flow.state("minutes")  # every row and window is with its key's owner
        flow.drain()
        on_time = accepted(batches)
        assert flow.state("pairs") == [] == flow.state("minutes")
        assert windows_of(flow.published("minutes")) == windows_expected(on_time["a"])
        assert Counter(map(tuple, (row.values() for row in flow.published("pairs").to_pylist()))) == pairs_of(on_time)


def timed_rows(random: np.random.Generator, batch: int, **values: np.ndarray) -> pa.Table:
    """60 rows of 8 keys, within 100 s of 50 s a batch: some of them are late."""
    return pa.table({"k": random.integers(0, 8, 60), "ts": 50 * batch + random.integers(0, 100, 60), **values})


def accepted(batches: Sequence[Mapping[str, Rows]]) -> dict[str, Rows]:
    """The rows that are not late: those whose minute was not closed by an earlier batch.

    The watermark of a batch, up to which it closes, is that of the rows before it, 20 s behind the slower source.
    """
    kept: dict[str, Rows] = {"a": [], "b": []}
    newest = {"a": -math.inf, "b": -math.inf}
    closed, watermark = -math.inf, -math.inf
    for batch in batches:
        for source, rows in batch.items():
            kept[source] += [row for row in rows if row["ts"] // 60 * 60 + 60 > closed]
            newest[source] = max(newest[source], *(row["ts"] for row in rows))
        closed, watermark = watermark, min(newest.values()) - 20
    return kept


def windows_of(published: pa.Table) -> dict[tuple[int, int], tuple[int, int]]:
    rows = published.to_pylist()
    found = {(row["k"], int(row["window_start"].timestamp())): (row["n"], row["total"]) for row in rows}
    assert len(found) == len(rows), "a window is emitted once"
    return found


def windows_expected(rows: Rows) -> dict[tuple[int, int], tuple[int, int]]:
    values: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row in rows:
        values[row["k"], row["ts"] // 60 * 60].append(row["v"])
    return {window: (len(found), sum(found)) for window, found in values.items()}


def pairs_of(rows: Mapping[str, Rows]) -> Counter[tuple[int, int, int]]:
    return Counter(
        (a["k"], a["v"], b["w"]) for a in rows["a"] for b in rows["b"] if (a["k"], a["ts"] // 60) == (b["k"], b["ts"] // 60)
    )


def test_updates_that_a_partial_held_back_reach_a_window_when_the_input_ends(folder: Path) -> None:
    latest = {
        "name": "latest", "inputs": ["s"], "grouping": {"policy": "partial-key", "key": "k"}, "aggregateEvery": 3,
        "run": "aggregate", "with": {"aggregates": {"seen": "max(ts)"}},
    }  # fmt: skip
    windows = {
        "name": "windows", "inputs": ["latest"], "grouping": MIXED, "run": "window-aggregate",
        "with": {"time": "seen", "size": "10s", "aggregates": {"n": "count()"}},
    }  # fmt: skip
    watermarks = {"s": {"column": "ts", "delay": "100s"}}
    flow = Flow(folder, manifest([latest, windows], {"s": "k BIGINT, ts BIGINT"}, watermarks=watermarks))
    flow.batch(s=pa.table({"k": [0], "ts": [5]}))
    flow.batch(s=pa.table({"k": [1, 2], "ts": [5, 15]}))
    assert len(flow.state("windows")) == 1
    flow.drain()
    published = flow.published("windows").to_pylist()
    found = sorted((row["k"], int(row["window_start"].timestamp()), row["n"]) for row in published)
    assert found == [(0, 0, 1), (1, 0, 1), (2, 10, 1)]


def in_windows(folder: Path) -> dict[str, Any]:
    """Counts of keys in windows of ten seconds, and rows of a key at most five seconds apart."""
    count = {
        "name": "windows", "inputs": ["s"], "grouping": MIXED, "run": "window-aggregate",
        "with": {"time": "ts", "size": "10s", "aggregates": {"n": "count()"}},
    }  # fmt: skip
    pairs = {
        "name": "pairs", "inputs": [{"from": "s", "as": "a"}, {"from": "s", "as": "b"}], "grouping": MIXED,
        "run": "window-join",
        "with": {"time": "ts", "within": "5s", "where": "a.ts < b.ts", "select": ["a.ts AS first", "b.ts AS second"]},
    }  # fmt: skip
    return manifest([count, pairs], {"s": "k BIGINT, ts BIGINT"}, watermarks={"s": {"column": "ts"}})


def at(*times: int) -> pa.Table:
    return pa.table({"k": [1] * len(times), "ts": times})


def windows_published(flow: Flow) -> list[tuple[int, int]]:
    """(start, rows) in the order published."""
    return [(int(row["window_start"].timestamp()), row["n"]) for row in flow.published("windows").to_pylist()]


def pairs_published(flow: Flow) -> list[tuple[int, int]]:
    return [(row["first"], row["second"]) for row in flow.published("pairs").to_pylist()]


def test_windows_stay_open_at_the_end_of_a_run_for_the_rows_of_the_next(folder: Path) -> None:
    flow = Flow(folder, in_windows(folder))
    flow.batch(s=at(1, 11))
    flow.drain(for_good=False)
    flow.start(in_windows(folder))
    flow.batch(s=at(13, 18, 24))
    assert windows_published(flow) == [(0, 1)]
    flow.drain(for_good=False)
    assert windows_published(flow) == [(0, 1), (10, 3)]
    flow.start(in_windows(folder))
    flow.batch(s=at(25))
    flow.drain()
    assert windows_published(flow) == [(0, 1), (10, 3), (20, 2)]
    assert sorted(pairs_published(flow)) == [(11, 13), (13, 18), (24, 25)]


def test_windows_closed_for_good_are_not_opened_again(folder: Path) -> None:
    flow = Flow(folder, in_windows(folder))
    flow.batch(s=at(1, 11))
    flow.drain()
    assert windows_published(flow) == [(0, 1), (10, 1)]
    flow.start(in_windows(folder))
    flow.batch(s=at(12, 35))
    late = {
        result.report.operator: result.report.late_rows
        for result in flow.router.done[-1].results.instances
        if result.report.rows
    }
    assert late == {"windows": 2, "pairs": 4}
    flow.drain()
    assert windows_published(flow) == [(0, 1), (10, 1)]
    assert pairs_published(flow) == []


def test_a_failed_attempt_leaves_no_trace_in_state_or_sinks(folder: Path) -> None:
    flow = Flow(folder, manifest([COUNTS], {"s": "k BIGINT"}))
    flow.batch(s=pa.table({"k": [1, 1, 2]}))
    flow.losses = [Loss(2, 0), Loss(2, 1), Loss(1, 2), Loss(0, 3)]
    commit = flow.batch(s=pa.table({"k": [1, 2, 2]}))
    assert (commit.batch, commit.attempt) == (1, 5)
    assert {row["k"]: row["count"] for row in flow.state("counts")} == {1: 3, 2: 3}
    assert Counter(tuple(row.values()) for row in flow.published("counts").to_pylist()) == Counter(
        [(1, 2), (2, 1), (1, 3), (2, 3)]
    )


def test_instances_of_lost_executors_run_on_those_left_and_go_home_again(folder: Path) -> None:
    flow = Flow(folder, manifest([COUNTS], {"s": "k BIGINT"}))
    rows = pa.table({"k": np.arange(100)})
    seen = []
    for slots in [(0, 1, 2, 3), (1, 3), (1, 3), (0, 1, 2, 3)]:
        flow.slots = slots
        flow.batch(s=rows)
        seen.append({result.report.instance: result.report.slot for result in flow.router.done[-1].results.instances})
        assert all(row["count"] == len(seen) for row in flow.state("counts"))
    home = {i: i for i in range(SLOTS)}
    assert seen == [home, {0: 1, 1: 1, 2: 3, 3: 3}, {0: 1, 1: 1, 2: 3, 3: 3}, home]


def test_moved_keys_are_reported_and_move_once(folder: Path) -> None:
    flow = Flow(folder, manifest([COUNTS], {"s": "k BIGINT"}))
    flow.batch(s=pa.table({"k": np.arange(100)}))
    before = flow.router.plan.epoch.routes["counts"].table
    after = random_table(np.random.default_rng(5), SLOTS)
    hashes = KeyColumns.from_arrow(pa.record_batch({"k": np.arange(100)}), ("k",)).hashes
    flow.router.reroute({"counts": after})
    flow.batch(s=pa.table({"k": [1]}))
    flow.batch(s=pa.table({"k": [1]}))
    moved = [done.results.keys_moved.get("counts", 0) for done in flow.router.done]
    assert moved == [0, np.count_nonzero(before.lookup(hashes) != after.lookup(hashes)), 0]


def test_rows_of_a_join_that_move_are_counted_one_by_one(folder: Path) -> None:
    flow = Flow(folder, WINDOWS)
    flow.batch(a=pa.table({"k": [1, 1, 1], "ts": [1, 2, 3], "v": [0, 0, 0]}), b=pa.table({"k": [1], "ts": [1], "w": [0]}))
    owner = next(i for i, state in flow.states("pairs").items() if len(state))
    flow.router.reroute({"pairs": all_to((owner + 1) % SLOTS)})
    flow.batch()
    assert flow.router.done[-1].results.keys_moved["pairs"] == 4
    assert len(flow.states("pairs")[(owner + 1) % SLOTS]) == 4


def all_to(instance: int) -> Any:
    return type(random_table(np.random.default_rng(0), 1)).uniform([instance])


def test_state_survives_a_restart_with_other_instances_or_policy(folder: Path) -> None:
    def given(parallelism: int, policy: str) -> dict[str, Any]:
        counts = COUNTS | {"parallelism": parallelism, "grouping": {"policy": policy, "key": "k"}}
        return manifest([counts], {"s": "k BIGINT"})

    flow = Flow(folder, given(2, "mixed"))
    rows = pa.table({"k": np.arange(60)})
    flow.batch(s=rows)
    for number, (parallelism, policy) in enumerate([(4, "mixed"), (5, "partial-key"), (3, "fields")], 2):
        flow.start(given(parallelism, policy))
        flow.batch(s=rows)
        assert {row["k"]: row["count"] for row in flow.state("counts")} == dict.fromkeys(range(60), number)


def test_a_warm_up_leaves_nothing_behind(folder: Path) -> None:
    flow = Flow(folder, WINDOWS)
    flow.warm_up()
    assert flow.checkpoint.last_commit() is None
    assert not list((folder / "checkpoint").glob("state/**/*.delta"))
    flow.batch(a=pa.table({"k": [1], "ts": [5], "v": [2]}))
    assert [row["agg_sum_v"] for row in flow.state("both")] == [6]


@given(
    st.lists(st.integers(1, 5000), max_size=8),
    st.lists(st.integers(0, 5), min_size=4, max_size=4),
    st.sets(st.integers(0, 3), min_size=1),
    st.sets(st.integers(0, 3)),
)
@settings(max_examples=30)
def test_every_row_is_dealt_to_one_place_that_is_there(
    sizes: list[int], weights: list[int], homes: set[int], gone: set[int]
) -> None:
    descriptors = [Descriptor("s", "parquet", "f", part, 0, rows, rows) for part, rows in enumerate(sizes)]
    shares = [weight / sum(weights) for weight in weights] if sum(weights) else []
    present = tuple(slot for slot in range(4) if slot not in gone or homes <= gone)
    dealt = deal([descriptor.to_json() for descriptor in descriptors], shares, sorted(homes), present)
    assert len(dealt) == len(homes)
    assert not any(dealt[place] for place, home in enumerate(sorted(homes)) if home not in present)
    pieces = [Descriptor.from_json(text) for part in dealt for text in part]
    read = Counter((piece.part, row) for piece in pieces for row in range(piece.start, piece.end))
    assert read == Counter((d.part, row) for d in descriptors for row in range(d.end))
    if shares and sum(shares[home] for home in homes & set(present)) > 0:
        idle = [place for place, home in enumerate(sorted(homes)) if shares[home] == 0]
        assert not any(dealt[place] for place in idle)
