"""A sink holds each batch once, however often and after whatever failure it is published."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.connectors import stage

from streamtopology import topology
from streamtopology.jobs.connectors.sinks import BatchSink, SinkError, Writer, check, memory_rows, open_sink
from streamtopology.jobs.connectors.sinks.json_rows import json_rows
from streamtopology.jobs.connectors.sinks.manifest import KEPT_ENTRIES

WRITER = Writer(topology="flights", run="run-1")


def staged(folder: Path, *values: list[int]) -> list[Path]:
    """One staged file per list, as the tasks of a batch write them."""
    schema = pa.schema([("n", pa.int64())])
    paths: list[Path] = []
    for numbers in values:
        path = folder / f"staged-{len(list(folder.glob('staged-*')))}.arrow"
        stage(path, schema, [pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64())], schema=schema)])
        paths.append(path)
    return paths


def manifest_sink(format_: str, **options: str) -> topology.Sink:
    return topology.Sink("out", "counts", format_, options)


def parquet_numbers(folder: Path) -> list[int]:
    return ds.dataset(folder, format="parquet").to_table()["n"].to_pylist()


def json_numbers(folder: Path) -> list[int]:
    visible = [path for path in folder.rglob("*.jsonl") if not any(part.startswith(".") for part in path.parts)]
    return [json.loads(line)["n"] for path in visible for line in path.read_text().split()]


FOLDERS = [
    ("parquet", "false", parquet_numbers),
    ("parquet", "true", parquet_numbers),
    ("json", "false", json_numbers),
    ("json", "true", json_numbers),
]


@pytest.mark.parametrize(("format_", "file_per_task", "numbers"), FOLDERS)
def test_publishing_again_changes_nothing(
    tmp_path: Path, format_: str, file_per_task: str, numbers: Callable[[Path], list[int]]
) -> None:
    out = tmp_path / "out"
    manifest = manifest_sink(format_, path=str(out), filePerTask=file_per_task)
    batches = {0: staged(tmp_path, [1, 2], [3]), 1: staged(tmp_path, [4], [], [5, 6])}
    for _ in range(2):  # the second sink is a restarted process
        sink = open_sink(manifest, WRITER)
        for _ in range(2):
            for batch, files in batches.items():
                sink.publish(batch, files)
        sink.close()
    assert sorted(numbers(out)) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(("format_", "file_per_task", "numbers"), FOLDERS)
@pytest.mark.parametrize("died_before", ["sync", "replace", "_write_whole"])
def test_a_batch_whose_publishing_broke_off_is_published_whole(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    format_: str,
    file_per_task: str,
    numbers: Callable[[Path], list[int]],
    died_before: str,
) -> None:
    """The process dies before one of the steps: the draft's sync, its move into place, the manifest's entry."""
    from streamtopology.jobs.connectors.sinks import folder as module

    out = tmp_path / "out"
    sink = open_sink(manifest_sink(format_, path=str(out), filePerTask=file_per_task), WRITER)
    sink.publish(0, staged(tmp_path, [1]))
    files = staged(tmp_path, [2, 3], [4])

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr(module.os if died_before == "replace" else module, died_before, die)
        with pytest.raises(KeyboardInterrupt):
            sink.publish(1, files)
    assert sorted(numbers(out)) in ([1], [1, 2, 3, 4]), "readers see a batch whole or not at all"
    restarted = open_sink(manifest_sink(format_, path=str(out), filePerTask=file_per_task), WRITER)
    restarted.publish(1, files)
    restarted.publish(1, files)
    assert sorted(numbers(out)) == [1, 2, 3, 4]


@pytest.mark.parametrize(("format_", "file_per_task", "numbers"), FOLDERS)
def test_batch_that_ends_elsewhere_is_refused(
    tmp_path: Path, format_: str, file_per_task: str, numbers: Callable[[Path], list[int]]
) -> None:
    """The checkpoint went back: batch 1 has other rows, which the folder took for those that it has."""
    manifest = manifest_sink(format_, path=str(tmp_path / "out"), filePerTask=file_per_task)
    first = open_sink(manifest, WRITER)
    for batch, end in enumerate(("a", "b", None)):
        first.publish(batch, staged(tmp_path, [batch]), end)
    restored = open_sink(manifest, WRITER)
    for batch, end in ((0, "a"), (1, None), (2, "x")):
        restored.publish(batch, staged(tmp_path, [batch]), end)
    with pytest.raises(SinkError, match=r"out has another batch 1, .*before the checkpoint went back"):
        restored.publish(1, staged(tmp_path, [7]), "c")
    assert sorted(numbers(tmp_path / "out")) == [0, 1, 2]


def test_rows_of_a_batch_that_the_folder_never_had_are_not_left_out(tmp_path: Path) -> None:
    """The sink was not in the manifest when there was a batch 1, before the checkpoint went back."""
    sink = open_sink(manifest_sink("json", path=str(tmp_path / "out")), WRITER)
    for batch in (0, 2):
        sink.publish(batch, staged(tmp_path, [batch]), "a")
    sink.publish(1, [], "b")
    with pytest.raises(SinkError, match=r"out has another batch 1"):
        sink.publish(1, staged(tmp_path, [1]), "b")


def test_file_names_and_manifest(tmp_path: Path) -> None:
    out = tmp_path / "out"
    sink = open_sink(manifest_sink("parquet", path=out.as_uri()), WRITER)
    sink.publish(12, staged(tmp_path, [1, 2], [3]))
    sink.publish(13, [])
    assert [path.name for path in sorted(out.iterdir())] == ["_manifest", "batch-000000012.parquet"]
    assert pq.read_table(out / "batch-000000012.parquet").num_rows == 3
    assert json.loads((out / "_manifest" / "000000012.json").read_text()) == {"batch": 12, "rows": 3}
    assert json.loads((out / "_manifest" / "000000013.json").read_text()) == {"batch": 13, "rows": 0}


def test_manifest_keeps_the_newest_batches_and_all_before_count_as_published(tmp_path: Path) -> None:
    out = tmp_path / "out"
    manifest = manifest_sink("parquet", path=str(out))
    sink = open_sink(manifest, WRITER)
    for batch in range(3):
        sink.publish(batch, staged(tmp_path, [batch]))
    for batch in range(3, KEPT_ENTRIES + 5):  # as versions left them that kept all entries
        (out / "_manifest" / f"{batch:09d}.json").write_text("{}")
    restarted = open_sink(manifest, WRITER)
    for batch in range(KEPT_ENTRIES + 5, KEPT_ENTRIES + 8):
        restarted.publish(batch, [])
    entries = sorted(int(path.stem) for path in (out / "_manifest").glob("0*.json"))
    assert entries == list(range(8, KEPT_ENTRIES + 8))
    again = open_sink(manifest, WRITER)
    again.publish(1, staged(tmp_path, [7, 7]))
    assert sorted(parquet_numbers(out)) == [0, 1, 2]


def test_the_folder_of_another_run_is_refused(tmp_path: Path) -> None:
    manifest = manifest_sink("parquet", path=str(tmp_path))
    open_sink(manifest, WRITER).close()
    with pytest.raises(SinkError, match="holds the output of topology 'flights', checkpoint run-1; this is 'flights'"):
        open_sink(manifest, Writer("flights", "run-2"))


def test_folder_of_another_sink_of_the_run_is_refused(tmp_path: Path) -> None:
    manifest = manifest_sink("parquet", path=str(tmp_path))
    open_sink(manifest, WRITER).close()
    open_sink(manifest, WRITER).close()
    with pytest.raises(SinkError, match=f"output of sink {manifest.name!r} of topology 'flights'; this is its sink 'x'"):
        open_sink(replace(manifest, name="x"), WRITER)
    (tmp_path / "_manifest" / "owner.json").write_text('{"topology": "flights", "run": "run-1", "sink": "x"}')
    with pytest.raises(SinkError, match=r"the output in folder .* was written by a version of StreamTopology before 0\.1\.0"):
        open_sink(replace(manifest, name="x"), WRITER)


def test_memory_keeps_each_batch_once(tmp_path: Path) -> None:
    sink: BatchSink = open_sink(topology.Sink("mem", "counts", "memory"), WRITER)
    assert memory_rows("mem").num_rows == 0
    sink.publish(1, staged(tmp_path, [3]))
    sink.publish(0, staged(tmp_path, [1], [2]))
    sink.publish(1, staged(tmp_path, [3]))
    sink.publish(2, [])
    assert memory_rows("mem")["n"].to_pylist() == [1, 2, 3]


def test_streamed_arrow_files_are_read_too(tmp_path: Path) -> None:
    path = tmp_path / "streamed.arrow"
    table = pa.table({"n": [1, 2]})
    with pa.OSFile(str(path), "wb") as out, pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    sink = open_sink(topology.Sink("streamed", "counts", "memory"), WRITER)
    sink.publish(0, [path])
    assert memory_rows("streamed") == table


def test_a_missing_staged_file_is_named(tmp_path: Path) -> None:
    sink = open_sink(topology.Sink("mem", "counts", "memory"), WRITER)
    with pytest.raises(SinkError, match=r"staged output .*gone\.arrow cannot be read"):
        sink.publish(0, [tmp_path / "gone.arrow"])


def test_console_prints_the_first_rows_of_a_batch_once(tmp_path: Path) -> None:
    out = io.StringIO()
    path = tmp_path / "rows.arrow"
    rows = pa.record_batch({"dest": ["ORD", None, "a very long name of a place"], "n": [10, 2, 3]})
    stage(path, rows.schema, [rows])
    sink = open_sink(manifest_sink("console", numRows="2"), WRITER, out)
    sink.publish(4, [path])
    sink.publish(4, [path])
    assert out.getvalue() == "out, batch 4: 3 rows\n  dest  n\n  ORD   10\n  NULL  2\n  ... 1 more\n"
    whole = io.StringIO()
    open_sink(manifest_sink("console"), WRITER, whole).publish(5, [path])
    assert "a very long name ..." in whole.getvalue()


@pytest.mark.parametrize(
    ("sink", "complaint"),
    [
        (
            manifest_sink("parquett"),
            "unknown format 'parquett'; known are parquet, json, csv, delta, iceberg, console, memory, function, spark, kafka",
        ),
        (manifest_sink("parquet"), "format parquet needs option path"),
        (
            manifest_sink("json", path="s3a://b/x"),
            "option path must be a local path, a file: URI or s3://BUCKET/PREFIX, not 's3a://",
        ),
        (manifest_sink("json", path="/etc/hostname"), "must be a folder, but a file is there"),
        (
            manifest_sink("parquet", path="/tmp/no-run/out", filePerTask="yes"),
            "filePerTask must be true or false, not 'yes'",
        ),
        (manifest_sink("console", numRows="-1"), "numRows must be a whole number above 0, not '-1'"),
        (manifest_sink("memory", path="/tmp"), "format memory has no option 'path'; it has: none"),
        (manifest_sink("kafka", topic="t"), "format kafka needs option kafka.bootstrap.servers"),
        (manifest_sink("kafka", **{"kafka.bootstrap.servers": "x:1", "topic": "t", "acks": "1"}), "no option 'acks'"),
        *(
            (
                manifest_sink("kafka", **{"kafka.bootstrap.servers": "x:1", "topic": "t", f"kafka.{setting}": "mine"}),
                f"option kafka.{setting} cannot be set, because",
            )
            for setting in ("transactional.id", "group.id", "enable.auto.commit", "isolation.level")
        ),
    ],
)
def test_a_wrong_sink_is_refused_with_a_sentence(sink: topology.Sink, complaint: str) -> None:
    (problem,) = check(sink, Path())
    assert problem.message.startswith("sink 'out': ")
    assert complaint in problem.message


def test_every_format_of_a_manifest_can_be_opened_or_says_what_it_needs() -> None:
    for format_ in topology.SINK_FORMATS:
        assert not any("unknown format" in problem.message for problem in check(manifest_sink(format_), Path()))


# --- rows as JSON

_values = st.fixed_dictionaries(
    {
        "i": st.none() | st.integers(-(2**63), 2**63 - 1),
        "f": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "s": st.none() | st.text(max_size=8),
        "b": st.none() | st.booleans(),
        "l": st.none() | st.lists(st.none() | st.text(max_size=3), max_size=3),
        "t": st.none() | st.fixed_dictionaries({"x": st.none() | st.integers(-5, 5)}),
    }
)
_SCHEMA = pa.schema(
    [
        ("i", pa.int64()),
        ("f", pa.float64()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("l", pa.list_(pa.string())),
        ("t", pa.struct([("x", pa.int32())])),
    ]
)


@settings(max_examples=100)
@given(rows=st.lists(_values, max_size=5))
def test_json_read_back_is_the_row(rows: list[dict]) -> None:
    batch = pa.RecordBatch.from_pylist(rows, schema=_SCHEMA)
    assert [json.loads(text) for text in json_rows(batch).to_pylist()] == rows


def test_json_of_what_json_does_not_have() -> None:
    at = datetime(2024, 1, 2, 3, 4, 5, 6000, tzinfo=UTC)
    batch = pa.record_batch(
        {
            'a "name"': pa.array([float("nan")]),
            "inf": pa.array([float("-inf")], pa.float32()),
            "at": pa.array([at], pa.timestamp("us", "Europe/Berlin")),
            "naive": pa.array([at.replace(tzinfo=None)], pa.timestamp("ms")),
            "day": pa.array([date(2024, 1, 2)]),
            "bytes": pa.array([b"\xff\x00"]),
            "money": pa.array([Decimal("1.20")]),
            "word": pa.array(["x"]).dictionary_encode(),
            "deep": pa.array([{"at": at, "nan": [float("nan")], "money": [Decimal("1.20")]}]),
            "map": pa.array([[(1, "x"), (2, None)]], pa.map_(pa.int32(), pa.string())),
        }
    )
    assert json_rows(batch).to_pylist() == [
        '{"a \\"name\\"":"NaN","inf":"-Infinity","at":"2024-01-02T03:04:05.006000Z","naive":"2024-01-02T03:04:05.006",'
        '"day":"2024-01-02","bytes":"/wA=","money":1.20,"word":"x",'
        '"deep":{"at":"2024-01-02T03:04:05.006000Z","nan":["NaN"],"money":[1.20]},"map":{"1":"x","2":null}}'
    ]
