"""Reading gives what the files hold, in the declared types or not at all."""

from __future__ import annotations

import re
import tempfile
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.connectors import read
from support.streams import Stream, only_file, parquet_file, rows_of, spec

from streamtopology.jobs.connectors.sources.descriptors import Descriptor, SourceSpec, Tally
from streamtopology.jobs.connectors.sources.formats import MAX_BATCH_BYTES, LeftOut, read_with_places
from streamtopology.jobs.connectors.sources.schema.conform import SchemaMismatchError
from streamtopology.jobs.connectors.sources.schema.ddl import ddl_to_arrow
from streamtopology.jobs.connectors.sources.text import text_stream
from streamtopology.jobs.connectors.sources.validation import check
from streamtopology.lab.bench.flights_data import FLIGHTS_SCHEMA, make_flights
from streamtopology.topology import Source
from streamtopology.topology.schema import SchemaError

FLIGHTS_DDL = (
    "year INT, month INT, day INT, dep_delay INT, arr_delay INT, carrier STRING, tailnum STRING, origin STRING, "
    "dest STRING, distance INT, seq BIGINT"
)

# --- schemas


@pytest.mark.parametrize(
    ("ddl", "expected"),
    [
        ("a INT, b string", {"a": pa.int32(), "b": pa.string()}),
        ("a: bigint, `odd name` double COMMENT 'it''s'", {"a": pa.int64(), "odd name": pa.float64()}),
        ("struct<a: date, t: timestamp>", {"a": pa.date32(), "t": pa.timestamp("us", "UTC")}),
        ("n timestamp_ntz, d DECIMAL( 12 , 2 ), e decimal", {
            "n": pa.timestamp("us"), "d": pa.decimal128(12, 2), "e": pa.decimal128(10, 0)}),
        ("x ARRAY<STRUCT<a: INT, b: MAP<STRING, DOUBLE>>>", {
            "x": pa.list_(pa.struct([("a", pa.int32()), ("b", pa.map_(pa.string(), pa.float64()))]))}),
        ("v varchar(10), c CHAR(3), y BINARY, z tinyint", {
            "v": pa.string(), "c": pa.string(), "y": pa.binary(), "z": pa.int8()}),
    ],
)  # fmt: skip
def test_ddl_becomes_an_arrow_schema(ddl: str, expected: dict[str, pa.DataType]) -> None:
    assert ddl_to_arrow(ddl) == pa.schema(list(expected.items()))


def test_rows_of_100_kb_come_in_batches_of_bounded_bytes(tmp_path: Path) -> None:
    """Three gibibytes of such rows would be more than one Arrow array of texts can have."""
    rows = 3_000
    pq.write_table(pa.table({"text": pa.repeat("x" * 100_000, rows)}), tmp_path / "rows.parquet")
    source = SourceSpec.of(Source("s", "parquet", "text STRING", {"path": str(tmp_path)}))
    batches = list(read(Descriptor("s", "parquet", str(tmp_path / "rows.parquet"), 0, 0, rows, rows), source))
    assert sum(batch.num_rows for batch in batches) == rows
    assert max(batch.nbytes for batch in batches) <= 2 * MAX_BATCH_BYTES


def test_not_null_is_kept() -> None:
    schema = ddl_to_arrow("a INT NOT NULL, b INT")
    assert [field.nullable for field in schema] == [False, True]


@pytest.mark.parametrize(
    ("ddl", "complaint"),
    [
        ("", "ends too early"),
        ("a", "'a' has no type"),
        ("a INT,", "ends too early"),
        ("a INTT", "unknown type 'INTT'; known are BOOLEAN"),
        ("customer id BIGINT", "unknown type 'ID'; write a name with a space in backticks: `customer id`"),
        ("a INT b INT", "unexpected 'b'"),
        ("a INT, a INT", "declared twice"),
        ("a ARRAY<INT", "ends too early"),
        ("a DECIMAL(50)", "precision <= 38"),
        ("a INT; b INT", "unexpected '; b INT'"),
    ],
)
def test_a_wrong_ddl_is_named(ddl: str, complaint: str) -> None:
    with pytest.raises(SchemaError, match=re.escape(complaint)):
        ddl_to_arrow(ddl)


# --- reading


def write_input(tmp_path: Path, name: str, text: str) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / name).write_bytes(text.encode())
    return folder


def test_reading_flights_equals_plain_pyarrow(tmp_path: Path) -> None:
    files = make_flights(tmp_path / "in", batches=2, rows_per_batch=1000, row_groups=3)
    source = spec(tmp_path / "in", schema=FLIGHTS_DDL)
    stream = Stream(tmp_path / "log", source)
    descriptors, _ = stream.read({})
    assert len(descriptors) == 6
    read_rows = pa.Table.from_batches([b for d in descriptors for b in read(d, source)])
    assert read_rows == pa.concat_tables(pq.read_table(file) for file in files)
    assert read_rows.schema == FLIGHTS_SCHEMA


def test_select_where_and_columns_apply(tmp_path: Path) -> None:
    make_flights(tmp_path / "in", batches=1, rows_per_batch=500, row_groups=1)
    options = {"path": str(tmp_path / "in")}
    source = SourceSpec.of(
        Source("s", "parquet", FLIGHTS_DDL, options, ("dest", "arr_delay * 2 AS twice", "seq"), "arr_delay > 0")
    )
    expected = [
        {"dest": row["dest"], "twice": row["arr_delay"] * 2, "seq": row["seq"]}
        for row in pq.read_table(tmp_path / "in").to_pylist()
        if row["arr_delay"] is not None and row["arr_delay"] > 0
    ]
    descriptor = only_file(tmp_path / "in", source)
    assert rows_of([descriptor], source) == expected
    (batch,) = read(descriptor, source, columns=["seq"])
    assert batch.to_pylist() == [{"seq": row["seq"]} for row in expected]


@pytest.mark.parametrize(
    "select", [(), ("key * 2 AS key",), ("*",), ("unnest([key]) AS key",), ("COLUMNS(*)",), ("* EXCLUDE (key)", "key")]
)
@pytest.mark.parametrize("where", [None, "key >= 3"])
def test_rows_keep_the_place_of_their_descriptor(tmp_path: Path, select: tuple[str, ...], where: str | None) -> None:
    for number in range(3):
        parquet_file(tmp_path / "in", f"{number}.parquet", [2 * number, 2 * number + 1], mtime=number)
    source = replace(spec(tmp_path / "in"), select=select, where=where)
    parts = [Descriptor("s", "parquet", str(tmp_path / "in" / f"{number}.parquet"), 0, 0, 2, 2) for number in range(3)]
    others: list[tuple[int, int]] = []
    left_out = LeftOut("key", lambda keys, places: others.extend(zip(keys.to_pylist(), places, strict=True)))
    batches = list(read_with_places(parts, source, lambda row, why: pytest.fail(why), parts.index, Tally(), left_out))
    found = [(key, place) for batch, places in batches for key, place in zip(batch["key"].to_pylist(), places, strict=True)]
    factor = 2 if select and "2" in select[0] else 1
    assert found == [(factor * key, key // 2) for key in range(6) if where is None or key >= 3]
    assert others == [(factor * key, key // 2) for key in range(6) if where is not None and key < 3]
    assert [batch.schema.names for batch, _ in batches] == [["key"]]


def test_columns_that_nobody_reads_are_not_there(tmp_path: Path) -> None:
    make_flights(tmp_path / "in", batches=1, rows_per_batch=10, row_groups=1)
    source = spec(tmp_path / "in", schema=FLIGHTS_DDL)
    part = only_file(tmp_path / "in", source)
    ((batch, _),) = read_with_places([part], source, lambda row, why: None, lambda given: 0, Tally(), columns=["dest", "seq"])
    assert batch.to_pydict() == pq.read_table(tmp_path / "in", columns=["dest", "seq"]).to_pydict()


def test_column_may_have_the_name_of_a_hidden_one(tmp_path: Path) -> None:
    source = spec(write_input(tmp_path, "a.json", '{"__place": 7, "__rows_alone": 5}\n'), "json", "__place INT")
    part = only_file(tmp_path / "in", source)
    ((batch, _),) = read_with_places([part], source, lambda row, why: pytest.fail(why), lambda given: 0, Tally())
    assert batch.to_pylist() == [{"__place": 7}]


def test_failed_row_is_reported_without_its_place(tmp_path: Path) -> None:
    parquet_file(tmp_path / "in", "a.parquet", [1, 0], mtime=1)
    source = replace(spec(tmp_path / "in"), select=("CASE WHEN key = 0 THEN CAST('no' || key AS INT) END AS failing",))
    part = Descriptor("s", "parquet", str(tmp_path / "in" / "a.parquet"), 0, 0, 2, 2)
    bad: list[dict] = []
    list(read_with_places([part], source, lambda row, why: bad.extend(row.to_pylist()), lambda given: 0, Tally()))
    assert bad == [{"key": 0}]


def test_part_of_a_row_group(tmp_path: Path) -> None:
    parquet_file(tmp_path / "in", "a.parquet", list(range(10)), mtime=1, row_group_size=10)
    source = spec(tmp_path / "in")
    part = Descriptor("s", "parquet", str(tmp_path / "in" / "a.parquet"), 0, 3, 7, 4)
    assert [row["key"] for row in rows_of([part], source)] == [3, 4, 5, 6]


def test_row_groups_larger_than_memory_are_read_piece_by_piece(tmp_path: Path) -> None:
    """400 MB of texts in one row group, which the file calls 100 kB, as they repeat."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"key": range(4000), "text": ["x" * 100_000] * 4000}), path, row_group_size=4000)
    source = SourceSpec.of(Source("s", "parquet", "key BIGINT, text STRING", {"path": str(tmp_path)}))
    part = Descriptor("s", "parquet", str(path), 0, 500, 3900, 3400)
    before, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(pool)
    try:
        keys = [key for batch in read(part, source) for key in batch.column("key").to_pylist()]
    finally:
        pa.set_memory_pool(before)
    assert keys == list(range(500, 3900))
    assert pool.max_memory() < 4 * MAX_BATCH_BYTES


@pytest.mark.parametrize("options", [{}, {"header": "true"}, {"sep": ";"}])
def test_csv(tmp_path: Path, options: dict[str, str]) -> None:
    header = "key,at,name\n" if "header" in options else ""
    text = header + '1,2024-01-01 10:00:00,"a,b"\n,2024-01-01T10:00:00+02:00,\n3,,""\n'
    if "sep" in options:
        text = text.replace(",", ";")
    folder = write_input(tmp_path, "a.csv", text)
    source = spec(folder, "csv", "key INT, at TIMESTAMP, name STRING", **options)
    rows = rows_of([only_file(folder, source)], source)
    hours = [row["at"] and row["at"].hour for row in rows]
    assert [row["key"] for row in rows] == [1, None, 3]
    assert hours == [10, 8, None]
    assert [row["name"] for row in rows] == ["a;b" if "sep" in options else "a,b", None, None]


def test_csv_columns_by_header_name(tmp_path: Path) -> None:
    folder = write_input(tmp_path, "a.csv", "name,ignored,key\nx,?,1\n")
    source = spec(folder, "csv", "key INT, name STRING", header="true")
    assert rows_of([only_file(folder, source)], source) == [{"key": 1, "name": "x"}]


def test_json_lines(tmp_path: Path) -> None:
    lines = '{"key": 1, "t": {"a": [1, 2]}, "extra": 0, "at": "2024-01-01T00:00:01Z"}\n{"key": null}\n'
    folder = write_input(tmp_path, "a.json", lines)
    source = spec(folder, "json", "key BIGINT, t STRUCT<a: ARRAY<INT>>, at TIMESTAMP_NTZ")
    first, second = rows_of([only_file(folder, source)], source)
    assert (first["key"], first["t"], first["at"].second) == (1, {"a": [1, 2]}, 1)
    assert second == {"key": None, "t": None, "at": None}


@settings(max_examples=50)
@given(
    text=st.text(st.sampled_from("ab\u00e4\r\n \u4e16"), max_size=40).map(lambda t: t.encode()),
    block=st.integers(1, 9),
)
def test_lines_are_those_of_a_plain_split(text: bytes, block: int) -> None:
    whole = text[:-1] if text.endswith(b"\n") else text
    expected = [line.removesuffix(b"\r").decode() for line in whole.split(b"\n")] if text else []
    if text and not text.endswith(b"\n"):
        expected[-1:] = [whole.split(b"\n")[-1].removesuffix(b"\r").decode()]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_stream, "READ_BYTES", block)
        path = Path(folder) / "a.txt"
        path.write_bytes(text)
        part = Descriptor("s", "text", str(path), 0, 0, len(text), 1)
        assert [row["value"] for row in rows_of([part], spec(path.parent, "text", "value STRING"))] == expected


@pytest.mark.parametrize(
    ("format_", "text", "schema", "complaint"),
    [
        ("csv", "1,x\n2,y\n", "key INT, n DOUBLE", r"a\.csv: row 1: column 'n' is declared double but holds 'x'"),
        ("csv", "1\n2\n", "key INT, n DOUBLE", r"a\.csv: CSV parse error: Row #1: Expected 2 columns, got 1: 1;"),
        ("csv", "1,2024-13-01\n", "key INT, t TIMESTAMP", r"a\.csv: row 1: column 't' is declared timestamp.*2024-13-01"),
        ("json", '{"key": "one"}\n', "key INT", r"a\.json: line 1: column 'key' is declared int32 but holds the string"),
        ("json", "{nothing\n", "key INT", r"a\.json: line 1: JSON parse error"),
        ("text", "\x00", None, None),
    ],
)
def test_text_that_does_not_fit_its_schema_is_named(
    tmp_path: Path, format_: str, text: str, schema: str | None, complaint: str | None
) -> None:
    folder = write_input(tmp_path, f"a.{format_}", text)
    source = spec(folder, format_, schema)
    descriptor = only_file(folder, source)
    if complaint is None:
        Path(descriptor.path).write_bytes(b"\xff\xfe\n")
        complaint = r"a\.text: line 1 is no text in UTF-8: ISO-8859-1 reads it as"
    with pytest.raises(SchemaMismatchError, match=complaint):
        rows_of([descriptor], source)


@pytest.mark.parametrize(
    ("found", "declared", "fits"),
    [
        (pa.array([1, None], pa.int32()), "BIGINT", True),
        (pa.array([1, None], pa.int32()), "DOUBLE", True),
        (pa.array([1, None], pa.uint32()), "BIGINT", True),
        (pa.array([1, None], pa.int64()), "INT", False),
        (pa.array([1, None], pa.int64()), "DOUBLE", False),
        (pa.array([1.0], pa.float32()), "DOUBLE", True),
        (pa.array([1.0], pa.float64()), "FLOAT", False),
        (pa.array(["a"]).dictionary_encode(), "STRING", True),
        (pa.array(["1"]), "INT", False),
        (pa.array([0], pa.timestamp("ms")), "TIMESTAMP", True),
        (pa.array([0], pa.timestamp("ms", "UTC")), "TIMESTAMP_NTZ", False),
        (pa.array([None], pa.null()), "INT", True),
        (pa.array([None, 1], pa.int32()), "INT NOT NULL", False),
        (pa.array([[1]], pa.list_(pa.int8())), "ARRAY<INT>", True),
        (pa.array([2**64 - 1, None], pa.uint64()), "DECIMAL(20, 0)", True),
        (pa.array([1], pa.uint64()), "BIGINT", False),
        (pa.array([1], pa.uint64()), "DECIMAL(20, 1)", False),
        (pa.array([1.5], pa.float16()), "FLOAT", True),
        (pa.array(["é"]), "BINARY", True),
        (pa.array([b"1"]), "STRING", False),
    ],
)
def test_parquet_columns_widen_but_never_lose(tmp_path: Path, found: pa.Array, declared: str, fits: bool) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    pq.write_table(pa.table({"key": found}), folder / "a.parquet")
    source = spec(folder, schema=f"key {declared}")
    descriptor = only_file(folder, source)
    if not fits:
        with pytest.raises(SchemaMismatchError, match=r"a\.parquet: column 'key' "):
            rows_of([descriptor], source)
        return
    (batch,) = read(descriptor, source)
    assert batch.schema == ddl_to_arrow(f"key {declared}")
    assert batch.num_rows == len(found)


def test_a_missing_parquet_column_is_named(tmp_path: Path) -> None:
    parquet_file(tmp_path / "in", "a.parquet", [1], mtime=1)
    source = spec(tmp_path / "in", schema="key BIGINT, kee INT")
    with pytest.raises(SchemaMismatchError, match="column 'kee' is declared int32 but the file has no such column"):
        rows_of([only_file(tmp_path / "in", source)], source)


@pytest.mark.parametrize(("format_", "name"), [("csv", "a.csv"), ("json", "a.json"), ("text", "a.txt")])
def test_empty_files_have_no_rows(tmp_path: Path, format_: str, name: str) -> None:
    folder = write_input(tmp_path, name, "")
    source = spec(folder, format_, None if format_ == "text" else "key INT")
    assert rows_of([only_file(folder, source)], source) == []


def test_text_column_has_the_declared_name(tmp_path: Path) -> None:
    folder = write_input(tmp_path, "a.txt", "x\ny\n")
    source = spec(folder, "text", "line STRING NOT NULL")
    assert rows_of([only_file(folder, source)], source) == [{"line": "x"}, {"line": "y"}]


@pytest.mark.parametrize(
    ("format_", "schema", "sentence"),
    [
        ("text", "value STRING, level STRING", "format text has one column of texts, a line each; leave schema out"),
        ("text", "value INT", "format text has one column of texts"),
        ("kafka", "key STRING, value STRING", "format kafka has the columns key, value, topic, partition, offset, timestamp"),
    ],
)
def test_validate_refuses_schemas_that_a_format_cannot_have(tmp_path: Path, format_: str, schema: str, sentence: str) -> None:
    (tmp_path / "a.txt").write_text("1 warn\n")
    options = {"path": str(tmp_path)} if format_ == "text" else {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
    (found,) = check(Source("s", format_, schema, options)).findings
    assert (found.path, sentence in found.message) == ("schema", True)
