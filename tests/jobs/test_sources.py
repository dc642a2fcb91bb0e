"""Descriptors are replayed alike, reading gives what the files hold, and shares are kept."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopology.jobs.bench.flights_data import FLIGHTS_DDL, FLIGHTS_SCHEMA, key_shares, make_flights, make_keys
from streamtopology.jobs.sources.checks import check
from streamtopology.jobs.sources.conform import SchemaMismatchError
from streamtopology.jobs.sources.ddl import SchemaError, ddl_to_arrow
from streamtopology.jobs.sources.descriptors import Descriptor, SourceError, SourceSpec
from streamtopology.jobs.sources.reading import read
from streamtopology.jobs.sources.spark_source import untag
from streamtopology.jobs.sources.split import TOLERANCE, assign
from streamtopology.jobs.sources.stream import DescriptorStreamReader
from streamtopology.routing.topology import Source


def parquet_file(folder: Path, name: str, values: list[int], mtime: int, row_group_size: int = 2) -> None:
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.table({"key": pa.array(values, pa.int64())}), folder / name, row_group_size=row_group_size)
    os.utime(folder / name, (mtime, mtime))


def spec(folder: Path, format_: str = "parquet", schema: str | None = "key BIGINT", **options: str) -> SourceSpec:
    return SourceSpec.of(Source("s", format_, schema, {"path": str(folder)} | options))


def rows_of(descriptors: list[Descriptor], source: SourceSpec) -> list[dict]:
    return [row for d in descriptors for batch in read(d, source) for row in batch.to_pylist()]


class Stream:
    """The reader as Spark drives it, with the offsets passed through JSON."""

    def __init__(self, log: Path, *specs: SourceSpec) -> None:
        self.reader = DescriptorStreamReader(specs, log)

    def start(self) -> dict:
        return json.loads(json.dumps(self.reader.initialOffset()))

    def read(self, start: dict) -> tuple[list[Descriptor], dict]:
        rows, end = self.reader.read(start)
        return [Descriptor.from_json(text) for _, text in rows], json.loads(json.dumps(end))

    def replay(self, start: dict, end: dict) -> list[Descriptor]:
        return [Descriptor.from_json(text) for _, text in self.reader.readBetweenOffsets(start, end)]


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
        ("a INT b INT", "unexpected 'b'"),
        ("a INT, a INT", "declared twice"),
        ("a ARRAY<INT", "ends too early"),
        ("a DECIMAL(50)", "precision <= 38"),
        ("a INT; b INT", "unexpected '; b INT'"),
    ],
)
def test_a_wrong_ddl_is_named(ddl: str, complaint: str) -> None:
    with pytest.raises(SchemaError, match=".*") as raised:
        ddl_to_arrow(ddl)
    assert complaint in str(raised.value)


# --- descriptors and replay


def test_files_come_by_time_then_name_a_row_group_each(tmp_path: Path) -> None:
    data = tmp_path / "in"
    parquet_file(data, "b.parquet", [1, 2, 3], mtime=100)
    parquet_file(data, "a.parquet", [4], mtime=100)
    parquet_file(data, "z.parquet", [5], mtime=50)
    (data / "_SUCCESS").touch()
    stream = Stream(tmp_path / "log", spec(data))
    descriptors, end = stream.read(stream.start())
    assert [(Path(d.path).name, d.part, d.rows) for d in descriptors] == [
        ("z.parquet", 0, 1), ("a.parquet", 0, 1), ("b.parquet", 0, 2), ("b.parquet", 1, 1)]  # fmt: skip
    assert end == {"s": 3}
    assert [row["key"] for row in rows_of(descriptors, spec(data))] == [5, 4, 1, 2, 3]


def test_new_files_are_noticed_and_nothing_new_is_the_same_offset(tmp_path: Path) -> None:
    data = tmp_path / "in"
    parquet_file(data, "a.parquet", [1], mtime=100)
    stream = Stream(tmp_path / "log", spec(data))
    _, first = stream.read(stream.start())
    assert stream.read(first) == ([], first)
    parquet_file(data, "older.parquet", [2], mtime=10)
    descriptors, second = stream.read(first)
    assert [Path(d.path).name for d in descriptors] == ["older.parquet"]
    assert second == {"s": 2}


@settings(max_examples=25, deadline=None)
@given(
    arrivals=st.lists(st.integers(0, 4), min_size=1, max_size=5),
    limit=st.none() | st.integers(1, 3),
    later_limit=st.none() | st.integers(1, 3),
)
def test_the_same_offsets_give_the_same_descriptors_after_a_restart(
    tmp_path_factory: pytest.TempPathFactory, arrivals: list[int], limit: int | None, later_limit: int | None
) -> None:
    home = tmp_path_factory.mktemp("replay")
    data = home / "in"
    data.mkdir()

    def limited(limit: int | None) -> SourceSpec:
        return spec(data) if limit is None else spec(data, maxFilesPerTrigger=str(limit))

    stream, seen, files = Stream(home / "log", limited(limit)), [], 0
    offset = stream.start()
    for count in arrivals:
        for _ in range(count):
            parquet_file(data, f"{files:03d}.parquet", [files, -files, 7], mtime=1000 - files % 3)
            files += 1
        descriptors, end = stream.read(offset)
        seen.append((offset, end, descriptors))
        offset = end
    restarted = Stream(home / "log", limited(later_limit))
    for start, end, descriptors in seen:
        assert restarted.replay(start, end) == descriptors
    while (step := restarted.read(offset))[1] != offset:
        seen.append((offset, step[1], step[0]))
        offset = step[1]
    paths = [d.path for _, _, descriptors in seen for d in descriptors if d.part == 0]
    assert sorted(paths) == sorted(str(path) for path in data.iterdir())


def test_a_batch_logged_but_not_recorded_by_spark_is_handed_out_again(tmp_path: Path) -> None:
    data = tmp_path / "in"
    parquet_file(data, "a.parquet", [1], mtime=100)
    stream = Stream(tmp_path / "log", spec(data))
    start = stream.start()
    before, end = stream.read(start)
    parquet_file(data, "b.parquet", [2], mtime=1)
    restarted = Stream(tmp_path / "log", spec(data))
    assert restarted.read(start) == (before, end)
    assert [Path(d.path).name for d in restarted.read(end)[0]] == ["b.parquet"]


def test_two_readers_of_one_log_agree(tmp_path: Path) -> None:
    """A restarted process beside one that is dying, each having listed other files."""
    data = tmp_path / "in"
    parquet_file(data, "a.parquet", [1], mtime=100)
    one, two = (Stream(tmp_path / "log", spec(data)) for _ in range(2))
    start = one.start()
    first = one.read(start)
    parquet_file(data, "b.parquet", [2], mtime=1)
    assert two.read(start) == first
    assert two.read(first[1]) == one.read(first[1])


def test_available_now_ends_with_the_files_that_were_there(tmp_path: Path) -> None:
    data = tmp_path / "in"
    for number in range(3):
        parquet_file(data, f"{number}.parquet", [number], mtime=100)
    stream = Stream(tmp_path / "log", spec(data, maxFilesPerTrigger="2"))
    stream.reader.prepareForTriggerAvailableNow()
    parquet_file(data, "late.parquet", [9], mtime=100)
    offset, names = stream.start(), []
    while (step := stream.read(offset))[1] != offset:
        names.append([Path(d.path).name for d in step[0]])
        offset = step[1]
    assert names == [["0.parquet", "1.parquet"], ["2.parquet"]]


def test_several_sources_share_one_offset(tmp_path: Path) -> None:
    parquet_file(tmp_path / "p", "a.parquet", [1], mtime=1)
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "words.txt").write_text("to be\nor not\n")
    sources = [
        SourceSpec.of(Source("p", "parquet", "key BIGINT", {"path": str(tmp_path / "p")})),
        SourceSpec.of(Source("t", "text", None, {"path": str(tmp_path / "t")})),
    ]
    stream = Stream(tmp_path / "log", *sources)
    descriptors, end = stream.read(stream.start())
    assert [(d.source, d.kind, d.rows) for d in descriptors] == [("p", "parquet", 1), ("t", "text", 2)]
    assert end == {"p": 1, "t": 1}


def test_an_offset_of_another_checkpoint_is_refused(tmp_path: Path) -> None:
    parquet_file(tmp_path / "in", "a.parquet", [1], mtime=1)
    stream = Stream(tmp_path / "log", spec(tmp_path / "in"))
    with pytest.raises(SourceError, match="file log holds 0"):
        stream.replay({"s": 0}, {"s": 5})


def test_a_file_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "half.parquet").write_bytes(b"PAR1 half a file")
    stream = Stream(tmp_path / "log", spec(tmp_path / "in"))
    with pytest.raises(SourceError, match=r"half\.parquet is no readable parquet file"):
        stream.read(stream.start())


# --- reading


def only_file(folder: Path, source: SourceSpec) -> Descriptor:
    stream = Stream(folder.parent / "log", source)
    (descriptor,), _ = stream.read(stream.start())
    return descriptor


def write_input(tmp_path: Path, name: str, text: str) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / name).write_bytes(text.encode())
    return folder


def test_reading_flights_equals_plain_pyarrow(tmp_path: Path) -> None:
    files = make_flights(tmp_path / "in", batches=2, rows_per_batch=1000, row_groups=3)
    source = spec(tmp_path / "in", schema=FLIGHTS_DDL)
    stream = Stream(tmp_path / "log", source)
    descriptors, _ = stream.read(stream.start())
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
        for row in pq.read_table(tmp_path / "in").to_pylist() if row["arr_delay"] is not None and row["arr_delay"] > 0
    ]  # fmt: skip
    descriptor = only_file(tmp_path / "in", source)
    assert rows_of([descriptor], source) == expected
    (batch,) = read(descriptor, source, columns=["seq"])
    assert batch.to_pylist() == [{"seq": row["seq"]} for row in expected]


def test_part_of_a_row_group(tmp_path: Path) -> None:
    parquet_file(tmp_path / "in", "a.parquet", list(range(10)), mtime=1, row_group_size=10)
    source = spec(tmp_path / "in")
    part = Descriptor("s", "parquet", str(tmp_path / "in" / "a.parquet"), 0, 3, 7, 4)
    assert [row["key"] for row in rows_of([part], source)] == [3, 4, 5, 6]


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
    assert [row["name"] for row in rows] == ["a;b" if "sep" in options else "a,b", None, ""]


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


@settings(max_examples=50, deadline=None)
@given(
    text=st.text(st.sampled_from("ab\u00e4\r\n \u4e16"), max_size=40).map(lambda t: t.encode()),
    block=st.integers(1, 9),
)
def test_lines_are_those_of_a_plain_split(text: bytes, block: int) -> None:
    from streamtopology.jobs.sources.lines import lines

    whole = text[:-1] if text.endswith(b"\n") else text
    expected = [line.removesuffix(b"\r").decode() for line in whole.split(b"\n")] if text else []
    if text and not text.endswith(b"\n"):
        expected[-1:] = [whole.split(b"\n")[-1].removesuffix(b"\r").decode()]
    found = [v for array in lines(pa.BufferReader(text), block, "here") for v in array.to_pylist()]
    assert found == expected


@pytest.mark.parametrize(
    ("format_", "text", "schema", "complaint"),
    [
        ("csv", "1,x\n2,y\n", "key INT, n DOUBLE", r"a\.csv: column 'n' is declared double but holds 'x'"),
        ("csv", "1\n2\n", "key INT, n DOUBLE", r"a\.csv: CSV parse error: Row #1: Expected 2 columns, got 1"),
        ("csv", "1,2024-13-01\n", "key INT, t TIMESTAMP", r"a\.csv: column 't' is declared timestamp.*2024-13-01"),
        ("json", '{"key": "one"}\n', "key INT", r"a\.json: column 'key' is declared int32: .*string"),
        ("json", "{nothing\n", "key INT", r"a\.json: JSON parse error"),
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
        complaint = "is text in UTF-8 but the file is not"
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


# --- checks before start


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        (Source("s", "parquet", "k INT", {"path": "/no/such/folder"}), "folder /no/such/folder does not exist"),
        (Source("s", "parquet", None, {"path": "/tmp"}), "needs a schema"),
        (Source("s", "parquet", "k INTT", {"path": "/tmp"}), "unknown type 'INTT'"),
        (Source("s", "json", "k INT", {}), "needs option path"),
        (Source("s", "json", "k INT", {"path": "/tmp", "header": "true"}), "has no option 'header'"),
        (Source("s", "csv", "k INT", {"path": "/tmp", "header": "yes"}), "must be true or false, not 'yes'"),
        (Source("s", "text", None, {"path": "/tmp", "maxFilesPerTrigger": "0"}), "whole number above 0, not '0'"),
        (Source("s", "parquet", "k INT", {"path": "s3://bucket/x"}), "only local paths"),
        (Source("s", "kafka", None, {"subscribe": "t"}), "needs option kafka.bootstrap.servers"),
        (Source("s", "kafka", None, {"kafka.bootstrap.servers": "x:1", "subscribe": "t", "startingOffsets": "first"}),
         "must be earliest, latest or JSON"),
    ],
)  # fmt: skip
def test_a_wrong_source_is_refused_with_a_sentence(source: Source, complaint: str) -> None:
    (problem,) = check(source)
    assert problem.startswith("source 's'")
    assert complaint in problem


def test_a_good_source_has_no_problems(tmp_path: Path) -> None:
    assert check(Source("s", "csv", "k INT", {"path": str(tmp_path), "header": "true"})) == []
    assert check(Source("s", "rate", None, {"rowsPerSecond": "5"})) == []


# --- shares


descriptors_of_sizes = st.lists(
    st.tuples(st.integers(0, 5000), st.sampled_from(["parquet", "csv", "kafka"])), max_size=20
).map(lambda sizes: [Descriptor("s", kind, f"f{i}", 0, 10, 10 + n, n) for i, (n, kind) in enumerate(sizes)])
some_shares = st.lists(st.floats(0, 10), min_size=1, max_size=6).filter(lambda shares: sum(shares) > 0.1)


@settings(max_examples=150, deadline=None)
@given(descriptors=descriptors_of_sizes, shares=some_shares)
def test_every_row_is_assigned_once(descriptors: list[Descriptor], shares: list[float]) -> None:
    slots = assign(descriptors, shares)
    assert len(slots) == len(shares)
    pieces = [piece for slot in slots for piece in slot]
    for whole in descriptors:
        parts = sorted((p for p in pieces if p.path == whole.path), key=lambda p: p.start)
        assert [p.start for p in parts] == [whole.start, *[p.end for p in parts[:-1]]]
        assert parts[-1].end == whole.end
        assert sum(p.rows for p in parts) == whole.rows
        assert whole.kind != "csv" or len(parts) == 1
    assert sum(len(slot) for slot, share in zip(slots, shares, strict=True) if share == 0) == 0
    assert assign(descriptors, shares) == slots


@settings(max_examples=100, deadline=None)
@given(sizes=st.lists(st.integers(1000, 100_000), min_size=1, max_size=12), shares=some_shares)
def test_rows_follow_the_shares(sizes: list[int], shares: list[float]) -> None:
    descriptors = [Descriptor("s", "parquet", f"f{i}", 0, 0, n, n) for i, n in enumerate(sizes)]
    for slot, share in zip(assign(descriptors, shares), shares, strict=True):
        part = sum(sizes) * share / sum(shares)
        assert sum(d.rows for d in slot) <= (1 + TOLERANCE) * part + len(shares)


def test_nothing_is_cut_when_whole_row_groups_fit() -> None:
    descriptors = [Descriptor("s", "parquet", "f", i, 0, 1000, 1000) for i in range(33)]
    slots = assign(descriptors, [1, 1, 1, 0.3])
    assert sorted((d for slot in slots for d in slot), key=lambda d: d.part) == descriptors


@pytest.mark.parametrize("shares", [[], [0.0], [1.0, -1.0]])
def test_impossible_shares_are_refused(shares: list[float]) -> None:
    with pytest.raises(ValueError, match="source shares must be"):
        assign([], shares)


# --- other Spark sources


def test_untag_gives_each_source_its_rows() -> None:
    batch = pa.RecordBatch.from_pydict(
        {"__source": ["a", "b", "a"], "a": [{"x": 1}, None, {"x": 2}], "b": [None, {"y": "t"}, None]}
    )
    assert [(name, rows.to_pylist()) for name, rows in untag(batch)] == [
        ("a", [{"x": 1}, {"x": 2}]),
        ("b", [{"y": "t"}]),
    ]


# --- benchmark data


def test_flights_continue_and_start_again(tmp_path: Path) -> None:
    files = make_flights(tmp_path, batches=3, rows_per_batch=200_000)
    tables = [pq.read_table(file) for file in files]
    assert [t["seq"][0].as_py() for t in tables] == [0, 200_000, 400_000]
    again = 336_776 - 200_000
    assert tables[1].slice(again, 1).drop(["seq"]) == tables[0].slice(0, 1).drop(["seq"])
    assert pq.read_metadata(files[0]).num_row_groups == 16
    mtimes = [file.stat().st_mtime_ns for file in files]
    assert mtimes == sorted(set(mtimes))


@pytest.mark.parametrize("distribution", ["zipf-1.0", "zipf-1.2", "tweets", "uniform"])
def test_keys_follow_their_distribution(tmp_path: Path, distribution: str) -> None:
    one, two = make_keys(tmp_path / "a", distribution, batches=2, rows_per_batch=100_000, keys=1000)  # type: ignore[arg-type]
    again, _ = make_keys(tmp_path / "b", distribution, batches=2, rows_per_batch=100_000, keys=1000)  # type: ignore[arg-type]
    assert one.read_bytes() == again.read_bytes()
    assert one.read_bytes() != two.read_bytes()
    share = key_shares(distribution, 1000)[0]  # type: ignore[arg-type]
    drawn = sum(1 for key in pq.read_table(one)["key"].to_pylist() if key == 0) / 100_000
    assert drawn == pytest.approx(share, abs=0.006)


def test_the_tweets_have_the_papers_first_key() -> None:
    assert key_shares("tweets", 100_000)[0] == pytest.approx(0.0267, abs=1e-6)
