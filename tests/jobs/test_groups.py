"""Results per key and `groupBy`: tuples are routed by the key alone, and every group of it is at one place."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.depth import deep
from support.stages import SLOTS, Flow, Kept, manifest, random_table

from streamtopology.api import BatchInfo, OptionError, Rows
from streamtopology.jobs.admin.inspect_key import describe_key
from streamtopology.jobs.operators import load
from streamtopology.jobs.state import new_state
from streamtopology.routing.table.hashing import hash_int64
from streamtopology.routing.table.pouring import Pace

KEYS = 12
AGGREGATES = {"n": "count()", "total": "sum(v)", "most": "max(v)"}
POLICIES: dict[str, dict[str, Any]] = {
    "mixed": {"grouping": {"policy": "mixed", "key": "k"}},
    "auto": {"grouping": {"policy": "auto", "key": "k"}},
    "partial-key": {"grouping": {"policy": "partial-key", "key": "k"}, "aggregateEvery": 2},
}
Group = tuple[int, str | None]


def grouped(policy: str, emit: str = "updates") -> dict[str, Any]:
    options = {"groupBy": ["g"], "emit": emit, "aggregates": AGGREGATES}
    operator = {"name": "sums", "inputs": ["s"], "run": "aggregate", "with": options, **POLICIES[policy]}
    return manifest([operator], {"s": "k BIGINT, g STRING, v BIGINT"})


def rows_of(seed: int) -> pa.Table:
    """Two thirds of the rows are of one key."""
    random = np.random.default_rng(seed)
    keys = np.where(random.random(120) < 0.66, 7, random.integers(0, KEYS, 120))
    names = np.array([None, "", "ä", "b"], object)[random.integers(0, 4, 120)]
    return pa.table({"k": keys, "g": pa.array(names, pa.string()), "v": random.integers(-5, 50, 120)})


def expected(*tables: pa.Table) -> dict[Group, tuple[int, int, int]]:
    values: dict[Group, list[int]] = {}
    for row in (row for table in tables for row in table.to_pylist()):
        values.setdefault((row["k"], row["g"]), []).append(row["v"])
    return {group: (len(found), sum(found), max(found)) for group, found in values.items()}


def rows_in(table: pa.Table) -> dict[Group, tuple[int, int, int]]:
    return {(row["k"], row["g"]): (row["n"], row["total"], row["most"]) for row in table.to_pylist()}


def kept(flow: Flow) -> Kept:
    sink = flow.sinks["sums"]
    assert isinstance(sink, Kept)
    return sink


@pytest.mark.parametrize("policy", POLICIES)
def test_groups_are_counted_once_however_their_keys_are_split_and_move(policy: str, tmp_path: Path) -> None:
    flow = Flow(tmp_path, grouped(policy))
    flow.router.pace = {"sums": Pace(np.ones(SLOTS), np.zeros(SLOTS), scouts_beyond=1.05)}
    tables = [rows_of(seed) for seed in range(4)]
    for number, table in enumerate(tables):
        if number == 2 and policy != "partial-key":
            flow.router.reroute({"sums": random_table(np.random.default_rng(1), SLOTS, hash_int64(np.arange(KEYS)))})
        flow.batch(s=table)
    if policy == "auto":
        assert max(result.report.rows for result in flow.router.done[0].results.instances) < 60, "of 120, 80 of one key"
    flow.drain()
    assert rows_in(flow.published("sums")) == expected(*tables)
    assert flow.published("sums").column_names == ["k", "g", "n", "total", "most"]


def test_group_without_tuples_gives_no_update_and_a_row_where_all_are_wanted(tmp_path: Path) -> None:
    first, second = rows_of(1), pa.table({"k": [7, 7], "g": ["new", "b"], "v": [1, 2]})
    for emit, groups in (("updates", {(7, "new"), (7, "b")}), ("all", {*expected(first), (7, "new"), (7, "b")})):
        folder = tmp_path / emit
        folder.mkdir()
        flow = Flow(folder, grouped("mixed", emit))
        flow.batch(s=first)
        flow.batch(s=second)
        whole = expected(first, second)
        assert rows_in(kept(flow).batches[1]) == {group: whole[group] for group in groups}


def test_all_groups_of_a_key_are_shown(tmp_path: Path) -> None:
    given = grouped("mixed")
    path = tmp_path / "flow.yaml"
    path.write_text(yaml.safe_dump(given | {"spec": given["spec"] | {"checkpoint": str(tmp_path / "checkpoint")}}))
    flow = Flow(tmp_path, given)
    flow.batch(s=pa.table({"k": [1, 1, 2], "g": ["a", "b", "c"], "v": [1, 2, 3]}))
    shown = describe_key(path, "sums", ["1"], tmp_path)
    assert Counter(line.strip() for line in shown.splitlines())["n: 1"] == 2
    assert "g: a" in shown
    assert "g: c" not in shown


@pytest.mark.parametrize("policy", ["mixed", "partial-key"])
def test_late_rows_of_groups_reach_their_sink_once(policy: str, tmp_path: Path) -> None:
    options = {"groupBy": ["at"], "closes": "at", "aggregates": {"n": "count()"}}
    operator = {"name": "sums", "inputs": ["s"], "run": "window-aggregate", "with": options, "late": "late"}
    sinks = [{"name": name, "input": "sums", "format": "memory"} for name in ("sums", "late")]
    watermarks = {"s": {"column": "at", "delay": "1s"}}
    given = manifest(
        [operator | POLICIES[policy] | {"aggregateEvery": 1}], {"s": "k BIGINT, at TIMESTAMP"}, watermarks=watermarks
    )
    flow = Flow(tmp_path, given | {"spec": given["spec"] | {"sinks": sinks}})
    for seconds in ([101, 103], [102, 104, 107], [100, 101, 104, 106, None]):
        at = pa.array([None if each is None else each * 1_000_000 for each in seconds], pa.timestamp("us", "UTC"))
        flow.batch(s=pa.table({"k": [1] * len(at), "at": at}))
    flow.drain()
    counts = {row["at"] and int(row["at"].timestamp()): row["n"] for row in flow.published("sums").to_pylist()}
    assert counts == {101: 1, 102: 1, 103: 1, 104: 2, 106: 1, 107: 1, None: 1}
    late = sorted(int(row["at"].timestamp()) for row in flow.published("late").to_pylist())
    assert late == [100, 101]


steps = st.lists(
    st.tuples(st.lists(st.tuples(st.integers(0, 1), st.one_of(st.none(), st.integers(-9, 9)))), st.integers(0, 5)),
    min_size=1,
    max_size=6,
)


@deep(gate=40, long=2000)
@given(steps, st.sampled_from(["closed", "updates", "all"]), st.sampled_from([0, 3]))
def test_groups_close_when_the_watermark_reaches_the_time_in_their_column(
    steps: list[tuple[list[tuple[int, int | None]], int]], emit: str, lateness: int
) -> None:
    """Against brute force; a group with no time closes only as the input ends, and then all do."""
    options = {"groupBy": ["at"], "closes": "at", "emit": emit, "allowedLateness": lateness, "aggregates": {"n": "count()"}}
    operator = load("window-aggregate", Path())(**options)
    operator.prepare({"s": SCHEMA}, ("k",))
    state, counts, watermark = new_state(operator.state), Counter[tuple[int, float]](), None
    for number, (offsets, ahead) in enumerate(steps):
        closed, watermark = watermark, ahead if watermark is None else watermark + ahead
        final = number == len(steps) - 1
        given = [(k, math.inf if at is None else watermark + at) for k, at in offsets]
        late = [group for group in given if emit != "all" and closed is not None and group[1] <= closed - lateness]
        touched = Counter(group for group in given if group not in late)
        counts.update(touched)
        info = BatchInfo(number, watermark, final=final, closed_until=closed)
        operator.begin(info)
        times = [None if at == math.inf else int(at * 1_000_000) for _, at in given]
        rows = pa.record_batch({"k": pa.array([k for k, _ in given], pa.int64()), "at": pa.array(times, pa.timestamp("us"))})
        operator.accept(Rows.of(rows, "s", ("k",)), state)
        emitted = operator.finish(info, state)
        state.commit()
        until = math.inf if final else watermark
        shown = {
            "closed": {g for g in counts if g[1] <= until and (closed is None or g[1] > closed or g in touched)},
            "updates": set(touched),
            "all": set(counts),
        }[emit]
        found = [] if emitted is None else emitted.to_pylist()
        assert {(row["k"], _seconds(row["at"])): row["n"] for row in found} == {group: counts[group] for group in shown}
        assert (len(found), operator.late_rows) == (len(shown), len(late))
        over = [group for group in counts if emit != "all" and group[1] <= (until if final else until - lateness)]
        for group in over:
            del counts[group]
        assert len(state) == len(counts)
        waiting = [at for _, at in counts if watermark < at < math.inf]
        assert operator.due == (None if emit == "all" or final else min(waiting, default=None))


def _seconds(at: datetime | None) -> float:
    return math.inf if at is None else at.replace(tzinfo=UTC).timestamp()


SCHEMA = pa.schema({"k": pa.int64(), "g": pa.string(), "v": pa.int64(), "at": pa.timestamp("us"), "l": pa.list_(pa.int64())})


@pytest.mark.parametrize(
    ("run", "options", "reported"),
    [
        ("aggregate", {"groupBy": 5}, "a list of columns"),
        ("aggregate", {"groupBy": ["k"]}, "grouped already"),
        ("aggregate", {"groupBy": ["g", "g"]}, "grouped already"),
        ("aggregate", {"groupBy": ["h"]}, "'h' does not exist in input 's'"),
        ("aggregate", {"groupBy": ["l"]}, "cannot be a key"),
        ("aggregate", {"groupBy": ["n"]}, "'n' does not exist"),
        ("aggregate", {"groupBy": ["v"], "aggregates": {"v": "count()"}}, "have one name"),
        ("aggregate", {"nan": "drop"}, "allowed: ignore, keep"),
        ("window-aggregate", {}, "option 'time' is missing; allowed: time with size, or closes"),
        ("window-aggregate", {"time": "at"}, "option 'size' is missing"),
        ("window-aggregate", {"closes": "at"}, "a column of the group, here k"),
        ("window-aggregate", {"closes": "g", "groupBy": ["g"]}, "'g' is string; allowed: a timestamp or a date"),
        ("window-aggregate", {"closes": "at", "groupBy": ["at"], "slide": "5s"}, "'slide' makes windows"),
        ("window-aggregate", {"closes": "at", "groupBy": ["at"], "emit": "tuples"}, "closed, updates, all"),
    ],
)
def test_option_errors_say_what_is_allowed(run: str, options: dict[str, Any], reported: str) -> None:
    with pytest.raises((OptionError, ValueError), match=reported):
        load(run, Path())(**{"aggregates": {"n": "count()"}} | options).prepare({"s": SCHEMA}, ("k",))


def test_column_of_groups_has_one_type_in_all_inputs() -> None:
    operator = load("aggregate", Path())(aggregates={"n": "count()"}, groupBy=["g"])
    other = pa.schema({"k": pa.int64(), "g": pa.int64()})
    with pytest.raises(OptionError, match="'g' is string, int64 in different inputs; cast it in a map"):
        operator.prepare({"s": SCHEMA, "t": other}, ("k",))
