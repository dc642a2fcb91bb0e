"""Rows that a run left at a sink, in a folder and in a bucket: of one that died, of another run, of nobody known."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pytest
from support.connectors import stage
from support.processes import apart
from support.stages import Flow, manifest

from streamtopology.jobs.checkpoint.open_store import open_store
from streamtopology.jobs.connectors.sinks import SinkError, Writer, bucket, folder, open_sink, written, written_batch
from streamtopology.jobs.driver.publisher import Publisher
from streamtopology.topology import Sink

if TYPE_CHECKING:  # the plugin is imported by pytest, which then explains its assertions
    from support.s3 import S3Server

pytest_plugins = ("support.s3",)

WRITER = Writer(topology="flights", run="run-1")
PLACES = ("folder", "bucket")


def sink_at(place: str, server: S3Server, folder_: Path, format_: str = "parquet", file_per_task: str = "false") -> Sink:
    if place == "bucket":
        return Sink("out", "counts", format_, {"path": server.uri()})
    return Sink("out", "counts", format_, {"path": str(folder_ / "out"), "filePerTask": file_per_task})


def staged(folder_: Path, *numbers: int) -> list[Path]:
    rows = pa.record_batch({"n": pa.array(numbers, pa.int64())})
    path = folder_ / f"staged-{len(list(folder_.glob('staged-*')))}.arrow"
    stage(path, rows.schema, [rows])
    return [path]


def publish_and_die(sink: Sink, batch: int, files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Publish in a process that is killed between the batch's place and its entry."""

    def die(_: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        for module in (folder, bucket):
            dying.setattr(module, "passing", die)
        with pytest.raises(KeyboardInterrupt):
            open_sink(sink, WRITER).publish(batch, files)


def numbers_in(sink: Sink, folder_: Path) -> list[int]:
    """The numbers that a reader of all files finds, but for hidden ones."""
    store, found = open_store(sink.options["path"]), []
    for number, path in enumerate(store.list("")):
        if path.startswith("batch-"):
            copy = folder_ / f"copy-{number}{Path(path).suffix}"
            copy.write_bytes(store.read(path))
            found += [n for (n,) in duckdb.connect().execute(f"SELECT n FROM '{copy}'").fetchall()]
    return sorted(found)


@apart
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("restarts_as", ["parquet", "json"])
def test_batch_of_a_run_that_died_before_its_entry_is_there_once(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, restarts_as: str
) -> None:
    sink = sink_at(place, s3_server, tmp_path)
    open_sink(sink, WRITER).publish(0, staged(tmp_path, 1))
    publish_and_die(sink, 1, staged(tmp_path, 2), monkeypatch)
    assert written_batch(sink, WRITER, 1, None) is None
    restarted = Sink("out", "counts", restarts_as, sink.options)
    open_sink(restarted, WRITER).publish(1, staged(tmp_path, 2))
    assert numbers_in(sink, tmp_path) == [1, 2]
    assert written_batch(sink, WRITER, 1, None) == f"{sink.options['path']}/_manifest/000000001.json"


@apart
@pytest.mark.parametrize(("place", "file_per_task"), [("bucket", "false"), ("folder", "false"), ("folder", "true")])
@pytest.mark.parametrize("format_", ["parquet", "json"])
def test_batch_without_rows_after_a_rollback_leaves_none_of_a_run_that_died(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, file_per_task: str, format_: str
) -> None:
    sink = sink_at(place, s3_server, tmp_path, format_, file_per_task)
    publish_and_die(sink, 0, staged(tmp_path, 1), monkeypatch)
    opened = open_sink(sink, WRITER)
    opened.publish(0, [])
    opened.publish(1, staged(tmp_path, 2))
    assert numbers_in(sink, tmp_path) == [2]


@apart
@pytest.mark.parametrize(("place", "file_per_task"), [("bucket", "false"), ("folder", "false"), ("folder", "true")])
def test_rows_after_a_rollback_are_there_instead_of_those_of_a_run_that_died(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, file_per_task: str
) -> None:
    sink = sink_at(place, s3_server, tmp_path, file_per_task=file_per_task)
    publish_and_die(sink, 0, staged(tmp_path, 1), monkeypatch)
    open_sink(sink, WRITER).publish(0, staged(tmp_path, 2))
    assert numbers_in(sink, tmp_path) == [2]
    assert not [path for path in open_store(sink.options["path"]).list("") if path.startswith(".")]


def test_folder_that_is_in_place_with_these_rows_stays_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another driver may have entered it since, and this one may be killed with the folder out of its place."""
    sink = Sink("out", "counts", "parquet", {"path": str(tmp_path / "out"), "filePerTask": "true"})
    publish_and_die(sink, 0, staged(tmp_path, 1), monkeypatch)
    before = (tmp_path / "out/batch-000000000").stat().st_ino
    open_sink(sink, WRITER).publish(0, staged(tmp_path, 1))
    assert (tmp_path / "out/batch-000000000").stat().st_ino == before
    assert numbers_in(sink, tmp_path) == [1]


@apart
@pytest.mark.parametrize(("place", "file_per_task"), [("bucket", "false"), ("folder", "false"), ("folder", "true")])
@pytest.mark.parametrize("goes_by", ["the newest batch", "the one after"])
def test_driver_that_stood_still_removes_nothing_that_another_has_entered(
    s3_server: S3Server, tmp_path: Path, place: str, file_per_task: str, goes_by: str
) -> None:
    """Found by simulated lives."""
    sink = sink_at(place, s3_server, tmp_path, file_per_task=file_per_task)
    open_sink(sink, WRITER).publish(0, staged(tmp_path, 0))
    stood_still = open_sink(sink, WRITER)
    meanwhile = open_sink(sink, WRITER)
    for batch in (1, 2):
        meanwhile.publish(batch, staged(tmp_path, batch))
    if goes_by == "the newest batch":
        stood_still.publish(2, staged(tmp_path, 2))
    stood_still.publish(3, staged(tmp_path, 3))
    assert numbers_in(sink, tmp_path) == [0, 1, 2, 3]


@apart
@pytest.mark.parametrize(("place", "file_per_task"), [("bucket", "false"), ("folder", "false"), ("folder", "true")])
def test_rows_that_were_exported_are_not_at_the_sink_too(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, file_per_task: str
) -> None:
    sink = sink_at(place, s3_server, tmp_path, file_per_task=file_per_task)
    open_sink(sink, WRITER).publish(0, staged(tmp_path, 0))
    publish_and_die(sink, 1, staged(tmp_path, 1), monkeypatch)
    open_sink(sink, WRITER).publish(2, staged(tmp_path, 2))  # batch 1 is in another folder now
    assert numbers_in(sink, tmp_path) == [0, 2]


@apart
@pytest.mark.parametrize("place", PLACES)
def test_rows_stay_where_the_manifest_was_deleted(s3_server: S3Server, tmp_path: Path, place: str) -> None:
    sink = sink_at(place, s3_server, tmp_path)
    open_sink(sink, WRITER).publish(0, staged(tmp_path, 0))
    store = open_store(sink.options["path"])
    for path in store.list("_manifest"):
        store.delete(path)
    open_sink(sink, WRITER).publish(1, staged(tmp_path, 1))
    assert numbers_in(sink, tmp_path) == [0, 1]


@apart
@pytest.mark.parametrize("place", PLACES)
def test_output_of_its_writer_alone_is_deleted(s3_server: S3Server, tmp_path: Path, place: str) -> None:
    sink = sink_at(place, s3_server, tmp_path)
    open_sink(sink, WRITER).publish(0, staged(tmp_path, 0))
    store = open_store(sink.options["path"])
    for path in ("notes.txt", "batch-results/batch-000000001.parquet", "batch-1.parquet"):
        store.create(path, b"mine")
    assert written(sink, Writer("flights", "run-2")) is None
    found = written(sink, WRITER)
    assert found is not None
    assert (found.place, found.batches) == (sink.options["path"], 1)
    found.delete()
    assert store.list("") == ["batch-1.parquet", "batch-results/batch-000000001.parquet", "notes.txt"]
    assert written(sink, WRITER) is None


@apart
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("content", [b"", b"[]", b"\xff\x00"])
def test_damaged_manifest_is_a_sentence(s3_server: S3Server, tmp_path: Path, place: str, content: bytes) -> None:
    sink = sink_at(place, s3_server, tmp_path)
    open_sink(sink, WRITER).publish(0, staged(tmp_path, 0), "a")
    store = open_store(sink.options["path"])
    questions: dict[str, list[Callable[[], object]]] = {
        "_manifest/000000000.json": [
            lambda: written_batch(sink, WRITER, 0, "a"),
            lambda: open_sink(sink, WRITER).publish(0, [], "a"),
        ],
        "_manifest/owner.json": [
            lambda: written(sink, WRITER),
            lambda: open_sink(sink, WRITER),
        ],
    }
    for name, asked in questions.items():
        store.delete(name)
        store.create(name, content)
        for question in asked:
            with pytest.raises(SinkError, match=re.escape(f"{sink.options['path']} has a damaged {name}, which says whose")):
                question()


def flow_to(path: str, tmp_path: Path) -> Flow:
    """A topology after batch 0, whose sink `a` has had its place in `path`."""
    every = {"name": "all", "inputs": ["s"], "run": "filter", "with": {"where": "true"}}
    sinks = [{"name": "a", "input": "all", "format": "parquet", "options": {"path": path}}]
    given = manifest([every], {"s": "n BIGINT"}, sinks=sinks, checkpoint=str(tmp_path / "checkpoint"))
    flow = Flow(tmp_path, given, sink=lambda name, checkpoint: open_sink(Sink("a", "all", "memory", {}), WRITER))
    flow.batch(s=pa.table({"n": pa.array([1], pa.int64())}))
    return flow


@pytest.mark.parametrize("noted", ["failed", "exported"])
def test_sink_may_leave_a_bucket_that_cannot_be_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noted: str) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    flow = flow_to("s3://former/x", tmp_path)
    given = flow_to(str(tmp_path / "new"), tmp_path / "other").topology
    with pytest.raises(SinkError, match=r"needs credentials .*may have batch 0, or not, .*export-batch MANIFEST --sink a"):
        Publisher.of(flow.checkpoint, given, tmp_path).publish_again(flow.last, flow.topology)
    getattr(flow.checkpoint.publications, noted)("a", 0, "there")
    Publisher.of(flow.checkpoint, given, tmp_path).publish_again(flow.last, flow.topology)
    assert numbers_in(given.sinks[0], tmp_path) == ([] if noted == "exported" else [1])


@pytest.mark.parametrize("file_per_task", ["false", "true"])
def test_file_of_others_with_the_name_of_a_batch_is_not_written_over(tmp_path: Path, file_per_task: str) -> None:
    sink = Sink("out", "counts", "parquet", {"path": str(tmp_path / "out"), "filePerTask": file_per_task})
    mine = tmp_path / "out" / ("batch-000000001" if file_per_task == "true" else "batch-000000001.parquet")
    mine.parent.mkdir()
    mine.write_bytes(b"mine")
    opened = open_sink(sink, WRITER)
    opened.publish(0, staged(tmp_path, 0))
    with pytest.raises(SinkError, match=f"{mine} is there already, with other rows"):
        opened.publish(1, staged(tmp_path, 1))
    assert mine.read_bytes() == b"mine"


def test_file_of_others_in_the_folder_of_a_batch_and_in_the_manifest_stays(tmp_path: Path) -> None:
    sink = Sink("out", "counts", "parquet", {"path": str(tmp_path / "out"), "filePerTask": "true"})
    open_sink(sink, WRITER).publish(0, staged(tmp_path, 0))
    mine = [tmp_path / "out" / name for name in ("batch-000000000/notes.txt", "_manifest/notes.txt", ".batch-notes")]
    for path in mine:
        path.write_text("mine")
    open_sink(sink, WRITER)
    found = written(sink, WRITER)
    assert found is not None
    found.delete()
    assert sorted(path for path in (tmp_path / "out").rglob("*") if path.is_file()) == sorted(mine)
