"""An operator's rows reach commit and sinks as its `output` declares them, or are an error that names column and class."""

from __future__ import annotations

import datetime as dt
import json
import math
import signal
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.stages import Flow, manifest

from streamtopology.jobs.connectors.sinks.dead_letters import DEAD_LETTERS
from streamtopology.jobs.errors import TopologyFailed
from streamtopology.jobs.operators.returned import WrongOutput, WrongValue, as_declared

OWN = """
import sys
import pyarrow as pa
from streamtopology.api import Operator, TupleOperator

DECLARED = pa.schema([("k", pa.int64()), ("v", pa.int64())])


class Reordered(Operator):
    output = DECLARED

    def process(self, rows, state):
        batch = rows.batch
        return pa.table({"v": batch.column("v").cast(pa.int32()), "k": batch.column("k")})


class Pandas(Operator):
    output = DECLARED

    def process(self, rows, state):
        return pa.RecordBatch.from_pandas(rows.batch.to_pandas(), preserve_index=False)


class Frame(Operator):
    output = DECLARED

    def process(self, rows, state):
        return rows.batch.to_pandas()


class Misspelt(Operator):
    output = DECLARED

    def process(self, rows, state):
        return None

    def finish(self, batch, state):
        return pa.record_batch({"k": pa.array([1]), "vv": pa.array([2])})


class Text(Operator):
    output = DECLARED

    def process(self, rows, state):
        return pa.record_batch({"k": rows.column("k"), "v": rows.column("v").cast(pa.string())})


class Undeclared(Operator):
    def process(self, rows, state):
        return rows.batch


class Half(Operator):
    output = DECLARED

    def process(self, rows, state):
        halves = [None if v is None else v / 2 for v in rows.column("v").to_pylist()]
        return pa.record_batch({"k": rows.column("k"), "v": pa.array(halves, pa.float64())})


class HalfOfEach(TupleOperator):
    output = DECLARED

    def process_tuple(self, row, state):
        return {"k": row["k"], "v": row["v"] / 2 if row["v"] % 2 else row["v"] // 2}


class LeavesAt7(Operator):
    output = DECLARED

    def process(self, rows, state):
        if 7 in rows.column("v").to_pylist():
            sys.exit("seven")
        return rows.batch


class LeavesAtTuple7(TupleOperator):
    output = DECLARED

    def process_tuple(self, row, state):
        if row["v"] == 7:
            sys.exit("seven")
        return row


class InterruptsAt7(TupleOperator):
    output = DECLARED

    def process_tuple(self, row, state):
        if row["v"] == 7:
            raise KeyboardInterrupt
        return row


class ClosesAt7(Operator):
    output = DECLARED

    def process(self, rows, state):
        if 7 in rows.column("v").to_pylist():
            raise GeneratorExit
        return rows.batch


class Begins(Operator):
    output = DECLARED

    def begin(self, batch):
        raise KeyboardInterrupt("at once")

    def process(self, rows, state):
        return rows.batch
"""


def flow_of(folder: Path, operator: str, on_bad_tuple: str = "fail") -> Flow:
    (folder / "own.py").write_text(OWN)
    own = {"name": "own", "inputs": ["s"], "grouping": {"policy": "fields", "key": "k"}, "run": f"own.py:{operator}"}
    made: dict[str, Any] = manifest([own], {"s": "k BIGINT, v BIGINT"}, onBadTuple=on_bad_tuple)
    if operator == "Undeclared":
        made["spec"]["sinks"] = []
    return Flow(folder, made)


def rows_of(*values: int | None) -> pa.Table:
    return pa.table({"k": pa.array(range(len(values)), pa.int64()), "v": pa.array(values, pa.int64())})


def published(flow: Flow) -> list[tuple[int, int | None]]:
    rows = flow.published("own")
    assert rows.schema.types == [pa.int64(), pa.int64()]
    return sorted((row["k"], row["v"]) for row in rows.to_pylist())


@pytest.mark.parametrize("operator", ["Reordered", "Pandas"])
def test_rows_that_can_be_are_cast_without_loss(tmp_path: Path, operator: str) -> None:
    flow = flow_of(tmp_path, operator)
    values = (None, *range(1, 20))
    flow.batch(s=rows_of(*values))
    assert published(flow) == list(enumerate(values))


@pytest.mark.parametrize(
    ("operator", "finding"),
    [
        ("Frame", "Frame returns a DataFrame; return a pa.RecordBatch"),
        ("Misspelt", "Misspelt returns rows that lack 'v' and have 'vv'; its `output` declares k int64, v int64"),
        ("Text", "Text returns 'v' as string, which its `output` declares as int64"),
        ("Undeclared", "Undeclared returns rows with k int64, v int64, but declares no `output`"),
    ],
)
@pytest.mark.parametrize("on_bad_tuple", ["fail", "deadLetter"])
def test_other_rows_are_refused_before_the_commit(tmp_path: Path, operator: str, finding: str, on_bad_tuple: str) -> None:
    flow = flow_of(tmp_path, operator, on_bad_tuple)
    with pytest.raises(TopologyFailed) as failed:
        flow.batch(s=rows_of(1, 2, 3))
    assert finding in str(failed.value)
    assert flow.checkpoint.commits() == []


@pytest.mark.parametrize("operator", ["Half", "HalfOfEach", "LeavesAt7", "LeavesAtTuple7", "InterruptsAt7", "ClosesAt7"])
def test_tuple_whose_output_does_not_fit_is_named(tmp_path: Path, operator: str) -> None:
    flow = flow_of(tmp_path, operator)
    with pytest.raises(TopologyFailed, match=r"'own' failed on one tuple in batch 0 .* The tuple: \{'k': 2, 'v': 7\}"):
        flow.batch(s=rows_of(2, 4, 7, 8))
    assert flow.checkpoint.commits() == []


@pytest.mark.parametrize("operator", ["Half", "HalfOfEach", "LeavesAt7", "LeavesAtTuple7", "InterruptsAt7", "ClosesAt7"])
def test_tuple_whose_output_does_not_fit_is_set_aside(tmp_path: Path, operator: str) -> None:
    flow = flow_of(tmp_path, operator, "deadLetter")
    flow.batch(s=rows_of(2, 4, 7, 8))
    assert [key for key, _ in published(flow)] == [0, 1, 3]
    letters = flow.published(DEAD_LETTERS).to_pylist()
    assert [json.loads(letter["tuple"]) for letter in letters] == [{"k": 2, "v": 7}]
    assert operator in letters[0]["reason"]


def test_interrupt_by_the_class_itself_is_its_error(tmp_path: Path) -> None:
    flow = flow_of(tmp_path, "Begins")
    with pytest.raises(TopologyFailed, match="Begins ends the process, by KeyboardInterrupt or the like"):
        flow.batch(s=rows_of(1))


def test_real_interrupt_in_the_code_of_a_class_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flow = flow_of(tmp_path, "Reordered")

    def interrupted(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("streamtopology.jobs.operators.base.Operator.begin", interrupted)
    with pytest.raises(KeyboardInterrupt):
        flow.batch(s=rows_of(1))
    assert flow.checkpoint.commits() == []


PAIR = pa.struct({"a": pa.int64(), "b": pa.string()})
COUNTS = pa.map_(pa.string(), pa.int64())
CASTS = [
    (pa.int32(), pa.int64(), [1, None], [1, None]),
    (pa.int64(), pa.int32(), [2**31 - 1], [2**31 - 1]),
    (pa.int64(), pa.int32(), [2**31], None),
    (pa.float64(), pa.int64(), [2.0**53, None], [2**53, None]),
    (pa.float64(), pa.int64(), [2.0**53 + 2], None),
    (pa.float64(), pa.int64(), [math.nan], None),
    (pa.int64(), pa.float64(), [2**53 + 1], None),
    (pa.float64(), pa.float32(), [0.5, math.nan, math.inf], [0.5, math.nan, math.inf]),
    (pa.float64(), pa.float32(), [0.1], None),
    (pa.timestamp("ns"), pa.timestamp("us"), [1_000], [1]),
    (pa.timestamp("ns"), pa.timestamp("us"), [1_001], None),
    (pa.timestamp("us"), pa.timestamp("us", "UTC"), [1], None),
    (pa.timestamp("us", "Europe/Berlin"), pa.timestamp("us", "UTC"), [1], [1]),
    (pa.large_string(), pa.string(), ["é", None], ["é", None]),
    (pa.dictionary(pa.int8(), pa.string()), pa.string(), ["a", "b"], ["a", "b"]),
    (pa.dictionary(pa.int8(), pa.int64()), pa.int64(), [5, 3, 5, None], [5, 3, 5, None]),
    (pa.dictionary(pa.int8(), pa.int64()), pa.dictionary(pa.int32(), pa.int64()), [5, 3], [5, 3]),
    (pa.dictionary(pa.int8(), pa.string()), pa.string_view(), ["b", "a", None], ["b", "a", None]),
    (pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int8(), pa.string(), ordered=True), ["b", "a"], ["b", "a"]),
    (pa.dictionary(pa.int16(), pa.int64()), pa.dictionary(pa.int8(), pa.int64()), list(range(200)), None),
    (pa.run_end_encoded(pa.int32(), pa.string()), pa.string(), ["b", "b", None], ["b", "b", None]),
    (pa.run_end_encoded(pa.int32(), pa.int64()), pa.int32(), [2**40], None),
    (pa.null(), pa.string(), [None], [None]),
    (pa.int64(), pa.string(), [1], None),
    (pa.string(), pa.int64(), ["1"], None),
    (pa.string(), pa.binary(), ["1"], None),
    (pa.bool_(), pa.int64(), [True], None),
    (pa.decimal128(10, 2), pa.decimal128(10, 1), [Decimal("1.50")], [Decimal("1.5")]),
    (pa.decimal128(10, 2), pa.decimal128(10, 1), [Decimal("1.55")], None),
    (pa.list_(pa.int64()), pa.list_(pa.int32()), [[1], None], [[1], None]),
    (pa.list_(pa.int64()), pa.list_(pa.string()), [[1]], None),
    (pa.struct({"a": pa.int32()}), pa.struct({"a": pa.int64()}), [{"a": 1}], [{"a": 1}]),
    (pa.struct({"a": pa.int32()}), pa.struct({"b": pa.int64()}), [{"a": 1}], None),
    (pa.list_(pa.null()), pa.list_(pa.int64()), [[], None, [None]], [[], None, [None]]),
    (pa.list_(pa.null()), pa.list_(PAIR), [[], None], [[], None]),
    (pa.struct({"a": pa.null(), "b": pa.null()}), PAIR, [{"a": None, "b": None}, None], [{"a": None, "b": None}, None]),
    (pa.list_(pa.struct({"a": pa.int8(), "b": pa.null()})), pa.list_(PAIR), [[{"a": 1, "b": None}]], [[{"a": 1, "b": None}]]),
    (pa.map_(pa.string(), pa.null()), COUNTS, [[], None], [[], None]),
    (pa.map_(pa.string(), pa.int8()), COUNTS, [[("a", 1)]], [[("a", 1)]]),
    (pa.int64(), pa.decimal128(10, 2), [5, None, -99_999_999], [5, None, -99_999_999]),
    (pa.uint64(), pa.decimal128(38, 18), [5, 2**64 - 1], [5, 2**64 - 1]),
    (pa.list_(pa.int64()), pa.list_(pa.decimal128(10, 2)), [[5], None], [[5], None]),
    (pa.int64(), pa.decimal32(5, 2), [5], [5]),
    (pa.decimal128(10, 2), pa.int64(), [Decimal(5)], [Decimal(5)]),
    (pa.decimal128(38, 2), pa.int64(), [Decimal(2**63 - 1), Decimal(-(2**63))], [Decimal(2**63 - 1), Decimal(-(2**63))]),
    (pa.float64(), pa.decimal128(10, 2), [0.5, None], [0.5, None]),
    (pa.list_(pa.float64()), pa.list_(pa.float32()), [[math.inf, None]], [[math.inf, None]]),
    (pa.string(), pa.dictionary(pa.int8(), pa.string()), ["x", None], ["x", None]),
    (pa.time32("s"), pa.time64("us"), [dt.time(1)], [dt.time(1)]),
    (pa.int64(), pa.decimal128(10, 2), [10**8], None),
    (pa.list_(pa.int64()), pa.list_(pa.decimal128(10, 2)), [[10**8]], None),
    (pa.decimal128(10, 2), pa.int64(), [Decimal("5.5")], None),
    (pa.decimal128(38, 2), pa.int64(), [Decimal(2**63)], None),
    (pa.float64(), pa.decimal128(10, 2), [0.1234], None),
    (pa.list_(pa.float64()), pa.list_(pa.int64()), [[2.0**53 + 2]], None),
    (pa.list_(pa.float64()), pa.list_(pa.float32()), [[0.1]], None),
    (pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.string()), [[("a", 1)]], None),
    (pa.list_(pa.int64()), pa.list_(pa.int64(), 2), [[1, 2], [3]], None),
    (pa.struct({"a": pa.int64()}), pa.struct({"a": pa.int8()}), [{"a": 300}], None),
    (pa.time64("us"), pa.time32("ms"), [dt.time(1, microsecond=1)], None),
]


@pytest.mark.parametrize(("found", "declared", "values", "right"), CASTS, ids=lambda value: str(value))
def test_cast_keeps_every_value_or_is_refused(
    found: pa.DataType, declared: pa.DataType, values: list, right: list | None
) -> None:
    rows = pa.record_batch({"v": pa.array(values, found)})
    schema = pa.schema([("v", declared)])
    if right is None:
        with pytest.raises((WrongOutput, WrongValue), match="Own returns 'v'"):
            as_declared(rows, schema, "Own")
        return
    (fitted,) = as_declared(rows, schema, "Own")
    assert fitted.schema == schema
    column = fitted["v"].cast(pa.int64()) if pa.types.is_timestamp(declared) else fitted["v"]
    kept = column.to_pylist()
    assert kept == right or repr(kept) == repr(right)  # NaN equals nothing


LABELS = st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=4)


@given(st.data(), LABELS, st.sampled_from([pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]))
def test_dictionary_arrives_by_its_values_whatever_its_labels(
    data: st.DataObject, labels: list[str | None], declared: pa.DataType
) -> None:
    places = data.draw(st.lists(st.none() | st.integers(0, len(labels) - 1), max_size=5))
    values = [None if place is None else labels[place] for place in places]
    column = pa.DictionaryArray.from_arrays(pa.array(places, pa.int8()), pa.array(labels, pa.string()))
    for rows, kind, right in [
        (column, declared, values),
        (pa.StructArray.from_arrays([column], ["a"]), pa.struct({"a": declared}), [{"a": value} for value in values]),
        (pa.ListArray.from_arrays([0, len(column)], column), pa.list_(declared), [values]),
    ]:
        (fitted,) = as_declared(pa.record_batch({"v": rows}), pa.schema([("v", kind)]), "Own")
        assert (fitted["v"].type, fitted["v"].to_pylist()) == (kind, right)


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1) | st.none(), max_size=5),
    st.sampled_from([pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint64(), pa.float32(), pa.float64()]),
)
def test_integers_arrive_as_they_were_or_not_at_all(values: list[int | None], declared: pa.DataType) -> None:
    rows = pa.record_batch({"v": pa.array(values, pa.int64())})
    try:
        (fitted,) = as_declared(rows, pa.schema([("v", declared)]), "Own")
    except WrongValue:
        assert any(value is not None and not _holds(declared, value) for value in values)
    else:
        assert [None if value is None else int(value) for value in fitted["v"].to_pylist()] == values


ANY = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float64(): st.floats(allow_nan=False) | st.integers(-(2**53), 2**53).map(float),
    pa.float32(): st.floats(allow_nan=False, width=32),
    pa.decimal128(38, 2): st.decimals(-(10**20), 10**20, places=2),
    pa.decimal128(9, 0): st.decimals(-999_999_999, 999_999_999, places=0),
    pa.string(): st.text(st.characters(exclude_categories=["Cs"]), max_size=3),
    pa.large_string(): st.text(st.characters(exclude_categories=["Cs"]), max_size=3),
    pa.binary(): st.binary(max_size=3),
    pa.binary(2): st.binary(min_size=2, max_size=2),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(),
    pa.timestamp("us"): st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1)),
    pa.timestamp("ms"): st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1)).map(lambda t: t.replace(microsecond=0)),
    pa.timestamp("us", "UTC"): st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1), timezones=st.just(dt.UTC)),
    pa.list_(pa.int64()): st.lists(st.integers(-(2**40), 2**40), max_size=2),
    pa.list_(pa.int16()): st.lists(st.integers(-9, 9), max_size=2),
}
COLUMN = st.sampled_from(list(ANY)).flatmap(lambda kind: st.tuples(st.just(kind), st.lists(ANY[kind] | st.none(), max_size=4)))


@given(COLUMN, st.sampled_from(list(ANY)))
def test_any_column_arrives_as_it_was_or_not_at_all(column: tuple[pa.DataType, list[Any]], declared: pa.DataType) -> None:
    found, values = column
    rows = pa.record_batch({"v": pa.array(values, found)})
    try:
        (fitted,) = as_declared(rows, pa.schema([("v", declared)]), "Own")
    except (WrongOutput, WrongValue):
        assert found != declared
    else:
        assert fitted["v"].type == declared
        assert fitted["v"].to_pylist() == rows["v"].to_pylist()


def _holds(kind: pa.DataType, value: int) -> bool:
    if pa.types.is_floating(kind):
        return abs(value) <= 2 ** (24 if kind == pa.float32() else 53)
    bits = kind.bit_width - pa.types.is_signed_integer(kind)
    return (-(2**bits) if pa.types.is_signed_integer(kind) else 0) <= value < 2**bits
