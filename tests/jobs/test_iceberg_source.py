"""A table of Iceberg is read once: a snapshot of it, then what each one appends; whoever writes, compacts and expires."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas  # noqa: F401 - pyarrow would import it in each fork
import pyarrow as pa
import pyarrow.parquet as pq
import pyiceberg.io.pyarrow  # noqa: F401 - pyiceberg would import it in each fork
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st
from pyiceberg.manifest import DataFileContent
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType, StringType
from support.connectors import stage
from support.depth import deep
from support.iceberg_rest import TOKEN, RestCatalog
from support.iceberg_tables import NAME, Owner, options_in, rows
from support.processes import apart
from support.streams import Stream, parquet_file, rows_of

from streamtopology import topology
from streamtopology.jobs.connectors.folder_overlap import overlap_problems
from streamtopology.jobs.connectors.sinks import Writer, open_sink
from streamtopology.jobs.connectors.sources.descriptors import SourceSpec
from streamtopology.jobs.connectors.sources.errors import CatalogError, TableError
from streamtopology.jobs.connectors.sources.files import iceberg_stream
from streamtopology.jobs.connectors.sources.first_rows import first_rows
from streamtopology.jobs.connectors.sources.schema.conform import MissingColumnError, SchemaMismatchError
from streamtopology.jobs.connectors.sources.validation import check
from streamtopology.topology import Doubt, Problem, Source

if TYPE_CHECKING:  # the plugin is imported by pytest, which then explains its assertions
    from support.s3 import S3Server

pytest_plugins = ("support.s3",)


def source(folder: Path, schema: str = "key BIGINT", **options: str) -> Source:
    return Source("s", "iceberg", schema, {"table": NAME, **options_in(folder), **options})


class Reader:
    """A stream as the driver drives it. Each read is by a new process, after one that was killed when it had asked."""

    def __init__(self, owner: Owner, log: str = "log", schema: str = "key BIGINT", **options: str) -> None:
        self.spec = SourceSpec.of(source(owner.folder, schema, **options))
        self._log = owner.folder / log
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


def new_table(folder: Path, **options: Any) -> Owner:
    """Of two snapshots. pyiceberg starts threads: each test is a process of its own."""
    owner = Owner(folder)
    owner.make(**options)
    owner.append(1, 2)
    owner.append(3)
    return owner


SKIP_DELETES, SKIP_OVERWRITES = ({f"streaming-skip-{kind}-snapshots": "true"} for kind in ("delete", "overwrite"))
ONE_FILE = {"streaming-max-files-per-micro-batch": "1"}


@apart
@pytest.mark.parametrize("version", [1, 2])
def test_a_snapshot_is_read_and_then_what_is_appended(tmp_path: Path, version: int) -> None:
    owner = new_table(tmp_path, version=version)
    reader = Reader(owner)
    assert reader.keys() == [1, 2, 3]
    assert reader.keys() == []
    owner.append(4)
    owner.append(5)
    assert reader.keys() == [4, 5]
    one_by_one = Reader(owner, "b", **ONE_FILE)
    assert [one_by_one.keys() for _ in range(4)] == [[1, 2], [3], [4], [5]], "in the order of their snapshots"
    assert one_by_one.keys() == []


@apart
def test_table_without_a_snapshot_is_read_from_its_first(tmp_path: Path) -> None:
    owner = Owner(tmp_path)
    owner.make()
    reader, expired = Reader(owner), Reader(owner, "b")
    assert reader.keys() == expired.keys() == []
    owner.append(1)
    owner.append(2)
    assert reader.keys() == [1, 2]
    owner.expire_old()
    with pytest.raises(TableError, match="no longer has its first snapshot, which expired before it was read; keep snapshots"):
        expired.keys()
    owner.forget()
    owner.make()
    with pytest.raises(TableError, match="is another one than was read before"):
        expired.keys()


@apart
def test_snapshots_are_read_from_a_time_on(tmp_path: Path) -> None:
    owner = new_table(tmp_path)
    first, second = (snapshot.timestamp_ms for snapshot in owner.table.snapshots())

    def since(milliseconds: int) -> dict[str, str]:
        return {"stream-from-timestamp": str(milliseconds)}

    assert Reader(owner, "a", **since(0)).keys() == [1, 2, 3]
    assert Reader(owner, "b", **since(second)).keys() == [3]
    later = Reader(owner, "c", **since(second + 1))
    assert later.keys() == []
    owner.append(4)
    owner.append(5)
    assert later.keys() == [4, 5]
    owner.expire(owner.table.snapshots()[0].snapshot_id)
    assert Reader(owner, "d", **since(second)).keys() == [3, 4, 5]
    with pytest.raises(
        TableError, match=f"no snapshots from before {second} any more.*set options.stream-from-timestamp to that"
    ):
        Reader(owner, "e", **since(first)).keys()


@apart
def test_compaction_and_expiry_change_nothing_of_what_was_read(tmp_path: Path) -> None:
    owner = new_table(tmp_path)
    reader = Reader(owner)
    assert reader.keys() == [1, 2, 3]
    owner.append(4)
    owner.compact()
    assert reader.keys() == [4], "its file is there until it expires, and the snapshot of the compaction is passed over"
    owner.append(5)
    assert reader.keys() == [5]
    owner.compact()
    owner.append(6)
    assert reader.keys() == [6]
    owner.expire_old()
    assert reader.keys() == []
    owner.append(7)
    assert reader.keys() == [7]
    assert Reader(owner, "b").all_keys() == [1, 2, 3, 4, 5, 6, 7]


@apart
def test_rows_that_expired_before_they_were_read_are_refused(tmp_path: Path) -> None:
    owner = new_table(tmp_path)
    behind, running, listed = (
        Reader(owner),
        Stream(tmp_path / "b", Reader(owner).spec),
        Stream(tmp_path / "c", Reader(owner).spec),
    )
    behind.read()
    _, position = running.read({})
    owner.append(4)
    listed.stream.close_listing()
    owner.compact()
    owner.append(5)
    owner.expire_old()
    for read in (behind.read, lambda: running.read(position)):
        with pytest.raises(
            TableError, match=r"no longer has snapshot \d+, up to which it was read: it expired; keep snapshots"
        ):
            read()
    with pytest.raises(TableError, match=r"lost .*\.parquet before it was read: a job has expired its snapshot"):
        listed.read({})


def _delete(owner: Owner) -> None:
    owner.table.delete("key = 3")


def _delete_on_read(owner: Owner) -> None:
    owner.delete_on_read()


def _overwrite(owner: Owner) -> None:
    owner.table.delete("key = 2")


@apart
@pytest.mark.parametrize(
    ("change", "kind", "skip", "other"),
    [
        (_delete, "delete", SKIP_DELETES, SKIP_OVERWRITES),
        (_delete_on_read, "delete", SKIP_DELETES, SKIP_OVERWRITES),
        (_overwrite, "overwrite", SKIP_OVERWRITES, SKIP_DELETES),
    ],
)
def test_snapshot_that_changes_rows_is_refused_or_left_out(
    tmp_path: Path, change: Callable[[Owner], None], kind: str, skip: dict[str, str], other: dict[str, str]
) -> None:
    owner = new_table(tmp_path)
    readers = Reader(owner, "a"), Reader(owner, "b", **other)
    skipping = Reader(owner, "c", **skip)
    for reader in (*readers, skipping):
        assert reader.keys() == [1, 2, 3]
    change(owner)
    owner.append(4)
    option = rf"options\.streaming-skip-{kind}-snapshots: true"
    for reader in readers:
        with pytest.raises(TableError, match=rf"has snapshot \d+ \({kind}\), which deletes .*{option}"):
            reader.read()
    assert skipping.keys() == [4]
    assert [finding.message for finding in check(source(tmp_path, **skip)).findings] == []


@apart
def test_deletes_that_readers_must_apply_are_refused_at_the_begin(tmp_path: Path) -> None:
    owner = new_table(tmp_path)
    before = owner.table.snapshots()[-1].timestamp_ms + 1
    owner.delete_on_read()
    owner.append(4)
    with pytest.raises(TableError, match=r"files of deleted rows \(merge-on-read\).*options\.stream-from-timestamp"):
        Reader(owner).read()
    after = {"stream-from-timestamp": str(before)}
    assert Reader(owner, "b", **after, **SKIP_DELETES).keys() == [4]
    owner.compact()
    left = Reader(owner, "c").all_keys()
    assert len(left) == 3, "the files of deletes are there, and delete nothing any more"
    owner.delete_on_read(content=DataFileContent.EQUALITY_DELETES)
    with pytest.raises(TableError, match="merge-on-read"):
        Reader(owner, "d").read()


@apart
def test_deletes_in_an_appended_snapshot_are_refused(tmp_path: Path) -> None:
    owner = new_table(tmp_path)
    reader = Reader(owner)
    reader.read()
    owner.delete_on_read(by=Operation.APPEND)
    with pytest.raises(TableError, match="merge-on-read"):
        reader.read()


@apart
def test_table_that_is_another_one_or_rolled_back_is_refused(tmp_path: Path) -> None:
    owner = new_table(tmp_path)
    kept, running = Reader(owner), Stream(tmp_path / "b", Reader(owner).spec)
    kept.read()
    _, position = running.read({})
    first = owner.table.snapshots()[0].snapshot_id
    owner.table.manage_snapshots().rollback_to_snapshot(first).commit()
    for _ in range(2):
        for read in (kept.read, lambda: running.read(position)):
            with pytest.raises(
                TableError, match=r"read up to snapshot \d+, and was rolled back or replaced since then; put it"
            ):
                read()
        owner.append(4)
    owner.table.manage_snapshots().set_current_snapshot(owner.table.snapshots()[1].snapshot_id).commit()
    assert kept.read() == []
    owner.forget()
    with pytest.raises(TableError, match="is not in its catalogue; make it first, or correct option table"):
        running.read(position)
    owner.make()
    owner.append(1)
    for read in (kept.read, lambda: running.read(position)):
        with pytest.raises(TableError, match="is another one than was read before; put that back, or give the source another"):
            read()


@apart
def test_source_that_was_a_folder_needs_another_name(tmp_path: Path) -> None:
    owner = new_table(tmp_path)
    parquet_file(tmp_path / "in", "a.parquet", [1], 1)
    former = SourceSpec.of(Source("s", "parquet", "key BIGINT", {"path": str(tmp_path / "in")}))
    _, position = Stream(tmp_path / "log", former).read({})
    with pytest.raises(TableError, match="was read as a folder of files before; give the source another name"):
        Stream(tmp_path / "log", Reader(owner).spec).read(position)


@apart
def test_partitions_may_change(tmp_path: Path) -> None:
    owner = Owner(tmp_path)
    city = pa.schema([("key", pa.int64()), ("city", pa.string())])
    owner.make(city, by=["city"])
    owner.append(1, 2, 3, city=["a b/ü:%", "x", None])
    schema = "city STRING, key BIGINT"
    reader = Reader(owner, schema=schema)
    expected = [{"city": name, "key": key} for key, name in ((1, "a b/ü:%"), (2, "x"), (3, None))]
    assert sorted(reader.read(), key=lambda row: row["key"]) == expected
    with owner.table.update_spec() as spec:
        spec.remove_field("city")
        spec.add_field("key", BucketTransform(4), "bucket")
    owner.append(4, city=["y"])
    with owner.table.update_schema() as columns:
        columns.add_column("land", StringType())
    with owner.table.update_spec() as spec:
        spec.add_identity("land")
    owner.append(5, city=["z"], land=["w"])
    assert sorted(reader.read(), key=lambda row: row["key"]) == [{"city": "y", "key": 4}, {"city": "z", "key": 5}]
    lands = {row["key"]: row["land"] for row in Reader(owner, "b", "key BIGINT, land STRING").read()}
    assert lands == {1: None, 2: None, 3: None, 4: None, 5: "w"}


@apart
def test_columns_are_found_by_their_ids(tmp_path: Path) -> None:
    owner = Owner(tmp_path)
    owner.make(pa.schema([("key", pa.int32()), ("a", pa.string()), ("gone", pa.string())]))
    ints = pa.array([1], pa.int32())
    owner.table.append(pa.table({"key": ints, "a": ["first"], "gone": ["of another column"]}))
    reader = Reader(owner, "a", "key BIGINT, a STRING")
    assert reader.read() == [{"key": 1, "a": "first"}]
    with owner.table.update_schema() as columns:
        columns.rename_column("a", "b")
        columns.delete_column("gone")
        columns.update_column("key", LongType())
    with owner.table.update_schema() as columns:
        columns.add_column("a", StringType())
        columns.add_column("gone", StringType())
        columns.move_first("gone")
    owner.append(2, a=["second a"], b=["second"], gone=["here"])
    assert reader.read() == [{"key": 2, "a": "second a"}], "the name stands for another column from there on"
    renamed = Reader(owner, "b", "b STRING, gone STRING, a STRING, key BIGINT", **ONE_FILE)
    assert renamed.read() == [{"b": "first", "gone": None, "a": None, "key": 1}]
    assert renamed.read() == [{"b": "second", "gone": "here", "a": "second a", "key": 2}]
    assert Reader(owner, "c", "gone STRING").read().count({"gone": None}) == 1
    tried = first_rows(Reader(owner, schema="b STRING, a STRING").spec, 5, tmp_path)
    assert tried.to_pylist() == [{"b": "first", "a": None}, {"b": "second", "a": "second a"}]
    for schema, error in (("town STRING", MissingColumnError), ("key STRING", SchemaMismatchError)):
        with pytest.raises(error):
            Reader(owner, "d", schema).read()
        assert [finding.path for finding in check(source(tmp_path, schema)).findings] == ["schema"]


@apart
def test_column_that_is_renamed_meanwhile_ends_the_run(tmp_path: Path) -> None:
    owner = new_table(tmp_path)
    reader = Reader(owner)
    reader.read()
    with owner.table.update_schema() as columns:
        columns.rename_column("key", "id")
    with pytest.raises(MissingColumnError, match=f"table {NAME}: column 'key' is declared int64 .*it has id"):
        reader.read()


@apart
def test_fields_of_structs_that_were_renamed_are_refused(tmp_path: Path) -> None:
    owner = Owner(tmp_path)
    inner = pa.struct([("a", pa.int64())])
    owner.make(pa.schema([("key", pa.int64()), ("inner", pa.list_(inner))]))
    owner.table.append(pa.table({"key": [1], "inner": pa.array([[{"a": 7}]], pa.list_(inner))}))
    with owner.table.update_schema() as columns:
        columns.add_column(("inner", "b"), LongType())
    assert Reader(owner, "a", "inner ARRAY<STRUCT<a: BIGINT, b: BIGINT>>").read() == [{"inner": [{"a": 7, "b": None}]}]
    with owner.table.update_schema() as columns:
        columns.rename_column("inner.element.a", "c")
    with pytest.raises(TableError, match="from before a field in column 'inner' was renamed or replaced; write its data files"):
        Reader(owner, "b", "inner ARRAY<STRUCT<c: BIGINT>>").read()
    assert Reader(owner, "c").keys() == [1], "of a column that nobody reads"


@apart
def test_files_without_ids_are_read_by_the_names_that_the_table_gives(tmp_path: Path) -> None:
    owner = Owner(tmp_path)
    owner.make()
    pq.write_table(rows([1]), tmp_path / "made elsewhere.parquet")
    owner.table.add_files([str(tmp_path / "made elsewhere.parquet")])
    with owner.table.update_schema() as columns:
        columns.rename_column("key", "id")
    assert Reader(owner, schema="id BIGINT").read() == [{"id": 1}]
    with owner.table.transaction() as changed:
        changed.remove_properties("schema.name-mapping.default")
    with pytest.raises(TableError, match="whose columns have no ids, nor does the table name them"):
        Reader(owner, "b", "id BIGINT").read()


@apart
def test_files_that_say_too_little_are_refused_by_name(tmp_path: Path) -> None:
    owner = Owner(tmp_path)
    owner.make(rows([], day=[]).schema.set(1, pa.field("day", pa.string())), by=["day"])
    owner.append(1, day=["mon"])
    (file,) = (task.file.file_path for task in owner.table.scan().plan_files())
    pq.write_table(pq.read_table(file).drop_columns(["day"]), file)
    with pytest.raises(
        TableError, match="without column 'day', whose value only the table's metadata has; write its data files"
    ):
        Reader(owner, schema="day STRING").read()
    assert Reader(owner, "b").keys() == [1]


@apart
@deep(gate=5, long=60)
@drawn(st.lists(st.sampled_from(["append", "many", "compact", "expire", "read"]), min_size=2, max_size=12))
def test_each_row_is_read_once_whatever_is_done_to_the_table(
    tmp_path_factory: pytest.TempPathFactory, changes: list[str]
) -> None:
    owner, added, seen = Owner(tmp_path_factory.mktemp("life")), 1, list[int]()
    owner.make()
    owner.append(0)
    reader = Reader(owner, **{"streaming-max-files-per-micro-batch": "2"})
    for change in [*changes, "read"]:
        if change in ("append", "many"):
            for _ in range(1 if change == "append" else 3):
                owner.append(added)
                added += 1
        elif change == "compact":
            owner.compact()
        else:
            seen += reader.all_keys()
            if change == "expire":  # as with snapshots that are kept for longer than a reader is behind
                owner.expire_old(owner.appended[-1])
    assert sorted(seen) == list(range(added))


def by(rest: RestCatalog) -> dict[str, str]:
    return {"catalog.type": "rest", "catalog.uri": rest.uri, "catalog.token": "${env:LAKE_TOKEN}"}


@apart
def test_catalogue_that_is_away_is_waited_for_once_it_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_TOKEN", TOKEN)
    owner = new_table(tmp_path)
    with RestCatalog(tmp_path).serving() as rest:
        reader, running = Reader(owner, **by(rest)), Stream(tmp_path / "b", Reader(owner, **by(rest)).spec)
        rest.silent = 1
        with pytest.raises(
            CatalogError, match=rf"source 's': table {NAME}: .*; wait until its catalogue and its bucket answer"
        ):
            reader.keys()
        assert reader.keys() == [1, 2, 3]
        found, position = running.read({})
        assert len(found) == 2
        owner.append(4)
        rest.silent = 3
        found, _ = running.read(position)
        assert [row["key"] for row in rows_of(found, reader.spec)] == [4]
        assert rest.silent == 0


@apart
def test_catalogue_that_stays_away_is_a_sentence_without_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iceberg_stream, "PATIENCE_SECONDS", 0.05)
    monkeypatch.setenv("LAKE_TOKEN", TOKEN)
    owner = new_table(tmp_path)
    with RestCatalog(tmp_path).serving() as rest:
        running = Stream(tmp_path / "b", Reader(owner, **by(rest)).spec)
        _, position = running.read({})
    for refused in (lambda: running.read(position), lambda: Reader(owner, "c", **by(rest)).read()):
        with pytest.raises(CatalogError, match="Connection refused") as refusal:
            refused()
        assert TOKEN not in str(refusal.value)
    (doubt,) = check(source(tmp_path, **by(rest))).findings
    assert isinstance(doubt, Doubt)
    assert doubt.path == "options.catalog.uri"
    with RestCatalog(tmp_path).serving() as again:
        monkeypatch.setenv("LAKE_TOKEN", "wrong")
        with pytest.raises(CatalogError, match="no rights"):
            Reader(owner, "d", **by(again)).read()


@apart
def test_good_source_has_no_findings_and_others_name_what_is_wrong(tmp_path: Path) -> None:
    owner = Owner(tmp_path)
    assert [(found.path, type(found)) for found in check(source(tmp_path)).findings] == [("options.table", Problem)]
    owner.make()
    (doubt,) = check(source(tmp_path)).findings
    assert (doubt.path, type(doubt)) == ("options.table", Doubt)
    assert "has no rows" in doubt.message
    assert [found.path for found in check(source(tmp_path, "id BIGINT")).findings] == ["options.table", "schema"]
    owner.append(1)
    assert check(source(tmp_path, **SKIP_DELETES, **SKIP_OVERWRITES, **ONE_FILE)).findings == ()
    for name, value, said in (
        ("table", "t", "must be NAMESPACE.NAME"),
        ("catalog.type", "hive", "must be sql or rest"),
        ("catalog.token", "${env:NO_SUCH}", "needs the environment variable NO_SUCH"),
        ("stream-from-timestamp", "yesterday", "must be a number of milliseconds since 1970"),
        ("streaming-skip-delete-snapshots", "yes", "must be true or false"),
        ("streaming-max-files-per-micro-batch", "0", "must be a whole number above 0"),
        ("maxFilesPerTrigger", "3", "has no option 'maxFilesPerTrigger'; it has: table, .*streaming-max-files-per-micro-batch"),
    ):
        (problem,) = check(source(tmp_path, **{name: value})).findings
        assert problem.path == f"options.{name}"
        assert re.search(said, problem.message)


def test_table_that_a_sink_of_the_topology_appends_to_is_refused(tmp_path: Path) -> None:
    reads, of_table = source(tmp_path), {"table": NAME, **options_in(tmp_path)}
    for options, said in ((of_table, ["table"]), ({**of_table, "table": "lake.other"}, [])):
        both = topology.Topology("both", (reads,), (), (topology.Sink("out", "all", "iceberg", options),), ())
        assert [problem.path.rpartition(".")[2] for problem in overlap_problems(both)] == said


@apart
def test_table_in_a_bucket_is_read_as_our_sink_writes_it(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")  # as the tests' server wants it
    options = options_in(tmp_path, s3_server.uri())
    sink = topology.Sink("out", "counts", "iceberg", {"table": NAME, "partitionBy": "day", **options})
    opened = open_sink(sink, Writer("flights", "run-1"))

    def publish(batch: int, *keys: int) -> None:
        path = tmp_path / f"{batch}.arrow"
        table = rows(keys, day=["a b/ü:%"] * len(keys))
        stage(path, table.schema, table.to_batches())
        opened.publish(batch, [path])

    publish(0, 1, 2)
    publish(0, 1, 2)
    owner = Owner(tmp_path, s3_server.uri(), **{"s3.endpoint": s3_server.endpoint, "s3.region": "us-east-1"})
    reader = Reader(owner, schema="key BIGINT, day STRING", **options)
    assert reader.keys() == [1, 2]
    publish(1, 3)
    owner.compact()
    publish(2, 4)
    assert reader.read() == [{"key": key, "day": "a b/ü:%"} for key in (3, 4)]
    assert reader.keys() == []
    assert check(source(tmp_path, "key BIGINT, day STRING", **options)).findings == ()
