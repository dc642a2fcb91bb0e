"""All that the json sink takes is JSON in one form for each type, which a json source reads back as the value it was."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.streams import rows_of, spec

from streamtopology import topology
from streamtopology.jobs.connectors.sinks.folder import write_json_lines
from streamtopology.jobs.connectors.sinks.json_rows import json_rows
from streamtopology.jobs.connectors.sinks.registry import proof, takes
from streamtopology.jobs.connectors.sinks.takes import UnwritableValue
from streamtopology.jobs.connectors.sources.descriptors import Descriptor

SINK = topology.Sink("out", "own", "json", {})


@dataclass(frozen=True)
class Typed:
    """A type of Arrow with its values, the type as which a source reads them, and the value that it reads of each."""

    kind: pa.DataType
    ddl: str
    values: st.SearchStrategy[Any]
    read: Callable[[Any], Any] = lambda value: value


def _decimals(digits: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**digits - 1
    return st.integers(-most, most).map(lambda number: Decimal(number).scaleb(-scale, _WIDE))


def _moments(unit: str, zone: str | None) -> Typed:
    step = {"s": 1_000_000, "ms": 1_000}.get(unit, 1)
    first, last = (datetime(1700, 1, 1), datetime(2200, 1, 1)) if unit == "ns" else (datetime(1, 1, 2), datetime(9999, 12, 30))

    def whole(moment: datetime) -> datetime:
        return moment.replace(microsecond=moment.microsecond // step * step, tzinfo=UTC if zone else None)

    ddl = "TIMESTAMP" if zone else "TIMESTAMP_NTZ"
    return Typed(pa.timestamp(unit, zone), ddl, st.datetimes(first, last).map(whole))


def _times(kind: pa.DataType, step: int, digits: int) -> Typed:
    def text(value: time) -> str:
        fraction = f".{value.microsecond:06d}000"[: digits + 1] if digits else ""
        return f"{value:%H:%M:%S}{fraction}"

    def whole(value: time) -> time:
        return value.replace(microsecond=value.microsecond // step * step)

    return Typed(kind, "STRING", st.times().map(whole), text)


def _microseconds(value: timedelta) -> int:
    return value // timedelta(microseconds=1)


_WIDE = Context(prec=80)
_INTEGERS = [
    (pa.int8(), "TINYINT", -(2**7), 2**7), (pa.int16(), "SMALLINT", -(2**15), 2**15), (pa.int32(), "INT", -(2**31), 2**31),
    (pa.int64(), "BIGINT", -(2**63), 2**63), (pa.uint8(), "SMALLINT", 0, 2**8), (pa.uint16(), "INT", 0, 2**16),
    (pa.uint32(), "BIGINT", 0, 2**32), (pa.uint64(), "DECIMAL(20, 0)", 0, 2**64),
]  # fmt: skip
_TEXTS = st.text(max_size=4) | st.sampled_from(['"\\', "\x00\x1f\x7f\n", "\u2028\U0001f600", "NaN", "null", "e-"])
_BYTES = st.binary(max_size=4)
_SPAN = st.timedeltas(timedelta(days=-90_000), timedelta(days=90_000))
LEAVES = [
    Typed(pa.null(), "STRING", st.none()),
    Typed(pa.bool_(), "BOOLEAN", st.booleans()),
    *(Typed(kind, ddl, st.integers(least, end - 1)) for kind, ddl, least, end in _INTEGERS),
    Typed(pa.float16(), "FLOAT", st.floats(width=16).map(np.float16), float),
    Typed(pa.float32(), "FLOAT", st.floats(width=32)),
    Typed(pa.float64(), "DOUBLE", st.floats()),
    *(Typed(kind, "STRING", _TEXTS) for kind in (pa.string(), pa.large_string(), pa.string_view())),
    *(Typed(kind, "BINARY", _BYTES) for kind in (pa.binary(), pa.large_binary(), pa.binary_view())),
    Typed(pa.binary(3), "BINARY", st.binary(min_size=3, max_size=3)),
    Typed(pa.decimal32(9, 2), "DECIMAL(9, 2)", _decimals(9, 2)),
    Typed(pa.decimal64(18, 0), "DECIMAL(18, 0)", _decimals(18, 0)),
    Typed(pa.decimal128(38, 6), "DECIMAL(38, 6)", _decimals(38, 6)),
    Typed(pa.decimal128(38, 38), "DECIMAL(38, 38)", _decimals(38, 38)),
    Typed(pa.decimal128(5, -2), "DECIMAL(7, 0)", _decimals(5, -2)),
    Typed(pa.decimal256(76, 6), "DECIMAL(38, 6)", _decimals(38, 6)),
    Typed(pa.date32(), "DATE", st.dates()),
    Typed(pa.date64(), "DATE", st.dates()),
    _times(pa.time32("s"), 1_000_000, 0),
    _times(pa.time32("ms"), 1_000, 3),
    _times(pa.time64("us"), 1, 6),
    _times(pa.time64("ns"), 1, 9),
    *(_moments(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC", "Europe/Berlin")),
    Typed(pa.duration("us"), "BIGINT", _SPAN, _microseconds),
    Typed(pa.duration("ns"), "BIGINT", _SPAN, lambda value: 1000 * _microseconds(value)),
    Typed(pa.duration("s"), "BIGINT", st.integers(-9, 10**9).map(lambda n: timedelta(seconds=n)), timedelta.total_seconds),
    Typed(pa.dictionary(pa.int8(), pa.string()), "STRING", _TEXTS),
    Typed(pa.dictionary(pa.int32(), pa.int64()), "BIGINT", st.integers(-5, 5)),
]  # fmt: skip
KEYS = [leaf for leaf in LEAVES if not pa.types.is_null(leaf.kind) and not pa.types.is_dictionary(leaf.kind)]


def _listed(item: Typed, make: Callable[[pa.DataType], pa.DataType]) -> Typed:
    kind = make(item.kind)
    least, most = (2, 2) if pa.types.is_fixed_size_list(kind) else (0, 3)
    values = st.lists(st.none() | item.values, min_size=least, max_size=most)
    return Typed(kind, f"ARRAY<{item.ddl}>", values, lambda value: [_of(item, part) for part in value])


def _mapped(key: Typed, item: Typed) -> Typed:
    pairs = st.lists(st.tuples(key.values, st.none() | item.values), max_size=3, unique_by=lambda pair: repr(key.read(pair[0])))
    if pa.types.is_floating(key.kind):
        pairs = pairs.filter(lambda found: len({float(name) for name, _ in found}) == len(found))  # 0.0 is -0.0
    return Typed(
        pa.map_(key.kind, item.kind),
        f"MAP<STRING, {item.ddl}>",
        pairs,
        lambda value: [(_name(key, name), _of(item, part)) for name, part in value],
    )


def _name(key: Typed, value: Any) -> str:
    """The key as the sink spells it."""
    maps = pa.array([[(value, None)]], pa.map_(key.kind, pa.null()))
    (name,) = json.loads(json_rows(pa.record_batch([maps], ["m"]))[0].as_py())["m"]
    return str(name)


def _structured(one: Typed, other: Typed) -> Typed:
    values = st.fixed_dictionaries({'a "b"': st.none() | one.values, "c": st.none() | other.values})
    return Typed(
        pa.struct([('a "b"', one.kind), ("c", other.kind)]),
        f'STRUCT<`a "b"`: {one.ddl}, c: {other.ddl}>',
        values,
        lambda value: {'a "b"': _of(one, value['a "b"']), "c": _of(other, value["c"])},
    )


def _of(typed: Typed, value: Any) -> Any:
    return None if value is None else typed.read(value)


LISTS = (pa.list_, pa.large_list, lambda kind: pa.list_(kind, 2), pa.list_view, pa.large_list_view)
TYPES: st.SearchStrategy[Typed] = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: (
        st.builds(_listed, inner, st.sampled_from(LISTS))
        | st.builds(_mapped, st.sampled_from(KEYS), inner)
        | st.builds(_structured, inner, inner)
    ),
    max_leaves=3,
)


def same(one: Any, other: Any) -> bool:
    """True for values that are one, of one type: NaN is itself, and -0.0 is not 0.0."""
    if isinstance(one, float) and isinstance(other, float):
        return repr(one) == repr(other)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    return one == other


def written_and_read(rows: pa.RecordBatch, ddl: str) -> list[Any]:
    """The values of the only column after the sink and a source."""
    assert takes(SINK, rows.schema).refusals(rows.schema) == []
    proof([SINK], rows.schema).check([rows])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.json"
        write_json_lines(pa.Table.from_batches([rows]), path)
        for line in path.read_text(encoding="utf-8").split("\n")[:-1]:
            json.loads(line)
        source = spec(path.parent, "json", f"v {ddl}")
        return [row["v"] for row in rows_of([Descriptor("s", "json", str(path), 0, 0, path.stat().st_size, 1)], source)]


def _holds(typed: Typed, values: list[Any], start: int) -> None:
    rows = pa.RecordBatch.from_arrays([pa.array(values, typed.kind)], ["v"]).slice(start)
    expected = [_of(typed, value) for value in values[start:]]
    found = written_and_read(rows, typed.ddl)
    assert same(found, expected), (typed.kind, found, expected)


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: str(leaf.kind))
def test_every_plain_type_is_read_back(leaf: Typed) -> None:
    @settings(max_examples=30, deadline=None)
    @given(st.lists(st.none() | leaf.values, min_size=1, max_size=6), st.integers(0, 1))
    def check(values: list[Any], start: int) -> None:
        _holds(leaf, values, start)

    check()


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_types_within_types_are_read_back(data: st.DataObject) -> None:
    typed = data.draw(TYPES)
    _holds(typed, data.draw(st.lists(st.none() | typed.values, min_size=1, max_size=4)), data.draw(st.integers(0, 1)))


def test_uuid_is_its_text_and_other_extension_types_their_storage() -> None:
    storage = pa.array([b"0123456789abcdef", None], pa.binary(16))
    rows = pa.RecordBatch.from_arrays([pa.ExtensionArray.from_storage(pa.uuid(), storage)], ["v"])
    assert written_and_read(rows, "STRING") == ["30313233-3435-3637-3839-616263646566", None]
    flags = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, None], pa.int8()))
    assert written_and_read(pa.RecordBatch.from_arrays([flags], ["v"]), "TINYINT") == [1, None]


@pytest.mark.parametrize(
    "kind",
    [
        pa.month_day_nano_interval(),
        pa.list_(pa.month_day_nano_interval()),
        pa.map_(pa.struct([("a", pa.int64())]), pa.int64()),
        pa.struct([("m", pa.map_(pa.list_(pa.string()), pa.int64()))]),
        pa.map_(pa.map_(pa.string(), pa.int64()), pa.int64()),
        pa.run_end_encoded(pa.int32(), pa.string()),
    ],
    ids=str,
)
def test_type_without_json_is_refused_before_the_start(kind: pa.DataType) -> None:
    for format_, options in (("json", {}), ("kafka", {"kafka.bootstrap.servers": "x:1", "topic": "t"})):
        sink = topology.Sink("out", "own", format_, options)
        (sentence,) = takes(sink, pa.schema([("v", kind)])).refusals(pa.schema([("v", kind)]))
        assert "cannot write column 'v" in sentence
        assert "cast it in a map" in sentence


@pytest.mark.parametrize(
    ("kind", "keys", "shown"),
    [
        (pa.string(), ["a", "b", "a"], '"a"'),
        (pa.int64(), [1, 2, 1], '"1"'),
        (pa.float64(), [float("nan"), 1.0, float("nan")], '"NaN"'),
        (pa.date32(), [date(2024, 1, 1)] * 2, '"2024-01-01"'),
    ],
)
def test_map_with_a_key_twice_is_refused_before_the_commit(kind: pa.DataType, keys: list[Any], shown: str) -> None:
    values = pa.array([None, [(keys[0], 0)], [(key, place) for place, key in enumerate(keys)]], pa.map_(kind, pa.int64()))
    for column in (values, pa.StructArray.from_arrays([values], ["m"])):
        rows = pa.RecordBatch.from_arrays([column], ["v"])
        with pytest.raises(UnwritableValue, match=f"cannot write column 'v'.*: a map has the key {shown} twice"):
            proof([SINK], rows.schema).check([rows])
        proof([SINK], rows.schema).check([rows.slice(0, 2)])


def test_null_struct_of_views_is_taken() -> None:
    column = pa.array([{"a": "x"}, None, {"a": None}], pa.struct([("a", pa.string_view())]))
    assert json_rows(pa.record_batch([column], ["v"])).to_pylist() == ['{"v":{"a":"x"}}', '{"v":null}', '{"v":{"a":null}}']
    proof([SINK], pa.schema([("v", column.type)])).check([pa.record_batch([column], ["v"])])
