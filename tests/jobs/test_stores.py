"""Needs of a checkpoint from its storage, the same of a folder and of a bucket on a real server."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from support.processes import apart

from streamtopology.jobs import bucket
from streamtopology.jobs.admin.checkpoints import clone
from streamtopology.jobs.checkpoint import Checkpoint, CheckpointError, CommitRecord, LocalStore, StateRef, open_store
from streamtopology.jobs.checkpoint.filesystem import PosixDisk
from streamtopology.jobs.checkpoint.location import resolved
from streamtopology.jobs.checkpoint.s3_store import S3Store
from streamtopology.jobs.connectors.sinks.dead_letters import DeadLetters
from streamtopology.jobs.connectors.sources.files.file_log import RECORDS_APART, FileLog, LoggedFile

if TYPE_CHECKING:  # the plugin is imported by pytest, which then explains its assertions
    from support.s3 import S3Server

pytest_plugins = ("support.s3",)


@pytest.fixture(params=["folder", pytest.param("bucket", marks=pytest.mark.clusters)])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place for a checkpoint."""
    if request.param == "folder":
        return str(tmp_path / "checkpoint")
    return request.getfixturevalue("s3_server").uri()


# --- the contract ---


@apart
def test_create_is_for_the_first_only(uri: str) -> None:
    store = open_store(uri)
    assert not store.exists("a/b/record.json")
    assert store.create("a/b/record.json", b"first")
    assert not store.create("a/b/record.json", b"second")
    assert store.exists("a/b/record.json")
    assert store.read("a/b/record.json") == b"first"


@apart
def test_of_many_creators_one_wins_and_its_content_is_there(uri: str) -> None:
    racers, records = 8, [f"commits/{number}.json" for number in range(5)]
    won: dict[str, list[int]] = {path: [] for path in records}
    start = threading.Barrier(racers)

    def race(number: int) -> None:
        store = open_store(uri)
        for path in records:
            start.wait()
            if store.create(path, bytes([number]) * 5_000):
                won[path].append(number)

    threads = [threading.Thread(target=race, args=(number,)) for number in range(racers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(winners) for winners in won.values()] == [1] * len(records)
    assert all(open_store(uri).read(path) == bytes(winners) * 5_000 for path, winners in won.items())


class SweptDisk(PosixDisk):
    """Before a draft gets its name, a driver that runs with the file sweeps it."""

    def __init__(self, is_there: bool) -> None:
        self._is_there = is_there

    def link(self, existing: Path, name: Path) -> None:
        existing.unlink()
        if self._is_there:
            name.write_bytes(b"theirs")
        super().link(existing, name)


def test_draft_of_a_file_that_is_there_may_be_swept(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, SweptDisk(is_there=True))
    assert not store.create("epochs/1.json", b"ours")
    assert store.read("epochs/1.json") == b"theirs"
    with pytest.raises(CheckpointError, match=r"cannot write .*\.partial: No such file"):
        LocalStore(tmp_path, SweptDisk(is_there=False)).create("epochs/2.json", b"ours")


@apart
def test_files_are_found_by_their_folder(uri: str) -> None:
    store = open_store(uri)
    paths = [
        "commits/1.json",
        "commits/10.json",
        "commits-of-others/1.json",
        "state/n.partial/0/1-1.delta",
        "files/a%20b/0.json",
    ]
    for path in paths:
        store.write_new(path, path.encode())
    assert list(store.list("")) == sorted(paths)
    assert list(store.list("commits")) == paths[:2]
    assert list(store.list("state")) == [paths[3]]
    assert list(store.list("files")) == [paths[4]]
    assert list(store.list("nowhere")) == []
    assert all(store.read(path) == path.encode() for path in store.list(""))
    assert list(store.missing(["commits/1.json", "commits/2.json", "commits"])) in (
        ["commits/2.json"],
        ["commits/2.json", "commits"],
    )


@apart
def test_deleted_file_is_gone_and_can_be_created_again(uri: str) -> None:
    store = open_store(uri)
    store.delete("epochs/1.json")
    assert store.create("epochs/1.json", b"one")
    store.delete("epochs/1.json")
    assert not store.exists("epochs/1.json")
    assert store.create("epochs/1.json", b"two")
    assert store.read("epochs/1.json") == b"two"


@apart
def test_a_large_file_comes_back_as_it_was(uri: str) -> None:
    data = os.urandom(20_000_000)
    open_store(uri).write_new("state/n/0/1-1.snapshot", data)
    assert open_store(uri).read("state/n/0/1-1.snapshot") == data


@apart
def test_missing_file_is_named_and_one_that_may_be_missing_is_none(uri: str) -> None:
    assert open_store(uri).find("epochs/4.json") is None
    with pytest.raises(CheckpointError, match=r"cannot read .*/checkpoint/epochs/4\.json.*from a copy of the checkpoint"):
        open_store(uri).read("epochs/4.json")
    with pytest.raises(CheckpointError, match="there is no checkpoint at"):
        Checkpoint.attach(uri)


@apart
def test_a_checkpoint_lives_in_it(uri: str) -> None:
    checkpoint = Checkpoint.open(uri, "words")
    assert Checkpoint.open(uri, "words").run == checkpoint.run
    with pytest.raises(CheckpointError, match="is that of topology 'words', not of 'flights'"):
        Checkpoint.open(uri, "flights")
    rows = pa.record_batch({"k": ["a", "b"]})
    delta, output = checkpoint.write_delta("n", 0, 7, 1, rows), checkpoint.stage_output("n", 0, 7, 1, [rows])
    record = CommitRecord(7, 1, 1, 7, {"n": {0: StateRef(None, (delta,), 2, 20)}}, {"out": (output,)}, None, {}, 2)
    assert checkpoint.commit(record)
    assert not checkpoint.commit(record)
    assert Checkpoint.attach(uri).last_commit() == record
    assert list(checkpoint.read_parts(delta)) == [rows]
    with checkpoint.at_hand([output]) as files:
        assert pa.ipc.open_file(files[0].read_bytes()).read_all() == pa.Table.from_batches([rows])
        DeadLetters(checkpoint.keep).publish(7, files)
        DeadLetters(checkpoint.keep).publish(7, files)
    assert checkpoint.read("dead-letters/batch-000000007.jsonl") == b'{"k":"a"}\n{"k":"b"}\n'
    missing = CommitRecord(8, 1, 1, 8, {"n": {0: StateRef(None, ("state/n/0/8-1.delta",), 2, 20)}}, {}, None, {}, 2)
    with pytest.raises(CheckpointError, match=r"batch 8 cannot be committed: .*8-1\.delta is not there"):
        checkpoint.commit(missing)


@apart
def test_storage_that_writes_over_files_is_refused(tmp_path: Path) -> None:
    class Careless(LocalStore):
        def create(self, path: str, data: bytes) -> bool:
            self.delete(path)
            return super().create(path, data)

    with pytest.raises(CheckpointError, match="overwrites a file in spite of `If-None-Match: \\*`"):
        Checkpoint.of(Careless(tmp_path), "words")


# --- what others log ---


FIRST, SECOND, DONE = 'v1\n{}\n{"s": 1}', 'v1\n{}\n{"s": 2}', "v1\n{}"


def log(checkpoint: Checkpoint, **files: str) -> Callable[[], None]:
    """Write into the folder that Spark has, which is as it was saved last; returns what saves it."""
    folder = checkpoint.spark_folder()
    for name, content in files.items():
        path = folder.path / name.replace("_", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder.save


def logged(checkpoint: Checkpoint) -> dict[str, str]:
    """The checkpoint as a driver on another machine finds it."""
    restored = checkpoint.spark_folder()
    path = restored.path
    found = {file.relative_to(path).as_posix(): file for folder in ("spark", "files") for file in (path / folder).rglob("*")}
    return {name: file.read_text() for name, file in sorted(found.items()) if file.is_file()}


@apart
def test_spark_log_reaches_the_next_driver(uri: str) -> None:
    checkpoint = Checkpoint.open(uri, "words")
    log(checkpoint, files_s_000="[]", spark_metadata="me", spark_offsets_0=FIRST)()
    log(checkpoint, spark_commits_0=DONE, spark_offsets_1=SECOND)()
    wanted = {"files/s/000": "[]", "spark/metadata": "me", "spark/commits/0": DONE, "spark/offsets/0": FIRST}
    assert logged(checkpoint) == {**wanted, "spark/offsets/1": SECOND}


@apart
def test_merged_file_log_reaches_the_next_driver_in_few_objects(s3_server: S3Server) -> None:
    """One GET a batch took minutes for a day's log."""
    checkpoint = Checkpoint.open(s3_server.uri(), "words")
    folder = checkpoint.spark_folder()
    log, files = FileLog(folder.path / "files" / "s"), [LoggedFile(f"/in/{i}", i, (i,)) for i in range(3 * RECORDS_APART)]
    for file in files:
        log.append([file])
        folder.save()
    assert len(checkpoint.files("files")) < 2 * RECORDS_APART
    restored = checkpoint.spark_folder()
    again = FileLog(restored.path / "files" / "s")
    assert again.between(0, len(files)) == files


@apart
def test_snapshot_is_uploaded_in_parts(s3_server: S3Server) -> None:
    store = S3Store(s3_server.uri())
    pieces = [bytes([number]) * (20 << 20) for number in range(7)]
    assert store.create_from("state/n/0/7-1.snapshot", lambda: iter(pieces))
    assert not store.create_from("state/n/0/7-1.snapshot", lambda: iter([b"another"]))
    assert store.read("state/n/0/7-1.snapshot") == b"".join(pieces)


@apart
def test_drafts_are_not_carried_and_what_spark_throws_away_goes(s3_server: S3Server) -> None:
    checkpoint = Checkpoint.open(s3_server.uri(), "words")
    kept = {"spark_offsets_0": FIRST, "spark_commits_0": DONE}
    log(checkpoint, **kept, **{"spark_offsets_.1.tmp": "half", "spark_offsets_1": SECOND})()
    wanted = {name.replace("_", "/"): content for name, content in kept.items()}
    assert logged(checkpoint) == {**wanted, "spark/offsets/1": SECOND}
    folder = checkpoint.spark_folder()
    (folder.path / "spark/offsets/1").unlink()
    folder.save()
    assert logged(checkpoint) == wanted


@apart
def test_of_two_drivers_that_log_another_batch_the_second_stops(s3_server: S3Server) -> None:
    checkpoint = Checkpoint.open(s3_server.uri(), "words")
    one, other = log(checkpoint, spark_offsets_0="mine"), log(checkpoint, spark_offsets_0="another")
    same = log(checkpoint, spark_offsets_0="mine")
    one()
    same()
    with pytest.raises(CheckpointError, match="spark/offsets/0 was written by another driver meanwhile"):
        other()


@apart
def test_a_checkpoint_can_be_cloned_into_a_bucket_and_out_of_it(s3_server: S3Server, tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(str(tmp_path / "one"), "words")
    checkpoint.write_epoch(1, "{}")
    log(checkpoint, spark_offsets_0=FIRST)()
    delta = checkpoint.write_delta("n", 0, 0, 1, pa.record_batch({"k": [1]}))
    record = CommitRecord(0, 1, 1, 0, {"n": {0: StateRef(None, (delta,), 1, 8)}}, {}, None, {}, 1)
    checkpoint.commit(record)
    there = s3_server.uri()
    clone(checkpoint.uri, there)
    clone(there, str(tmp_path / "two"), "others")
    copy = Checkpoint.attach(str(tmp_path / "two"))
    assert copy.last_commit() == record
    assert [rows.to_pydict() for rows in copy.read_parts(delta)] == [{"k": [1]}]
    assert logged(copy) == {"spark/offsets/0": FIRST}


# --- a server that does not do what it is asked ---


@apart
def test_a_server_that_comes_back_is_asked_again(s3_server: S3Server) -> None:
    made: list[bool] = []
    with s3_server.way() as way, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", way.endpoint)
        store = open_store(s3_server.uri())
        way.close()
        asking = threading.Thread(target=lambda: made.append(store.create("commits/1.json", b"decided")))
        asking.start()
        time.sleep(0.5)  # it asks in vain at least once
        assert asking.is_alive()
        way.open()
        asking.join()
        assert made == [True]
        assert store.read("commits/1.json") == b"decided"


@apart
def test_a_server_that_stays_away_ends_in_a_sentence(s3_server: S3Server) -> None:
    with s3_server.way() as way, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", way.endpoint)
        store = S3Store(s3_server.uri(), patience=0.3)
        way.close()
        with pytest.raises(CheckpointError) as reported:
            store.create("commits/1.json", b"decided")
        assert f"cannot write {store.uri}/commits/1.json: {way.endpoint} says" in str(reported.value)
        assert "start again once it answers: nothing is lost" in str(reported.value)
        way.open()
        assert not store.exists("commits/1.json")


@apart
def test_a_server_that_takes_requests_and_is_silent_ends_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket, "_SILENT_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tests")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "tests")
        store = S3Store("s3://b/checkpoint", patience=0.25)
        asked: list[Callable[[], object]] = [
            lambda: store.list("commits"), lambda: store.read("a"), lambda: store.create("a", b"x")
        ]  # fmt: skip
        for ask in asked:
            with pytest.raises(CheckpointError, match="start again once it answers: nothing is lost"):
                ask()


@apart
def test_writer_that_lost_the_answer_finds_that_it_was_first(s3_server: S3Server) -> None:
    with s3_server.way() as way, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", way.endpoint)
        store = open_store(s3_server.uri())
        way.loses_answers = 1
        assert store.create("commits/1.json", b"decided")
        assert way.loses_answers == 0
        assert not store.create("commits/1.json", b"decided")


@apart
def test_refusals_are_reported_at_once(s3_server: S3Server) -> None:
    with pytest.raises(CheckpointError, match=r"NoSuchBucket.*make the bucket, or correct `checkpoint`"):
        open_store("s3://nobodys/words").create("header.json", b"x")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        with pytest.raises(
            CheckpointError, match=r"403 .*check the bucket, and the credentials in the environment"
        ) as reported:
            open_store(s3_server.uri()).create("header.json", b"x")
        assert "wrong" not in str(reported.value)
        patch.delenv("AWS_SECRET_ACCESS_KEY")
        with pytest.raises(CheckpointError, match="needs credentials in the environment of driver and executors: AWS_ACCESS"):
            open_store(s3_server.uri())


def test_other_storage_is_refused_by_name() -> None:
    with pytest.raises(CheckpointError, match="gs:// is not supported; use a local path or file://"):
        open_store("gs://bucket/checkpoint")


@pytest.mark.parametrize("spelt", ["file://{}", "file:{}", "FILE://localhost{}", "{}"])
def test_folder_has_the_same_store_however_it_is_spelt(spelt: str, tmp_path: Path) -> None:
    folder = tmp_path / "a#b?c d"
    uri = spelt.format(folder)
    open_store(uri).create("header.json", b"x")
    assert resolved(uri) == str(folder)
    assert (folder / "header.json").read_bytes() == b"x"


def test_encoded_uri_is_decoded_and_a_machine_in_it_is_refused(tmp_path: Path) -> None:
    assert resolved(f"file://{tmp_path}/a%20b") == f"{tmp_path}/a b"
    for uri in ("file://ck", "file://server/ck"):
        with pytest.raises(CheckpointError, match=r"names a machine.*write file:///"):
            resolved(uri)
