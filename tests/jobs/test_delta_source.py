"""A Delta table is read once: a version of it, then what each commit appends; whoever writes, compacts and vacuums it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas  # noqa: F401 - pyarrow would import it in each fork
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given as drawn
from hypothesis import strategies as st
from support.connectors import stage
from support.depth import deep
from support.processes import apart
from support.streams import Stream, parquet_file, rows_of

from streamtopology import topology
from streamtopology.jobs.connectors.sinks import Writer, open_sink
from streamtopology.jobs.connectors.sources import stored_files
from streamtopology.jobs.connectors.sources.descriptors import SourceSpec
from streamtopology.jobs.connectors.sources.errors import SourceError, TableError
from streamtopology.jobs.connectors.sources.schema.conform import MissingColumnError, SchemaMismatchError
from streamtopology.jobs.connectors.sources.validation import check
from streamtopology.topology import Doubt, Source

if TYPE_CHECKING:  # the plugin is imported by pytest, which then explains its assertions
    from support.s3 import S3Server

pytest_plugins = ("support.s3",)


def rows(keys: Sequence[int], **columns: list[Any]) -> pa.Table:
    return pa.table({"key": pa.array(keys, pa.int64()), **columns})


def source(place: Path | str, schema: str = "key BIGINT", **options: str) -> Source:
    return Source("s", "delta", schema, {"path": str(place), **options})


class Reader:
    """A stream as the driver drives it. Each read is by a new process, after one that was killed when it had asked."""

    def __init__(self, folder: Path, place: Path | str, schema: str = "key BIGINT", **options: str) -> None:
        self.spec = SourceSpec.of(source(place, schema, **options))
        self._log = folder / "log"
        self._position: dict[str, Any] = {}

    def read(self) -> list[dict[str, Any]]:
        Stream(self._log, self.spec).read(self._position)
        found, self._position = Stream(self._log, self.spec).read(self._position)
        return rows_of(found, self.spec)

    def keys(self) -> list[int]:
        return sorted(row["key"] for row in self.read())

    def all_keys(self) -> list[int]:
        """Until there are no more."""
        found: list[int] = []
        while more := self.keys():
            found += more
        return sorted(found)


def new_table(folder: Path) -> Path:
    """Of two commits. delta-rs starts threads: each test is a process of its own."""
    place = folder / "a table 50%"
    write_deltalake(place, rows([1, 2]))
    write_deltalake(place, rows([3]), mode="append")
    return place


@apart
def test_a_version_is_read_and_then_what_is_appended(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    reader = Reader(tmp_path, table)
    assert reader.keys() == [1, 2, 3]
    assert reader.keys() == []
    for number in (4, 5):
        write_deltalake(table, rows([number]), mode="append")
    assert reader.keys() == [4, 5]
    assert Reader(tmp_path / "b", table, maxFilesPerTrigger="1").all_keys() == [1, 2, 3, 4, 5]


@apart
@pytest.mark.parametrize(
    ("version", "before", "after"), [("0", [1, 2, 3], [4]), ("1", [3], [4]), ("2", [], [4]), ("latest", [], [4])]
)
def test_commits_are_read_from_a_version_on(tmp_path: Path, version: str, before: list[int], after: list[int]) -> None:
    table = new_table(tmp_path)
    reader = Reader(tmp_path, table, startingVersion=version)
    assert reader.keys() == before
    write_deltalake(table, rows([4]), mode="append")
    assert reader.keys() == after


@apart
def test_version_that_is_not_there_yet_is_refused(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    with pytest.raises(TableError, match="has no version 7 yet; its newest is 1: correct startingVersion"):
        Reader(tmp_path, table, startingVersion="7").read()


@apart
def test_compaction_and_vacuum_change_nothing_of_what_was_read(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    reader = Reader(tmp_path, table)
    assert reader.keys() == [1, 2, 3]
    write_deltalake(table, rows([4]), mode="append")
    DeltaTable(table).optimize.compact()
    assert reader.keys() == [4], "its file is there until VACUUM, and the commit of the compaction is passed over"
    _vacuum(table)
    assert reader.keys() == []
    write_deltalake(table, rows([5]), mode="append")
    assert reader.keys() == [5]
    assert Reader(tmp_path / "b", table).all_keys() == [1, 2, 3, 4, 5]


def _vacuum(table: Path) -> None:
    DeltaTable(table).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)


@apart
def test_rows_that_vacuum_took_before_they_were_read_are_refused(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    reader = Reader(tmp_path, table)
    reader.read()
    for number in (4, 5):
        write_deltalake(table, rows([number]), mode="append")
    DeltaTable(table).optimize.compact()
    _vacuum(table)
    with pytest.raises(TableError, match=r"lost .*\.parquet before it was read: VACUUM deletes files"):
        reader.read()


def _delete(table: Path) -> None:
    DeltaTable(table).delete("key = 2")


def _update(table: Path) -> None:
    DeltaTable(table).update(updates={"key": "20"}, predicate="key = 2")


def _overwrite(table: Path) -> None:
    write_deltalake(table, rows([9]), mode="overwrite")


@apart
@pytest.mark.parametrize("change", [_delete, _update, _overwrite])
def test_commit_that_changes_rows_is_refused_or_left_out(tmp_path: Path, change: Any) -> None:
    table = new_table(tmp_path)
    reader, skipping = Reader(tmp_path / "a", table), Reader(tmp_path / "b", table, skipChangeCommits="true")
    assert reader.keys() == skipping.keys() == [1, 2, 3]
    change(table)
    write_deltalake(table, rows([4]), mode="append")
    with pytest.raises(
        TableError, match=r"has commit 2 \((DELETE|UPDATE|WRITE)\), which deletes .*options\.skipChangeCommits: true"
    ):
        reader.read()
    assert skipping.keys() == [4]


@apart
def test_table_that_is_another_one_is_refused(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    kept, running = Reader(tmp_path / "a", table), Stream(tmp_path / "b", SourceSpec.of(source(table)))
    kept.read()
    _, position = running.read({})
    shutil.rmtree(table)
    for number in range(4):
        write_deltalake(table, rows([number]), mode="append")
    with pytest.raises(TableError, match="is another one than was read before; put that back, or give the source another name"):
        kept.read()
    with pytest.raises(TableError, match="is another one than was read before"):
        running.read(position)
    shutil.rmtree(table)
    with pytest.raises(TableError, match="cannot be opened: "):
        running.read(position)


@apart
def test_source_that_was_a_folder_needs_another_name(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    parquet_file(tmp_path / "in", "a.parquet", [1], 1)
    former = SourceSpec.of(Source("s", "parquet", "key BIGINT", {"path": str(tmp_path / "in")}))
    _, position = Stream(tmp_path / "log", former).read({})
    with pytest.raises(TableError, match="was read as a folder of files before; give the source another name"):
        Stream(tmp_path / "log", SourceSpec.of(source(table))).read(position)


@apart
def test_log_that_was_cleaned_up_before_it_was_read_is_refused(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    reader = Reader(tmp_path, table)
    reader.read()
    for number in (4, 5):
        write_deltalake(table, rows([number]), mode="append")
    DeltaTable(table).create_checkpoint()
    log = table / "_delta_log"
    (log / f"{2:020}.json").unlink()
    with pytest.raises(TableError, match="has no commit 2 in its log any more, which was not read yet"):
        reader.read()
    for number in (0, 1):
        (log / f"{number:020}.json").unlink()
    assert Reader(tmp_path / "b", table).all_keys() == [1, 2, 3, 4, 5], "a version is read from its checkpoint"


@apart
def test_partition_columns_are_filled_in(tmp_path: Path) -> None:
    place, day = tmp_path / "t", pa.array([1, 2, None], pa.int32())
    write_deltalake(place, rows([1, 2, 3], day=day, city=["a b/ü:%", "x", None]), partition_by=["day", "city"])
    reader = Reader(tmp_path, place, "city STRING, key BIGINT, day INT")
    expected = DeltaTable(place).to_pyarrow_table().select(["city", "key", "day"]).to_pylist()
    assert sorted(reader.read(), key=repr) == sorted(expected, key=repr)
    for city, found in (("Köln", "Köln"), ("", None)):  # Delta has no empty text as a value of a partition
        write_deltalake(place, rows([4], day=pa.array([1], pa.int32()), city=[city]), mode="append")
        assert reader.read() == [{"city": found, "key": 4, "day": 1}]


@apart
def test_column_that_came_later_is_null_before(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    former = Reader(tmp_path / "a", table)
    assert former.keys() == [1, 2, 3]
    write_deltalake(table, rows([4], city=["Ulm"]), mode="append", schema_mode="merge")
    assert former.keys() == [4]
    reader = Reader(tmp_path / "b", table, "city STRING, key BIGINT")
    assert sorted(reader.read(), key=repr) == sorted(
        [{"city": None, "key": k} for k in (1, 2, 3)] + [{"city": "Ulm", "key": 4}], key=repr
    )
    assert Reader(tmp_path / "c", table, "city STRING").read().count({"city": None}) == 3
    for schema, error in (("town STRING", MissingColumnError), ("key STRING", SchemaMismatchError)):
        with pytest.raises(error):
            Reader(tmp_path / "d", table, schema).read()
        assert [finding.path for finding in check(source(table, schema)).findings] == ["schema"]


def test_table_that_cannot_be_looked_at_from_here_is_a_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI"):
        monkeypatch.delenv(name, raising=False)
    stored_files._bucket.cache_clear()
    (doubt,) = check(source("s3://b/x")).findings
    assert isinstance(doubt, Doubt)
    assert "needs credentials in the environment of driver and executors" in doubt.message


@apart
def test_good_source_has_no_findings_and_others_name_what_is_wrong(tmp_path: Path) -> None:
    table = new_table(tmp_path)

    def findings(place: Path, **options: str) -> list[tuple[str, str]]:
        return [(finding.path, finding.message) for finding in check(source(place, **options)).findings]

    assert findings(table, startingVersion="latest", skipChangeCommits="true", maxFilesPerTrigger="3") == []
    parquet_file(tmp_path / "in", "a.parquet", [1], 1)
    ((path, message),) = findings(tmp_path / "in")
    assert path == "options.path"
    assert "cannot be opened" in message
    assert [path for path, _ in findings(tmp_path / "none")] == ["options.path"]
    assert [path for path, _ in findings(table, startingVersion="first")] == ["options.startingVersion"]
    ((path, message),) = findings(table, ignoreChanges="true")
    assert path == "options.ignoreChanges"
    assert "has: path, maxFilesPerTrigger, startingVersion, skipChangeCommits" in message


@apart
@pytest.mark.parametrize(
    ("configuration", "features", "finding"),
    [
        ({"delta.columnMapping.mode": "name"}, ["columnMapping"], "has column mapping|columnMapping"),
        ({}, ["somethingNew"], "somethingNew"),
    ],
)
def test_tables_that_are_not_read_are_refused_by_name(
    tmp_path: Path, configuration: dict[str, str], features: list[str], finding: str
) -> None:
    table = new_table(tmp_path)
    first = table / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in first.read_text().splitlines()]
    for action in actions:
        if "protocol" in action:
            action["protocol"] = {
                "minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features
            }  # fmt: skip
        if "metaData" in action:
            action["metaData"]["configuration"] = configuration
    first.write_text("\n".join(map(json.dumps, actions)))
    with pytest.raises(TableError, match=finding):
        Reader(tmp_path, table).read()


@apart
def test_table_that_is_partitioned_by_bytes_is_refused(tmp_path: Path) -> None:
    """Its folders have them as text of escapes, which would be taken for the bytes."""
    write_deltalake(tmp_path / "t", rows([1], day=[b"\x00a"]), partition_by=["day"])
    with pytest.raises(TableError, match="is partitioned by day, of BINARY, which is not read"):
        Reader(tmp_path, tmp_path / "t", "key BIGINT, day BINARY").read()


@apart
def test_deletion_vectors_are_refused(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    reader = Reader(tmp_path, table)
    reader.read()
    vector = {"storageType": "u", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}
    added = {"path": "x.parquet", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
    commit = {"add": {**added, "deletionVector": vector}}
    (table / "_delta_log" / f"{2:020}.json").write_text(json.dumps(commit))
    with pytest.raises(TableError, match=r"deletion vectors, .*REORG TABLE"):
        reader.read()


@apart
@deep(gate=12, long=60)
@drawn(st.lists(st.sampled_from(["append", "many", "compact", "vacuum", "checkpoint", "read"]), min_size=2, max_size=12))
def test_each_row_is_read_once_whatever_is_done_to_the_table(
    tmp_path_factory: pytest.TempPathFactory, changes: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("life")
    place, added, seen = folder / "t", 1, list[int]()
    write_deltalake(place, rows([0]))
    reader = Reader(folder, place, maxFilesPerTrigger="2")
    for change in [*changes, "read"]:
        if change in ("append", "many"):
            for _ in range(1 if change == "append" else 3):
                write_deltalake(place, rows([added]), mode="append")
                added += 1
        elif change == "compact":
            DeltaTable(place).optimize.compact()
        elif change == "checkpoint":
            DeltaTable(place).create_checkpoint()
        else:
            seen += reader.all_keys()
            if change == "vacuum":  # as with a retention that is longer than a reader is behind
                _vacuum(place)
    assert sorted(seen) == list(range(added))


@apart
def test_table_in_a_bucket_is_read_as_our_sink_writes_it(s3_server: S3Server, tmp_path: Path) -> None:
    uri = s3_server.uri()
    sink = topology.Sink("out", "counts", "delta", {"path": uri, "partitionBy": "day"})
    opened = open_sink(sink, Writer("flights", "run-1"))
    reader = Reader(tmp_path, uri, "key BIGINT, day STRING")

    def publish(batch: int, *keys: int) -> None:
        path = tmp_path / f"{batch}.arrow"
        table = rows(keys, day=["mon"] * len(keys))
        stage(path, table.schema, table.to_batches())
        opened.publish(batch, [path])

    publish(0, 1, 2)
    publish(0, 1, 2)
    assert reader.keys() == [1, 2]
    publish(1, 3)
    DeltaTable(uri, storage_options=stored_files.server_of(uri)).optimize.compact()
    publish(2, 4)
    assert [row["day"] for row in reader.read()] == ["mon", "mon"]
    assert reader.keys() == []
    assert [finding.message for finding in check(source(uri, "key BIGINT, day STRING")).findings] == []
    with pytest.raises(SourceError, match=r"make the bucket|cannot be opened"):
        Reader(tmp_path / "b", "s3://none/x").read()
