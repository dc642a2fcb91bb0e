"""Rows by partition, in folders named as Spark names them: what readers find there, whatever the values, and after deaths."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pandas  # noqa: F401 - pyarrow would import it in each fork
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from support.connectors import stage
from support.processes import apart, killed_in
from support.stages import counting

from streamtopology import topology
from streamtopology.jobs.connectors.sinks import SinkError, Writer, check, open_sink, written
from streamtopology.jobs.connectors.sinks.partitions import divided
from streamtopology.jobs.connectors.sinks.registry import proof, takes
from streamtopology.jobs.connectors.sinks.takes import UnwritableValue
from streamtopology.jobs.connectors.sinks.writable import unwritable_folders
from streamtopology.jobs.failpoints import arm

if TYPE_CHECKING:  # the plugin is imported by pytest, which then explains its assertions
    from support.s3 import S3Server

pytest_plugins = ("support.s3",)

WRITER = Writer(topology="flights", run="run-1")
PLACES = ("folder", "bucket")
ROWS = pa.schema([("n", pa.int64()), ("day", pa.string()), ("city", pa.string())])


def sink_at(path: Path | str, format_: str = "parquet", by: str = "day", **options: str) -> topology.Sink:
    return topology.Sink("out", "counts", format_, {"path": str(path), "partitionBy": by, **options})


def place(kind: str, server: S3Server, folder: Path) -> tuple[str, Path]:
    """The path of a sink, and the folder of this machine that has its files."""
    if kind == "folder":
        return str(folder / "out"), folder / "out"
    uri = server.uri()
    return uri, server.files / uri.removeprefix("s3://")


def staged(folder: Path, rows: pa.Table) -> list[Path]:
    path = folder / f"staged-{len(list(folder.glob('staged-*')))}.arrow"
    stage(path, rows.schema, rows.to_batches())
    return [path]


def days(**numbers: int) -> pa.Table:
    """A row for each day, such as mon=1."""
    return pa.table({"n": list(numbers.values()), "day": list(numbers), "city": ["Rome"] * len(numbers)}, ROWS)


def read(folder: Path, reader: str = "read_parquet") -> list[tuple[int, str]]:
    options = "hive_partitioning = true, hive_types = {'day': VARCHAR}"
    query = f"SELECT n, day FROM {reader}('{folder}/*/batch-*', {options}) ORDER BY ALL"
    return duckdb.connect().sql(query).fetchall()


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.name != "owner.json")


@apart
@pytest.mark.parametrize("kind", PLACES)
@pytest.mark.parametrize(
    ("format_", "reader", "suffix"), [("parquet", "read_parquet", "parquet"), ("json", "read_json", "jsonl")]
)
def test_duckdb_finds_each_row_once_in_the_folder_of_its_partition(
    s3_server: S3Server, tmp_path: Path, kind: str, format_: str, reader: str, suffix: str
) -> None:
    path, folder = place(kind, s3_server, tmp_path)
    batches = {3: staged(tmp_path, days(mon=1, tue=2)), 4: staged(tmp_path, days()), 5: staged(tmp_path, days(mon=3))}
    for _ in range(2):  # the second sink is a restarted process
        sink = open_sink(sink_at(path, format_), WRITER)
        for batch, files_ in batches.items():
            sink.publish(batch, files_, f"end {batch}")
    assert read(folder, reader=reader) == [(1, "mon"), (2, "tue"), (3, "mon")]
    assert files(folder) == [
        "_manifest/000000003.json", "_manifest/000000004.json", "_manifest/000000005.json", "_manifest/placing.json",
        f"day=mon/batch-000000003.{suffix}", f"day=mon/batch-000000005.{suffix}", f"day=tue/batch-000000003.{suffix}",
    ]  # fmt: skip
    if format_ == "json":
        assert (folder / "day=mon/batch-000000003.jsonl").read_text() == '{"n":1,"city":"Rome"}\n', "the folder has the day"


_odd = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
_texts = st.none() | _odd | st.sampled_from(["", " a ", "a/b", "10:00", "50%", "%41", "x=y", "é€", "..", "a\nb"])


@settings(max_examples=60)
@given(values=st.lists(st.tuples(_texts, _texts), min_size=1, max_size=6))
def test_rows_of_any_text_are_read_back_by_duckdb(
    tmp_path_factory: pytest.TempPathFactory, values: list[tuple[str | None, str | None]]
) -> None:
    folder = tmp_path_factory.mktemp("texts")
    rows = pa.Table.from_pylist([{"n": n, "day": day, "city": city} for n, (day, city) in enumerate(values)], ROWS)
    open_sink(sink_at(folder / "out", by="day, city"), WRITER).publish(0, staged(folder, rows))
    types = "{'day': VARCHAR, 'city': VARCHAR}"
    names = "SELECT n, day, city FROM read_parquet"
    query = f"{names}('{folder}/out/*/*/*', hive_partitioning = true, hive_types = {types}) ORDER BY n"
    expected = [(n, day or None, city or None) for n, (day, city) in enumerate(values)]  # "" is NULL, as with Spark
    assert duckdb.connect().sql(query).fetchall() == expected


@given(st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.booleans()), max_size=20), st.integers(1, 5))
def test_rows_keep_their_order_within_a_partition(values: list[tuple[str | None, bool]], size: int) -> None:
    rows = pa.table({"n": list(range(len(values))), "day": pa.array([day for day, _ in values], pa.string()),
                     "late": pa.array([late for _, late in values], pa.bool_())})  # fmt: skip
    chunked = pa.concat_tables([rows.slice(start, size) for start in range(0, len(values), size)] or [rows])
    expected: dict[str, list[int]] = {}
    for n, (day, late) in enumerate(values):
        name = f"day={'__HIVE_DEFAULT_PARTITION__' if day is None else day}/late={str(late).lower()}"
        expected.setdefault(name, []).append(n)
    found = divided(chunked, ["day", "late"]) if values else {}
    assert {folder: table["n"].to_pylist() for folder, table in found.items()} == expected
    assert all(table.column_names == ["n"] for table in found.values())


AT = datetime(2024, 1, 31, 10, 0, 5, 500_000, tzinfo=UTC)
TYPED: list[tuple[pa.Array, str]] = [
    (pa.array([-5], pa.int8()), "-5"),
    (pa.array([2**64 - 1], pa.uint64()), "18446744073709551615"),
    (pa.array([1.5, float("nan")], pa.float64()), "1.5"),
    (pa.array([Decimal("0.00000012")], pa.decimal128(12, 8)), "0.00000012"),
    (pa.array([Decimal("1.50")], pa.decimal256(50, 2)), "1.50"),
    (pa.array([False]), "false"),
    (pa.array([date(2024, 1, 31)]), "2024-01-31"),
    (pa.array([date(2024, 1, 31)], pa.date64()), "2024-01-31"),
    (pa.array([AT], pa.timestamp("us", "Europe/Berlin")), "2024-01-31 10%3A00%3A05.5"),
    (pa.array([AT.replace(microsecond=0, tzinfo=None)], pa.timestamp("ns")), "2024-01-31 10%3A00%3A05"),
    (pa.array([AT.replace(microsecond=0, second=0, tzinfo=None)], pa.timestamp("s")), "2024-01-31 10%3A00%3A00"),
    (pa.array(["a:b"]).dictionary_encode(), "a%3Ab"),
    (pa.array(["a"], pa.string_view()), "a"),
]


@pytest.mark.parametrize(("values", "text"), TYPED, ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "")
def test_values_are_written_as_spark_casts_them(values: pa.Array, text: str) -> None:
    rows = pa.table({"n": list(range(len(values))), "x": values})
    assert not takes(sink_at("/tmp/none", by="x"), rows.schema).refusals(rows.schema)
    assert next(iter(divided(rows, ["x"]))) == f"x={text}"


@pytest.mark.clusters
@pytest.mark.parametrize("format_", ["parquet", "json"])
def test_spark_names_the_same_folders_and_reads_the_same_rows(spark: SparkSession, tmp_path: Path, format_: str) -> None:
    texts = [None, "", " a ", "a/b", "10:00", "50%", "x=y", "é€", "..", "a\nb", "~!@#$&*()[]{}|;'\"<>?,`^\\+", "\x7f", "a b"]
    count = len(texts)
    rows = pa.table(
        {
            "n": pa.array(range(count), pa.int64()),
            "a text": texts,
            "money": pa.array([Decimal("0.00000012") * n for n in range(count)], pa.decimal128(12, 8)),
            "day": [date(2024, 1, 1 + n % 3) for n in range(count)],
            "at": pa.array([AT.replace(microsecond=1000 * n) for n in range(count)], pa.timestamp("us", "UTC")),
            "late": [n % 2 == 0 for n in range(count)],
        }
    )
    by = ["a text", "money", "day", "at", "late"]
    open_sink(sink_at(tmp_path / "out", format_, ", ".join(by)), WRITER).publish(0, staged(tmp_path, rows))
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    frame = spark.createDataFrame(rows)
    frame.coalesce(1).write.partitionBy(*by).format(format_).save(str(tmp_path / "spark"))

    def folders(place: Path) -> list[str]:
        return sorted(str(path.relative_to(place)) for path in place.rglob("late=*"))

    assert folders(tmp_path / "out") == folders(tmp_path / "spark")
    ours, theirs = (
        spark.read.schema(frame.schema).format(format_).load(str(tmp_path / name)).orderBy("n").collect()
        for name in ("out", "spark")
    )
    assert ours == theirs
    assert [row["a text"] for row in ours] == [text or None for text in texts]


# --- deaths


def publish_all(sink: topology.Sink, batches: dict[int, list[Path]], crash_at: str | None) -> None:
    arm(crash_at)
    opened = open_sink(sink, WRITER)
    for batch, files_ in batches.items():
        opened.publish(batch, files_, f"end {batch}")


@apart
@pytest.mark.parametrize("kind", PLACES)
@pytest.mark.parametrize("point", ["sink.placing", "sink.placing:2", "sink.placed", "sink.placed:2", "sink.placing:3"])
def test_a_death_between_two_files_costs_nothing(s3_server: S3Server, tmp_path: Path, kind: str, point: str) -> None:
    path, folder = place(kind, s3_server, tmp_path)
    batches = {0: staged(tmp_path, days(mon=1, tue=2, wed=3)), 1: staged(tmp_path, days(tue=4, wed=5))}
    assert killed_in(lambda: publish_all(sink_at(path), batches, point))
    publish_all(sink_at(path), batches, None)
    assert read(folder) == [(1, "mon"), (2, "tue"), (3, "wed"), (4, "tue"), (5, "wed")]
    assert not [name for name in files(folder) if "/." in f"/{name}"]


@apart
@pytest.mark.parametrize("kind", PLACES)
@pytest.mark.parametrize("then", ["other rows", "no rows", "exported", "another format"])
def test_files_of_a_run_that_died_are_not_left_in_other_partitions(
    s3_server: S3Server, tmp_path: Path, kind: str, then: str
) -> None:
    path, folder = place(kind, s3_server, tmp_path)
    first, died = staged(tmp_path, days(mon=1)), staged(tmp_path, days(mon=2, tue=3, wed=4))
    assert killed_in(lambda: publish_all(sink_at(path), {0: first, 1: died}, "sink.placing:2"))
    assert (folder / "day=tue/batch-000000001.parquet").exists()
    sink = sink_at(path, "json" if then == "another format" else "parquet")
    number = 2 if then == "exported" else 1
    publish_all(sink, {number: staged(tmp_path, days() if then == "no rows" else days(sun=9))}, None)
    assert [name for name in files(folder) if name.startswith("day=")] == [
        "day=mon/batch-000000000.parquet",
        *([] if then == "no rows" else [f"day=sun/batch-{number:09d}.{'jsonl' if then == 'another format' else 'parquet'}"]),
    ]
    if kind == "folder":
        assert not (folder / "day=tue").exists()


@apart
@pytest.mark.parametrize("kind", PLACES)
def test_driver_that_stood_still_removes_nothing_that_another_has_entered(
    s3_server: S3Server, tmp_path: Path, kind: str
) -> None:
    path, folder = place(kind, s3_server, tmp_path)
    open_sink(sink_at(path), WRITER).publish(0, staged(tmp_path, days(mon=0)))
    stood_still, meanwhile = open_sink(sink_at(path), WRITER), open_sink(sink_at(path), WRITER)
    for batch in (1, 2):
        meanwhile.publish(batch, staged(tmp_path, days(mon=batch, tue=batch)))
    stood_still.publish(2, staged(tmp_path, days(mon=2, tue=2)))
    stood_still.publish(3, staged(tmp_path, days(wed=3)))
    assert [n for n, _ in read(folder)] == [0, 1, 1, 2, 2, 3]


@apart
@pytest.mark.parametrize("kind", PLACES)
def test_file_of_others_in_the_folder_of_a_partition_is_not_written_over(
    s3_server: S3Server, tmp_path: Path, kind: str
) -> None:
    path, folder = place(kind, s3_server, tmp_path)
    mine = folder / "day=tue/batch-000000001.parquet"
    mine.parent.mkdir(parents=True)
    mine.write_bytes(b"mine")
    sink = open_sink(sink_at(path), WRITER)
    sink.publish(0, staged(tmp_path, days(mon=0)))
    with pytest.raises(SinkError, match=r"day=tue/batch-000000001\.parquet is there already, with other rows"):
        sink.publish(1, staged(tmp_path, days(tue=1)))
    assert mine.read_bytes() == b"mine"


@apart
@pytest.mark.parametrize("kind", PLACES)
def test_output_of_its_writer_alone_is_deleted(s3_server: S3Server, tmp_path: Path, kind: str) -> None:
    path, folder = place(kind, s3_server, tmp_path)
    publish_all(sink_at(path), {0: staged(tmp_path, days(mon=1, tue=2)), 1: staged(tmp_path, days(mon=3))}, None)
    mine = [
        "batch-000000000.parquet", "day=mon/notes.txt", "day=thu/x/batch-000000000.parquet",
        "night=mon/batch-000000000.parquet",
    ]  # fmt: skip
    for name in mine:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("mine")
    assert written(sink_at(path), Writer("flights", "run-2")) is None
    found = written(sink_at(path), WRITER)
    assert found is not None
    assert found.batches == 2
    found.delete()
    assert files(folder) == mine
    assert written(sink_at(path), WRITER) is None
    if kind == "folder":
        assert not (folder / "day=tue").exists()


# --- refusals


@pytest.mark.parametrize(
    ("by", "finding"),
    [
        ("town", "cannot partition by 'town', which is no column; partitionBy can name n, day, city, l, b, t"),
        ("l", "cannot partition by column 'l' of type list<item: int64>; name one of numbers, texts or times"),
        ("b", "cannot partition by column 'b' of type binary"),
        ("t", "cannot partition by column 't' of type time64"),
        ("n, day, city, l, b, t", "cannot partition by all columns: the files would have none"),
    ],
)
@pytest.mark.parametrize("format_", ["parquet", "json"])
def test_partitions_that_rows_cannot_have_are_refused(tmp_path: Path, format_: str, by: str, finding: str) -> None:
    schema = pa.schema([*ROWS, ("l", pa.list_(pa.int64())), ("b", pa.binary()), ("t", pa.time64("us"))])
    found = takes(sink_at(tmp_path / "out", format_, by), schema).refusals(schema)
    assert any(sentence.startswith(finding) for sentence in found)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"by": "day, day"}, "option partitionBy must be names of columns, each once, such as day, city, not 'day, day'"),
        ({"filePerTask": "true"}, "with partitionBy a batch is a file for each partition, whatever task has its rows"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, options: dict[str, str], complaint: str) -> None:
    (problem,) = check(sink_at(tmp_path / "out", **options), tmp_path)
    assert complaint in problem.message


@pytest.mark.parametrize(
    ("day", "finding"),
    [
        ("a\0b", r"sink 'out' \(parquet\), .* cannot partition by a text with a NUL"),
        ("é" * 126, r"cannot partition by values of 256 bytes, 'day=ééé.*\.\.\.': the name of a folder has at most 255"),
    ],
)
def test_value_that_no_folder_can_be_named_by_is_a_bad_tuple(tmp_path: Path, day: str, finding: str) -> None:
    sink = sink_at(tmp_path / "out")
    rows = pa.record_batch({"n": [1], "day": [day], "city": ["x"]}, ROWS)
    with pytest.raises(UnwritableValue, match=finding):
        proof([sink], ROWS).check([rows])
    proof([sink], ROWS).check([pa.record_batch({"n": [1], "day": ["é" * 125], "city": ["x"]}, ROWS)])
    open_sink(sink, WRITER).publish(0, staged(tmp_path, days(**{"é" * 125: 1})))
    assert read(tmp_path / "out") == [(1, "é" * 125)]


@pytest.mark.parametrize(
    ("before", "now", "finding"),
    [
        ("day", "city", "partitionBy is city, and folder {out} is partitioned by day: readers take one layout"),
        ("", "day", "partitionBy is day, and folder {out} is not partitioned: readers take one layout"),
        ("day", "", "partitionBy is not set, and folder {out} is partitioned by day: readers take one layout"),
    ],
)
def test_other_folders_than_those_that_are_there_are_refused_before_the_start(
    tmp_path: Path, before: str, now: str, finding: str
) -> None:
    out = tmp_path / "out"

    def sink_by(names: str) -> dict[str, Any]:
        options = {"path": str(out), **({"partitionBy": names} if names else {})}
        return {"name": "out", "input": "n", "format": "parquet", "options": options}

    def parsed(names: str) -> topology.Topology:
        return topology.parse(counting(sinks=[sink_by(names)]))

    writer = Writer(parsed("").name, "run-1")
    open_sink(parsed(before).sinks[0], writer).publish(0, staged(tmp_path, days(mon=1)))
    (problem,) = unwritable_folders(parsed(now))
    assert problem.path == "spec.sinks[0].options.partitionBy"
    assert finding.format(out=out) in problem.message
    with pytest.raises(SinkError) as refused:
        open_sink(parsed(now).sinks[0], writer)
    assert str(refused.value) == problem.message
    assert not list(unwritable_folders(parsed(before)))


def test_note_of_files_that_are_not_the_sinks_own_deletes_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    open_sink(sink_at(out), WRITER).publish(0, staged(tmp_path, days(mon=1)))
    name = "batch-000000009.parquet"
    others = [f"../{name}", "day=mon/notes.txt", name, f"{tmp_path}/{name}"]
    for name in others:
        (out / name).write_text("mine")
    (out / "_manifest/placing.json").write_text(json.dumps({"batch": 9, "files": others}))
    open_sink(sink_at(out), WRITER).publish(9, staged(tmp_path, days(tue=2)))
    assert all((out / name).read_text() == "mine" for name in others)
