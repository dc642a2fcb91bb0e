"""Rows of a split key go to several instances; what these gather of it is in its state at home one batch later, once."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.depth import deep
from support.spark_stream import run_query
from support.stages import SLOTS, Flow, Loss, manifest, random_table

from streamtopology.jobs.admin.checkpoints import rollback
from streamtopology.jobs.admin.inspect_key import describe_key
from streamtopology.jobs.checkpoint import CommitRecord
from streamtopology.jobs.checkpoint.records import from_bytes, to_bytes
from streamtopology.jobs.errors import TopologyFailed
from streamtopology.jobs.operators.aggregate import Aggregate, Aggregates, narrow_sums, parse_calls
from streamtopology.jobs.plan.as_of import node_state, plan_as_of
from streamtopology.jobs.runtime.streaming_query import Until
from streamtopology.routing.table.hashing import hash_int64
from streamtopology.routing.table.pouring import Pace
from streamtopology.routing.table.splits import Splits
from streamtopology.routing.table.table import RoutingTable

AUTO = {"policy": "auto", "key": "k"}
SUMS = {
    "name": "sums", "inputs": ["s"], "grouping": AUTO, "run": "aggregate",
    "with": {"aggregates": {"n": "count()", "total": "sum(v)", "most": "max(v)"}},
}  # fmt: skip
MANIFEST = manifest([SUMS], {"s": "k BIGINT, v BIGINT"})
# Routers split whatever is heavier than an even share.
EVEN = Pace(np.ones(SLOTS), np.zeros(SLOTS), scouts_beyond=1.05)

HOT = 7

Sums = dict[int, tuple[int, int, int]]


def rows_of(random: np.random.Generator, n: int = 200, hot: int = HOT) -> pa.Table:
    """Two thirds of the rows are of one key."""
    keys = np.where(random.random(n) < 0.66, hot, random.integers(0, 40, n))
    return pa.table({"k": keys, "v": random.integers(-5, 50, n)})


def sums_expected(tables: Sequence[pa.Table]) -> Sums:
    values: dict[int, list[int]] = defaultdict(list)
    for row in (row for table in tables for row in table.to_pylist()):
        values[row["k"]].append(row["v"])
    return {key: (len(found), sum(found), max(found)) for key, found in values.items()}


def sums_of(flow: Flow) -> Sums:
    return {row["k"]: (row["agg_rows"], row["agg_sum_v"], row["agg_max_v"]) for row in flow.state("sums")}


def committed(flow: Flow) -> Sums:
    """The sums as of the newest commit, with the parts on their way; no instance keeps a key of another one."""
    sums_of(flow)
    held = node_state(flow.checkpoint, flow.last, plan_as_of(flow.checkpoint, flow.last).compile().node("sums"))
    assert held is not None
    return {row["k"]: (row["agg_rows"], row["agg_sum_v"], row["agg_max_v"]) for row in held.to_pylist()}


def last_words(flow: Flow) -> Sums:
    rows = flow.published("sums").to_pylist()
    return {row["k"]: (row["n"], row["total"], row["most"]) for row in rows}


def pouring(folder: Path, given: Mapping[str, Any] = MANIFEST) -> Flow:
    flow = Flow(folder, given)
    flow.router.pace = {"sums": EVEN}
    return flow


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(5)


def test_hot_key_is_divided_and_its_parts_arrive_with_the_next_batch(tmp_path: Path, random: np.random.Generator) -> None:
    flow, tables = pouring(tmp_path), [rows_of(random), rows_of(random)]
    flow.batch(s=tables[0])
    rows = [result.report.rows for result in flow.router.done[0].results.instances]
    assert max(rows) < 80, "of 200, of which the hot key has 132"
    held = sums_of(flow)[HOT][0]
    assert 0 < held < sums_expected(tables[:1])[HOT][0]
    assert len(flow.last.partials["sums"]) == SLOTS - 1
    flow.batch(s=tables[1])
    assert sums_expected(tables[:1])[HOT][0] < sums_of(flow)[HOT][0] < sums_expected(tables)[HOT][0]
    flow.drain()
    assert (sums_of(flow), last_words(flow), flow.last.partials) == (sums_expected(tables), sums_expected(tables), {})


def test_home_measures_the_parts_that_it_takes_in(
    tmp_path: Path, random: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    combine = Aggregate.combine
    monkeypatch.setattr(Aggregate, "combine", lambda *given: (time.sleep(0.01), combine(*given)))
    flow = pouring(tmp_path)
    for _ in range(2):
        flow.batch(s=rows_of(random))
    first, second = ({r.report.instance: r.report for r in done.results.instances} for done in flow.router.done)
    assert all((report.parts_merged, report.merge_seconds) == (0, 0.0) for report in first.values())
    assert 0 < sum(report.rows_away for report in first.values()) < 200
    assert all(report.rows_away <= report.rows for report in first.values())
    home = int(flow.router.plan.epoch.routes["sums"].table.lookup(hash_int64(np.array([HOT])))[0])
    assert {instance: report.parts_merged for instance, report in second.items() if report.parts_merged} == {home: SLOTS - 1}
    assert 0.01 * (SLOTS - 1) <= second[home].merge_seconds <= second[home].busy_seconds
    assert all(report.merge_seconds == 0 for instance, report in second.items() if instance != home)


ACTS = st.lists(
    st.sampled_from(["batch", "batch", "ahead", "reroute", "restart", "lose", "again", "grow", "shrink", "silence", "pace"]),
    min_size=1,
    max_size=12,
)


@deep(gate=10, long=25)
@given(st.integers(0, 2**32), ACTS)
def test_nothing_is_lost_or_counted_twice_whatever_happens_between(seed: int, acts: Sequence[str]) -> None:
    random, tables = np.random.default_rng(seed), list[pa.Table]()
    with TemporaryDirectory() as folder:
        flow, replicas = pouring(Path(folder)), SLOTS
        for act in [*acts, "batch"]:
            match act:
                case "reroute":
                    flow.router.reroute({"sums": random_table(random, min(replicas, len(flow.slots)))})
                case "restart":
                    flow.start(flow_manifest(replicas))
                case "grow" | "shrink":
                    replicas = SLOTS + 2 if act == "grow" else 2
                    flow.start(flow_manifest(replicas))
                case "lose":
                    flow.losses.append(Loss(int(random.integers(1, 2)), int(random.choice(flow.slots))))
                case "again":
                    flow.resubmitted.append(1)
                case "silence":
                    flow.silence()
                case _:
                    pass
            size = flow.router.plan.epoch.routes["sums"].instances[-1] + 1
            flow.router.pace = {"sums": Pace(random.uniform(0.2, 1, size), random.uniform(0, 9, size), scouts_beyond=1.1)}
            if act in ("batch", "ahead", "lose", "again", "reroute", "pace"):
                tables.append(rows_of(random, hot=int(random.integers(0, 9))))
                flow.batch(s=tables[-1])
            if tables:
                assert committed(flow) == sums_expected(tables), "state and what is on its way to it, once"
        flow.drain()
        assert sums_of(flow) == sums_expected(tables) == last_words(flow)


def flow_manifest(replicas: int) -> dict[str, Any]:
    spec = {**MANIFEST["spec"], "executors": [{"name": "slot", "replicas": replicas, "cpu": "1"}]}
    return {**MANIFEST, "spec": spec}


def test_a_batch_without_rows_takes_parts_in_when_the_stream_is_silent(tmp_path: Path, random: np.random.Generator) -> None:
    flow, table = pouring(tmp_path), rows_of(random)
    flow.batch(s=table)
    assert flow.driver.is_due
    flow.silence()
    assert sums_of(flow) == sums_expected([table]) == last_words(flow)


def test_run_that_is_stopped_has_all_that_it_read_in_state_and_sinks(tmp_path: Path, random: np.random.Generator) -> None:
    (tmp_path / "data").mkdir()
    tables = [rows_of(random) for _ in range(4)]
    for number, table in enumerate(tables):
        pq.write_table(table, tmp_path / "data" / f"{number}.parquet")
    given = manifest([SUMS], {"s": "k BIGINT, v BIGINT"}, trigger={"availableNow": True})
    given["spec"]["sources"][0]["options"] = {"path": str(tmp_path / "data"), "maxFilesPerTrigger": "1"}
    flow = pouring(tmp_path, given)
    run_query(flow, Until(batches=2))
    assert any(flow.checkpoint.read_commit(number).partials for number in flow.checkpoint.commits()), "rows were divided"
    assert (sums_of(flow), last_words(flow)) == (sums_expected(tables[:2]), sums_expected(tables[:2]))


def test_a_chain_says_its_last_words_as_the_input_ends(tmp_path: Path, random: np.random.Generator) -> None:
    of_counts = {"name": "of-counts", "inputs": ["sums"], "grouping": {"policy": "auto", "key": "n"}, "run": "count"}
    flow = Flow(tmp_path, manifest([SUMS, of_counts], {"s": "k BIGINT, v BIGINT"}))
    flow.router.reroute({"sums": split_over_all(np.arange(10)), "of-counts": split_over_all(np.arange(61))})
    flow.router.pace = {"sums": EVEN, "of-counts": EVEN}
    for _ in range(3):
        flow.batch(s=pa.table({"k": np.repeat(np.arange(10), 20), "v": random.integers(1, 9, 200)}))
    flow.drain()
    assert flow.last.partials == {}
    assert {row["n"]: row["count"] for row in flow.published("of-counts").to_pylist()}[60] == 10, "keys that came 60 times"


def split_over_all(keys: np.ndarray) -> RoutingTable:
    """Each key (int64[n]) at home somewhere, and divided over all slots."""
    hashes = np.sort(hash_int64(keys))
    owners = np.tile(np.arange(SLOTS, dtype=np.int32), len(hashes))
    first = SLOTS * np.arange(len(hashes) + 1)
    return RoutingTable.uniform(range(SLOTS)).with_splits(Splits.of(hashes, first, owners, np.ones(len(owners))))


def test_batch_is_read_by_executors_without_a_share_when_the_others_are_gone(
    tmp_path: Path, random: np.random.Generator
) -> None:
    flow, tables = pouring(tmp_path), [rows_of(random), rows_of(random)]
    flow.batch(s=tables[0])
    flow.router.reroute({}, source_shares=(1.0, 0.0, 0.0, 0.0))
    flow.losses.append(Loss(1, 0, returns=False))
    flow.batch(s=tables[1])
    flow.drain()
    assert sums_of(flow) == sums_expected(tables)


def test_rows_that_the_last_batch_emits_are_counted_in_it(tmp_path: Path) -> None:
    """Windows close with the last batch; the operator behind them gets a row of each key then, all of one group."""
    windows = {
        "name": "windows", "inputs": ["s"], "grouping": AUTO, "run": "window-aggregate",
        "with": {"time": "v", "size": "100s", "aggregates": {"n": "count()"}},
    }  # fmt: skip
    groups = {"name": "groups", "inputs": ["windows"], "grouping": AUTO | {"key": "n"}, "run": "count"}
    flow = Flow(tmp_path, manifest([windows, groups], {"s": "k BIGINT, v BIGINT"}, watermarks={"s": {"column": "v"}}))
    flow.router.pace = {"groups": EVEN}
    flow.batch(s=pa.table({"k": np.arange(400), "v": np.zeros(400, np.int64)}))
    flow.drain()
    assert flow.published("groups").to_pylist() == [{"n": 1, "count": 400}]
    assert not flow.driver.is_due


@pytest.mark.parametrize("policy", ["mixed", "fields", "partial-key"])
def test_parts_reach_their_home_under_another_policy(tmp_path: Path, random: np.random.Generator, policy: str) -> None:
    flow, tables = pouring(tmp_path), [rows_of(random), rows_of(random)]
    flow.batch(s=tables[0])
    assert flow.last.partials
    flow.start(manifest([SUMS | {"grouping": AUTO | {"policy": policy}}], {"s": "k BIGINT, v BIGINT"}))
    flow.batch(s=tables[1])
    flow.drain()
    assert sums_of(flow) == sums_expected(tables)


def test_parts_of_an_operator_that_goes_are_forgotten_with_its_state(tmp_path: Path, random: np.random.Generator) -> None:
    others = {"name": "others", "inputs": ["s"], "grouping": AUTO, "run": "count"}
    both, left = ([SUMS, others], [others])
    flow = pouring(tmp_path, manifest(both, {"s": "k BIGINT, v BIGINT"}))
    flow.batch(s=rows_of(random))
    flow.start(manifest(left, {"s": "k BIGINT, v BIGINT"}, onRemove="drop"))
    flow.batch(s=rows_of(random))
    flow.start(manifest(both, {"s": "k BIGINT, v BIGINT"}))
    table = rows_of(random)
    flow.batch(s=table)
    flow.drain()
    assert sums_of(flow) == sums_expected([table])


@pytest.mark.parametrize(
    ("operator", "behind", "is_poured"),
    [
        ({"run": "count"}, [], True),
        ({"run": "quantiles", "with": {"column": "v", "min": 0, "max": 9}}, [], True),
        ({"run": "top-k", "with": {"by": "v", "id": "w"}}, [], True),
        ({"run": "map", "with": {"select": ["k", "v"]}}, [], True),
        ({"run": "count", "with": {"emit": "tuples"}}, [], False),
        ({"run": "window-aggregate", "with": {"time": "v", "size": "9s", "aggregates": {"n": "count()"}}}, [], False),
        (
            {"run": "aggregate", "with": {"aggregates": {"v": "max(v)"}}},
            [{"run": "window-aggregate", "with": {"time": "v", "size": "9s", "aggregates": {"n": "count()"}}}],
            False,
        ),
        ({"run": "aggregate", "with": {"aggregates": {"v": "max(v)"}}}, [{"run": "count"}], True),
    ],
)
def test_rows_are_poured_where_parts_can_be_combined_in_time(
    tmp_path: Path, operator: dict[str, Any], behind: list[dict[str, Any]], is_poured: bool
) -> None:
    first = {"name": "first", "inputs": ["s"], "grouping": AUTO} | operator
    others = [{"name": f"b{i}", "inputs": ["first"], "grouping": AUTO} | other for i, other in enumerate(behind)]
    watermark = {"s": {"column": "v", "delay": "1s"}}
    flow = Flow(tmp_path, manifest([first, *others], {"s": "k BIGINT, v BIGINT, w BIGINT"}, watermarks=watermark))
    assert flow.router.plan.compile().node("first").is_poured == is_poured


def test_stateless_rows_are_divided_and_leave_no_parts(tmp_path: Path, random: np.random.Generator) -> None:
    passed = {"name": "sums", "inputs": ["s"], "grouping": AUTO, "run": "map", "with": {"select": ["k", "v"]}}
    flow, table = pouring(tmp_path, manifest([passed], {"s": "k BIGINT, v BIGINT"})), rows_of(random)
    flow.batch(s=table)
    assert max(result.report.rows for result in flow.router.done[0].results.instances) < 80
    assert not flow.last.partials
    rows = [Counter(map(tuple, (row.values() for row in given.to_pylist()))) for given in (flow.published("sums"), table)]
    assert rows[0] == rows[1]


def test_key_is_shown_with_the_parts_on_their_way_to_it(tmp_path: Path, random: np.random.Generator) -> None:
    flow, table = pouring(tmp_path), rows_of(random)
    flow.batch(s=table)
    path = tmp_path / "flow.yaml"
    path.write_text(yaml.safe_dump({**MANIFEST, "spec": {**MANIFEST["spec"], "checkpoint": flow.checkpoint.uri}}))
    count, total, most = sums_expected([table])[HOT]
    shown = describe_key(path, None, [str(HOT)], tmp_path).splitlines()[1:]
    assert shown == [f"  k: {HOT}", f"  n: {count}", f"  total: {total}", f"  most: {most}"]


LARGE = 2**58
# Rows of this value that fit into a sum of 64 bits.
FITS = 31


def large_rows() -> pa.Table:
    return pa.table({"k": np.full(40, HOT), "v": np.full(40, LARGE)})


def test_sum_that_overflows_as_parts_meet_names_operator_key_column_and_way_out(
    tmp_path: Path, random: np.random.Generator
) -> None:
    mean = SUMS | {"with": {"aggregates": {**SUMS["with"]["aggregates"], "mean": "mean(w)"}}}
    flow, tables = pouring(tmp_path, manifest([mean], {"s": "k BIGINT, v BIGINT, w BIGINT"})), [rows_of(random), large_rows()]
    for table in tables:
        flow.batch(s=table.append_column("w", table["v"]))
    before, held = flow.last, sums_of(flow)
    for _ in range(2):
        with pytest.raises(TopologyFailed) as failed:
            flow.batch(s=rows_of(random).append_column("w", pa.array(np.zeros(200, np.int64))))
        text = str(failed.value)
        assert "operator 'sums', key k=7, column 'v': the sum of its parts does not fit into 64 bits in batch 2" in text
        assert (
            "Return to a batch before 1 with `streamtopology state rollback MANIFEST --to BATCH`, and set policy: mixed" in text
        )
        assert "cast the column to DOUBLE" in text
        assert "Traceback" not in text
        assert (flow.last, sums_of(flow)) == (before, held), "nothing is taken in"


def test_rolled_back_sum_sets_aside_the_tuples_that_do_not_fit(tmp_path: Path, random: np.random.Generator) -> None:
    flow, tables = pouring(tmp_path), [rows_of(random), large_rows()]
    for table in tables:
        flow.batch(s=table)
    with pytest.raises(TopologyFailed):
        flow.silence()
    rollback(flow.checkpoint.uri, 0)
    mixed = SUMS | {"grouping": AUTO | {"policy": "mixed"}, "with": SUMS["with"] | {"emit": "nothing"}}
    flow.start(manifest([mixed], {"s": "k BIGINT, v BIGINT"}, onBadTuple="deadLetter"))
    flow.batch(s=tables[1])
    flow.drain()
    assert sums_of(flow) == sums_expected([tables[0], tables[1].slice(0, FITS)])
    assert sum(report.report.bad_rows for done in flow.router.done for report in done.results.instances) == 40 - FITS


def test_mean_of_integers_has_no_sum_that_must_fit() -> None:
    sums = Aggregates(parse_calls({"n": "count()", "a": "mean(a)", "b": "sum(b)", "c": "max(c)"}), {"s": pa.schema(
        {"a": pa.int64(), "b": pa.int64(), "c": pa.int64()}
    )})  # fmt: skip
    counts = {name: name for name in ("agg_rows", "agg_count_a", "agg_count_b", "agg_count_c")}
    assert narrow_sums(sums.fields) == {**counts, "agg_sum_b": "b"}


def test_record_comes_back_with_its_parts(tmp_path: Path, random: np.random.Generator) -> None:
    flow = Flow(tmp_path, MANIFEST)
    flow.batch(s=rows_of(random))
    with_parts = replace(flow.last, partials={"sums": ("eA==",)})
    assert [round_trip(record) for record in (flow.last, with_parts)] == [flow.last, with_parts]


def round_trip(record: CommitRecord) -> CommitRecord:
    return from_bytes(CommitRecord, to_bytes(record), "commits/0.json")
