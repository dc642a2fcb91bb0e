"""Numbers, times and names at the limits of their types: a sentence or a wider type, never another value."""

from __future__ import annotations

import datetime
import json
import os
import unicodedata
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support.connectors import read
from support.stages import Flow, manifest
from support.streams import only_file, rows_of, spec

from streamtopology.api import TupleOperator
from streamtopology.jobs.columnar.expressions import ExpressionError, output_schema, project, query, query_schema
from streamtopology.jobs.connectors.sources.descriptors import Descriptor, SourceError, SourceSpec, positive_option
from streamtopology.jobs.connectors.sources.kafka.options import starting_at
from streamtopology.jobs.connectors.sources.kafka.stream import kafka_timestamps
from streamtopology.jobs.connectors.sources.schema.conform import SchemaMismatchError
from streamtopology.jobs.connectors.sources.schema.declared import declared_schema
from streamtopology.jobs.operators.base import BatchInfo, Rows
from streamtopology.jobs.operators.columns import numbers
from streamtopology.jobs.operators.kernels import combine_into
from streamtopology.jobs.operators.options import OptionError
from streamtopology.jobs.operators.windows import duration_micros
from streamtopology.jobs.runtime.preflight.checks import examine
from streamtopology.jobs.state import Field, KeyedState, RowState, RowStateSchema
from streamtopology.jobs.state.schema import StateError
from streamtopology.topology import ManifestError, Source

ENDS = [datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31, 23, 59, 59, 999999)]
INTEGERS = [np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)]


def only_operator(ddl: str, key: str, run: str, **options: Any) -> dict[str, Any]:
    grouping = {"policy": "mixed", "key": key}
    return manifest([{"name": "o", "inputs": ["s"], "grouping": grouping, "run": run, "with": options}], {"s": ddl})


def in_file(folder: Path, table: pa.Table, **how: Any) -> Path:
    (folder / "in").mkdir(exist_ok=True)
    pq.write_table(table, folder / "in" / "a.parquet", **how)
    return folder / "in"


# --- files


def test_int96_times_of_the_years_1_and_9999_are_read_as_spark_does(tmp_path: Path) -> None:
    times = pa.table({"t": pa.array(ENDS, pa.timestamp("us")), "l": [[one] for one in ENDS]})
    folder = in_file(tmp_path, times, use_deprecated_int96_timestamps=True)
    source = spec(folder, schema="t TIMESTAMP_NTZ, l ARRAY<TIMESTAMP_NTZ>")
    assert rows_of([only_file(folder, source)], source) == times.to_pylist()


def test_lookup_reads_int96_times_of_the_years_1_and_9999(tmp_path: Path) -> None:
    table = pa.table({"id": [1, 2], "at": pa.array(ENDS, pa.timestamp("us"))})
    pq.write_table(table, tmp_path / "ends.parquet", use_deprecated_int96_timestamps=True)
    flow = Flow(tmp_path, only_operator("k BIGINT", "k", "enrich", lookup={"file": "ends.parquet", "on": "k", "key": "id"}))
    flow.batch(s=pa.table({"k": [1, 2]}))
    assert sorted(flow.published("o").column("at").to_pylist()) == ENDS


def test_text_column_with_bytes_that_are_no_text_is_named(tmp_path: Path) -> None:
    bad = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(np.array([0, 1], np.int32)), pa.py_buffer(b"\xff")])
    folder = in_file(tmp_path, pa.table({"t": bad}))
    source = spec(folder, schema="t STRING")
    with pytest.raises(SchemaMismatchError, match=r"a\.parquet: column 't' .* no UTF-8; declare it BINARY"):
        rows_of([only_file(folder, source)], source)
    source = spec(folder, schema="t BINARY")
    assert rows_of([only_file(folder, source)], source) == [{"t": b"\xff"}]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("ARRAY<STRING>", ["a", "zzzz"]),
        ("STRUCT<n: INT, s: STRING>", {"n": 1, "s": "zzzz"}),
        ("MAP<STRING, INT>", [("zzzz", 1)]),
        ("MAP<INT, ARRAY<STRUCT<s: STRING>>>", [(1, [{"s": "zzzz"}])]),
    ],
)
def test_nested_text_with_bytes_that_are_no_text_is_named(tmp_path: Path, kind: str, value: Any) -> None:
    source = spec(tmp_path / "in", schema=f"t {kind}")
    table = pa.table([pa.array([None, value, None], declared_schema(source).field("t").type)], names=["t"])
    file = in_file(tmp_path, table, compression="none") / "a.parquet"
    parts = [Descriptor("s", "parquet", str(file), 0, 0, 3, 3)]
    assert [row["t"] for row in rows_of(parts, source)] == [None, value, None]
    file.write_bytes(file.read_bytes().replace(b"zzzz", b"zz\xff\xfe"))
    os.utime(file, (1, 1))
    with pytest.raises(SchemaMismatchError, match=r"a\.parquet: column 't' .* no UTF-8; declare BINARY in place of its STRING"):
        rows_of(parts, source)


def test_file_with_two_columns_of_one_name_is_refused_by_name(tmp_path: Path) -> None:
    folder = in_file(tmp_path, pa.table([[1], [2], [3]], names=["k", "k", "x"]))
    with pytest.raises(SchemaMismatchError, match=r"a\.parquet: has several columns 'k'"):
        rows_of([only_file(folder, spec(folder, schema="k BIGINT"))], spec(folder, schema="k BIGINT"))
    source = spec(folder, schema="x BIGINT")
    assert rows_of([only_file(folder, source)], source) == [{"x": 3}]


def test_time_with_nanoseconds_is_refused_with_the_unit_to_write(tmp_path: Path) -> None:
    folder = in_file(tmp_path, pa.table({"t": pa.array([1], pa.timestamp("ns"))}))
    source = spec(folder, schema="t TIMESTAMP_NTZ")
    with pytest.raises(SchemaMismatchError, match="would lose data: 1; write the file with times in 'us'"):
        next(read(only_file(folder, source), source))


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5))
@example([-(2**63)])
def test_kafka_timestamp_is_exact_or_null(milliseconds: list[int]) -> None:
    found = kafka_timestamps(np.array(milliseconds, np.int64)).cast(pa.int64()).to_pylist()
    assert found == [one * 1000 if abs(one) * 1000 < 2**63 else None for one in milliseconds]


# --- sums and state


@st.composite
def sums(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A target of three slots, slots, and values to add there: near the limits of an integer type, with a shape or not."""
    dtype = draw(st.sampled_from(INTEGERS))
    bounds = np.iinfo(dtype)
    shape = draw(st.sampled_from([(), (2,), (2, 2)]))
    near = st.sampled_from([bounds.min, bounds.max, bounds.max // 2, bounds.min // 2, 0, 1]) | st.integers(
        bounds.min, bounds.max
    )
    rows = draw(st.integers(0, 4))
    target, values = (draw(hnp.arrays(dtype, (n, *shape), elements=near)) for n in (3, rows))
    return target, draw(hnp.arrays(np.int64, rows, elements=st.integers(0, 2))), values


@given(sums())
def test_sum_of_integers_is_exact_or_refused(given: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    target, slots, values = given
    wanted, bounds, fits = target.astype(object), np.iinfo(target.dtype), True
    for slot, value in zip(slots, values.astype(object), strict=True):
        wanted[slot] = wanted[slot] + value
        fits &= bool(np.all((wanted[slot] >= bounds.min) & (wanted[slot] <= bounds.max)))
    if fits:
        combine_into(target, slots, values, "sum")
        assert target.astype(object).tolist() == wanted.tolist()
    else:
        with pytest.raises(OverflowError, match="does not fit into"):
            combine_into(target, slots, values, "sum")


def test_unsigned_number_beyond_63_bits_is_no_other_number() -> None:
    with pytest.raises(OverflowError, match="does not fit into 63 bits; cast the column in a map"):
        numbers(pa.array([2**63], pa.uint64()))


@pytest.mark.parametrize(
    ("dtype", "value", "kept"),
    [(np.int32, 7, True), (np.int32, 7.0, True), (np.int32, 2**31, False), (np.int32, np.int64(2**40), False),
     (np.int64, 1.5, False), (np.uint8, -1, False), (np.float64, 1.5, True)],
)  # fmt: skip
def test_state_field_of_a_tuple_keeps_a_number_or_refuses_it(dtype: Any, value: Any, kept: bool) -> None:
    class Keeps(TupleOperator):
        fields = (Field("n", dtype), Field("many", dtype, shape=(2,)))

        def process_tuple(self, row: dict[str, Any], state: Any) -> None:
            state["n"] = value
            state["many"] = np.array([value, value])

    operator, batch = Keeps(), pa.record_batch({"k": [1]})
    operator.prepare({"s": batch.schema}, ("k",))
    state = KeyedState(operator.state)  # type: ignore[arg-type]
    operator.begin(BatchInfo(0))
    operator.accept(Rows.of(batch, "s", ("k",)), state, dead_letter=True)
    assert bool(operator.set_aside) is not kept
    assert state.snapshot().to_pylist() == ([{"k": 1, "n": value, "many": [value] * 2}] if kept else [])


@pytest.mark.parametrize(("dtype", "initial"), [(np.int8, 128), (np.int64, 0.5), (np.uint16, -1), (np.int64, np.inf)])
def test_initial_value_that_its_type_cannot_hold_is_refused(dtype: Any, initial: float) -> None:
    with pytest.raises(StateError, match=r"field 'n': u?int[0-9]+ cannot hold initial"):
        Field("n", dtype, initial=initial)


def test_kept_row_with_a_time_beyond_9999_is_one_without_time() -> None:
    schema = pa.schema([("k", pa.int64()), ("at", pa.timestamp("s"))])
    state = RowState(RowStateSchema({"s": schema}, ("k",), "at"))
    state.append("s", pa.record_batch([pa.array([1, 2]), pa.array([2**62, 5]).cast(pa.timestamp("s"))], schema=schema))
    state.expire(1.0)
    assert state.rows("s").column("k").to_pylist() == [2]


@pytest.mark.parametrize("value", ["1000001d", 1e30, 2**62, "9" * 400 + "s"])
def test_duration_that_leaves_64_bits_is_refused(value: Any) -> None:
    with pytest.raises(OptionError, match=r"option 'size' is .*; allowed: a duration"):
        duration_micros(value, "size")
    assert duration_micros("1000000d", "size") == 86_400 * 10**12


def test_endless_cost_of_a_tuple_is_its_fault(tmp_path: Path) -> None:
    made = only_operator("k BIGINT", "k", "enrich", cost="CASE WHEN k > 1 THEN 'inf'::DOUBLE ELSE 0 END")
    made["spec"]["onBadTuple"] = "deadLetter"
    flow = Flow(tmp_path, made)
    flow.batch(s=pa.table({"k": [1, 2]}))
    assert flow.published("o").to_pylist() == [{"k": 1}]
    assert flow.published("").column("reason").to_pylist() == ["its cost of inf microseconds is more than an hour"]


@pytest.mark.parametrize("file_type", [pa.uint64(), pa.int64()])
def test_lookup_of_unsigned_numbers_finds_equal_ones_only(tmp_path: Path, file_type: pa.DataType) -> None:
    ids = pa.array([5, 2**63 - 1], file_type)
    pq.write_table(pa.table({"id": ids, "name": ["five", "most"]}), tmp_path / "names.parquet")
    lookup = {
        "name": "o",
        "inputs": ["m"],
        "run": "enrich",
        "with": {"lookup": {"file": "names.parquet", "on": "k", "key": "id"}},
    }
    unsigned = {"name": "m", "inputs": ["s"], "run": "map", "with": {"select": ["k::UBIGINT * 2 + 1 AS k"]}}
    flow = Flow(tmp_path, manifest([unsigned, lookup], {"s": "k BIGINT"}))
    flow.batch(s=pa.table({"k": [2, 2**62 - 1, 2**62]}))
    names = {row["k"]: row["name"] for row in flow.published("o").to_pylist()}
    assert names == {5: "five", 2**63 - 1: "most", 2**63 + 1: None}


@pytest.mark.parametrize(
    ("expression", "type_"),
    [
        ("x::BIGINT::BIT AS y", "BIT; cast it to VARCHAR"),
        ("'10:00:00+02'::TIMETZ AS y", "TIMETZ; cast it to TIME or VARCHAR"),
        ("[{'a': '10:00:00+02'::TIMETZ}] AS y", "TIMETZ"),
        ("MAP {x: x::BIGINT::BIT} AS y", "BIT"),
        ("[x::BIGINT::BIT]::BIT[1] AS y", "BIT"),
        ("x::VARIANT AS y", "VARIANT; cast it to JSON or VARCHAR"),
        ("x::BIGINT::BIGNUM AS y", "BIGNUM; cast it to HUGEINT, DOUBLE or VARCHAR"),
    ],
)
def test_type_whose_values_would_be_others_is_refused(expression: str, type_: str) -> None:
    with pytest.raises(ExpressionError, match=f"'y' is a {type_}"):
        output_schema(pa.schema([("x", pa.int64())]), [expression])


def test_names_and_texts_of_refused_types_are_none() -> None:
    texts = ["{'BIT': x, 'bit1': 'TIMETZ'} AS \"UHUGEINT\"", "'BIT'::ENUM('BIT', 'TIME WITH TIME ZONE') AS bit"]
    assert output_schema(pa.schema([("x", pa.int64())]), texts).names == ["UHUGEINT", "bit"]


@pytest.mark.parametrize("expression", ["md5_number(x::VARCHAR) AS y", "[x::UHUGEINT] AS y"])
def test_number_that_would_become_a_negative_one_is_refused(expression: str) -> None:
    with pytest.raises(ExpressionError, match="'y' is a UHUGEINT; cast it to HUGEINT, DOUBLE or VARCHAR"):
        output_schema(pa.schema([("x", pa.int64())]), [expression])
    with pytest.raises(ExpressionError, match="'y' is a UHUGEINT"):
        query_schema({"t": pa.schema({"x": pa.int64()})}, f"SELECT {expression} FROM t")


@given(st.integers(-(10**20), 10**20), st.integers(-(10**20), 10**20))
@example(10**19, 10**19 - 1)
@example(10**19, 10**19)
@example(10**20, 10**20)
def test_product_of_huge_numbers_is_exact_or_refused(one: int, other: int) -> None:
    row = pa.record_batch({"a": [str(one)], "b": [str(other)]})
    try:
        found = project(row, ["a::HUGEINT * b::HUGEINT AS y"]).column(0)[0].as_py()
    except ExpressionError:
        assert abs(one * other) >= 10**38
    else:
        assert found == one * other


@pytest.mark.parametrize(
    "offsets", ['{"t": {"0": 1.5}}', '{"t": {"0": true}}', '{"t": {"0": 9223372036854775808}}', '{"t": {"2147483648": 0}}']
)
def test_starting_offset_that_is_none_is_refused(offsets: str) -> None:
    source = Source("s", "kafka", options={"subscribe": "t", "kafka.bootstrap.servers": "b:1", "startingOffsets": offsets})
    with pytest.raises(SourceError, match="startingOffsets must be earliest, latest or JSON"):
        starting_at(SourceSpec.of(source))


@pytest.mark.parametrize("text", ["1e3", "²", "9" * 19, "-1", "0", "1_000"])
def test_limit_of_a_source_that_is_no_whole_number_is_refused(text: str) -> None:
    with pytest.raises(SourceError, match="maxFilesPerTrigger must be a whole number above 0"):
        positive_option(
            SourceSpec.of(Source("s", "parquet", options={"path": "in", "maxFilesPerTrigger": text})), "maxFilesPerTrigger"
        )


# --- event times that are no epoch seconds


def windowed(folder: Path, times: list[int], unit: str, named_by: str = "watermark") -> Path:
    """A manifest over a file with the times `t`, which its watermark or only its window takes as event time."""
    now = datetime.datetime(2024, 1, 1)
    (folder / "in").mkdir(exist_ok=True)
    pq.write_table(pa.table({"k": [1] * len(times), "at": [now] * len(times), "t": times}), folder / "in" / f"{unit}.parquet")
    operator = {
        "name": "w", "inputs": ["s"], "grouping": {"policy": "fields", "key": "k"}, "run": "window-aggregate",
        "with": {"time": "t", "size": "1h", "aggregates": {"n": "count()"}},
    }  # fmt: skip
    mark = {"s": {"column": "t" if named_by == "watermark" else "at"}}
    made = manifest([operator], {"s": "k BIGINT, at TIMESTAMP_NTZ, t BIGINT"}, watermarks=mark)
    made["spec"]["sources"][0]["options"]["path"] = str(folder / "in")
    (folder / "t.json").write_text(json.dumps(made))
    return folder / "t.json"


@pytest.mark.parametrize(("unit", "factor"), [("milliseconds", 10**3), ("microseconds", 10**6), ("nanoseconds", 10**9)])
@pytest.mark.parametrize(
    ("named_by", "place"), [("watermark", "sources[0].watermark.column"), ("window", "operators[0].with.time")]
)
def test_event_times_in_another_unit_are_refused_by_name(
    tmp_path: Path, unit: str, factor: int, named_by: str, place: str
) -> None:
    (problem,) = examine(windowed(tmp_path, [1_700_000_000 * factor], unit, named_by)).problems
    assert problem.path == f"spec.{place}"
    assert f"column 't' has numbers such as {1_700_000_000 * factor}" in problem.message
    assert f"they look like {unit}" in problem.message


def test_event_times_of_which_most_are_in_another_unit_are_a_warning(tmp_path: Path) -> None:
    found = examine(windowed(tmp_path, [0, 17 * 10**14, 17 * 10**14], "us"))
    assert not found.problems
    (doubt,) = [one for one in found.doubts if "watermark" in one.path]
    assert "only 1 of 3 in" in doubt.message
    assert "the other rows would be late; they look like microseconds" in doubt.message
    assert not examine(windowed(tmp_path, [0, 1, 17 * 10**14], "us")).problems


# --- names and keys


@pytest.mark.parametrize("expression", ["k", '"K" + 1 AS x', "*", "COLUMNS('.*')", "t.k AS x"])
def test_sql_that_names_a_column_of_two_cases_is_refused(expression: str) -> None:
    batch = pa.record_batch({"K": [1], "k": [2], "x": [3]})
    sentence = "'K' and 'k' differ in upper and lower case only"
    for refused in (lambda: project(batch, [expression]), lambda: output_schema(batch.schema, [expression])):
        with pytest.raises(ExpressionError, match=sentence):
            refused()
    with pytest.raises(ExpressionError, match=sentence):
        project(batch, where="k = 2")
    with pytest.raises(ExpressionError, match=sentence):
        query({"t": batch}, 'SELECT "k" FROM t')


def test_sql_that_names_no_column_of_two_cases_is_exact() -> None:
    batch = pa.record_batch({"K": [1, 2], "k": [3, 4], "x": [5, 6], "é": [7, 8], "É": [9, 10]})
    assert project(batch, where="x = 5").to_pylist() == [{"K": 1, "k": 3, "x": 5, "é": 7, "É": 9}]
    assert project(batch, ["x AS K", 'x + 1 AS "k"', '"é"', "É AS big"]).to_pylist()[0] == {"K": 5, "k": 6, "é": 7, "big": 9}


def test_operator_keeps_columns_of_two_cases_apart(tmp_path: Path) -> None:
    both = {"name": "m", "inputs": ["s"], "run": "map", "with": {"select": ["a AS K", "b AS k"]}}
    grouping = {"policy": "mixed", "key": "k"}
    sums = {"name": "o", "inputs": ["m"], "grouping": grouping, "run": "aggregate", "with": {"aggregates": {"n": "sum(K)"}}}
    flow = Flow(tmp_path, manifest([both, sums], {"s": "a BIGINT, b BIGINT"}))
    flow.batch(s=pa.table({"a": [1, 2, 3], "b": [7, 7, 8]}))
    assert sorted(flow.published("o").to_pylist(), key=str) == [{"k": 7, "n": 3}, {"k": 8, "n": 3}]


@pytest.mark.parametrize("name", ["__deleted", "__routing", "count"])
def test_key_column_with_a_name_of_the_state_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ManifestError, match=f"{name}.*give the key column another name in the source's select"):
        Flow(tmp_path, only_operator(f"`{name}` BIGINT", name, "count"))


def test_json_column_whose_name_differs_in_case_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"K": 1, "x": null}\n{"K": 2}\n')
    made = manifest([{"name": "o", "inputs": ["s"], "run": "filter", "with": {"where": "true"}}], {"s": "k BIGINT, x BIGINT"})
    made["spec"]["sources"][0] |= {"format": "json", "options": {"path": str(tmp_path / "in")}}
    (tmp_path / "t.json").write_text(json.dumps(made))
    (problem,) = examine(tmp_path / "t.json").problems
    assert "a.json has no column 'k' but 'K'; upper and lower case count: declare it so" in problem.message


TEXTS = st.text("aeK\0\u0301", max_size=3).flatmap(
    lambda text: st.sampled_from([text, *(unicodedata.normalize(form, text) for form in ("NFC", "NFD", "NFKC"))])
) | st.sampled_from(["ﬀ", "ff", "İ", "K", "k", "\u212a", "ß", "ss", ""])


@settings(max_examples=12)
@given(st.lists(TEXTS | st.none(), min_size=1, max_size=8), st.sampled_from(["mixed", "partial-key"]))
@example(["é", "e\u0301", "a", "a\0", "", None], "partial-key")
def test_texts_are_one_key_only_if_their_bytes_are_equal(texts: list[str | None], policy: str) -> None:
    assert counted(pa.array(texts, pa.string()), "STRING", policy) == Counter(texts)


@settings(max_examples=12)
@given(st.lists(st.binary(max_size=3) | st.none(), min_size=1, max_size=8), st.sampled_from(["mixed", "partial-key"]))
@example([b"\xff", b"\xff\0", b"", b"\0", None, "é".encode(), "é".encode("latin1")], "mixed")
def test_bytes_of_any_value_are_keys(keys: list[bytes | None], policy: str) -> None:
    assert counted(pa.array(keys, pa.binary()), "BINARY", policy) == Counter(keys)


def counted(keys: pa.Array, kind: str, policy: str) -> dict[Any, int]:
    """The counts per key that reach the sink, after all state was written and read again."""
    made = only_operator(f"k {kind}", "k", "count")
    made["spec"]["operators"][0]["grouping"]["policy"] = policy
    with TemporaryDirectory() as folder:
        flow = Flow(Path(folder), made)
        flow.batch(s=pa.table({"k": keys}))
        flow.start(made)
        flow.drain()
        return {row["k"]: row["count"] for row in flow.published("o").to_pylist()}
