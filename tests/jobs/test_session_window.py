"""session-window against a reference that takes a row at a time, and DuckDB: rows out of order, late ones, keys that move.

What Spark's own query emits is compared in `test_spark_aggregates.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.depth import deep
from support.stages import SLOTS, Flow, Loss, manifest, random_table

from streamtopology.api import BatchInfo, Operator, OptionError, Rows, new_state
from streamtopology.jobs.operators import load

GAP = {"gap": "5s"}
OWN_GAPS = {"gapColumn": "g"}
CALLS = {"n": "count()", "total": "sum(v)", "least": "min(v)", "earliest": "first(t)", "all": "collect_list(v)"}
SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.float64()), ("g", pa.int64()), ("v", pa.int64())])
EMPTY = pa.RecordBatch.from_pylist([], schema=SCHEMA)
# Key, seconds from those of the batch, gap.
Row = tuple[int, int | None, int | None]


def flow_of(options: Mapping[str, Any], policy: str = "mixed", **watermark: Any) -> dict[str, Any]:
    with_ = {"time": "t", "aggregates": CALLS, **options}
    grouping = {"policy": policy, "key": "k"}
    own = {"name": "own", "inputs": ["s"], "grouping": grouping, "run": "session-window", "with": with_, "late": "late"}
    made = manifest([own], {"s": "k BIGINT, t DOUBLE, g BIGINT, v BIGINT"}, watermarks={"s": {"column": "t", **watermark}})
    made["spec"]["sinks"].append({"name": "late", "input": "own", "format": "memory"})
    return made


def table(rows: Sequence[Row], first: int = 0) -> pa.Table:
    """Rows with their values, `v`, from `first` on."""
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
    return pa.Table.from_arrays(
        [pa.array(each, kind) for each, kind in zip([*columns, range(first, first + len(rows))], SCHEMA.types, strict=True)],
        schema=SCHEMA,
    )


@dataclass
class Session:
    start: int
    end: int
    values: list[int]


@dataclass
class Reference:
    """Sessions by Spark's rule, a row at a time. own_gaps: each row has its own; else all have 5 s."""

    delay: int
    own_gaps: bool
    watermark: float = -math.inf
    closed: float = -math.inf
    newest: float = -math.inf
    late: int = 0
    open: list[tuple[int, Session]] = field(default_factory=list)
    emitted: list[dict[str, Any]] = field(default_factory=list)

    def batch(self, rows: Sequence[Row], first: int = 0, final: bool = False) -> None:
        for place, (key, time, gap) in enumerate(rows):
            gap = gap if self.own_gaps else 5
            if time is None or gap is None or gap <= 0 or time + gap <= self.closed:
                self.late += 1
            else:
                self._add(key, Session(time, time + gap, [first + place]))
        closing = math.inf if final else self.watermark
        self.emitted += [row_of(key, session) for key, session in self.open if session.end <= closing]
        self.open = [(key, session) for key, session in self.open if session.end > closing]
        self.closed = closing
        self.newest = max([self.newest, *(time for _, time, _ in rows if time is not None)])
        self.watermark = max(self.watermark, self.newest - self.delay)

    def _add(self, key: int, new: Session) -> None:
        kept: list[tuple[int, Session]] = []
        for other, session in self.open:
            if other == key and session.start <= new.end and new.start <= session.end:
                new = Session(min(session.start, new.start), max(session.end, new.end), session.values + new.values)
            else:
                kept.append((other, session))
        self.open = [*kept, (key, new)]


def row_of(key: int, session: Session) -> dict[str, Any]:
    values = session.values
    return {
        "k": key, "session_start": session.start, "session_end": session.end, "n": len(values), "total": sum(values),
        "least": min(values), "earliest": session.start, "all": sorted(values),
    }  # fmt: skip


def emitted(rows: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    bounds = ("session_start", "session_end")
    return in_order(
        [row | {name: row[name].timestamp() for name in bounds} | {"all": sorted(row["all"])} for row in rows.to_pylist()]
    )


def in_order(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["k"], row["session_start"]))


# --- the operator alone ---


def prepared(options: Mapping[str, Any]) -> Operator:
    operator = load("session-window", Path())(time="t", aggregates=CALLS, **options)
    operator.prepare({"in": SCHEMA}, ("k",))
    return operator


ROWS = st.lists(
    st.tuples(st.integers(0, 1), st.one_of(st.none(), st.integers(-12, 20)), st.sampled_from([None, -1, 0, 1, 2, 5, 30])),
    max_size=12,
)


@deep(gate=60, long=300)
@given(st.lists(st.tuples(ROWS, st.integers(0, 12)), min_size=1, max_size=6), st.booleans(), st.integers(1, 3))
def test_sessions_are_those_of_the_reference_for_any_cut_of_the_rows(
    steps: Sequence[tuple[Sequence[Row], int]], own_gaps: bool, pieces: int
) -> None:
    operator, reference = prepared(OWN_GAPS if own_gaps else GAP), Reference(0, own_gaps)
    state, closed = new_state(operator.state), None
    for number, (given_rows, step) in enumerate(steps):
        rows = [(key, None if time is None else time + 10 * number, gap) for key, time, gap in given_rows]
        if number:
            reference.watermark = max(reference.closed, 10 * number - step)
        watermark = reference.watermark if number else None
        info = BatchInfo(number, watermark, final=number == len(steps) - 1, closed_until=closed)
        so_far, late = len(reference.emitted), reference.late
        reference.batch(rows, 100 * number, info.final)
        operator.begin(info)
        for part in np.array_split(np.arange(len(rows)), pieces):
            (batch,) = table(rows, 100 * number).take(pa.array(part)).combine_chunks().to_batches() or [EMPTY]
            assert operator.accept(Rows.of(batch, "in", ("k",)), state) is None
        found = operator.finish(info, state)
        state.commit()
        assert ([] if found is None else emitted(found)) == in_order(reference.emitted[so_far:])
        assert operator.late_rows == reference.late - late
        assert len(state) == len(reference.open)
        assert operator.due == min((session.end for _, session in reference.open), default=None)
        closed = watermark


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        ({}, "option 'gap' is missing; allowed: gap, or gapColumn"),
        (GAP | OWN_GAPS, "leave one out"),
        ({"gap": "0s"}, "at least 1 us"),
        ({"gapColumn": "name"}, "column 'name' is string; allowed: a number of seconds, or a duration"),
        ({"gapColumn": "nosuch"}, "'nosuch' does not exist"),
        (GAP | {"time": "name"}, "allowed: a timestamp"),
        (GAP | {"emit": "updates"}, "allowed: closed. A session that grows may get another start"),
        (GAP | {"aggregates": {"k": "count()"}}, "have one name: k, session_start, session_end, k"),
    ],
)
def test_option_errors_say_what_is_allowed(options: Mapping[str, Any], reported: str) -> None:
    schema = pa.schema([*SCHEMA, ("name", pa.string())])
    with pytest.raises(OptionError, match=reported):
        load("session-window", Path())(**{"time": "t", "aggregates": CALLS, **options}).prepare({"in": schema}, ("k",))


@pytest.mark.parametrize("kind", [pa.duration("ns"), pa.duration("s"), pa.float64(), pa.int8(), pa.uint64()])
def test_gaps_are_seconds_or_durations(kind: pa.DataType) -> None:
    schema = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us")), ("g", kind)])
    seconds = pa.array([3, 0, None, 4], pa.int64())
    gaps = seconds.cast(pa.duration("s")).cast(kind) if pa.types.is_duration(kind) else seconds.cast(kind)
    batch = pa.RecordBatch.from_arrays(
        [pa.array([1] * 4), pa.array([10**6 * n for n in (0, 1, 2, 3)], schema.field("t").type), gaps], schema=schema
    )
    operator = load("session-window", Path())(time="t", gapColumn="g", aggregates={"n": "count()"})
    operator.prepare({"in": schema}, ("k",))
    state, info = new_state(operator.state), BatchInfo(0, final=True)
    operator.begin(info)
    operator.accept(Rows.of(batch, "in", ("k",)), state)
    (row,) = operator.finish(info, state).to_pylist()
    assert (row["n"], (row["session_end"] - row["session_start"]).total_seconds(), operator.late_rows) == (2, 7.0, 2)


# --- a topology ---


STREAMS = st.lists(
    st.tuples(ROWS, st.sampled_from(["rows", "rows", "silence", "restart", "reroute", "reroute", "loss"])),
    min_size=1,
    max_size=8,
)


@deep(gate=15, long=60)
@given(
    STREAMS, st.booleans(), st.sampled_from([0, 5, 20]), st.sampled_from(["mixed", "mixed", "auto", "partial-key", "shuffle"])
)
def test_sessions_go_on_where_their_keys_are(
    steps: Sequence[tuple[Sequence[Row], str]], own_gaps: bool, delay: int, policy: str
) -> None:
    """Keys move with all of their open sessions; lost attempts and restarts change nothing; nor do keys that are split."""
    made = flow_of(OWN_GAPS if own_gaps else GAP, policy, delay=f"{delay}s")
    reference = Reference(delay, own_gaps)
    with TemporaryDirectory() as folder:
        flow = Flow(Path(folder), made)
        for number, (values, event) in enumerate(steps):
            rows = [(key, None if time is None else time + 10 * number, gap) for key, time, gap in values]
            if event == "loss":
                flow.losses = [Loss(1 + number % 2, number % SLOTS)]
            flow.batch(s=table(rows, 100 * number))
            reference.batch(rows, 100 * number)
            if event == "silence" and flow.driver.is_due:
                flow.silence()
                reference.batch([])
            elif event == "restart":
                flow.start(made)
            elif event == "reroute" and policy in ("mixed", "auto"):
                flow.router.reroute({"own": random_table(np.random.default_rng(number), SLOTS)})
        if policy in ("mixed", "auto"):
            assert sorted((row["k"], row["session_start"].timestamp(), row["n"]) for row in _state(flow)) == sorted(
                (key, session.start, len(session.values)) for key, session in reference.open
            )
        flow.drain()
        reference.batch([], final=True)
        found = flow.published("own")
        assert (emitted(found) if found.num_rows else []) == in_order(reference.emitted)
        assert flow.published("late").num_rows == reference.late


def _state(flow: Flow) -> list[dict[str, Any]]:
    return [{**row, "n": row["agg_rows"]} for row in flow.state("own")]


def test_nothing_gives_nothing(tmp_path: Path) -> None:
    made = flow_of(GAP)
    flow = Flow(tmp_path, made)
    for _ in range(2):
        flow.batch(s=table([]))
        flow.silence()
        flow.start(made)
    flow.drain()
    assert flow.published("own").num_rows == 0


def test_session_closes_when_the_watermark_passes_and_not_before(tmp_path: Path) -> None:
    flow = Flow(tmp_path, flow_of(GAP))
    flow.batch(s=table([(1, 100, 0)]))
    for _ in range(2):
        flow.batch(s=table([]))
        flow.silence()
    assert flow.published("own").num_rows == 0, "no time passes while no rows come"
    flow.batch(s=table([(2, 104, 0)]))
    flow.silence()
    assert flow.published("own").num_rows == 0, "the watermark is before the end of the session, 105"
    flow.batch(s=table([(2, 105, 0)]))
    flow.silence()
    flow.silence()
    assert emitted(flow.published("own")) == [row_of(1, Session(100, 105, [0]))]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_sessions_of_all_rows_are_those_of_duckdb(tmp_path: Path, seed: int) -> None:
    """No row is late here, so that a session is what lies between two pauses."""
    random = np.random.default_rng(seed)
    count = 3000
    rows = [
        (int(key), int(time), 0)
        for key, time in zip(random.zipf(1.5, count) % 50, random.integers(0, 3000, count), strict=True)
    ]
    flow = Flow(tmp_path, flow_of(GAP, delay="1h"))
    for number, part in enumerate(np.array_split(np.arange(count), 10)):
        flow.batch(s=table([rows[place] for place in part], int(part[0])))
        flow.router.reroute({"own": random_table(np.random.default_rng(number), SLOTS)})
    flow.drain()
    given_rows = table(rows)  # noqa: F841 - named in the query
    expected = duckdb.sql(
        """
        SELECT k, min(t) AS session_start, max(t) + 5 AS session_end, count(*) AS n, sum(v)::BIGINT AS total, min(v) AS least,
            min(t) AS earliest, list_sort(list(v)) AS all
        FROM (
            SELECT *, count(*) FILTER (t - before > 5) OVER (PARTITION BY k ORDER BY t, v) AS session
            FROM (SELECT *, lag(t) OVER (PARTITION BY k ORDER BY t, v) AS before FROM given_rows)
        )
        GROUP BY k, session ORDER BY k, session_start
        """
    )
    assert emitted(flow.published("own")) == expected.to_arrow_table().to_pylist()
