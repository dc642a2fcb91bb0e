"""Built-in aggregates give what a plain group-by gives, for any split of the stream and of its keys."""

from __future__ import annotations

import datetime
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopology.api import BadTuple, BatchInfo, Field, Operator, OptionError, Rows, TupleOperator
from streamtopology.jobs.columnar.keys import KeyColumns
from streamtopology.jobs.operators import BUILTINS, LoadError, declared_cost, load
from streamtopology.jobs.operators.histogram import LogHistogram
from streamtopology.jobs.operators.partial_merge import MergeOperator, PartialOperator
from streamtopology.jobs.state import KeyedState

FEW = settings(max_examples=25)
NAN = float("nan")

keys = st.one_of(st.none(), st.integers(-2, 3))
rows_of = st.lists(
    st.fixed_dictionaries(
        {
            "k": keys,
            "i": st.one_of(st.none(), st.integers(-40, 60)),
            "f": st.one_of(st.none(), st.just(NAN), st.floats(-1e6, 1e6)),
            "s": st.one_of(st.none(), st.sampled_from(["", "a", "b", "bb", "ü"])),
            "d": st.one_of(st.none(), st.decimals(-(10**16), 10**16, places=3)),
        }
    ),
    max_size=40,
)
SCHEMA = pa.schema([("k", pa.int32()), ("i", pa.int64()), ("f", pa.float64()), ("s", pa.string()), ("d", pa.decimal128(20, 3))])
cuts = st.lists(st.integers(0, 40), max_size=4)


def batch_of(rows: Sequence[Mapping[str, Any]], schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=schema)


def arrival(batch: pa.RecordBatch, key: tuple[str, ...] = ("k",), alias: str = "in") -> Rows:
    return Rows(batch, alias, KeyColumns.from_arrow(batch, key) if key else None)


def cut(rows: Sequence[Any], places: Sequence[int]) -> list[Sequence[Any]]:
    bounds = [0, *sorted(min(place, len(rows)) for place in places), len(rows)]
    return [rows[a:b] for a, b in itertools.pairwise(bounds)]


def prepared(run: str, options: Mapping[str, Any], schema: pa.Schema = SCHEMA, key: tuple[str, ...] = ("k",)) -> Operator:
    operator = load(run, Path())(**options)
    operator.prepare({"in": schema}, key)
    return operator


def last_updates(outputs: Sequence[pa.RecordBatch]) -> dict[Any, dict[str, Any]]:
    """The newest row of each key."""
    newest: dict[Any, dict[str, Any]] = {}
    for output in outputs:
        seen = [row["k"] for row in output.to_pylist()]
        assert len(seen) == len(set(seen)), "one row per key and batch"
        newest.update({row["k"]: row for row in output.to_pylist()})
    return newest


def stream(operator: Operator, batches: Sequence[Sequence[Mapping[str, Any]]], schema: pa.Schema = SCHEMA) -> dict:
    state = KeyedState(operator.state)
    outputs = []
    for number, rows in enumerate(batches):
        info = BatchInfo(number)
        operator.begin(info)
        for piece in cut(rows, [len(rows) // 2]):
            assert operator.accept(arrival(batch_of(piece, schema)), state) is None
        outputs.append(operator.finish(info, state))
        state.commit()
    return last_updates([output for output in outputs if output is not None])


def split_stream(make: Any, batches: Sequence[Sequence[Mapping[str, Any]]], owners: Sequence[int], flush_every: int) -> dict:
    """The same through three partial operators, tuple i at owners[i], and one merge operator."""
    partials = [PartialOperator(make()) for _ in range(3)]
    states = [KeyedState(partial.state) for partial in partials]
    merge = MergeOperator(make())
    merged, outputs, place = KeyedState(merge.state), [], 0
    for number, rows in enumerate(batches):
        info = BatchInfo(number, flush=number % flush_every == 0, final=number == len(batches) - 1)
        merge.begin(info)
        owner = [owners[(place + i) % len(owners)] for i in range(len(rows))]
        place += len(rows)
        for index, (partial, state) in enumerate(zip(partials, states, strict=True)):
            partial.begin(info)
            partial.accept(arrival(batch_of([r for r, o in zip(rows, owner, strict=True) if o == index])), state)
            handed_over = partial.finish(info, state)
            state.commit()
            if handed_over is not None:
                assert len(state) == 0
                merge.accept(arrival(handed_over), merged)
        outputs.append(merge.finish(info, merged))
        merged.commit()
    return last_updates([output for output in outputs if output is not None])


def everywhere(run: str, options: Mapping[str, Any], rows: Sequence[Any], places: Sequence[int], owners: Sequence[int]) -> dict:
    """The result of one instance and of split instances, which must agree."""
    whole = stream(prepared(run, options), cut(rows, places))
    for flush_every in (1, 2):
        apart = split_stream(lambda: prepared(run, options), cut(rows, places), owners, flush_every)
        assert same(apart, whole)
    return whole


def same(left: Any, right: Any) -> bool:
    """Equal, sums of floats up to rounding."""
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, float) and isinstance(right, float):
        return (math.isnan(left) and math.isnan(right)) or math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-6)
    return left == right


def groups(rows: Sequence[Mapping[str, Any]]) -> dict[Any, list[Mapping[str, Any]]]:
    found = defaultdict(list)
    for row in rows:
        found[row["k"]].append(row)
    return found


owners_of = st.lists(st.integers(0, 2), min_size=1, max_size=40)


@FEW
@given(rows_of, cuts, owners_of)
def test_count_equals_a_plain_count(rows, places, owners):
    counted = everywhere("count", {}, rows, places, owners)
    assert {key: row["count"] for key, row in counted.items()} == Counter(row["k"] for row in rows)


@FEW
@given(rows_of, cuts, owners_of)
def test_aggregates_equal_duckdbs_when_nan_counts_as_null(rows, places, owners):
    calls = {
        "rows": "count()", "ints": "count(i)", "floats": "count(f)", "texts": "count(s)", "si": "sum(i)",
        "sf": "sum(f)", "mi": "mean(i)", "mf": "mean(f)", "li": "min(i)", "hi": "max(i)", "lf": "min(f)",
        "hf": "max(f)",
    }  # fmt: skip
    found = everywhere("aggregate", {"aggregates": calls}, rows, places, owners)
    with duckdb.connect() as connection:
        connection.register("rows", batch_of(rows))
        expected = connection.sql(
            """SELECT k, count(*) AS rows, count(i) AS ints, count(f) AS floats, count(s) AS texts,
                      sum(i)::BIGINT AS si, sum(f) AS sf, avg(i) AS mi, avg(f) AS mf, min(i) AS li, max(i) AS hi,
                      min(f) AS lf, max(f) AS hf
               FROM (SELECT * REPLACE (CASE WHEN isnan(f) THEN NULL ELSE f END AS f) FROM rows) GROUP BY k"""
        ).to_arrow_table()
    assert same(found, {row["k"]: row for row in expected.to_pylist()})


@FEW
@given(rows_of, cuts, owners_of)
def test_aggregates_of_expressions_equal_duckdbs(rows, places, owners):
    calls = {
        "products": "sum(i * (k + 1))",
        "large": "count( CASE WHEN i > 10 THEN 1 END )",
        "text": "max(s || ')' || k::VARCHAR)",
        "tenths": "sum(d / 10)",
        "different": "count(DISTINCT i % 7)",
    }
    found = everywhere("aggregate", {"aggregates": calls}, rows, places, owners)
    with duckdb.connect() as connection:
        connection.register("rows", batch_of(rows))
        columns = ", ".join(f"{call} AS {name}" for name, call in calls.items())
        columns = columns.replace("sum(i * (k + 1))", "sum(i * (k + 1))::BIGINT")
        expected = connection.sql(f"SELECT k, {columns} FROM rows GROUP BY k").to_arrow_table()
    assert same(found, {row["k"]: row for row in expected.to_pylist()})


@FEW
@given(rows_of, cuts, owners_of)
def test_nan_that_is_kept_is_a_value_larger_than_all_others(rows, places, owners):
    calls = {"n": "count(f)", "s": "sum(f)", "m": "mean(f)", "l": "min(f)", "h": "max(f)"}
    found = everywhere("aggregate", {"aggregates": calls, "nan": "keep"}, rows, places, owners)
    with duckdb.connect() as connection:
        connection.register("rows", batch_of(rows))
        sql = "SELECT k, count(f) AS n, sum(f) AS s, avg(f) AS m, min(f) AS l, max(f) AS h FROM rows GROUP BY k"
        expected = connection.sql(sql).to_arrow_table()
    assert same(found, {row["k"]: row for row in expected.to_pylist()})


@FEW
@given(rows_of, cuts, owners_of)
def test_texts_are_ordered_by_their_bytes_and_decimals_are_exact(rows, places, owners):
    calls = {"ls": "min(s)", "hs": "max(s)", "ld": "min(d)", "hd": "max(d)", "sd": "sum(d)", "md": "mean(d)"}
    found = everywhere("aggregate", {"aggregates": calls}, rows, places, owners)
    for key, members in groups(rows).items():
        texts = [row["s"].encode() for row in members if row["s"] is not None]
        values = [row["d"] for row in members if row["d"] is not None]
        mean = sum(values) / len(values) if values else None
        assert found[key] == {
            "k": key,
            "ls": min(texts).decode() if texts else None,
            "hs": max(texts).decode() if texts else None,
            "ld": min(values, default=None),
            "hd": max(values, default=None),
            "sd": sum(values) if values else None,
            "md": None if mean is None else mean.quantize(Decimal("1e-7"), ROUND_HALF_UP, Context(prec=40)),
        }


def test_sums_and_means_of_decimals_have_sparks_types_and_overflow_there() -> None:
    types = {(10, 2): ((20, 2), (14, 6)), (38, 4): ((38, 4), (38, 8)), (38, 38): ((38, 38), (38, 38))}
    for kind, (summed, mean) in types.items():
        schema = pa.schema([("k", pa.int64()), ("d", pa.decimal128(*kind))])
        operator = prepared("aggregate", {"aggregates": {"s": "sum(d)", "m": "mean(d)"}}, schema)
        assert operator.output is not None
        assert operator.output.types[1:] == [pa.decimal128(*summed), pa.decimal128(*mean)]
    schema = pa.schema([("k", pa.int64()), ("d", pa.decimal128(38, 0))])
    operator, most = prepared("aggregate", {"aggregates": {"s": "sum(d)"}}, schema), Decimal(10**38 - 1)
    operator.begin(BatchInfo(0))
    state = KeyedState(operator.state)
    operator.accept(arrival(batch_of([{"k": 1, "d": most}], schema)), state)
    with pytest.raises(OverflowError, match="a sum of decimals does not fit into decimal128"):
        operator.accept(arrival(batch_of([{"k": 1, "d": Decimal(1)}], schema)), state)


@FEW
@given(rows_of, cuts, owners_of)
def test_exact_quantiles_are_the_element_of_their_rank(rows, places, owners):
    options = {"column": "i", "min": -40, "max": 60, "quantiles": [0, 0.5, 0.55, 0.9, 1]}
    found = everywhere("quantiles", options, rows, places, owners)
    for key, members in groups(rows).items():
        values = sorted(row["i"] for row in members if row["i"] is not None)
        assert found[key]["count"] == len(values)
        for name, percent in [("q0", 0), ("q50", 50), ("q55", 55), ("q90", 90), ("q100", 100)]:
            rank = max(-(-percent * len(values) // 100), 1)
            assert found[key][name] == (values[rank - 1] if values else None)


@FEW
@given(rows_of, cuts, owners_of)
def test_quantiles_of_floats_are_within_their_relative_accuracy(rows, places, owners):
    options = {"column": "f", "min": -1e6, "max": 1e6, "accuracy": 0.05, "resolution": 0.01, "quantiles": [0.5, 0.99]}
    found = everywhere("quantiles", options, rows, places, owners)
    for key, members in groups(rows).items():
        values = sorted(row["f"] for row in members if row["f"] is not None and not math.isnan(row["f"]))
        assert found[key]["count"] == len(values)
        for name, percent in [("q50", 50), ("q99", 99)]:
            if values:
                exact = values[max(-(-percent * len(values) // 100), 1) - 1]
                assert found[key][name] == pytest.approx(exact, rel=0.05 + 1e-9, abs=0.01)
            else:
                assert found[key][name] is None


@FEW
@given(
    st.floats(-1e4, 1e4),
    st.sampled_from([0.001, 0.02, 0.3]),
    st.sampled_from([(-1e4, 1e4), (0, 1e4), (5, 900), (-7, 0)]),
)
def test_a_histogram_bin_is_near_its_values_and_in_range(value, accuracy, bounds):
    histogram = LogHistogram(*bounds, accuracy, resolution=0.01)
    bin_ = int(histogram.bin_of(np.array([value]))[0])
    assert 0 <= bin_ < histogram.bins == len(histogram.middles)
    assert histogram.middles[bin_] == pytest.approx(min(max(value, bounds[0]), bounds[1]), rel=accuracy + 1e-9, abs=0.01)


@FEW
@given(rows_of, cuts, owners_of, st.integers(1, 4), st.sampled_from(["i", "f"]))
def test_top_k_keeps_the_largest_value_of_each_id(rows, places, owners, k, by):
    found = everywhere("top-k", {"by": by, "id": "s", "k": k}, rows, places, owners)
    for key, members in groups(rows).items():
        best: dict[str, float] = {}
        for row in members:
            if row[by] is not None and row["s"] is not None and not math.isnan(row[by]):
                best[row["s"]] = max(row[by], best.get(row["s"], -math.inf))
        ranked = sorted(best.items(), key=lambda item: (-item[1], item[0].encode()))[:k]
        assert found[key] == {"k": key, "s": [name for name, _ in ranked], by: [value for _, value in ranked]}


def test_top_k_of_integer_ids_and_ids_that_are_too_long():
    operator = prepared("top-k", {"by": "f", "id": "i", "k": 2})
    rows = [{"k": 1, "i": i, "f": float(i % 3)} for i in range(6)]
    assert stream(operator, [rows]) == {1: {"k": 1, "i": [2, 5], "f": [2.0, 2.0]}}
    narrow = prepared("top-k", {"by": "f", "id": "s", "idBytes": 2})
    with pytest.raises(BadTuple, match="'abc' is longer than idBytes: 2") as raised:
        stream(narrow, [[{"k": 1, "f": 1.0, "s": "abc"}]])
    assert raised.value.rows.tolist() == [0]


def test_null_nan_and_negative_zero_keys_follow_one_rule():
    schema = pa.schema([("k", pa.float64())])
    operator = prepared("count", {}, schema)
    weird = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64).tolist()
    found = stream(operator, [[{"k": None}, {"k": 0.0}, {"k": -0.0}], [{"k": value} for value in [*weird, NAN, None]]], schema)
    counts = {"nan" if isinstance(key, float) and math.isnan(key) else key: row["count"] for key, row in found.items()}
    assert counts == {None: 2, 0.0: 2, "nan": 3}


def test_times_and_dates_keep_their_type_in_min_and_max():
    at, day = datetime.datetime(2013, 1, 1, 5, tzinfo=datetime.UTC), datetime.date(1969, 7, 20)
    schema = pa.schema([("k", pa.string()), ("at", pa.timestamp("us", "UTC")), ("day", pa.date32())])
    operator = prepared("aggregate", {"aggregates": {"last": "max(at)", "first": "min(day)"}}, schema)
    found = stream(operator, [[{"k": "a", "at": at, "day": day}, {"k": "a", "at": None, "day": None}], [{"k": "b"}]], schema)
    assert found == {"a": {"k": "a", "last": at, "first": day}, "b": {"k": "b", "last": None, "first": None}}


def test_a_sum_that_leaves_64_bits_is_an_error_and_not_a_wrong_number():
    operator = prepared("aggregate", {"aggregates": {"total": "sum(i)"}})
    with pytest.raises(OverflowError, match="does not fit into 64 bits"):
        stream(operator, [[{"k": 1, "i": 2**62}, {"k": 1, "i": 2**62}]])


def test_a_key_that_only_moved_here_gives_no_update():
    operator = prepared("count", {})
    former, state = KeyedState(operator.state), KeyedState(operator.state)
    operator.accept(arrival(batch_of([{"k": 1}, {"k": 2}])), former)
    state.insert(former.snapshot())
    operator.begin(BatchInfo(1))
    operator.accept(arrival(batch_of([{"k": 2}])), state)
    assert operator.finish(BatchInfo(1), state).to_pylist() == [{"k": 2, "count": 2}]


def test_emit_tuples_passes_every_tuple_and_still_counts():
    operator = prepared("count", {"emit": "tuples", "select": ["k", "i + 1 AS j"]})
    state = KeyedState(operator.state)
    passed = operator.accept(arrival(batch_of([{"k": 1, "i": 1}, {"k": 1, "i": None}])), state)
    assert passed.to_pylist() == [{"k": 1, "j": 2}, {"k": 1, "j": None}]
    assert passed.schema == operator.output
    assert operator.finish(BatchInfo(0), state) is None
    assert state.column("count")[state.live()].tolist() == [2]


def test_map_filter_and_enrich_do_what_their_sql_says(tmp_path):
    batch = batch_of([{"k": 1, "i": 3, "s": "a"}, {"k": 2, "i": None, "s": "b"}, {"k": 3, "i": 5, "s": None}])
    mapped = prepared("map", {"select": ["k", "i * 2 AS j"], "where": "i > 3"}).accept(arrival(batch, ()), None)
    assert mapped.to_pylist() == [{"k": 3, "j": 10}]
    assert prepared("filter", {"where": "i > 3"}).accept(arrival(batch, ()), None).equals(batch.slice(2))
    (tmp_path / "names.csv").write_text("code,name\na,Alpha\nc,Gamma\n")
    operator = load("enrich", tmp_path)(lookup={"file": "names.csv", "on": "s", "key": "code"}, add={"n": "upper(name)"})
    operator.base_dir = tmp_path
    schema = operator.prepare({"in": SCHEMA}, ())
    enriched = operator.accept(arrival(batch, ()), None)
    assert enriched.schema.equals(schema)
    assert [(row["name"], row["n"]) for row in enriched.to_pylist()] == [("Alpha", "ALPHA"), (None, None), (None, None)]


def test_enrich_burns_cpu_by_content_and_returns_tuple_weights():
    operator = prepared("enrich", {"cost": "i", "costPerTuple": "2us"})
    operator.declare_cost(1e6)
    rows = arrival(batch_of([{"i": 30}, {"i": None}, {"i": -5}]), ())
    assert operator.accept(rows, None).equals(rows.batch)
    assert operator.tuple_weights(rows).tolist() == [32.0, 2.0, 2.0]
    assert operator.last_tuple_seconds.argmax() == 0


def test_declared_work_depends_on_every_turn():
    assert declared_cost.burn(3, 7) == declared_cost.burn(21, 1) != declared_cost.burn(22, 1)
    assert declared_cost.burn_each(np.array([3, 0, 4])) == declared_cost.burn(7, 1)
    ticks = iter([0.0, 4.0, 4.0, 5.0, 5.0, 9.0])
    assert declared_cost.iterations_for(2.0, runs=3, cpu_clock=lambda: next(ticks)) == 10_000_000


class Alternating(TupleOperator):
    """A user's operator: counts, refuses negative numbers after having touched the state."""

    fields = (Field("seen", np.int64),)
    output = pa.schema([("k", pa.int32()), ("seen", pa.int64())])

    def process_tuple(self, row, state):
        state["seen"] += 1
        if row["i"] < 0:
            raise ValueError("negative")
        return {"k": row["k"], "seen": state["seen"]} if state["seen"] % 2 == 0 else None


def test_a_tuple_operator_times_tuples_and_undoes_the_one_that_fails():
    operator = Alternating()
    operator.prepare({"in": SCHEMA}, ("k",))
    state = KeyedState(operator.state)
    rows = arrival(batch_of([{"k": 1, "i": 1}, {"k": 1, "i": -1}, {"k": 2, "i": -1}, {"k": 1, "i": 1}]))
    emitted = operator.accept(rows, state, dead_letter=True)
    assert emitted.to_pylist() == [{"k": 1, "seen": 2}]
    assert len(operator.last_tuple_seconds) == 4
    assert [aside.batch.to_pylist()[0]["k"] for aside in operator.set_aside] == [1, 2]
    assert "key k=1" in operator.set_aside[0].reason
    assert state.snapshot().to_pylist() == [{"k": 1, "seen": 2}]
    with pytest.raises(BadTuple, match="Alternating raised ValueError: negative"):
        operator.accept(rows, state)


def test_operators_of_ones_own_load_from_a_file_or_a_module(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from streamtopology.api import Operator\n"
        "class Twice(Operator):\n"
        "    def __init__(self, times=2, **common):\n        super().__init__(**common)\n        self.times = times\n"
    )
    loaded = load("mine.py:Twice", tmp_path)
    assert loaded is load("mine.py:Twice", tmp_path)
    assert loaded(times=3, costPerTuple="5ms").cost_per_tuple == 0.005
    assert load("streamtopology.jobs.operators.count:Count", tmp_path) is BUILTINS["count"]
    (tmp_path / "broken.py").write_text("import no_such_module_anywhere\n")
    for run, reported in {
        "cuont": "allowed: count, aggregate",
        "mine.py:Thrice": "found there: Twice",
        "other.py:Twice": "there is no file",
        "no_such_module_anywhere:X": "there is no module",
        "broken.py:X": "no_such_module_anywhere",
        "mine.py:": "does not name a class",
    }.items():
        with pytest.raises(LoadError, match=reported):
            load(run, tmp_path)
    with pytest.raises(OptionError, match="unknown option 'time'; allowed: times, costPerTuple, ttl; did you mean 'times'"):
        loaded(time=3)


def test_the_operators_of_the_documentation_work(capsys):
    text = (Path(__file__).parents[2] / "docs" / "start" / "first-operator.md").read_text()
    readings = [{"sensor": 1, "celsius": 20.5}, {"sensor": 1, "celsius": 1.0}, {"sensor": 2, "celsius": 3.0}]
    schema = pa.schema([("sensor", pa.int32()), ("celsius", pa.float64())])
    names: dict[str, Any] = {"batch": batch_of(readings, schema)}
    for block in text.split("```python\n")[1:]:
        exec(block.split("```")[0], names)
    assert "{'sensor': 1, 'total': 21.5}" in capsys.readouterr().out
    alarm = names["Alarm"](limit=2, times=2)
    alarm.prepare({"in": schema}, ("sensor",))
    state = KeyedState(alarm.state)
    assert alarm.accept(arrival(batch_of(readings, schema), ("sensor",)), state) is None
    alarmed = alarm.accept(arrival(batch_of(readings, schema), ("sensor",)), state)
    assert alarmed.to_pylist() == [{"sensor": 1, "celsius": 20.5}, {"sensor": 2, "celsius": 3.0}]


@pytest.mark.parametrize(
    ("run", "options", "reported"),
    [
        ("count", {"emit": "every"}, "updates, all, tuples, nothing"),
        ("count", {"costPerTuple": "10 parsecs"}, "10us, 5ms"),
        ("count", {"select": ["k"]}, "needs emit: tuples"),
        ("quantiles", {"column": "i"}, "'min'.*allowed: column, min"),
        ("quantiles", {"column": "i", "min": 5, "max": 1}, "min smaller than max"),
        ("quantiles", {"column": "i", "min": 0, "max": 1, "quantiles": [50]}, "from 0 to 1"),
        ("quantiles", {"column": "s", "min": 0, "max": 1}, "column 's' of input 'in' is string; allowed: a number"),
        (
            "quantiles",
            {"column": "nosuch", "min": 0, "max": 1},
            "'nosuch' does not exist in input 'in', which has k, i, f, s, d",
        ),
        ("quantiles", {"column": "i", "min": 0, "max": 1, "quantiles": 0.5}, "a list of different numbers"),
        ("count", {"emit": "tuples", "select": "k"}, "a list of SQL expressions"),
        ("enrich", {"lookup": "x.csv"}, "file: airports.csv"),
        ("aggregate", {"aggregates": {"x": "median(i)"}}, "allowed: count"),
        ("aggregate", {"aggregates": {"x": "sum(i) / count()"}}, "compute with results in a map behind"),
        ("aggregate", {"aggregates": {"x": "sum(i) + sum(f)"}}, "compute with results in a map behind"),
        ("aggregate", {"aggregates": {"x": "sum(unnest([i, 1]))"}}, "makes several tuples of one; do it in a map before"),
        ("aggregate", {"aggregates": {"x": "sum(s || 'a')"}}, r"sum.s \|\| 'a'. of string; allowed: a number"),
        ("aggregate", {"aggregates": {"x": "avg(i)"}}, r"did you mean mean\(i\)\?"),
        ("aggregate", {"aggregates": {"x": "summ(i)"}}, r"did you mean sum\(i\)\?"),
        ("aggregate", {"aggregates": {"x": "sum()"}}, r"as sum\(amount\)$"),
        ("aggregate", {"aggregates": {"x": "sum(s)"}}, "sum.s. of string; allowed: a number"),
        ("aggregate", {"aggregates": {"k": "sum(i)"}}, "have one name"),
        ("top-k", {"by": "i", "id": "s", "k": 0}, "from 1 to 1,000"),
        ("top-k", {"by": "i", "id": "f"}, "allowed: an integer or a string"),
        ("map", {"select": "k"}, "a list of SQL expressions"),
        ("enrich", {}, "add, lookup, cost"),
        ("enrich", {"cost": "s"}, "microseconds as a number"),
        ("enrich", {"lookup": {"file": "x.csv"}}, "lookup.on is missing; allowed: columns, file, format, join, key, on"),
        ("enrich", {"lookup": {"file": "x.doc", "on": "s"}}, "allowed: .csv, .json, .parquet"),
        ("enrich", {"lookup": {"file": "nosuch.csv", "on": "s"}}, "cannot be read"),
    ],
)
def test_option_errors_say_what_is_allowed(run, options, reported):
    with pytest.raises(OptionError, match=reported):
        prepared(run, options)


def test_state_that_passes_tuples_is_not_split():
    with pytest.raises(OptionError, match="keeps a key together"):
        PartialOperator(prepared("count", {"emit": "tuples"}))
