"""Values of the dicts that a TupleOperator emits reach its `output` as they were at that moment, or are refused by name."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections import deque
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.stages import Flow, manifest

from streamtopology.jobs.errors import TopologyFailed
from streamtopology.jobs.operators.python_kept import frozen
from streamtopology.jobs.operators.returned import WrongValue, as_declared, from_dicts


def _named(value: object) -> str:
    """The name of a case, the same in each process."""
    return re.sub(r" at 0x[0-9a-f]+", "", ascii(value))


PAIR = pa.struct({"a": pa.int64(), "b": pa.string()})
COUNTS = pa.map_(pa.string(), pa.int64())
BERLIN = ZoneInfo("Europe/Berlin")
NOON = dt.datetime(2020, 1, 1, 12, microsecond=1500)
LOST = [
    (PAIR, {"a": 1}, "a struct without its field 'b'"),
    (PAIR, {"a": 1, "bb": "misspelt"}, "it has: a, bb"),
    (PAIR, {}, "it has: none"),
    (PAIR, (1, "x"), "a struct is a dict"),
    (PAIR, [("a", 1), ("b", "x")], "a struct is a dict"),
    (pa.list_(PAIR), [{"a": 1, "b": None}, {"a": 1}], "without its field 'b'"),
    (pa.list_(pa.int64()), np.array([1.0, 1.5]), "a part of it"),
    (pa.list_(pa.int64()), np.array([True]), "got bool"),
    (pa.list_(pa.float32()), np.array([1e300]), "beyond the numbers of a float"),
    (pa.list_(pa.int64()), {1}, "a set has no order"),
    (pa.list_(pa.string()), "ab", "a list is"),
    (pa.list_(pa.list_(pa.int64())), [[1], [1.5]], "a part of it"),
    (pa.list_(pa.int64(), 2), [1, 1.5], "a part of it"),
    (COUNTS, {"a": 1.5}, "a part of it"),
    (COUNTS, {"a": np.bool_(True)}, "no such value"),
    (COUNTS, [("a", Decimal("1.5"))], "a part of it"),
    (pa.map_(pa.string(), PAIR), {"a": {"a": 1}}, "without its field 'b'"),
    (pa.dictionary(pa.int8(), pa.int64()), 1.5, "a part of it"),
    (pa.int64(), np.bool_(True), "no such value"),
    (pa.int64(), np.float32(0.5), "a part of it"),
    (pa.float64(), True, "no such value"),
    (pa.float32(), 1e300, "beyond the numbers of a float"),
    (pa.float32(), np.float64(-1e39), "beyond the numbers of a float"),
    (pa.float16(), 2049, "a part of it"),
    (pa.float16(), 100_000, "a part of it"),
    (pa.list_(pa.float16()), [2048, 2049], "a part of it"),
    (pa.date32(), np.datetime64("2020-01-01"), "make it a date"),
    (pa.date32(), np.datetime64("NaT"), "make it a date"),
    (pa.timestamp("us"), dt.date(2020, 1, 1), "make it a datetime"),
    (pa.timestamp("ns", "UTC"), dt.date(2020, 1, 1), "make it a datetime"),
    (pa.timestamp("us"), np.datetime64("2020-01-01"), "value.astype('datetime64[us]')"),
    (pa.duration("ms"), np.timedelta64(5, "D"), "value.astype('timedelta64[ms]')"),
    (pa.month_day_nano_interval(), dt.timedelta(1), "pa.MonthDayNano"),
    (pa.month_day_nano_interval(), (1, 2, 3), "pa.MonthDayNano"),
    (pa.time64("us"), "24:00:00", "a text is no time"),
    (pa.float16(), 1e10, "beyond the numbers of a halffloat"),
    (pa.string(), b"x", "decode"),
    (pa.string_view(), bytearray(b"x"), "decode"),
    (pa.binary(), "x", "encode"),
    (pa.binary(2), "xy", "encode"),
    (pa.timestamp("us"), dt.datetime(2020, 1, 1, tzinfo=dt.UTC), "it has a time zone"),
    (pa.timestamp("us"), pd.Timestamp("2020-01-01", tz="UTC"), "it has a time zone"),
    (pa.timestamp("us", "UTC"), dt.datetime(2020, 1, 1), "it has no time zone"),
    (pa.timestamp("us"), pd.Timestamp("2020-01-01 00:00:00.000001001"), "a part of it"),
    (pa.timestamp("s"), NOON, "a part of it"),
    (pa.timestamp("ns"), 1, "no such value"),
    (pa.date32(), pd.NaT, "no time"),
    (pa.date32(), np.timedelta64(3, "ns"), "no such value"),
    (pa.date64(), NOON, "a part of it"),
    (pa.date64(), 5, "no such value"),
    (pa.time32("ms"), dt.time(1, 2, 3, 4567), "a part of it"),
    (pa.time64("us"), dt.time(1, tzinfo=dt.UTC), "it has a time zone"),
    (pa.time64("ns"), 5, "no such value"),
    (pa.duration("ms"), dt.timedelta(microseconds=1500), "a part of it"),
    (pa.duration("us"), pd.Timedelta(1501), "a part of it"),
    (pa.duration("ns"), 7, "no such value"),
]


@pytest.mark.parametrize(("declared", "value", "finding"), LOST, ids=_named)
def test_value_that_would_change_is_refused_with_its_reason(declared: pa.DataType, value: object, finding: str) -> None:
    with pytest.raises(WrongValue, match=r"^Own emits .* as 'v', which its `output` declares as .*[;:] ") as refused:
        from_dicts([{"v": None}, {"v": value}], pa.schema([("v", declared)]), "Own")
    assert finding in str(refused.value)


REFUSED_BY_ARROW = [
    (pa.int8(), 300),
    (pa.int32(), 2**40),
    (pa.int64(), "3"),
    (pa.string(), 1),
    (pa.timestamp("us"), 1.5),
    (pa.date32(), -719_163),
    (pa.int64(), 2**63),
    (pa.uint8(), -1),
    (pa.int64(), True),
    (pa.int64(), math.nan),
    (pa.float32(), 2**24 + 1),
    (pa.float64(), Decimal("0.5")),
    (pa.bool_(), 1),
    (pa.decimal128(10, 2), Decimal("1.555")),
    (pa.decimal128(10, 2), 10**9),
    (pa.decimal128(10, 2), 1.5),
    (pa.timestamp("ns"), dt.datetime(9000, 1, 1)),
    (pa.list_(pa.int64(), 2), [1]),
    (pa.list_(pa.int64()), frozenset({1})),
    (COUNTS, {None: 1}),
    (COUNTS, [None]),
    (COUNTS, [("a", 1, 2)]),
    (COUNTS, 5),
    (pa.string(), "\ud800"),
]


@pytest.mark.parametrize(("declared", "value"), REFUSED_BY_ARROW, ids=_named)
def test_value_of_another_kind_is_refused_by_name(declared: pa.DataType, value: object) -> None:
    with pytest.raises(WrongValue, match=r"^Own emits .* as 'v', which its `output` declares as"):
        from_dicts([{"v": None}, {"v": value}], pa.schema([("v", declared)]), "Own")


KEPT = [
    (PAIR, {"b": "x", "a": np.int64(1), "c": 2}, {"a": 1, "b": "x"}),
    (pa.list_(pa.int64()), np.array([1, 2], np.int8), [1, 2]),
    (pa.list_(pa.int64()), np.array([1.0, 2.0]), [1, 2]),
    (pa.list_(pa.int64()), (1, None), [1, None]),
    (pa.list_(pa.int64()), deque([1]), [1]),
    (pa.list_(pa.int64()), range(2), [0, 1]),
    (pa.list_(pa.int64()), pa.array([1, None]), [1, None]),
    (pa.list_(pa.float32()), [0.1, math.inf, None], [float(np.float32(0.1)), math.inf, None]),
    (COUNTS, {"a": 1.0}, [("a", 1)]),
    (COUNTS, [("a", 1), ("a", None)], [("a", 1), ("a", None)]),
    (pa.float16(), 2048, 2048.0),
    (pa.month_day_nano_interval(), pa.MonthDayNano([1, 2, 3]), pa.MonthDayNano([1, 2, 3])),
    (pa.int64(), pa.scalar(5), 5),
    (pa.int64(), Decimal(5), 5),
    (pa.float64(), np.float32(0.1), float(np.float32(0.1))),
    (pa.decimal128(10, 2), 5, Decimal("5.00")),
    (pa.decimal128(10, 2), Decimal("1.5"), Decimal("1.50")),
    (pa.string(), np.str_("x"), "x"),
    (pa.binary(), bytearray(b"x"), b"x"),
    (pa.binary(), memoryview(b"x"), b"x"),
    (pa.timestamp("ns"), np.datetime64("2020-01-01T00:00:00.000000001"), pd.Timestamp("2020-01-01 00:00:00.000000001")),
    (pa.timestamp("us"), pd.Timestamp("2020-01-01 00:00:00.000001"), dt.datetime(2020, 1, 1, microsecond=1)),
    (pa.timestamp("us", "UTC"), dt.datetime(2020, 10, 25, 2, 30, fold=1, tzinfo=BERLIN), dt.datetime(2020, 10, 25, 1, 30)),
    (pa.timestamp("ms", "Europe/Berlin"), dt.datetime(2020, 7, 1, tzinfo=dt.UTC), dt.datetime(2020, 7, 1, 2)),
    (pa.date64(), dt.date(2020, 1, 1), dt.date(2020, 1, 1)),
    (pa.date32(), dt.datetime(2020, 1, 1, tzinfo=BERLIN), dt.date(2020, 1, 1)),
    (pa.time32("ms"), dt.time(1, 2, 3, 4000), dt.time(1, 2, 3, 4000)),
    (pa.duration("ms"), dt.timedelta(days=-1, milliseconds=5), dt.timedelta(days=-1, milliseconds=5)),
    (pa.duration("ns"), pd.Timedelta(1501), pd.Timedelta(1501)),
]


@pytest.mark.parametrize(("declared", "value", "right"), KEPT, ids=_named)
def test_value_that_fits_is_kept(declared: pa.DataType, value: object, right: Any) -> None:
    (row,) = from_dicts([{"v": value}], pa.schema([("v", declared)]), "Own").to_pylist()
    assert (row["v"].replace(tzinfo=None) if isinstance(row["v"], dt.datetime) else row["v"]) == right


LEAVES: Mapping[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int8(): st.integers(-128, 127) | st.integers(-1, 1).map(np.int16),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32, allow_nan=False) | st.floats(allow_nan=False).map(np.float64),
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans() | st.booleans().map(np.bool_),
    pa.string(): st.text(st.characters(exclude_categories=["Cs"]), max_size=2),
    pa.binary(): st.binary(max_size=2) | st.binary(max_size=2).map(bytearray),
    pa.decimal128(9, 2): st.decimals(-99, 99, places=2) | st.decimals(-99, 99, places=3),
    pa.date32(): st.dates() | st.dates().map(lambda day: dt.datetime(day.year, day.month, day.day)),
    pa.timestamp("ms"): st.datetimes(),
    pa.timestamp("us", "UTC"): st.datetimes(dt.datetime(1700, 1, 1), timezones=st.sampled_from([dt.UTC, BERLIN])),
    pa.time32("s"): st.times(),
    pa.duration("ms"): st.timedeltas(dt.timedelta(days=-999), dt.timedelta(days=999)),
}


def column_of(declared: pa.DataType, values: st.SearchStrategy[Any]) -> list[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    """The type with its values, and types that hold it with theirs."""
    some = values | st.none()
    return [
        (declared, some),
        (pa.list_(declared), st.lists(some, max_size=2) | st.lists(some, max_size=2).map(tuple)),
        (pa.struct({"a": declared}), st.fixed_dictionaries({"a": some}, optional={"b": some}) | st.just({"b": 1})),
        (pa.map_(pa.string(), declared), st.dictionaries(st.text("xy", max_size=1), some, max_size=2)),
    ]


COLUMNS = [column for kind, values in LEAVES.items() for column in column_of(kind, values)]


@given(st.sampled_from(COLUMNS).map(lambda column: column[0]), st.sampled_from(COLUMNS).flatmap(lambda column: column[1]))
def test_any_value_is_kept_at_any_depth_or_refused(declared: pa.DataType, value: Any) -> None:
    try:
        rows = from_dicts([{"v": value}], pa.schema([("v", declared)]), "Own")
    except WrongValue:
        return
    assert same(value, rows.to_pylist()[0]["v"]), rows


@given(st.sampled_from(COLUMNS).flatmap(lambda column: st.tuples(st.just(column[0]), st.lists(column[1], max_size=3))))
def test_column_of_values_is_as_each_of_them(column: tuple[pa.DataType, list[Any]]) -> None:
    declared, values = column
    schema = pa.schema([("v", declared)])

    def made(*some: Any) -> list[Any] | None:
        try:
            return from_dicts([{"v": value} for value in some], schema, "Own").to_pylist()
        except WrongValue:
            return None

    each = [made(value) for value in values]
    if None in each:
        assert made(*values) is None
    else:
        assert made(*values) == [row for rows in each for row in rows or ()]


def same(value: Any, kept: Any) -> bool:
    """Plain Python's word on whether a value of a column is the one that was emitted."""
    if isinstance(value, dict):
        if isinstance(kept, list):
            kept = dict(kept)
            return value.keys() == kept.keys() and all(same(value[name], kept[name]) for name in kept)
        return all(name in value and same(value[name], kept[name]) for name in kept)
    if isinstance(value, (list, tuple)):
        return len(value) == len(kept) and all(map(same, value, kept))
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float) and isinstance(kept, float):
        return math.isinf(kept) == math.isinf(value) and (
            kept == value or math.isclose(kept, value, rel_tol=2**-23, abs_tol=2**-149)
        )
    if isinstance(value, dt.datetime) and not isinstance(kept, dt.datetime):
        return value == dt.datetime(kept.year, kept.month, kept.day)
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.UTC) == kept
    return value == kept and isinstance(value, bool) == isinstance(kept, bool)


OWN = """
import numpy as np
import pyarrow as pa
from streamtopology.api import Field, TupleOperator

LISTED = pa.schema([("k", pa.int64()), ("vs", pa.list_(pa.int64()))])


class OneDict(TupleOperator):
    output = LISTED

    def process_tuple(self, row, state):
        once = {"k": row["k"], "vs": []}
        for value in range(3):
            once["vs"].append(value)
            yield once
        once["vs"].clear()


class OnSelf(TupleOperator):
    output = LISTED

    def prepare(self, inputs, key):
        self.row = {"k": None, "vs": [0]}
        return super().prepare(inputs, key)

    def process_tuple(self, row, state):
        self.row["k"] = row["k"]
        self.row["vs"][0] = row["v"]
        return self.row


class OfState(TupleOperator):
    fields = (Field("vs", np.int64, shape=2),)
    output = LISTED

    def process_tuple(self, row, state):
        state["vs"] += row["v"]
        return {"k": row["k"], "vs": state["vs"]}


class Misspelt(TupleOperator):
    output = pa.schema([("k", pa.int64()), ("place", pa.struct({"lat": pa.float64(), "lon": pa.float64()}))])

    def process_tuple(self, row, state):
        return {"k": row["k"], "place": {"lat": 1.0, "lon" if row["v"] != 7 else "long": 2.0}}
"""


VECTORS = """
import numpy as np
import pyarrow as pa
from streamtopology.api import Field, Operator

DECLARED = pa.schema([("n", pa.int64())])


class OneBuffer(Operator):
    output = DECLARED

    def begin(self, batch):
        super().begin(batch)
        self.buffer = np.zeros(8, np.int64)

    def process(self, rows, state):
        self.buffer[: len(rows)] = rows.column("v").to_numpy()
        return pa.record_batch({"n": pa.array(self.buffer[: len(rows)])})


class OfState(Operator):
    fields = (Field("n", np.int64),)
    output = DECLARED

    def process(self, rows, state):
        state.column("n")[state.slots(rows.keys)] = rows.column("v").to_numpy()
        return pa.record_batch({"n": pa.array(state.column("n")[: len(state)])})
"""


@pytest.mark.parametrize("operator", ["OneBuffer", "OfState"])
def test_array_that_is_used_again_is_emitted_as_it_was(tmp_path: Path, operator: str) -> None:
    (tmp_path / "own.py").write_text(VECTORS)
    own = {"name": "own", "inputs": ["s", "t"], "grouping": {"policy": "fields", "key": "k"}, "run": f"own.py:{operator}"}
    flow = Flow(tmp_path, manifest([own], {"s": "k BIGINT, v BIGINT", "t": "k BIGINT, v BIGINT"}))
    flow.batch(s=rows_of((1, 10)), t=rows_of((1, 20)))
    assert sorted(flow.published("own").column("n").to_pylist()) == [10, 20]


def flow_of(folder: Path, operator: str, on_bad_tuple: str = "fail") -> Flow:
    (folder / "own.py").write_text(OWN)
    own = {"name": "own", "inputs": ["s"], "grouping": {"policy": "fields", "key": "k"}, "run": f"own.py:{operator}"}
    return Flow(folder, manifest([own], {"s": "k BIGINT, v BIGINT"}, onBadTuple=on_bad_tuple))


def rows_of(*rows: tuple[int, int]) -> pa.Table:
    keys, values = zip(*rows, strict=True)
    return pa.table({"k": pa.array(keys, pa.int64()), "v": pa.array(values, pa.int64())})


@pytest.mark.parametrize(
    ("operator", "right"),
    [
        ("OneDict", [(1, [0]), (1, [0, 1]), (1, [0, 1, 2])] * 2),
        ("OnSelf", [(1, [10]), (1, [20])]),
        ("OfState", [(1, [10, 10]), (1, [30, 30])]),
    ],
)
def test_dict_that_is_used_again_is_emitted_as_it_was(
    tmp_path: Path, operator: str, right: list[tuple[int, list[int]]]
) -> None:
    flow = flow_of(tmp_path, operator)
    flow.batch(s=rows_of((1, 10), (1, 20)))
    assert sorted((row["k"], row["vs"]) for row in flow.published("own").to_pylist()) == sorted(right)


@pytest.mark.parametrize(
    ("declared", "value", "right"),
    [
        (pa.list_(pa.int64()), np.ma.array([1, 2], mask=[False, True]), [1, None]),
        (pa.list_(pa.list_(pa.int8())), np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (pa.list_(pa.float64()), np.array([0.1], np.float32), [float(np.float32(0.1))]),
        (pa.list_(pa.timestamp("us")), np.array(["2020-01-01"], "M8[us]"), [dt.datetime(2020, 1, 1)]),
        (pa.float64(), np.array(1.5), 1.5),
        (COUNTS, MappingProxyType({"a": np.int8(1)}), [("a", 1)]),
    ],
    ids=_named,
)
def test_array_is_emitted_with_its_mask_and_dimensions(declared: pa.DataType, value: Any, right: Any) -> None:
    emitted = from_dicts([{"v": frozen(value)}], pa.schema([("v", declared)]), "Own")
    assert emitted.to_pylist() == [{"v": right}]


def test_misspelt_field_of_a_struct_names_its_tuple(tmp_path: Path) -> None:
    flow = flow_of(tmp_path, "Misspelt")
    with pytest.raises(TopologyFailed, match=r"without its field 'lon' \(None is NULL; it has: lat, long\).*'v': 7") as failed:
        flow.batch(s=rows_of((1, 6), (2, 7), (3, 8)))
    assert "The tuple: {'k': 2, 'v': 7}" in str(failed.value)


def test_misspelt_field_of_a_struct_is_set_aside(tmp_path: Path) -> None:
    flow = flow_of(tmp_path, "Misspelt", "deadLetter")
    flow.batch(s=rows_of((1, 6), (2, 7), (3, 8)))
    assert sorted(row["k"] for row in flow.published("own").to_pylist()) == [1, 3]


@pytest.mark.parametrize("declared", [pa.field("v", pa.int64(), nullable=False), pa.field("v", pa.int32(), nullable=False)])
def test_null_where_none_is_declared_is_refused(declared: pa.Field) -> None:
    schema = pa.schema([declared])
    for found in (schema, pa.schema([("v", pa.int64())])):
        rows = pa.record_batch([pa.array([1, None], found.field("v").type)], schema=found)
        with pytest.raises(WrongValue, match=r"'v'.*NULL.*not null"):
            as_declared(rows, schema, "Own")
    with pytest.raises(WrongValue, match="NULL"):
        from_dicts([{"v": 1}, {"v": None}], schema, "Own")
