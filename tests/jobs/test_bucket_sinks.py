"""A sink in a bucket holds each batch once, as objects that any reader finds; on a real server of S3's protocol."""

from __future__ import annotations

import io
import json
import resource
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.connectors import stage
from support.processes import apart

from streamtopology import topology
from streamtopology.jobs.bucket import Bucket
from streamtopology.jobs.connectors.sinks import SinkError, Writer, check, destination, open_sink, written, written_batch
from streamtopology.jobs.connectors.sinks.bucket import BucketSink, open_bucket
from streamtopology.jobs.connectors.sinks.folder import write_parquet
from streamtopology.jobs.connectors.sinks.manifest import KEPT_ENTRIES, entry_name

if TYPE_CHECKING:  # the plugin is imported by pytest, which then explains its assertions
    from support.s3 import S3Server

pytest_plugins = ("support.s3",)

WRITER = Writer(topology="flights", run="run-1")


def staged(folder: Path, *numbers: int) -> list[Path]:
    schema = pa.schema([("n", pa.int64())])
    path = folder / f"staged-{len(list(folder.glob('staged-*')))}.arrow"
    stage(path, schema, [pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64())], schema=schema)])
    return [path]


def sink_in(server: S3Server, format_: str = "parquet") -> topology.Sink:
    return topology.Sink("out", "counts", format_, {"path": server.uri()})


def bucket_of(sink: topology.Sink) -> Bucket:
    return open_bucket(sink.options["path"], sink.name)


def numbers_in(sink: topology.Sink) -> list[int]:
    bucket, found = bucket_of(sink), []
    for path in bucket.list(""):
        content = bucket.read(path)
        if path.endswith(".parquet"):
            found += pq.read_table(io.BytesIO(content))["n"].to_pylist()
        elif path.endswith(".jsonl"):
            found += [json.loads(line)["n"] for line in content.splitlines()]
    return sorted(found)


@apart
@pytest.mark.parametrize("format_", ["parquet", "json"])
def test_publishing_again_changes_nothing(s3_server: S3Server, tmp_path: Path, format_: str) -> None:
    sink = sink_in(s3_server, format_)
    batches = {0: staged(tmp_path, 1, 2), 1: staged(tmp_path, 3), 2: []}
    for _ in range(2):  # the second one is a restarted process
        opened = open_sink(sink, WRITER)
        for _ in range(2):
            for batch, files in batches.items():
                opened.publish(batch, files)
        opened.close()
    suffix = {"parquet": "parquet", "json": "jsonl"}[format_]
    assert bucket_of(sink).list("") == [
        "_manifest/000000000.json", "_manifest/000000001.json", "_manifest/000000002.json", "_manifest/owner.json",
        f"batch-000000000.{suffix}", f"batch-000000001.{suffix}",
    ]  # fmt: skip
    assert numbers_in(sink) == [1, 2, 3]
    assert destination(sink) == sink.options["path"]


@apart
def test_batch_that_ends_elsewhere_is_refused(s3_server: S3Server, tmp_path: Path) -> None:
    sink = sink_in(s3_server)
    first = open_sink(sink, WRITER)
    for batch, end in enumerate(("a", "b", None)):
        first.publish(batch, staged(tmp_path, batch), end)
    restored = open_sink(sink, WRITER)
    for batch, end in ((0, "a"), (1, None), (2, "x")):
        restored.publish(batch, staged(tmp_path, batch), end)
    with pytest.raises(SinkError, match=r"has another batch 1, .*before the checkpoint went back"):
        restored.publish(1, staged(tmp_path, 7), "c")
    assert written_batch(sink, WRITER, 1, "c") is None
    assert numbers_in(sink) == [0, 1, 2]


@apart
def test_rows_of_a_batch_that_the_bucket_never_had_are_not_left_out(s3_server: S3Server, tmp_path: Path) -> None:
    opened = open_sink(sink_in(s3_server), WRITER)
    for batch in (0, 2):
        opened.publish(batch, staged(tmp_path, batch), "a")
    opened.publish(1, [], "b")
    with pytest.raises(SinkError, match="has another batch 1"):
        opened.publish(1, staged(tmp_path, 1), "b")


@apart
def test_place_of_another_run_or_sink_is_refused(s3_server: S3Server) -> None:
    sink = sink_in(s3_server)
    open_sink(sink, WRITER).close()
    open_sink(sink, WRITER).close()
    with pytest.raises(SinkError, match=r"s3://.* holds the output of topology 'flights', checkpoint run-1; this is"):
        open_sink(sink, Writer("flights", "run-2"))
    other = topology.Sink("x", "counts", "parquet", sink.options)
    with pytest.raises(SinkError, match="holds the output of sink 'out' of topology 'flights'; this is its sink 'x'"):
        open_sink(other, WRITER)


@apart
def test_entries_of_old_batches_go_in_hundreds(s3_server: S3Server, tmp_path: Path) -> None:
    sink = sink_in(s3_server)
    opened = open_sink(sink, WRITER)
    opened.publish(0, staged(tmp_path, 0))
    bucket = bucket_of(sink)
    for batch in range(1, 150):
        bucket.put(entry_name(batch), b"{}")
    restarted = open_sink(sink, WRITER)
    restarted.publish(KEPT_ENTRIES + 99, [])
    assert len(bucket.list("_manifest")) == 152
    restarted.publish(KEPT_ENTRIES + 100, [])
    kept = [*range(101, 150), KEPT_ENTRIES + 99, KEPT_ENTRIES + 100]
    assert bucket.list("_manifest") == [*(entry_name(batch) for batch in kept), "_manifest/owner.json"]
    open_sink(sink, WRITER).publish(0, staged(tmp_path, 7))
    assert numbers_in(sink) == [0]


@apart
def test_bucket_that_is_none_is_a_sentence(s3_server: S3Server) -> None:
    with pytest.raises(SinkError, match=r"sink 'out': cannot write s3://none/x/_manifest/owner\.json: .*or correct `path`"):
        open_sink(topology.Sink("out", "counts", "json", {"path": "s3://none/x"}), WRITER)


@apart
def test_batch_waits_for_a_server_that_is_away(s3_server: S3Server, tmp_path: Path) -> None:
    sink = sink_in(s3_server)
    with s3_server.way() as way, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", way.endpoint)
        bucket = open_bucket(sink.options["path"], sink.name, patience=0.3)
        opened = BucketSink(bucket, ".parquet", write_parquet, WRITER, sink.name)
        files = staged(tmp_path, 1)
        way.close()
        with pytest.raises(SinkError, match=r"sink 'out': cannot .*; start again once it answers: nothing is lost"):
            opened.publish(0, files)
        way.open()
        way.loses_answers = 1
        opened.publish(0, files)
    assert numbers_in(sink) == [1]


def test_place_without_credentials_or_prefix_and_files_per_task_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI"):
        monkeypatch.delenv(name, raising=False)
    sink = topology.Sink("out", "counts", "parquet", {"path": "s3://b/out"})
    assert check(sink, Path()) == []
    with pytest.raises(SinkError, match="sink 'out': path s3://b/out needs credentials in the environment of the driver: AWS_"):
        open_sink(sink, WRITER)
    odd = ("s3://b/a//b", "s3://b/../x", "s3://b/./x", "s3://b/a?x", "s3://b/a#x", "s3://b/ä", "s3://me:pw@b/x", "s3://[b/x")
    for path in ("s3://", "s3://b", "s3://b/", "s3:///x", *odd):
        (problem,) = check(topology.Sink("out", "counts", "parquet", {"path": path}), Path())
        assert (
            problem.message
            == f"sink 'out': option path must be s3://BUCKET/PREFIX, of letters, digits and ._=- alone, not {path!r}"
        )
    (problem,) = check(topology.Sink("out", "counts", "parquet", {"path": "s3://b/out", "filePerTask": "true"}), Path())
    assert problem.path == "options.filePerTask"
    assert "in a bucket nothing makes several files appear as one" in problem.message


@apart
def test_place_that_is_deleted_meanwhile_is_taken_again(s3_server: S3Server, tmp_path: Path) -> None:
    sink = sink_in(s3_server)
    opened = open_sink(sink, WRITER)
    opened.publish(0, staged(tmp_path, 0))
    bucket = bucket_of(sink)
    bucket.delete_all(bucket.list(""))
    opened.publish(1, staged(tmp_path, 1))
    found = written(sink, WRITER)
    assert found is not None
    assert found.batches == 1
    found.delete()
    open_sink(sink, Writer("flights", "run-2")).publish(0, staged(tmp_path, 7))
    with pytest.raises(SinkError, match="holds the output of topology 'flights', checkpoint run-2; this is"):
        opened.publish(2, staged(tmp_path, 2))
    assert numbers_in(sink) == [7]


@apart
def test_output_that_is_deleted_in_part_is_still_its_writers(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = sink_in(s3_server)
    open_sink(sink, WRITER).publish(0, staged(tmp_path, 0))
    found = written(sink, WRITER)
    assert found is not None
    asked: list[str] = []

    def die_at_the_second(_: object, path: str | list[str]) -> None:
        asked.append("owner" if path == "_manifest/owner.json" else "others")

    monkeypatch.setattr("obstore.delete", die_at_the_second)
    found.delete()
    assert asked == ["others", "owner"]


@apart
@pytest.mark.parametrize("format_", ["parquet", "json"])
def test_full_disk_under_a_draft_is_a_sentence(s3_server: S3Server, tmp_path: Path, format_: str) -> None:
    sink = sink_in(s3_server, format_)
    files = staged(tmp_path, *range(10_000))
    opened = open_sink(sink, WRITER)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
    with pytest.raises(
        SinkError, match=r"^sink 'out': .*File too large, in the folder for temporary files, .*variable TMPDIR$"
    ):
        opened.publish(0, files)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    opened.publish(0, files)
    assert numbers_in(sink) == list(range(10_000))
