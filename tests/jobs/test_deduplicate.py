"""deduplicate against a slow reference: any keys and times, a watermark that moves, any cut into batches and pieces."""

from __future__ import annotations

import datetime
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.stages import Flow, manifest

from streamtopology.api import BatchInfo, Operator, OptionError, Rows
from streamtopology.jobs.operators import load
from streamtopology.jobs.plan.dag import compile_dag
from streamtopology.jobs.state import new_state
from streamtopology.topology import ManifestError, Topology, parse

SCHEMA = pa.schema([("k", pa.string()), ("x", pa.float64()), ("t", pa.timestamp("us", "UTC")), ("id", pa.int64())])
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
KEYS = (("k",), ("k", "x"), ("k", "t"), ("x", "t", "k"))

row = st.tuples(
    st.sampled_from([None, "", "a"]),
    st.sampled_from([None, 0.0, -0.0, math.nan, 1.5]),
    st.one_of(st.none(), st.integers(-4, 12)),  # seconds from the batch's watermark
)
batches = st.lists(st.tuples(st.lists(row, max_size=8), st.integers(0, 8)), min_size=1, max_size=6)


def prepared(key: tuple[str, ...], **options: Any) -> Operator:
    operator = load("deduplicate", Path())(**options)
    operator.prepare({"in": SCHEMA}, key)
    return operator


def arrival(rows: list[dict[str, Any]], key: tuple[str, ...]) -> Rows:
    times = [row | {"t": None if row["t"] is None else EPOCH + datetime.timedelta(seconds=row["t"])} for row in rows]
    return Rows.of(pa.RecordBatch.from_pylist(times, schema=SCHEMA), "in", key)


def same(value: Any) -> Any:
    """The value by which tuples are compared."""
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


class Reference:
    """Each key that passed, and the second at which it is forgotten."""

    def __init__(self, key: tuple[str, ...], time: str | None, within: int | None) -> None:
        self.key, self.time, self.within = key, time, within
        self.known: dict[Any, float] = {}
        self.late = 0

    def batch(self, rows: list[dict[str, Any]], info: BatchInfo) -> list[int]:
        passed = []
        for row in rows:
            at = row["t"]
            if self.time and at is not None and info.closed_until is not None and at <= info.closed_until:
                self.late += 1
                continue
            key = tuple(same(row[name]) for name in self.key)
            if key not in self.known:
                passed.append(row["id"])
                self.known[key] = self._forgotten_at(at)
        until = math.inf if info.final else info.watermark
        if self.time and until is not None and (self.within is not None or "t" in self.key):
            self.known = {key: at for key, at in self.known.items() if at > until}
        return passed

    def _forgotten_at(self, at: int | None) -> float:
        if self.within is not None:
            return (at or 0) + self.within
        return math.inf if at is None or "t" not in self.key else at


@settings(max_examples=150)
@given(batches, st.sampled_from(KEYS), st.sampled_from([(None, None), ("t", None), ("t", 0), ("t", 5)]))
def test_the_first_tuple_of_each_key_passes_until_the_key_is_forgotten(given, key, options) -> None:
    time, within = options
    operator = prepared(key, **{"time": time} if time else {}, **{"within": within} if within is not None else {})
    state, reference = new_state(operator.state), Reference(key, time, within)
    mark, closed, number = None, None, 0
    for turn, (rows, step) in enumerate(given):
        info = BatchInfo(turn, mark, final=turn == len(given) - 1, closed_until=closed)
        tuples = [
            {"k": k, "x": x, "t": None if t is None else 100 + t + int(mark or 0), "id": number + place}
            for place, (k, x, t) in enumerate(rows)
        ]
        number += len(rows)
        expected = reference.batch(tuples, info)
        operator.begin(info)
        pieces = [operator.accept(arrival(part, key), state) for part in (tuples[:3], tuples[3:])]
        assert operator.finish(info, state) is None
        found = [id for piece in pieces if piece is not None for id in piece.column("id").to_pylist()]
        assert found == expected
        assert operator.late_rows == reference.late
        reference.late = 0
        state.commit()
        assert len(state) == len(reference.known)
        closed, mark = mark, (0.0 if mark is None else mark) + step


def test_a_tuple_passes_as_it_came() -> None:
    kind = pa.struct([("n", pa.int64()), ("tags", pa.list_(pa.string()))])
    rows = pa.record_batch(
        {"k": pa.array([-0.0, 0.0, 1.0]), "s": pa.array([{"n": 1, "tags": [None]}, None, None], kind), "m": [b"", b"x", None]}
    )
    operator = load("deduplicate", Path())()
    assert operator.prepare({"in": rows.schema}, ("k",)) == rows.schema
    operator.begin(BatchInfo(0))
    passed = operator.accept(Rows.of(rows, "in", ("k",)), new_state(operator.state))
    assert isinstance(passed, pa.RecordBatch)
    assert passed.equals(rows.take(pa.array([0, 2])))
    assert math.copysign(1, passed["k"][0].as_py()) == -1


def test_it_takes_no_more_state_than_the_keys_and_their_times() -> None:
    keys = np.arange(10_000)
    batch = pa.record_batch({"k": keys, "t": pa.array(keys * 1_000_000, pa.timestamp("us")), "text": ["x" * 100] * len(keys)})
    sizes = []
    for options in ({}, {"time": "t", "within": "1h"}):
        operator = load("deduplicate", Path())(**options)
        operator.prepare({"in": batch.schema}, ("k",))
        state = new_state(operator.state)
        operator.begin(BatchInfo(0))
        operator.accept(Rows.of(batch, "in", ("k",)), state)
        sizes.append(state.snapshot().nbytes)
        assert operator.accept(Rows.of(batch, "in", ("k",)), state) is None
    assert sizes == [len(keys) * 8, len(keys) * 16]


def test_people_see_when_a_key_is_forgotten() -> None:
    operator = prepared(("k", "t"), time="t")
    state = new_state(operator.state)
    operator.begin(BatchInfo(0))
    operator.accept(arrival([{"k": "a", "x": None, "t": at, "id": 0} for at in (7, None)], ("k", "t")), state)
    shown = operator.shown(state, state.live()).to_pylist()
    assert [row["forgotten_at"] for row in shown] == [EPOCH + datetime.timedelta(seconds=7), None]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"within": "1h"}, "option 'within' counts from an event time; name its column: time"),
        ({"time": "t", "within": "an hour"}, "allowed: a duration"),
        ({"time": "at"}, "column 'at' does not exist in input 'in'"),
        ({"time": "k"}, "time column 'k' is string; allowed: a timestamp"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        prepared(("k",), **options)


def test_inputs_have_the_same_columns() -> None:
    operator = load("deduplicate", Path())()
    with pytest.raises(OptionError, match="inputs 'a' and 'b' have other columns"):
        operator.prepare({"a": SCHEMA, "b": SCHEMA.append(pa.field("more", pa.int64()))}, ("k",))


def topology(duplicates: dict[str, Any], **more: Any) -> Topology:
    """The operator `once`, with options `duplicates`, behind windows."""
    windows = {
        "name": "windows", "inputs": ["s"], "grouping": {"key": "k"}, "run": "window-aggregate",
        "with": {"time": "t", "size": "10s", "aggregates": {"n": "count()"}},
    }  # fmt: skip
    once = {"name": "once", "inputs": ["windows"], "grouping": {"key": "k"}, "run": "deduplicate", "with": duplicates}
    made = manifest([windows, once | more], {"s": "k STRING, t TIMESTAMP"}, watermarks={"s": {"column": "t", "delay": "1s"}})
    return parse(made)


def test_only_with_a_time_it_goes_by_the_watermark() -> None:
    rows = {"s": pa.schema([SCHEMA.field("k"), SCHEMA.field("t")])}
    assert compile_dag(topology({}), rows, Path()).node("once").level == 2
    assert compile_dag(topology({"time": "window_start"}), rows, Path()).node("once").behind_seconds == 10
    made = manifest([{"name": "once", "inputs": ["s"], "grouping": {"key": "k"}, "run": "deduplicate"}], {"s": "k STRING"})
    parse(made)
    made["spec"]["operators"][0]["with"] = {"time": "k"}
    with pytest.raises(ManifestError, match="watermark: is missing, expected column and delay"):
        parse(made)
    made["spec"]["operators"][0] |= {"with": {}, "late": "kept"}
    with pytest.raises(
        ManifestError,
        match="of the built-ins window-aggregate, session-window, window-join with time and deduplicate with time do",
    ):
        parse(made)


def test_its_keys_are_not_divided() -> None:
    with pytest.raises(ManifestError, match="before 'deduplicate', whose state cannot be combined"):
        topology({}, grouping={"policy": "partial-key", "key": "k"})


def test_late_tuples_go_where_the_manifest_says(tmp_path: Path) -> None:
    once = {"name": "once", "inputs": ["s"], "grouping": {"policy": "mixed", "key": "k"}, "run": "deduplicate"}
    once |= {"with": {"time": "t"}, "late": "late"}
    made = manifest([once], {"s": "k STRING, t TIMESTAMP"}, watermarks={"s": {"column": "t", "delay": "1s"}})
    made["spec"]["sinks"] += [{**made["spec"]["sinks"][0], "name": "late", "input": "once"}]
    flow = Flow(tmp_path, made)

    def rows(*pairs: tuple[str, int]) -> pa.Table:
        at = [EPOCH + datetime.timedelta(seconds=time) for _, time in pairs]
        return pa.table({"k": [key for key, _ in pairs], "t": pa.array(at, SCHEMA.field("t").type)})

    flow.batch(s=rows(("a", 100)))
    flow.silence()
    flow.batch(s=rows(("b", 99), ("c", 98), ("d", 100)))
    assert sorted(flow.published("once")["k"].to_pylist()) == ["a", "d"]
    assert sorted(flow.published("late")["k"].to_pylist()) == ["b", "c"]
