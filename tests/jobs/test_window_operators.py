"""Windowed operators against brute force: out-of-order event times, a watermark that moves, any cut into batches."""

from __future__ import annotations

import datetime
import itertools
import math
import tracemalloc
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.states import extracted, forget

from streamtopology.api import BatchInfo, Operator, OptionError, Rows
from streamtopology.jobs.columnar.keys import KeyColumns
from streamtopology.jobs.operators import load
from streamtopology.jobs.state import new_state

FEW = settings(max_examples=40)
SCHEMA = pa.schema([("k", pa.string()), ("t", pa.timestamp("us", "UTC")), ("v", pa.int64())])
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

row = st.fixed_dictionaries(
    {
        "k": st.sampled_from([None, "a", "a"]),
        "t": st.one_of(st.none(), st.integers(-4, 16)),  # seconds from the batch's watermark
        "v": st.one_of(st.none(), st.integers(-3, 3)),
    }
)
steps = st.lists(st.tuples(st.lists(row, max_size=8), st.integers(0, 8)), min_size=1, max_size=6)


def seconds(at: int) -> datetime.datetime:
    return EPOCH + datetime.timedelta(seconds=at)


def timed(value: Mapping[str, Any]) -> dict[str, Any]:
    return {**value, "t": None if value["t"] is None else seconds(value["t"])}


def arrival(rows: Sequence[Mapping[str, Any]], alias: str) -> Rows:
    batch = pa.RecordBatch.from_pylist([timed(value) for value in rows], schema=SCHEMA)
    return Rows(batch, alias, KeyColumns.from_arrow(batch, ("k",)))


def prepared(run: str, aliases: Sequence[str], **options: Any) -> Operator:
    operator = load(run, Path())(**options)
    operator.prepare(dict.fromkeys(aliases, SCHEMA), ("k",))
    return operator


def batches(steps: Sequence[tuple[Any, int]]) -> list[tuple[BatchInfo, Any]]:
    """The batches, under a watermark that starts unknown and moves on by each step; the last ends the input."""
    marks = [None, *itertools.accumulate((float(step) for _, step in steps), initial=-20.0)][: len(steps) + 1]
    return [
        (
            BatchInfo(n, mark, final=n == len(steps) - 1, closed_until=closed),
            [later(row, -20 if mark is None else int(mark)) for row in rows],
        )
        for n, ((rows, _), closed, mark) in enumerate(zip(steps, [None, *marks], marks, strict=False))
    ]


def later(value: Mapping[str, Any], seconds: int) -> dict[str, Any]:
    return {**value, "t": None if value["t"] is None else value["t"] + seconds}


def is_late(value: Mapping[str, Any], info: BatchInfo, end_of: Callable[[int], int]) -> bool:
    """True if a batch before has closed all windows of the tuple, the last of which ends at `end_of` its time."""
    return value["t"] is None or (info.closed_until is not None and end_of(value["t"]) <= info.closed_until)


@FEW
@given(steps, st.integers(1, 25), st.integers(1, 25))
def test_every_window_is_emitted_once_when_it_closes(steps, size, slide):
    slide = min(size, slide)
    operator = prepared(
        "window-aggregate",
        ["in"],
        time="t",
        size=f"{size}s",
        slide=f"{slide}s",
        aggregates={"rows": "count()", "total": "sum(v)", "least": "min(v)"},
    )
    state = new_state(operator.state)
    windows: dict[tuple[Any, int], list[Any]] = defaultdict(list)
    for info, rows in batches(steps):
        operator.begin(info)
        for part in (rows[::2], rows[1::2]):
            assert operator.accept(arrival(part, "in"), state) is None
        emitted = operator.finish(info, state)
        state.commit()
        on_time = [value for value in rows if not is_late(value, info, lambda time: time // slide * slide + size)]
        assert operator.late_rows == len(rows) - len(on_time)
        for value in on_time:
            for start in range(value["t"] // slide * slide, value["t"] - size, -slide):
                if info.closed_until is None or start + size > info.closed_until:
                    windows[value["k"], start].append(value["v"])
        closed = {
            window: windows.pop(window)
            for window in list(windows)
            if info.final or (info.watermark is not None and window[1] + size <= info.watermark)
        }
        found = [] if emitted is None else emitted.to_pylist()
        assert len(found) == len(closed)
        assert {(one["k"], one["window_start"]): one for one in found} == {
            (key, seconds(start)): expected_row(key, start, size, values) for (key, start), values in closed.items()
        }
        assert len(state) == len(windows)
        assert operator.due == min((start + size for _, start in windows), default=None)


@FEW
@given(steps, st.integers(1, 25), st.integers(1, 25))
def test_windows_of_processing_time_hold_what_came_in_them(steps, size, slide):
    slide = min(size, slide)
    aggregates = {"total": "sum(v)"}
    operator = prepared("window-aggregate", ["in"], time="now()", size=f"{size}s", slide=f"{slide}s", aggregates=aggregates)
    state, open_windows = new_state(operator.state), defaultdict[tuple[Any, int], list[Any]](list)
    now = 100
    for number, (rows, step) in enumerate(steps):
        now += step
        info = BatchInfo(number, watermark=3.0, closed_until=3.0, now=float(now), final=number == len(steps) - 1)
        operator.begin(info)
        assert operator.accept(arrival(rows, "in"), state) is None
        emitted = operator.finish(info, state)
        state.commit()
        for value, start in itertools.product(rows, range(now // slide * slide, now - size, -slide)):
            open_windows[value["k"], start].append(value["v"] or 0)
        over = [window for window in open_windows if info.final or window[1] + size <= now]
        expected = Counter((key, seconds(start), sum(open_windows.pop((key, start)))) for key, start in over)
        found = [] if emitted is None else emitted.to_pylist()
        assert Counter((one["k"], one["window_start"], one["total"] or 0) for one in found) == expected
        assert operator.late_rows == 0
        assert (operator.due, operator.due_at) == (None, min((start + size for _, start in open_windows), default=None))


def test_windows_that_overlap_a_thousandfold_take_little_memory_for_a_batch() -> None:
    """Each tuple is in 1,440 windows; those of all tuples at once ended the executor."""
    rows = 10_000
    operator = prepared("window-aggregate", ["in"], time="t", size="24h", slide="1m", aggregates={"n": "count()"})
    state = new_state(operator.state)
    batch = pa.record_batch({"k": ["a"] * rows, "t": pa.array([0] * rows, SCHEMA.field("t").type), "v": range(rows)})
    operator.begin(BatchInfo(0))
    operator.accept(Rows.of(batch.slice(0, 1), "in", ("k",)), state)  # the state has all windows now
    tracemalloc.start()
    operator.accept(Rows.of(batch.slice(1), "in", ("k",)), state)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 32 << 20
    emitted = operator.finish(BatchInfo(0, final=True), state)
    assert isinstance(emitted, pa.RecordBatch)
    assert emitted["n"].to_pylist() == [rows] * 1440


def expected_row(key: Any, start: int, size: int, values: Sequence[Any]) -> dict[str, Any]:
    known = [value for value in values if value is not None]
    return {
        "k": key, "window_start": seconds(start), "window_end": seconds(start + size), "rows": len(values),
        "total": sum(known) if known else None, "least": min(known) if known else None,
    }  # fmt: skip


def joined(
    operator: Operator, aliases: Sequence[str], steps: Sequence[Any], end_of: Callable[[int], int]
) -> tuple[list[Any], dict[str, list[Any]]]:
    """(emitted rows, the tuples of each input that were not late), tuples dealt to inputs in turn."""
    state = new_state(operator.state)
    emitted, kept = [], {alias: [] for alias in aliases}
    for info, rows in batches(steps):
        operator.begin(info)
        for turn in range(2 * len(aliases)):
            alias, part = aliases[turn % len(aliases)], rows[turn :: 2 * len(aliases)]
            assert operator.accept(arrival(part, alias), state) is None
            kept[alias] += [value for value in part if not is_late(value, info, end_of)]
        output = operator.finish(info, state)
        emitted += [] if output is None else output.to_pylist()
        state.commit()
    assert len(state) == 0, "the end of the input forgets everything"
    return emitted, kept


@FEW
@given(steps, st.integers(0, 20), st.sampled_from([("a", "b"), ("a", "b", "c")]))
def test_an_interval_join_gives_each_combination_once(steps, within, aliases):
    operator = prepared("window-join", aliases, time="t", within=f"{within}s")
    emitted, kept = joined(operator, aliases, steps, lambda time: time)
    near = combinations(kept, aliases, lambda group: max(v["t"] for v in group) - min(v["t"] for v in group) <= within)
    assert counted(emitted) == counted(near)


@FEW
@given(steps, st.integers(-20, 20), st.integers(0, 20), st.sampled_from([["a"], ["b"], ["a", "b"]]))
def test_an_outer_join_gives_tuples_without_match_once_none_can_come(steps, low, more, outer):
    emitted, pairs, alone = joined_by_hand(steps, low, low + more, outer=outer)
    expected = [*pairs, *((number, a, None) for number, a in alone["a"] if "a" in outer)]
    expected += [(number, None, b) for number, b in alone["b"] if "b" in outer]
    found = [(number, row["k"], row["a_t"], row["a_v"], row["b_t"], row["b_v"]) for number, row in emitted]
    assert Counter(found) == Counter((number, (a or b)["k"], *shown(a), *shown(b)) for number, a, b in expected)


@FEW
@given(steps, st.integers(-20, 20), st.integers(0, 20), st.sampled_from("ab"))
def test_an_anti_join_gives_tuples_without_match_alone(steps, low, more, alias):
    emitted, _, alone = joined_by_hand(steps, low, low + more, anti=alias)
    found = [(number, row["k"], row["t"], row["v"]) for number, row in emitted]
    assert Counter(found) == Counter((number, value["k"], *shown(value)) for number, value in alone[alias])


@FEW
@given(steps, st.integers(-20, 20), st.integers(0, 20), st.sampled_from("ab"))
def test_a_semi_join_gives_a_tuple_once_with_its_first_match(steps, low, more, alias):
    emitted, pairs, _ = joined_by_hand(steps, low, low + more, semi=alias)
    first: dict[int, tuple[int, Any]] = {}
    for number, a, b in sorted(pairs, key=lambda pair: pair[0]):
        value = a if alias == "a" else b
        first.setdefault(id(value), (number, value))
    found = [(number, row["k"], row["t"], row["v"]) for number, row in emitted]
    assert Counter(found) == Counter((number, value["k"], *shown(value)) for number, value in first.values())


def joined_by_hand(steps: Any, low: int, high: int, **kind: Any) -> tuple[list[Any], list[Any], dict[str, list[Any]]]:
    """What a join of `a` and `b` emits, all pairs, and by input the tuples without any, each with the batch it is due in."""
    operator = prepared("window-join", ["a", "b"], time="t", within=[f"{low}s", f"{high}s"], **kind)
    reach = {"a": max(high, 0), "b": max(-low, 0)}
    state = new_state(operator.state)
    emitted: list[tuple[int, dict[str, Any]]] = []
    kept: dict[str, list[Any]] = {"a": [], "b": []}
    watermarks: list[float] = []
    for number, (info, rows) in enumerate(batches(steps)):
        operator.begin(info)
        for alias, part in zip("ab", (rows[::2], rows[1::2]), strict=True):
            operator.accept(arrival(part, alias), state)
            kept[alias] += [(number, value) for value in part if not is_late(value, info, lambda time: time)]
        output = operator.finish(info, state)
        emitted += [] if output is None else [(number, row) for row in output.to_pylist()]
        watermarks.append(math.inf if info.final else -math.inf if info.watermark is None else info.watermark)
        state.commit()
    assert len(state) == 0
    pairs: list[Any] = []
    matched: set[int] = set()
    for (at_a, a), (at_b, b) in itertools.product(kept["a"], kept["b"]):
        if a["k"] == b["k"] and low <= b["t"] - a["t"] <= high:
            pairs.append((max(at_a, at_b), a, b))
            matched |= {id(a), id(b)}
    alone = {
        alias: [
            (next(n for n, mark in enumerate(watermarks) if n >= at and mark > value["t"] + reach[alias]), value)
            for at, value in kept[alias]
            if id(value) not in matched
        ]
        for alias in "ab"
    }
    return emitted, pairs, alone


def shown(value: Any) -> tuple[Any, Any]:
    return (None, None) if value is None else (seconds(value["t"]), value["v"])


@FEW
@given(steps, st.integers(1, 20), st.sampled_from([("a", "b"), ("a", "b", "c")]))
def test_a_tumbling_join_gives_each_combination_once(steps, size, aliases):
    operator = prepared("window-join", aliases, time="t", size=f"{size}s")
    emitted, kept = joined(operator, aliases, steps, lambda time: time // size * size + size)
    together = combinations(kept, aliases, lambda group: len({v["t"] // size for v in group}) == 1)
    assert counted(emitted) == counted(together)


@FEW
@given(steps, st.one_of(st.none(), st.integers(1, 4)), st.sampled_from([("a", "b"), ("a", "b", "c")]))
def test_a_join_without_time_gives_each_combination_once(steps, ttl, aliases):
    """A batch comes every second; a tuple is forgotten at the end of a batch that is more than its ttl later."""
    operator = prepared("window-join", aliases, **{} if ttl is None else {"ttl": f"{ttl}s"})
    state = new_state(operator.state)
    emitted, kept, expected = [], {alias: [] for alias in aliases}, []
    for number, (_, rows) in enumerate(batches(steps)):
        info = BatchInfo(number, watermark=1e9, closed_until=1e9, now=1_000.0 + number)
        operator.begin(info)
        for turn, alias in enumerate(aliases):
            part = rows[turn :: len(aliases)]
            operator.accept(arrival(part, alias), state)
            kept[alias] += [(number, value) for value in part]
        for group in itertools.product(*(kept[alias] for alias in aliases)):
            if max(came for came, _ in group) == number and len({value["k"] for _, value in group}) == 1:
                expected.append([value for _, value in group])
        output = operator.finish(info, state)
        emitted += [] if output is None else output.to_pylist()
        state.commit()
        for alias in aliases:
            kept[alias] = [(came, value) for came, value in kept[alias] if ttl is None or came >= number - ttl]
    shown = [
        {"k": group[0]["k"]}
        | {f"{alias}_t": timed(value)["t"] for alias, value in zip(aliases, group, strict=True)}
        | {f"{alias}_v": value["v"] for alias, value in zip(aliases, group, strict=True)}
        for group in expected
    ]
    assert counted(emitted) == counted(shown)


def combinations(kept: Mapping[str, Any], aliases: Sequence[str], near: Any) -> list[dict[str, Any]]:
    return [
        {"k": group[0]["k"]}
        | {f"{alias}_t": seconds(value["t"]) for alias, value in zip(aliases, group, strict=True)}
        | {f"{alias}_v": value["v"] for alias, value in zip(aliases, group, strict=True)}
        for group in itertools.product(*(kept[alias] for alias in aliases))
        if len({value["k"] for value in group}) == 1 and near(group)
    ]


def counted(rows: Sequence[Mapping[str, Any]]) -> Counter:
    return Counter(tuple(sorted(row.items(), key=lambda item: item[0])) for row in rows)


def test_a_self_join_pairs_a_stream_with_itself():
    operator = prepared(
        "window-join",
        ["one", "other"],
        time={"one": "t", "other": "t"},
        within="5s",
        where="one.v < other.v",
        select=["one.k", "one.v AS low", "other.v AS high"],
    )
    state = new_state(operator.state)
    rows = [{"k": "a", "t": 1, "v": 1}, {"k": "a", "t": 3, "v": 2}, {"k": "a", "t": 20, "v": 3}]
    operator.begin(BatchInfo(0))
    for alias in ("one", "other"):
        operator.accept(arrival(rows, alias), state)
    assert operator.finish(BatchInfo(0), state).to_pylist() == [{"k": "a", "low": 1, "high": 2}]


def test_a_batch_that_is_tried_again_gives_the_same():
    operator = prepared("window-join", ["a", "b"], time="t", within="5s")
    state = new_state(operator.state)
    outputs = []
    for _ in range(2):
        operator.begin(BatchInfo(0))
        for alias in ("a", "b"):
            operator.accept(arrival([{"k": "x", "t": 1, "v": 1}], alias), state)
        outputs.append(operator.finish(BatchInfo(0), state).to_pylist())
        state.rollback()
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) == 1


@pytest.mark.parametrize("run", ["window-aggregate", "window-join"])
def test_moved_windows_continue_at_their_new_instance(run):
    """Half of the keys move between two batches; together the instances emit what one would have emitted."""
    options = {"time": "t", "size": "10s"} | ({"aggregates": {"total": "sum(v)"}} if run == "window-aggregate" else {})
    aliases = ["in"] if run == "window-aggregate" else ["a", "b"]
    first = [{"k": key, "t": 1, "v": 1} for key in "abcdefgh"]
    second = [{"k": key, "t": 2, "v": 2} for key in "abcdefgh"]
    moved = KeyColumns.from_arrow(arrival(first, "in").batch, ("k",)).hashes[::2]
    mine, other = (prepared(run, aliases, **options) for _ in range(2))
    old, new = new_state(mine.state), new_state(other.state)
    take_in(mine, old, 0, first, aliases)
    old.commit()
    new.insert(extracted(old, lambda hashes: np.isin(hashes, moved)))
    forget(old, lambda hashes: np.isin(hashes, moved))
    apart = take_in(mine, old, 1, second[1::2], aliases) + take_in(other, new, 1, second[::2], aliases)
    whole = prepared(run, aliases, **options)
    state = new_state(whole.state)
    take_in(whole, state, 0, first, aliases)
    assert counted(apart) == counted(take_in(whole, state, 1, second, aliases))
    assert len(apart) == (8 if run == "window-aggregate" else 24)


def take_in(operator: Operator, state: Any, number: int, rows: Sequence[Any], aliases: Sequence[str]) -> list[Any]:
    info = BatchInfo(number, final=number == 1)
    operator.begin(info)
    for alias in aliases:
        operator.accept(arrival(rows, alias), state)
    output = operator.finish(info, state)
    return [] if output is None else output.to_pylist()


@pytest.mark.parametrize(
    ("run", "aliases", "options", "reported"),
    [
        ("window-aggregate", "a", {"time": "v", "size": "0s", "aggregates": {"n": "count()"}}, "at least 1 us"),
        (
            "window-aggregate",
            "a",
            {"time": "t", "size": "5s", "slide": "9s", "aggregates": {"n": "count()"}},
            "at most",
        ),
        ("window-aggregate", "a", {"time": "k", "size": "5s", "aggregates": {"n": "count()"}}, "allowed: a timestamp"),
        ("window-aggregate", "a", {"time": "t", "size": "5s", "aggregates": {"k": "count()"}}, "have one name"),
        ("window-join", "a", {"time": "t", "size": "5s"}, "two inputs or more.*different aliases"),
        ("window-join", "ab", {"time": "t"}, "either size"),
        (
            "window-join",
            "ab",
            {"size": "5s"},
            "'size' counts event time, and the option 'time' that names its column is missing",
        ),
        ("window-join", "ab", {"time": "t", "size": "5s", "ttl": "1h"}, "'ttl' is for a join without 'time'"),
        ("window-join", "ab", {"time": "t", "size": "5s", "within": "5s"}, "either size"),
        ("window-join", "ab", {"time": {"a": "t"}, "size": "5s"}, "no column for input 'b'"),
        ("window-join", "ab", {"time": "t", "size": "5s", "select": ["a.*"]}, "without \\*"),
        ("window-join", "ab", {"time": "t", "size": "5s", "select": ["sum(a.v) AS s"]}, "several results"),
        ("window-join", "ab", {"time": "t", "size": "5s", "where": "a.nosuch > 1"}, "nosuch"),
    ],
)
def test_option_errors_say_what_is_allowed(run, aliases, options, reported):
    with pytest.raises((OptionError, ValueError), match=reported):
        prepared(run, list(aliases), **options)


@pytest.mark.parametrize("before", [{"size": "10s"}, {"within": "10s"}])
def test_join_with_another_size_meets_kept_tuples_by_their_times(before: dict[str, str]) -> None:
    """Windows were kept as numbers: the 100th of 10 s met the 100th of 20 s, a thousand seconds later."""
    former, now = prepared("window-join", "ab", time="t", **before), prepared("window-join", "ab", time="t", size="20s")
    state = new_state(former.state)
    emitted = [*_join_one_batch(former, state, {"a": [1000, -35]}), *_join_one_batch(now, state, {"b": [1015, 2000, -21, -19]})]
    assert [(row["a_t"], row["b_t"]) for row in emitted] == [(seconds(1000), seconds(1015)), (seconds(-35), seconds(-21))]


def _join_one_batch(operator: Operator, state: Any, times: Mapping[str, Sequence[int]]) -> list[dict[str, Any]]:
    operator.begin(BatchInfo(0))
    for alias, at in times.items():
        operator.accept(arrival([{"k": "a", "t": time, "v": 0} for time in at], alias), state)
    output = operator.finish(BatchInfo(0), state)
    state.commit()
    return [] if output is None else sorted(output.to_pylist(), key=lambda row: -row["a_t"].timestamp())


def test_join_refuses_columns_with_names_of_its_own():
    inputs = {alias: pa.schema([("k", pa.int64()), ("t", pa.int64()), ("_join_at", pa.int64())]) for alias in "ab"}
    operator = load("window-join", Path())(time="t", size="5s")
    with pytest.raises(OptionError, match=r"input 'a' has the column '_join_at', and names of .* begin with _join_; give it"):
        operator.prepare(inputs, ("k",))
