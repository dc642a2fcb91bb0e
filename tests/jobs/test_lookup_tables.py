"""A lookup in a table that changes while the topology runs: what a batch has seen it sees again, whatever happened since."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from hypothesis import example, given
from hypothesis import strategies as st
from support.iceberg_tables import NAME, Owner, options_in
from support.processes import apart, killed_in
from support.stages import Flow, Loss, manifest

from streamtopology.jobs.checkpoint import Checkpoint, open_store
from streamtopology.jobs.checkpoint.copying import copy_checkpoint
from streamtopology.jobs.connectors.sinks.base import staged_table
from streamtopology.jobs.connectors.sources import whole_table
from streamtopology.jobs.errors import TopologyFailed
from streamtopology.jobs.failpoints import arm
from streamtopology.jobs.operators.lookup import Lookup
from streamtopology.jobs.runtime.preflight.checks import check_before_start
from streamtopology.topology import ManifestError, parse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from support.s3 import S3Server  # the plugin is imported by pytest, which then explains its assertions

pytest_plugins = ("support.s3",)

Rows = list[tuple[Any, ...]]
TABLE = "id BIGINT, name STRING"


def names(ids: Sequence[int | None], names: Sequence[str | None]) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "name": pa.array(names, pa.string())})


def looking_up(source: str = "k BIGINT", **lookup: Any) -> dict[str, Any]:
    options = {"on": "k", "key": "id", "schema": TABLE, "refresh": "0s", **lookup}
    operator = {"name": "o", "inputs": ["s"], "grouping": {"policy": "shuffle"}, "run": "enrich", "with": {"lookup": options}}
    return manifest([operator], {"s": source})


def of_file(**lookup: Any) -> dict[str, Any]:
    return looking_up(**{"file": "t.parquet", **lookup})


def write(folder: Path, table: pa.Table) -> None:
    """In place of the former one, as writers do it."""
    pq.write_table(table, folder / ".draft")
    (folder / ".draft").rename(folder / "t.parquet")


def batch(flow: Flow, *keys: Any) -> Rows:
    """What one batch of these keys emits."""
    before = len(flow.published("o"))
    flow.batch(s=pa.table({"k": pa.array(keys, pa.int64())}))
    return [tuple(row.values()) for row in flow.published("o").slice(before).to_pylist()]


class OfFiles:
    """A folder of parquet files, as Spark overwrites one."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.written = folder / "table", 0
        self.folder.mkdir()
        self.options = {"format": "parquet", "options": {"path": str(self.folder)}}

    def write(self, table: pa.Table) -> None:
        self.written += 1
        for half, rows in enumerate((table.slice(0, 1), table.slice(1))):
            pq.write_table(rows, self.folder / f"part-{self.written}-{half}.parquet")
        for old in self.folder.glob(f"part-{self.written - 1}-*"):
            old.unlink()


class OfDelta:
    def __init__(self, folder: Path) -> None:
        self.place = str(folder / "table")
        self.options = {"format": "delta", "options": {"path": self.place}}

    def write(self, table: pa.Table) -> None:
        write_deltalake(self.place, table, mode="overwrite")


class OfIceberg:
    def __init__(self, folder: Path) -> None:
        self.owner = Owner(folder)
        self.options = {"format": "iceberg", "options": {"table": NAME, **options_in(folder)}}

    def write(self, table: pa.Table) -> None:
        if not self.owner.catalog.table_exists(NAME):
            self.owner.make(table.schema)
        self.owner.catalog.load_table(NAME).overwrite(table)


@pytest.mark.parametrize("kind", [OfFiles, OfDelta, OfIceberg])
@apart
def test_each_batch_sees_the_newest_version(tmp_path: Path, kind: Callable[[Path], OfFiles | OfDelta | OfIceberg]) -> None:
    table = kind(tmp_path)
    table.write(names([1, 2, None], ["a", "b", "none"]))
    flow = Flow(tmp_path, looking_up(join="left", **table.options))
    assert sorted(batch(flow, 1, 2, 3)) == [(1, "a"), (2, "b"), (3, None)]
    assert flow.last.tables == (unchanged := dict(flow.last.tables))
    assert batch(flow, 1) == [(1, "a")]
    assert flow.last.tables == unchanged
    table.write(names([2, 3], ["B", "C"]))
    assert sorted(batch(flow, 1, 2, 3), key=str) == [(1, None), (2, "B"), (3, "C")]
    table.write(names([], []))
    assert sorted(batch(flow, 1, 2), key=str) == [(1, None), (2, None)]
    table.write(names([1], ["again"]))
    flow.start(looking_up(join="inner", **table.options))
    assert batch(flow, 1, 2, None) == [(1, "again")]
    assert not flow.reported


def test_table_is_looked_at_again_after_its_interval(tmp_path: Path) -> None:
    now = 1_000_000.0
    write(tmp_path, names([1], ["a"]))
    flow = Flow(tmp_path, of_file(refresh="10s"), wall_clock=lambda: now)
    assert batch(flow, 1) == [(1, "a")]
    write(tmp_path, names([1], ["b"]))
    now += 9.9
    assert batch(flow, 1) == [(1, "a")]
    now += 0.1
    assert batch(flow, 1) == [(1, "b")]
    write(tmp_path, names([1], ["c"]))
    now -= 3600  # the clock was set back
    assert batch(flow, 1) == [(1, "c")]
    write(tmp_path, names([1], ["d"]))
    flow.start(of_file(refresh="10s"))
    assert batch(flow, 1) == [(1, "d")], "a start looks at once"


def test_batch_that_is_repeated_sees_what_it_saw(tmp_path: Path) -> None:
    write(tmp_path, names([1, 2], ["a", "b"]))
    flow = Flow(tmp_path, of_file())
    flow.losses = [Loss(1, 0), Loss(2, 1, returns=False)]
    flow.meanwhile = [lambda: write(tmp_path, names([1, 2], ["new", "new"]))]  # read by the first attempt already
    assert sorted(batch(flow, *[1, 2] * 40)) == sorted([(1, "a"), (2, "b")] * 40)
    assert batch(flow, 1) == [(1, "new")]


def test_batch_that_was_rolled_back_sees_what_it_saw(tmp_path: Path) -> None:
    for name in "abc":
        write(tmp_path, names([1], [name]))
        flow = Flow(tmp_path, of_file())
        assert batch(flow, 1) == [(1, name)]
    write(tmp_path, names([1], ["d"]))
    flow.checkpoint.forget_commit(2)
    flow.checkpoint.forget_commit(1)
    flow = Flow(tmp_path, of_file())
    assert batch(flow, 1) == [(1, "b")]
    assert batch(flow, 1) == [(1, "c")]
    assert batch(flow, 1) == [(1, "d")]


def test_other_options_are_another_table(tmp_path: Path) -> None:
    """Whose rows the batch before had, or an attempt at the same batch."""
    write(tmp_path, pa.table({"id": [1], "name": ["a"], "more": [7]}))
    assert batch(Flow(tmp_path, of_file()), 1) == [(1, "a")]
    with pytest.raises(TopologyFailed, match="column 'more' holds int64 but is declared string"):
        batch(Flow(tmp_path, of_file(schema="id BIGINT, more STRING, name STRING", columns=["name"])), 1)
    flow = Flow(tmp_path, of_file(schema="name STRING, id BIGINT"))
    assert batch(flow, 1) == [(1, "a")]
    flow.checkpoint.forget_commit(1)
    flow.checkpoint.forget_commit(0)
    assert batch(Flow(tmp_path, of_file(schema="id BIGINT, more BIGINT")), 1) == [(1, 7)]


@pytest.mark.parametrize(
    ("point", "seen"),
    [
        *((point, "v3") for point in ("table.writing", "table.written", "batch.recording")),
        *((point, "v1") for point in ("batch.recorded", "output.staged", "commit.writing", "commit.written")),
    ],
)
def test_death_leaves_a_batch_what_its_record_says(tmp_path: Path, point: str, seen: str) -> None:
    """Each life finds another version, and two of them die. What was not recorded nobody has seen."""

    def live(switch: str | None) -> None:
        arm(switch)
        batch(Flow(tmp_path, of_file()), *range(60))

    for version, switch in (("v1", point), ("v2", point), ("v3", None)):
        write(tmp_path, names(range(60), [version] * 60))
        assert killed_in(lambda switch=switch: live(switch)) == (switch is not None)
    checkpoint = Checkpoint.attach(str(tmp_path / "checkpoint"))
    commit = checkpoint.read_commit(0)
    with checkpoint.at_hand(commit.outputs["o"]) as files:
        rows = staged_table(files)
    assert rows is not None
    assert set(rows.column("name").to_pylist()) == {seen}
    assert rows.num_rows == 60
    assert set(checkpoint.read_table(commit.tables["o"].path).column("name").to_pylist()) == {seen}


def test_copies_that_no_commit_names_are_swept(tmp_path: Path) -> None:
    flow = Flow(tmp_path, of_file())
    for number in range(9):
        if number <= 5:
            write(tmp_path, names([1], [f"v{number}"]))
        batch(flow, 1)
    flow.checkpoint.collect_garbage(3)
    kept = flow.checkpoint.files("tables")
    assert kept == sorted({flow.checkpoint.read_commit(number).tables["o"].path for number in flow.checkpoint.commits()})
    assert [Path(path).name.split("-")[0] for path in kept] == ["5"]
    assert batch(Flow(tmp_path, of_file()), 1) == [(1, "v5")]


def test_copy_of_a_checkpoint_has_its_tables(tmp_path: Path) -> None:
    write(tmp_path, names([1], ["a"]))
    flow = Flow(tmp_path, of_file())
    batch(flow, 1)
    copy_checkpoint(flow.checkpoint, open_store(str(tmp_path / "copy")), "flow")
    shutil.rmtree(tmp_path / "checkpoint")
    (tmp_path / "t.parquet").unlink()
    copied = Flow(tmp_path, of_file(), checkpoint=str(tmp_path / "copy"))
    assert batch(copied, 1) == [(1, "a")]
    assert "t.parquet does not exist" in copied.reported[-1]


@apart
def test_table_and_checkpoint_may_be_in_a_bucket(tmp_path: Path, s3_server: S3Server) -> None:
    place = open_store(s3_server.uri())
    flow = Flow(
        tmp_path, looking_up(format="json", options={"path": f"{place.uri}/t"}), checkpoint=f"{s3_server.uri()}/checkpoint"
    )
    place.create("t/a.json", b'{"id": 1, "name": "a"}')
    assert batch(flow, 1, 2) == [(1, "a"), (2, None)]
    place.delete("t/a.json")
    place.create("t/a.json", b'{"id": 1, "name": "b"}')  # as large, and within the same second
    assert batch(flow, 1) == [(1, "b")]
    place.delete("t/a.json")
    assert batch(flow, 1) == [(1, "b")]
    assert "has no file" in flow.reported[0]


# --- tables that cannot be read ---


def gone(folder: Path) -> None:
    (folder / "t.parquet").unlink()


def cut(folder: Path) -> None:
    (folder / "t.parquet").write_bytes((folder / "t.parquet").read_bytes()[:-9])


def with_another_type(folder: Path) -> None:
    write(folder, pa.table({"id": ["1"], "name": ["a"]}))


def with_another_column(folder: Path) -> None:
    write(folder, pa.table({"id": [1], "nom": ["a"]}))


def with_a_key_twice(folder: Path) -> None:
    write(folder, names([1, 1], ["a", "b"]))


def with_a_key_that_is_null(folder: Path) -> None:
    write(folder, names([1, None], ["a", "b"]))


UNREADABLE = {
    gone: "t.parquet does not exist; create it or correct option path",
    cut: "Either the file is corrupted or this is not a parquet file",
    with_another_type: "column 'id' holds string but is declared int64",
    with_another_column: "column 'name' is declared string but the file has no such column",
    with_a_key_twice: "column 'id' of lookup table",
    with_a_key_that_is_null: "has a value twice or none; it must identify each row, or set lookup.join to left or inner",
}


@pytest.mark.parametrize("change", UNREADABLE, ids=lambda change: change.__name__)
def test_table_that_cannot_be_read_stays_what_it_was(tmp_path: Path, change: Callable[[Path], None]) -> None:
    write(tmp_path, names([1], ["first"]))
    flow = Flow(tmp_path, of_file())
    assert batch(flow, 1) == [(1, "first")]
    change(tmp_path)
    for _ in range(3):
        assert batch(flow, 1) == [(1, "first")]
    (complaint,) = flow.reported
    assert complaint.startswith("operator 'o': ")
    assert UNREADABLE[change] in complaint
    assert complaint.endswith(". Until then it looks up in the rows that it had before")
    assert "skip-file" not in complaint
    write(tmp_path, names([1], ["second"]))
    assert batch(flow, 1) == [(1, "second")]
    assert flow.reported[1:] == ["operator 'o': its table is there again"]


@pytest.mark.parametrize("change", UNREADABLE, ids=lambda change: change.__name__)
def test_table_that_cannot_be_read_is_refused_before_the_start(tmp_path: Path, change: Callable[[Path], None]) -> None:
    write(tmp_path, names([1], ["first"]))
    pq.write_table(pa.table({"k": [1]}), tmp_path / "in.parquet")
    given = of_file()
    given["spec"]["sources"][0]["options"]["path"] = str(tmp_path / "in.parquet")
    check_before_start(parse(given), tmp_path)
    change(tmp_path)
    with pytest.raises(ManifestError) as refused:
        check_before_start(parse(given), tmp_path)
    (problem,) = refused.value.problems
    assert problem.path == "spec.operators[0].with.lookup"
    assert UNREADABLE[change] in problem.message
    with pytest.raises(TopologyFailed, match="operator 'o': "):
        batch(Flow(tmp_path, of_file()), 1)


def test_folder_that_is_empty_for_a_while_is_no_table_without_rows(tmp_path: Path) -> None:
    table = OfFiles(tmp_path)
    table.write(names([1], ["a"]))
    flow = Flow(tmp_path, looking_up(**table.options))
    assert batch(flow, 1) == [(1, "a")]
    for file in table.folder.iterdir():
        file.unlink()
    assert batch(flow, 1) == [(1, "a")]
    assert "has no file; a table without rows is one without any" in flow.reported[0]


def test_table_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, names([1], ["a"]))
    flow = Flow(tmp_path, of_file())
    batch(flow, 1)
    monkeypatch.setattr(whole_table, "MOST_BYTES", 1 << 20)
    write(tmp_path, names(range(100_000), [f"name {number}" for number in range(100_000)]))
    assert batch(flow, 1) == [(1, "a")]
    assert "its rows take more than 1 MiB, the most of a table that each executor holds" in flow.reported[0]


@pytest.mark.parametrize(
    ("lookup", "complaint"),
    [
        ({"schema": None}, "option lookup.schema is None, and a table that is read again declares its columns"),
        ({"schema": "id BIGNT"}, "unknown type 'BIGNT'"),
        ({"refresh": "soon"}, "with.lookup: operator 'o': option 'lookup.refresh' is 'soon'; allowed: a duration"),
        ({"join": "outer"}, "with.lookup: operator 'o': option lookup.join is 'outer'; allowed: left, inner"),
        ({"format": "parquet"}, "lookup has file and format; give it one of them"),
        (
            {"file": "t.orc"},
            "with.lookup: operator 'o': lookup file t.orc is of no known kind; allowed: .csv, .json, .parquet, or",
        ),
        ({"options": {"path": "t"}}, "unknown option lookup.options.path; a parquet file has none"),
        ({"on": ["k", "k"]}, "option lookup.on is ['k', 'k']; allowed: a column, or a list of columns"),
        ({"on": []}, "option lookup.on is []"),
        ({"on": "z"}, "column 'z' does not exist in input 's', which has k"),
        ({"key": ["id", "name"]}, "lookup.on names 1 columns and lookup.key 2; name as many"),
        ({"key": "nme"}, "has no column 'nme'; it has id, name; did you mean 'name'?"),
        ({"key": "name"}, "compares column 'k', BIGINT, with 'name' of lookup table"),
        ({"schema": "id DOUBLE"}, "compares column 'k', BIGINT, with 'id'"),
        ({"schema": "id ARRAY<BIGINT>"}, "a key is a text, a number or a time"),
        ({"schema": "id BIGINT, k STRING"}, "both have 'k'; choose others with lookup.columns"),
        ({"columns": ["name", "name"]}, "names 'name' twice"),
    ],
)
def test_options_that_do_not_fit_are_refused(tmp_path: Path, lookup: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ManifestError) as refused:
        Flow(tmp_path, of_file(**lookup))
    assert complaint in str(refused.value)


@pytest.mark.parametrize(
    ("lookup", "complaint"),
    [
        ({"format": "orc"}, "option lookup.format is 'orc'; allowed: csv, json, parquet, delta, iceberg"),
        ({"format": "delta", "options": {"version": "1"}}, "unknown option lookup.options.version; a delta table has path"),
        ({"format": "delta"}, "option lookup.options.path is missing; name the place of the table"),
        ({"format": "iceberg", "options": {"catalog.type": "sql"}}, "option lookup.options.table is missing"),
    ],
)
def test_formats_that_do_not_fit_are_refused(tmp_path: Path, lookup: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ManifestError) as refused:
        Flow(tmp_path, looking_up(**lookup))
    assert complaint in str(refused.value)


@pytest.mark.parametrize("format_", ["delta", "iceberg"])
def test_table_that_is_not_there_is_refused_before_the_start(tmp_path: Path, format_: str) -> None:
    Owner(tmp_path)
    place = {"path": str(tmp_path / "t")} if format_ == "delta" else {"table": NAME, **options_in(tmp_path)}
    with pytest.raises(TopologyFailed, match=r"operator 'o': source 'lookup': table .* make it first, or correct option"):
        batch(Flow(tmp_path, looking_up(format=format_, options=place)), 1)


# --- joins ---


KEYS = {
    "BIGINT": (pa.int64(), st.integers(-2, 2)),
    "INT": (pa.int32(), st.integers(-2, 2)),
    "FLOAT": (pa.float32(), st.sampled_from([0.0, -0.0, 1.0, 0.5, float("nan")])),
    "DOUBLE": (pa.float64(), st.sampled_from([0.0, -0.0, 1.0, 0.5, float("nan")])),
    "STRING": (pa.string(), st.sampled_from(["", "a", "A", "\0", "ä"])),
    "DATE": (pa.date32(), st.integers(-1, 1)),
    "DECIMAL(5,1)": (pa.decimal128(5, 1), st.integers(-1, 1)),
    "DECIMAL(6,2)": (pa.decimal128(6, 2), st.integers(-1, 1)),
    "BOOLEAN": (pa.bool_(), st.booleans()),
}
MEETING = [(kind, kind) for kind in KEYS] + [
    ("INT", "BIGINT"), ("BIGINT", "INT"), ("FLOAT", "DOUBLE"), ("INT", "DOUBLE"), ("DECIMAL(5,1)", "DECIMAL(6,2)"),
    ("DECIMAL(6,2)", "INT"),
]  # fmt: skip


@st.composite
def joined(draw: st.DrawFn) -> tuple[pa.Table, pa.Table, list[tuple[str, str]]]:
    """Tuples and a table by one column or two, and their types; few different keys, some NULL."""
    kinds = draw(st.lists(st.sampled_from(MEETING), min_size=1, max_size=2))
    made = list[pa.Table]()
    for side in (0, 1):
        rows = draw(st.integers(0, 8))
        columns: dict[str, pa.Array] = {}
        for place, pair in enumerate(kinds):
            kind, values = KEYS[pair[side]]
            drawn = draw(st.lists(st.none() | values, min_size=rows, max_size=rows))
            columns[f"{'kt'[side]}{place}"] = pa.array(drawn, kind)
        made.append(pa.table({**columns, ("row", "found")[side]: pa.array(range(rows), pa.int64())}))
    return made[0], made[1], kinds


@given(joined(), st.integers(0, 8), st.sampled_from(["left", "inner"]))
@example((pa.table({"k0": [1], "row": [0]}), pa.table({"t0": [1, 1], "found": [0, 1]}), [("BIGINT", "BIGINT")]), 1, "left")
def test_join_is_that_of_sql(drawn: tuple[pa.Table, pa.Table, list[tuple[str, str]]], cut: int, join: str) -> None:
    tuples, table, kinds = drawn
    on, key = [[f"{side}{place}" for place in range(len(kinds))] for side in "kt"]
    schema = ", ".join([*(f"t{place} {pair[1]}" for place, pair in enumerate(kinds)), "found BIGINT"])
    options = {"file": "t.parquet", "on": on, "key": key, "schema": schema, "join": join, "refresh": "1m"}
    lookup = Lookup.from_options(options, Path()).on_types(tuples.schema, "s").over(table)
    parts = [part.combine_chunks().to_batches() for part in (tuples.slice(0, cut), tuples.slice(cut))]
    found = [row for part in parts for batch in part for row in lookup.join(batch).select(["row", "found"]).to_pylist()]
    condition = " AND ".join(f"k{place} = t{place}" for place in range(len(kinds)))
    connection = duckdb.connect().register("tuples", tuples).register("looked_up", table)
    expected = connection.sql(f"SELECT row, found FROM tuples {join} JOIN looked_up ON {condition}").fetchall()
    assert sorted((tuple(row.values()) for row in found), key=str) == sorted(expected, key=str)


def on_spark(spark: SparkSession, folder: Path, join: str) -> dict[int, Rows]:
    """A run of a query over the files that are there, after those that a former run has read."""
    emitted = dict[int, Rows]()

    def keep(frame: Any, number: int) -> None:
        emitted[number] = sorted((tuple(row) for row in frame.collect()), key=str)

    tuples = spark.readStream.schema("k BIGINT, n BIGINT").option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
    table = spark.read.schema(TABLE).parquet(str(folder / "t.parquet"))
    joined = tuples.join(table, tuples["k"] == table["id"], join).select("k", "n", "name")
    write = joined.writeStream.option("checkpointLocation", str(folder / f"spark-{join}")).foreachBatch(keep)
    write.trigger(availableNow=True).start().awaitTermination()
    return emitted


@pytest.mark.clusters
@pytest.mark.parametrize("join", ["left", "inner"])
def test_lookup_emits_what_sparks_join_with_a_static_frame_does(spark: SparkSession, tmp_path: Path, join: str) -> None:
    """Batch by batch. Spark reads files once at its start, so it starts again for each version."""
    draw = random.Random(3)
    (tmp_path / "in").mkdir()
    expected, found = dict[int, Rows](), dict[int, Rows]()
    for version in range(3):
        ids = [draw.choice([*range(8), None]) for _ in range(12)]
        write(tmp_path, names(ids, [f"{version} {draw.randrange(9)}" for _ in ids]))
        tables = list[pa.Table]()
        for number in range(4 * version, 4 * version + 4):
            keys = [draw.choice([*range(10), None]) for _ in range(20 if number % 4 else 0)]
            tables.append(pa.table({"k": pa.array(keys, pa.int64()), "n": pa.array(range(len(keys)), pa.int64())}))
            pq.write_table(tables[-1], tmp_path / "in" / f"{number}.parquet")
            os.utime(tmp_path / "in" / f"{number}.parquet", (number, number))  # by which Spark orders them
        expected |= on_spark(spark, tmp_path, join)
        flow = Flow(tmp_path, of_file(source="k BIGINT, n BIGINT", join=join))
        for table in tables:
            flow.losses = [Loss(draw.randint(1, 2), draw.randrange(4))]
            flow.batch(s=table)
            rows = flow.sinks["o"].batches.get(flow.last.batch, pa.table({}))  # type: ignore[attr-defined]
            found[flow.last.batch] = sorted((tuple(row.values()) for row in rows.to_pylist()), key=str)
    assert len(expected) == 12
    assert sum(map(len, expected.values())) > 100
    assert found == expected
