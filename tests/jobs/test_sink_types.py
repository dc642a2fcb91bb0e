"""Rows that a sink cannot write are refused before the start by their types, and before the commit by their values."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from support.connectors import stage
from support.processes import apart
from support.stages import Flow, manifest

from streamtopology import topology
from streamtopology.jobs.cli.main import main
from streamtopology.jobs.columnar.dictionaries import decoded
from streamtopology.jobs.columnar.python_values import python_values
from streamtopology.jobs.connectors.sinks import Writer, open_sink
from streamtopology.jobs.connectors.sinks.folder import json_lines, write_parquet
from streamtopology.jobs.connectors.sinks.messages import messages
from streamtopology.jobs.connectors.sinks.registry import proof, takes
from streamtopology.jobs.connectors.sinks.table_types import DELTA, ICEBERG, TableTypes
from streamtopology.jobs.connectors.sinks.takes import UnwritableValue
from streamtopology.jobs.errors import TopologyFailed
from streamtopology.jobs.runtime.preflight.checks import examine
from streamtopology.topology import ManifestError

INTS = pa.array([1, 2], pa.int64())
ONE = pa.array([0, None], pa.int8())


def written(sink: topology.Sink, rows: pa.RecordBatch, folder: Path) -> None:
    """Write rows as the sink does after their commit."""
    table = pa.Table.from_batches([rows])
    match sink.format:
        case "parquet":
            write_parquet(table, pa.BufferOutputStream())
        case "json":
            list(json_lines(table))
        case "kafka":
            messages(rows)
        case _:
            stage(folder / "staged.arrow", rows.schema, [rows])
            open_sink(sink, Writer("t", "r"), io.StringIO()).publish(0, [folder / "staged.arrow"])


def sink_of(format_: str, **options: str) -> topology.Sink:
    given = {"kafka": {"kafka.bootstrap.servers": "x:1", "topic": "t"}}.get(format_, {})
    return topology.Sink("out", "own", format_, given | options)


def _arrays() -> Mapping[str, pa.Array]:
    """A column of each type of Arrow, alone and within others; by its name."""
    plain = [pa.array([True, None]), pa.nulls(2)]
    numbers = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
    plain += [pa.array([1, None], kind) for kind in (*numbers, pa.float16(), pa.float32(), pa.float64())]
    plain += [pa.array(["a", None], kind) for kind in (pa.string(), pa.large_string(), pa.string_view())]
    plain += [pa.array([b"\xff", None], kind) for kind in (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(1))]
    decimals = (pa.decimal32(5, 2), pa.decimal64(9, 2), pa.decimal128(38, 2), pa.decimal256(76, 2), pa.decimal128(5, -2))
    plain += [pa.array([Decimal(100), None], kind) for kind in decimals]
    for unit in ("s", "ms", "us", "ns"):
        zones = (None, "UTC", "Europe/Berlin", "+02:00", "Mars/Phobos")
        kinds = [*(pa.timestamp(unit, zone) for zone in zones), pa.duration(unit)]
        plain += [pa.array([1, None], pa.int64()).cast(pa.timestamp(unit)).cast(kind) for kind in kinds[:-2]]
        plain += [pa.array([1, None], kind) for kind in kinds[-2:]]
    times = (pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"), pa.date32(), pa.date64())
    plain += [pa.array([86_400_000 if pa.types.is_date64(kind) else 1, None], kind) for kind in times]
    nested: list[pa.Array] = []
    for column in plain:
        nested += [
            pa.ListArray.from_arrays(pa.array([0, 1, 2]), column),
            pa.StructArray.from_arrays([column, INTS], ["x", "y"]),
            pa.MapArray.from_arrays(pa.array([0, 1, 2], pa.int32()), pa.array(["k", "l"]), column),
            pa.DictionaryArray.from_arrays(ONE, column.slice(0, 1)),
        ]
    others = [
        pa.array([[1], None], pa.large_list(pa.int64())),
        pa.array([[1, 2], None], pa.list_(pa.int64(), 2)),
        pa.array([[], None], pa.list_(pa.int64(), 0)),
        pa.array([[1], None], pa.list_view(pa.int64())),
        pa.array([[["a"]], None], pa.list_(pa.list_(pa.dictionary(pa.int32(), pa.string())))),
        pa.array([{}, None], pa.struct([])),
        pa.array([pa.MonthDayNano((1, 2, 3)), None]),
        pa.StructArray.from_arrays([INTS, INTS], ["a", "a"]),
        pa.array([[(1, "x")], None], pa.map_(pa.int64(), pa.string())),
        pa.DictionaryArray.from_arrays(ONE, pa.array([[1]])),
        pa.RunEndEncodedArray.from_arrays([2], ["a"]),
        pa.UnionArray.from_dense(pa.array([0, 1], pa.int8()), pa.array([0, 0], pa.int32()), [INTS, pa.array(["a"])]),
        pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16, None], pa.binary(16))),
    ]
    return {f"{place} {column.type}": column for place, column in enumerate([*plain, *nested, *others])}


ARRAYS = _arrays()


@pytest.mark.parametrize("format_", ["parquet", "json", "kafka", "console", "memory"])
@pytest.mark.parametrize("column", ["c", "value", "key"])
def test_sink_writes_every_type_that_it_takes(tmp_path: Path, format_: str, column: str) -> None:
    for name, values in ARRAYS.items():
        rows = pa.RecordBatch.from_arrays([values, INTS], [column, "value" if column == "key" else "n"])
        sink = sink_of(format_)
        if not takes(sink, rows.schema).refusals(rows.schema):
            proof([sink], rows.schema).check([rows])
            try:
                written(sink, rows, tmp_path)
            except Exception as error:
                raise AssertionError(f"{format_} takes {name} and does not write it") from error


def rows_of_delta(folder: Path) -> pa.Table:
    (file,) = DeltaTable(str(folder / "table")).file_uris()
    return pq.read_table(file)


def rows_of_iceberg(folder: Path) -> pa.Table:
    return load_catalog("default", **catalog_in(folder)).load_table("lake.out").scan().to_arrow()


def catalog_in(folder: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": str(folder / "table")}


@apart
@pytest.mark.parametrize(("types", "read"), [(DELTA, rows_of_delta), (ICEBERG, rows_of_iceberg)])
def test_table_has_every_type_that_it_takes(tmp_path: Path, types: TableTypes, read: Callable[[Path], pa.Table]) -> None:
    of_catalog = {f"catalog.{name}": value for name, value in catalog_in(tmp_path).items()}
    options = {"delta": {"path": str(tmp_path / "table")}, "iceberg": {"table": "lake.out", **of_catalog}}
    sink = sink_of(types.format.lower(), **options[types.format.lower()])
    kinds = {f"c{n}": values for n, values in enumerate(ARRAYS.values())}
    taken = {name: values for name, values in kinds.items() if not refusals_of(sink, {name: values.type})}
    assert len(taken) > 60
    rows = pa.RecordBatch.from_pydict(taken)
    for _ in range(2):  # that makes the table, and one that is compared with it
        assert takes(sink, rows.schema).refusals(rows.schema) == []
        proof([sink], rows.schema).check([rows])
        written(sink, rows, tmp_path)
    there = read(tmp_path)
    for name, values in taken.items():
        plain = decoded(values) if pa.types.is_dictionary(values.type) else values
        assert python_values(there[name]) == python_values(plain.cast(types.stored(plain.type))), str(values.type)


def refusals_of(sink: topology.Sink, columns: Mapping[str, pa.DataType]) -> list[str]:
    return takes(sink, pa.schema(columns)).refusals(pa.schema(columns))


def test_sinks_take_the_types_of_sql(tmp_path: Path) -> None:
    """None of the usual types is refused anywhere."""
    usual = [pa.bool_(), pa.int32(), pa.int64(), pa.float64(), pa.string(), pa.binary(), pa.decimal128(10, 2), pa.date32()]
    usual += [pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.timestamp("ns"), pa.time64("us"), pa.duration("us"), pa.null()]
    nested = [pa.list_(pa.string()), pa.map_(pa.string(), pa.int64()), pa.struct([("x", pa.int64())])]
    nested += [pa.dictionary(pa.int32(), pa.string()), pa.uint64()]
    schema = pa.schema([(f"c{place}", kind) for place, kind in enumerate([*usual, *nested])])
    for format_ in ("parquet", "json", "kafka", "console", "memory"):
        assert takes(sink_of(format_), schema).refusals(schema) == []


@pytest.mark.parametrize(
    ("format_", "schema", "finding"),
    [
        (
            "parquet",
            {"d": pa.decimal128(5, -2)},
            "'d' of type decimal128(5, -2): parquet has decimals with",
        ),
        (
            "parquet",
            {"s": pa.list_(pa.struct([]))},
            "'s.item' of type struct<>: parquet has no struct without",
        ),
        (
            "parquet",
            {"i": pa.month_day_nano_interval()},
            "month_day_nano_interval: parquet has no such type; cast it",
        ),
        ("parquet", {}, "cannot write rows without any column: a parquet file would lose their number"),
        (
            "json",
            {"u": pa.dense_union([pa.field("a", pa.int64())])},
            "'u' of type dense_union<a: int64=0>: there is no",
        ),
        ("kafka", {"key": pa.list_(pa.int64()), "value": pa.string()}, "cannot write column 'key' of type list<item: int64>"),
        ("kafka", {"value": pa.struct([("a", pa.int64())])}, "'value' of type struct<a: int64>: a message's key and value are"),
    ],
)
def test_type_that_a_sink_cannot_write_is_named(format_: str, schema: dict[str, pa.DataType], finding: str) -> None:
    (sentence,) = takes(sink_of(format_), pa.schema(schema)).refusals(pa.schema(schema))
    assert finding in sentence


@pytest.mark.parametrize("format_", ["parquet", "json", "kafka"])
def test_columns_of_one_name_are_refused(format_: str) -> None:
    twice = pa.schema([pa.field("a", pa.int64()), pa.field("a", pa.int64())])
    (sentence,) = takes(sink_of(format_), twice).refusals(twice)
    assert sentence.startswith("cannot write two columns of the name 'a'")


def _cut(kind: pa.DataType, values: pa.Array) -> pa.Array:
    """The bytes of `values` as values of another type, whether they are any or not."""
    return pa.Array.from_buffers(kind, len(values), values.buffers())


NO_TEXT = _cut(pa.string(), pa.array([b"\xff\xfe"]))
LAST_SECOND = pa.array([2**62], pa.int64()).cast(pa.timestamp("s"))


@pytest.mark.parametrize(
    ("format_", "values", "finding"),
    [
        ("parquet", NO_TEXT, "sink 'out' (parquet), rows of operator 'own': cannot write column 'c': Invalid UTF8 sequence"),
        ("json", NO_TEXT, "cannot write column 'c': Invalid UTF8"),
        ("json", pa.ListArray.from_arrays(pa.array([0, 1]), NO_TEXT), "Invalid UTF8"),
        ("parquet", LAST_SECOND, "4611686018427387904 as timestamp[s] is out of its range"),
        ("json", LAST_SECOND, "4611686018427387904 as timestamp[s] is out of its range"),
        (
            "json",
            pa.StructArray.from_arrays([LAST_SECOND], ["at"]),
            "'c', in its 'at': 4611686018427387904 as timestamp[s]",
        ),
        ("json", pa.array([2**31 - 1], pa.date32()), "2147483647 as date32[day] is out of its range"),
        ("parquet", _cut(pa.time32("s"), pa.array([90_000], pa.int32())), "is not within the acceptable range"),
        (
            "parquet",
            _cut(pa.decimal128(3, 0), pa.array([Decimal(99_999)])),
            "99999 does not fit in precision",
        ),
        ("kafka", pa.array(["x" * 1_000_001]), "cannot send a message of 1,000,009 bytes, as at most 1,000,000 are allowed"),
    ],
)
def test_value_that_a_format_does_not_hold_is_named(format_: str, values: pa.Array, finding: str) -> None:
    rows = pa.RecordBatch.from_arrays([values], ["c"])
    assert not takes(sink_of(format_), rows.schema).refusals(rows.schema)
    with pytest.raises(UnwritableValue) as refused:
        proof([sink_of(format_)], rows.schema).check([rows.slice(0, 0), rows])
    assert finding in str(refused.value)


def test_size_of_messages_goes_by_the_option_of_the_sink() -> None:
    rows = pa.record_batch({"key": ["k"], "value": ["x" * 1_500_000], "other": [b"y" * 2_000_000]})
    proof([sink_of("kafka", **{"kafka.message.max.bytes": "1500001"})], rows.schema).check([rows])
    with pytest.raises(UnwritableValue, match="a message of 1,500,001 bytes"):
        proof([sink_of("kafka", **{"kafka.message.max.bytes": "1500000"})], rows.schema).check([rows])


def test_null_in_a_column_that_has_none_is_refused() -> None:
    inner = pa.struct([pa.field("x", pa.int64(), nullable=False)])
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    with pytest.raises(UnwritableValue, match="column 'n': it holds NULL, and the operator's `output` declares"):
        proof([sink_of("parquet")], schema).check([pa.RecordBatch.from_arrays([pa.array([None], pa.int64())], schema=schema)])
    schema = pa.schema([pa.field("s", inner)])
    absent = pa.StructArray.from_arrays([pa.array([None], pa.int64())], fields=list(inner), mask=pa.array([True]))
    proof([sink_of("parquet")], schema).check([pa.RecordBatch.from_arrays([absent], schema=schema)])


# --- in a topology

OWN = """
import pyarrow as pa
from streamtopology.api import Operator, TupleOperator


class Bytes(Operator):
    output = pa.schema([("v", pa.string())])

    def process(self, rows, state):
        raw = pa.array([b"\\xff" if v == 7 else b"%d" % v for v in rows.column("v").to_pylist()], pa.binary())
        return pa.RecordBatch.from_arrays([pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())], schema=self.output)


class Refuses(TupleOperator):
    output = pa.schema([("v", pa.int64())])

    def process_tuple(self, row, state):
        raise ValueError("a reason that is no text: \\udcff")


class Interval(Operator):
    output = pa.schema([("i", pa.month_day_nano_interval())])

    def process(self, rows, state):
        return None


class Words(Operator):
    output = pa.schema([("w", pa.dictionary(pa.int8(), pa.string()))])

    def process(self, rows, state):
        words = [pa.array([f"word {v}"]) for v in rows.column("v").to_pylist()]
        columns = [word.dictionary_encode().cast(self.output.field("w").type) for word in words]
        return pa.Table.from_batches([pa.RecordBatch.from_arrays([column], schema=self.output) for column in columns])
"""


def manifest_of(folder: Path, operator: str, format_: str = "parquet", on_bad_tuple: str = "fail") -> dict[str, Any]:
    (folder / "own.py").write_text(OWN)
    own = {"name": "own", "inputs": ["s"], "grouping": {"policy": "fields", "key": "k"}, "run": f"own.py:{operator}"}
    sink = {"name": "own", "input": "own", "format": format_, "options": {"path": str(folder / "out")}}
    return manifest([own], {"s": "k BIGINT, v BIGINT"}, onBadTuple=on_bad_tuple, sinks=[sink])


def rows_of(*values: int) -> pa.Table:
    return pa.table({"k": pa.array(values, pa.int64()), "v": pa.array(values, pa.int64())})


def test_unwritable_type_is_refused_before_anything_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = manifest_of(tmp_path, "Interval")
    pq.write_table(rows_of(1), tmp_path / "rows.parquet")
    made["spec"]["sources"][0]["options"]["path"] = str(tmp_path / "rows.parquet")
    (tmp_path / "t.yaml").write_text(json.dumps(made))
    assert main(["validate", str(tmp_path / "t.yaml")]) != 0
    printed = "".join(capsys.readouterr())
    assert "spec.sinks[0].input: sink 'own' (parquet), rows of operator 'own': cannot write column 'i'" in printed
    with pytest.raises(ManifestError, match="parquet has no such type"):
        Flow(tmp_path, made)


def test_value_that_no_sink_takes_leaves_its_batch_uncommitted(tmp_path: Path) -> None:
    flow = Flow(tmp_path, manifest_of(tmp_path, "Bytes"))
    flow.batch(s=rows_of(1, 2))
    with pytest.raises(TopologyFailed) as failed:
        flow.batch(s=rows_of(6, 7, 8))
    assert "sink 'own' (parquet), rows of operator 'own': cannot write column 'v': Invalid UTF8" in str(failed.value)
    assert "The tuple: {'k': 7, 'v': 7}. Nothing of this batch was committed" in str(failed.value)
    assert flow.last.batch == 0
    flow.batch(s=rows_of(6, 8))
    assert sorted(flow.published("own")["v"].to_pylist()) == ["1", "2", "6", "8"]


def test_tuple_whose_row_no_sink_takes_is_a_dead_letter(tmp_path: Path) -> None:
    flow = Flow(tmp_path, manifest_of(tmp_path, "Bytes", on_bad_tuple="deadLetter"))
    flow.batch(s=rows_of(6, 7, 8))
    assert sorted(flow.published("own")["v"].to_pylist()) == ["6", "8"]
    (letter,) = flow.published("").to_pylist()
    assert letter["tuple"] == '{"k": 7, "v": 7}'


def test_dead_letter_holds_what_json_does_not_have(tmp_path: Path) -> None:
    made = manifest_of(tmp_path, "Refuses", on_bad_tuple="deadLetter")
    made["spec"]["sources"][0]["schema"] = "k BIGINT, v DOUBLE"
    flow = Flow(tmp_path, made)
    flow.batch(s=pa.table({"k": [1], "v": [float("nan")]}))
    (letter,) = flow.published("").to_pylist()
    assert letter["tuple"] == '{"k": 1, "v": "NaN"}'
    assert r"ValueError: a reason that is no text: \udcff" in letter["reason"]


@pytest.mark.parametrize("format_", ["parquet", "json"])
def test_batches_with_other_dictionaries_reach_the_sink(tmp_path: Path, format_: str) -> None:
    made = manifest_of(tmp_path, "Words", format_)
    flow = Flow(tmp_path, made)
    flow.batch(s=rows_of(*range(300)))
    commit = flow.last
    with flow.checkpoint.at_hand(commit.outputs["own"]) as files:
        open_sink(flow.topology.sinks[0], Writer("flow", "r")).publish(0, files)
    assert sorted(flow.published("own")["w"].to_pylist()) == sorted(f"word {v}" for v in range(300))
    (out,) = (tmp_path / "out").glob("batch-*")
    lines = out.read_text().split("\n") if format_ == "json" else []
    words = [line[6:-2] for line in lines if line] or pq.read_table(out)["w"].to_pylist()
    assert sorted(words) == sorted(f"word {v}" for v in range(300))


def findings(folder: Path, made: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The problems and the doubts of a manifest about its sinks."""
    pq.write_table(rows_of(1), folder / "rows.parquet")
    made["spec"]["sources"][0]["options"]["path"] = str(folder / "rows.parquet")
    (folder / "t.yaml").write_text(json.dumps(made))
    found = examine(folder / "t.yaml")
    return [str(each) for each in found.problems], [str(each) for each in found.doubts if "spec.sinks" in str(each)]


def test_rows_of_a_sink_of_late_rows_are_those_of_its_inputs(tmp_path: Path) -> None:
    windows = {
        "name": "hourly",
        "inputs": ["s"],
        "grouping": {"policy": "fields", "key": "k"},
        "run": "window-aggregate",
        "with": {"time": "at", "size": "1h", "aggregates": {"n": "count()"}},
        "late": "late",
    }
    kafka = {"format": "kafka", "options": {"kafka.bootstrap.servers": "localhost:1", "topic": "t"}}
    sinks = [{"name": "late", "input": "hourly", **kafka}, {"name": "out", "input": "hourly", "format": "memory"}]
    schema = "k BIGINT, v BIGINT, value ARRAY<STRING>, at TIMESTAMP"
    made = manifest([windows], {"s": schema}, sinks=sinks, watermarks={"s": {"column": "at", "delay": "1s"}})
    rows = pa.table({"k": [1], "v": [1], "value": [["a"]], "at": pa.array([0], pa.timestamp("us", "UTC"))})
    pq.write_table(rows, tmp_path / "late.parquet")
    problems, _ = findings(tmp_path, made)
    assert any(text.startswith("spec.sinks[0].input: sink 'late' (kafka)") and "column 'value'" in text for text in problems)
    assert not any("spec.sinks[1]" in text for text in problems)


@pytest.mark.parametrize(
    ("format_", "names", "finding"),
    [
        ("parquet", ["k", "K"], "has the columns 'k' and 'K', which Spark and DuckDB take for one"),
        ("kafka", ["key", "value", "total"], "sends the columns key and value alone, not 'total'"),
    ],
)
def test_columns_that_readers_may_miss_are_a_warning(tmp_path: Path, format_: str, names: list[str], finding: str) -> None:
    made = manifest_of(tmp_path, "Named", format_)
    named = f"class Named(Operator):\n    output = pa.schema([(name, pa.int64()) for name in {names}])\n"
    named += "    def process(self, rows, state): ...\n"
    (tmp_path / "own.py").write_text(f"{OWN}\n\n{named}")
    if format_ == "kafka":
        made["spec"]["sinks"][0]["options"] = {"kafka.bootstrap.servers": "localhost:1", "topic": "t"}
    problems, doubts = findings(tmp_path, made)
    assert not [text for text in problems if "spec.sinks" in text], problems
    (doubt,) = [text for text in doubts if "rows of operator" in text]
    assert finding in doubt
