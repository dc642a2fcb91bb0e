"""Operators that go by event times of other operators' rows: nothing of the input is late, so their results are DuckDB's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.depth import deep
from support.stages import SLOTS, Flow, manifest, random_table

from streamtopology.routing.table.hashing import hash_int64

START = 1_700_000_000
DISORDER = 8
KEYS = 6
ROWS = pa.schema({"k": pa.int64(), "t": pa.timestamp("us", "UTC"), "v": pa.int64()})


def keyed(name: str, inputs: list[Any], run: str, **options: Any) -> dict[str, Any]:
    return {"name": name, "inputs": inputs, "grouping": {"policy": "mixed", "key": "k"}, "run": run, "with": options}


WINDOWS = keyed("first", ["a"], "window-aggregate", time="t", size="10s", aggregates={"n": "count()", "total": "sum(v)"})
SUMS = {"n": "sum(n)", "total": "sum(total)"}
COUNTED = {"n": "count()"}
JOIN = {"time": "t", "within": ["-4s", "9s"], "select": ["a.k AS k", "a.t AS at", "b.t AS bt"]}
BOTH = [{"from": "a", "as": "a"}, {"from": "b", "as": "b"}]
PAIRS = "FROM a JOIN b ON a.k = b.k AND b.t - a.t BETWEEN INTERVAL (-4) SECOND AND INTERVAL 9 SECOND"
BUCKET = "time_bucket(INTERVAL {} SECOND, {}, TIMESTAMPTZ 'epoch')"
FIRST = (
    f"SELECT k, {BUCKET.format(10, 't')} AS s, s + INTERVAL 10 SECOND AS e, count(*) AS n, sum(v) AS total FROM a GROUP BY k, s"
)
COUNTS = "SELECT k, {} AS window_start, count(*) AS n {} GROUP BY k, window_start"
# Names of the cases -> the operators, the last one of which is looked at, and its rows in SQL.
CASES: dict[str, tuple[list[dict[str, Any]], str]] = {
    "windows of windows by their start": (
        [WINDOWS, keyed("last", ["first"], "window-aggregate", time="window_start", size="25s", aggregates=SUMS)],
        f"SELECT k, {BUCKET.format(25, 's')} AS window_start, sum(n) AS n, sum(total) AS total FROM ({FIRST}) GROUP BY ALL",
    ),
    "windows of windows by their end": (
        [WINDOWS, keyed("last", ["first"], "window-aggregate", time="window_end", size="25s", aggregates=SUMS)],
        f"SELECT k, {BUCKET.format(25, 'e')} AS window_start, sum(n) AS n, sum(total) AS total FROM ({FIRST}) GROUP BY ALL",
    ),
    "windows of a join": (
        [keyed("first", BOTH, "window-join", **JOIN), keyed("last", ["first"], "window-aggregate", time="at", size="10s",
                                                            aggregates=COUNTED)],
        COUNTS.format(BUCKET.format(10, "a.t"), PAIRS).replace("SELECT k", "SELECT a.k AS k").replace("BY k", "BY a.k"),
    ),
    "windows of an outer join": (
        [keyed("first", BOTH, "window-join", outer=["a"], **JOIN),
         keyed("last", ["first"], "window-aggregate", time="at", size="10s", aggregates=COUNTED)],
        COUNTS.format(BUCKET.format(10, "a.t"), PAIRS.replace("JOIN", "LEFT JOIN"))
        .replace("SELECT k", "SELECT a.k AS k").replace("BY k", "BY a.k"),
    ),
    "windows of sessions": (
        [keyed("first", ["a"], "session-window", time="t", gap="3s", aggregates=COUNTED),
         keyed("last", ["first"], "window-aggregate", time="session_end", size="20s", aggregates={"n": "sum(n)"})],
        f"""WITH marked AS (SELECT k, t, t - lag(t) OVER (PARTITION BY k ORDER BY t) > INTERVAL 3 SECOND AS opens FROM a),
        numbered AS (SELECT k, t, count(*) FILTER (opens) OVER (PARTITION BY k ORDER BY t) AS session FROM marked),
        first AS (SELECT k, session, max(t) + INTERVAL 3 SECOND AS e, count(*) AS n FROM numbered GROUP BY ALL)
        SELECT k, {BUCKET.format(20, 'e')} AS window_start, sum(n) AS n FROM first GROUP BY ALL""",
    ),
    "a join of windows": (
        [WINDOWS, keyed("other", ["b"], "window-aggregate", time="t", size="10s", aggregates=COUNTED),
         keyed("last", [{"from": "first", "as": "a"}, {"from": "other", "as": "b"}], "window-join", time="window_start",
               size="10s", select=["a.k AS k", "a.window_start AS window_start", "a.n + b.n AS n"])],
        f"SELECT x.k AS k, x.s AS window_start, x.n + y.n AS n FROM ({FIRST}) x JOIN "
        f"({FIRST.replace('FROM a', 'FROM b')}) y ON x.k = y.k AND x.s = y.s",
    ),
}  # fmt: skip


def made(case: str) -> dict[str, Any]:
    sources = {"a": "k BIGINT, t TIMESTAMP, v BIGINT", "b": "k BIGINT, t TIMESTAMP, v BIGINT"}
    operators, _ = CASES[case]
    used = {
        name
        for operator in operators
        for each in operator["inputs"]
        for name in [each if isinstance(each, str) else each["from"]]
    }
    marks = {"column": "t", "delay": f"{DISORDER}s"}
    given = {name: ddl for name, ddl in sources.items() if name in used}
    return manifest(operators, given, watermarks=dict.fromkeys(given, marks))


def batches(seed: int) -> Iterator[dict[str, pa.Table]]:
    """Rows of both sources, no row earlier than the newest one by the delay of the watermark."""
    random, clock = np.random.default_rng(seed), float(START)
    for _ in range(12):
        clock += random.choice([0.5, 4, 30])
        yield {name: _rows(random, clock) for name in ("a", "b")}


def _rows(random: np.random.Generator, clock: float) -> pa.Table:
    count = int(random.integers(0, 12))
    times = np.round((clock - random.uniform(0, DISORDER - 0.01, count)) * 10) / 10
    columns = [random.integers(0, KEYS, count), (times * 1e6).astype("datetime64[us]"), random.integers(0, 100, count)]
    return pa.table([pa.array(columns[0]), pa.array(columns[1]).cast(ROWS.types[1]), pa.array(columns[2])], schema=ROWS)


def in_order(rows: pa.Table) -> list[tuple[Any, ...]]:
    names = [name for name in ("k", "window_start", "n", "total") if name in rows.column_names]
    return sorted(tuple(row.values()) for row in rows.select(names).to_pylist())


@pytest.mark.parametrize("case", CASES)
@deep(gate=3, long=100)
@given(seed=st.integers(0, 10_000))
def test_results_are_those_of_the_whole_input(tmp_path_factory: pytest.TempPathFactory, case: str, seed: int) -> None:
    """The routing changes, and the driver starts again, between some of the batches."""
    flow, given = Flow(tmp_path_factory.mktemp("flow"), made(case)), list(batches(seed))
    sources = [source.name for source in flow.topology.sources]
    random = np.random.default_rng(seed)
    for number, rows in enumerate(given):
        flow.batch(**{name: rows[name] for name in sources})
        assert not sum(result.report.late_rows for result in flow.router.done[-1].results.instances)
        if number % 4 == 3:
            flow.start(made(case))
        if random.random() < 0.3:
            flow.router.reroute({"last": random_table(random, SLOTS, hash_int64(np.arange(KEYS)))})
    flow.drain()
    whole = {name: pa.concat_tables([rows[name] for rows in given]) for name in sources}
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, rows in whole.items():
            connection.register(name, rows)
        expected = connection.sql(CASES[case][1]).to_arrow_table()
    assert in_order(flow.published("last")) == in_order(expected)
