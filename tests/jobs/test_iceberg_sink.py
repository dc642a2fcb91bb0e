"""A table of Iceberg holds each batch once, whoever else writes to it expires snapshots, and is compared before the start."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pandas  # noqa: F401 - pyarrow would import it in each fork
import pyarrow as pa
import pyiceberg.io.pyarrow  # noqa: F401 - pyiceberg would import it in each fork
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform
from pyiceberg.types import StringType
from support.connectors import stage
from support.iceberg_rest import TOKEN, RestCatalog
from support.processes import apart, killed_in
from support.stages import Flow, manifest

from streamtopology import topology
from streamtopology.jobs.connectors.sinks import BatchSink, SinkError, Writer, check, open_sink, written, written_batch
from streamtopology.jobs.connectors.sinks.registry import destination, takes
from streamtopology.jobs.driver.publisher import Publisher
from streamtopology.jobs.failpoints import arm

WRITER = Writer(topology="flights", run="run-1")
ROWS = pa.schema([("n", pa.int64()), ("day", pa.string())])
MORE = pa.table({"n": pa.array([7], pa.int64()), "day": ["mon"]})


def catalog_in(folder: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": str(folder / "warehouse")}


def sink_in(folder: Path, **options: str) -> topology.Sink:
    of_catalog = {f"catalog.{name}": value for name, value in catalog_in(folder).items()}
    return topology.Sink("out", "counts", "iceberg", {"table": "lake.out", **of_catalog, **options})


def table_in(folder: Path, name: str = "lake.out") -> Table:
    return load_catalog("default", **catalog_in(folder)).load_table(name)


def made_in(folder: Path, schema: pa.Schema) -> Table:
    catalog = load_catalog("default", **catalog_in(folder))
    catalog.create_namespace("lake")
    return catalog.create_table("lake.out", schema)


def staged(folder: Path, *numbers: int) -> list[Path]:
    path = folder / f"staged-{time.monotonic_ns()}.arrow"
    rows = pa.record_batch({"n": pa.array(numbers, pa.int64()), "day": ["mon" if n % 2 else "tue" for n in numbers]})
    stage(path, rows.schema, [rows])
    return [path]


def numbers_in(folder: Path, name: str = "lake.out") -> list[int]:
    """The rows of the table as pyiceberg reads them, and DuckDB the files that it names."""
    table = table_in(folder, name)
    scanned = sorted(table.scan().to_arrow()["n"].to_pylist())
    if not table.scan().count() or any(task.delete_files for task in table.scan().plan_files()):
        return scanned
    files = [task.file.file_path for task in table.scan().plan_files()]
    read = duckdb.connect().sql(f"SELECT n FROM read_parquet({files}, union_by_name = true) ORDER BY n").fetchall()
    assert [n for (n,) in read] == scanned
    return scanned


def refusals(sink: topology.Sink, schema: pa.Schema = ROWS) -> list[str]:
    return takes(sink, schema).refusals(schema)


@apart
def test_publishing_again_changes_nothing(tmp_path: Path) -> None:
    batches = {0: [], 1: staged(tmp_path, 1, 2), 2: staged(tmp_path), 3: staged(tmp_path, 3)}
    for _ in range(2):  # the second sink is a restarted process
        sink = open_sink(sink_in(tmp_path, partitionBy="day"), WRITER)
        for _ in range(2):
            for batch, files in batches.items():
                sink.publish(batch, files, f"end {batch}")
        sink.close()
    assert numbers_in(tmp_path) == [1, 2, 3]
    table = table_in(tmp_path)
    assert len(table.snapshots()) == 2, "one of each batch with rows"
    assert [field.name for field in table.spec().fields] == ["day"]
    sink = sink_in(tmp_path)
    assert written_batch(sink, WRITER, 3, "end 3") == destination(sink) == "table lake.out"
    assert written_batch(sink, WRITER, 4, "end 4") is None
    assert written(sink, WRITER) is None, "a fresh start deletes nothing there"


@apart
def test_table_is_made_before_the_start_if_the_rows_are_known(tmp_path: Path) -> None:
    open_sink(sink_in(tmp_path, partitionBy="day"), WRITER, rows=ROWS)
    assert (table_in(tmp_path).schema().column_names, numbers_in(tmp_path)) == (["n", "day"], [])


@apart
def test_batch_that_a_former_table_has_does_not_come_to_the_new_one(tmp_path: Path) -> None:
    """Such as after a kill between the table's commit and the driver's note, and an edit of the manifest."""
    flow = flow_to(tmp_path, "lake.former")
    flow.batch(s=pa.table({"n": pa.array([1], pa.int64()), "day": ["mon"]}))
    edited = topology.parse(manifest_to(tmp_path, "lake.new"))
    Publisher.of(flow.checkpoint, edited, tmp_path).publish_again(flow.last, flow.topology)
    assert numbers_in(tmp_path, "lake.former") == [1]
    assert not load_catalog("default", **catalog_in(tmp_path)).table_exists("lake.new")


@apart
def test_other_checkpoints_and_sinks_have_their_own_numbers(tmp_path: Path) -> None:
    sink = sink_in(tmp_path)
    sinks = [(sink, WRITER), (sink, Writer("flights", "run-2")), (sink, Writer("trips", "run-1"))]
    sinks.append((topology.Sink("other", "counts", "iceberg", sink.options), WRITER))
    for _ in range(2):
        for number, (sink, writer) in enumerate(sinks):
            open_sink(sink, writer).publish(0, staged(tmp_path, number))
    assert numbers_in(tmp_path) == [0, 1, 2, 3]


@apart
def test_batch_that_ends_elsewhere_or_was_left_out_is_refused(tmp_path: Path) -> None:
    sink = open_sink(sink_in(tmp_path), WRITER)
    for batch, end in ((0, "a"), (2, "c")):
        sink.publish(batch, staged(tmp_path, batch), end)
    restored = open_sink(sink_in(tmp_path), WRITER)
    restored.publish(0, staged(tmp_path, 0), "a")
    restored.publish(1, [], "b")
    for batch, end in ((0, "x"), (1, "b"), (2, "x")):
        with pytest.raises(SinkError, match=rf"table lake.out has another batch {batch}, .*before the checkpoint went back"):
            restored.publish(batch, staged(tmp_path, 9), end)
    assert numbers_in(tmp_path) == [0, 2]


@apart
@pytest.mark.parametrize("kept", [None, 0], ids=["none of ours", "an older one, by a tag"])
def test_expired_snapshots_take_no_number_along(tmp_path: Path, kept: int | None) -> None:
    sink = open_sink(sink_in(tmp_path), WRITER)
    for batch in range(3):
        sink.publish(batch, staged(tmp_path, batch), f"end {batch}")
    table = table_in(tmp_path)
    ours = [snapshot.snapshot_id for snapshot in table.snapshots()]
    if kept is not None:
        table.manage_snapshots().create_tag(ours.pop(kept), "audit").commit()
    table.append(MORE)
    table.maintenance.expire_snapshots().by_ids(ours).commit()
    for _ in range(2):
        restarted = open_sink(sink_in(tmp_path), WRITER)
        restarted.publish(2, staged(tmp_path, 2), "end 2")
        restarted.publish(3, staged(tmp_path, 3), "end 3")
    assert numbers_in(tmp_path) == [0, 1, 2, 3, 7]


OTHERS: dict[str, Callable[[Table], object]] = {
    "append": lambda table: table.append(MORE),
    "delete": lambda table: table.delete("n = 0"),
    "rewrite": lambda table: table.overwrite(table.scan().to_arrow()),
    "column": lambda table: table.update_schema().add_column("note", StringType()).commit(),
    "expire": lambda table: table.maintenance.expire_snapshots().older_than(datetime.now(UTC)).commit(),
}


@apart
@pytest.mark.parametrize("other", OTHERS)
def test_commit_of_another_writer_between_look_and_commit_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    sink: Any = open_sink(sink_in(tmp_path), WRITER)
    for batch in (0, 1):
        sink.publish(batch, staged(tmp_path, batch))
    between_look_and_commit(sink, monkeypatch, lambda: OTHERS[other](table_in(tmp_path)))
    sink.publish(2, staged(tmp_path, 2))
    assert numbers_in(tmp_path) == {"append": [0, 1, 2, 7], "delete": [1, 2]}.get(other, [0, 1, 2])


@apart
@pytest.mark.parametrize("is_made", [True, False])
def test_two_processes_that_publish_a_batch_at_once_write_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_made: bool
) -> None:
    """Such as a driver that stood still. pyiceberg by itself would append to the other one's commit."""
    first: Any = open_sink(sink_in(tmp_path), WRITER)
    if is_made:
        first.publish(0, staged(tmp_path, 0))
    second = open_sink(sink_in(tmp_path), WRITER)
    between_look_and_commit(first, monkeypatch, lambda: second.publish(1, staged(tmp_path, 1)))
    first.publish(1, staged(tmp_path, 1))
    assert numbers_in(tmp_path) == ([0, 1] if is_made else [1])


def between_look_and_commit(sink: Any, monkeypatch: pytest.MonkeyPatch, work: Callable[[], object], times: int = 1) -> None:
    """Have `work` done after each of the sink's next looks at its table."""
    seen, done = sink._place.table, list[int]()

    def overtaken() -> Table | None:
        table = seen()
        if len(done) < times:
            done.append(1)
            work()
        return table

    monkeypatch.setattr(sink._place, "table", overtaken)


@apart
def test_writers_that_never_rest_are_an_error_and_the_batch_comes_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = open_sink(sink_in(tmp_path), WRITER)
    sink.publish(0, staged(tmp_path, 0))
    between_look_and_commit(sink, monkeypatch, lambda: table_in(tmp_path).append(MORE), times=10)
    with pytest.raises(SinkError, match=r"sink 'out': table lake.out: other commits came first 10 times: another commit"):
        sink.publish(1, staged(tmp_path, 1))
    sink.publish(1, staged(tmp_path, 1))
    assert Counter(numbers_in(tmp_path)) == {0: 1, 1: 1, 7: 10}


@apart
def test_table_that_changed_meanwhile_is_an_error_and_takes_the_batch_later(tmp_path: Path) -> None:
    sink = open_sink(sink_in(tmp_path), WRITER)
    sink.publish(0, staged(tmp_path, 0))
    table_in(tmp_path).update_schema().rename_column("n", "m").commit()
    for _ in range(2):
        with pytest.raises(
            SinkError, match=r"was changed meanwhile: column 'n' of type int64 is not in the table, which has m"
        ):
            sink.publish(1, staged(tmp_path, 1))
    table_in(tmp_path).update_schema().rename_column("m", "n").commit()
    sink.publish(1, staged(tmp_path, 1))
    assert sorted(table_in(tmp_path).scan().to_arrow()["n"].to_pylist()) == [0, 1]


@apart
def test_rows_are_compared_with_the_table_before_the_start(tmp_path: Path) -> None:
    assert refusals(sink_in(tmp_path)) == []
    there = made_in(
        tmp_path,
        pa.schema([pa.field("n", pa.int32()), ("city", pa.string()), pa.field("at", pa.timestamp("us", "UTC"), False)]),
    )
    with there.update_spec() as partitions:
        partitions.add_field("at", DayTransform(), "at_day")
    where = "does not fit table lake.out: "
    assert refusals(sink_in(tmp_path, partitionBy="day")) == [
        where + "partitionBy is day, and the table is partitioned by day(at); leave it out, or name another table",
        where + "column 'n' is int32 in the table, and int64 in the rows; cast it in a map, or write it to another format",
        where + "column 'day' of type string is not in the table, which has n, city, at; add it there, or do not emit it",
        where + "column 'at' is NOT NULL in the table, and not in the rows; drop NOT NULL there, or emit it",
    ]
    fits = pa.schema([("n", pa.int16()), pa.field("at", pa.timestamp("us", "Europe/Berlin"), False)])
    assert refusals(sink_in(tmp_path), fits) == []
    (nullable,) = refusals(sink_in(tmp_path), fits.set(1, pa.field("at", pa.timestamp("us", "UTC"))))
    assert "column 'at' is NOT NULL in the table, and may be NULL in the rows; drop NOT NULL there" in nullable
    path = tmp_path / "rows.arrow"
    at = pa.array([datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2)], fits.field("at").type)
    stage(path, fits, [pa.record_batch([pa.array([1, 2], pa.int16()), at], fits)])
    open_sink(sink_in(tmp_path), WRITER).publish(0, [path])
    assert numbers_in(tmp_path) == [1, 2]
    assert {str(task.file.partition) for task in table_in(tmp_path).scan().plan_files()} == {"Record[20454]", "Record[20455]"}


@pytest.mark.parametrize(
    ("by", "schema", "finding"),
    [
        ("city", ROWS, "cannot partition by 'city', which is no column; partitionBy can name n, day"),
        ("n, day", ROWS, "cannot partition by all columns"),
        ("n", pa.schema([("n", pa.int64()), ("d", pa.uint64())]), "column 'd' of type uint64: Iceberg has no such type"),
        ("n", pa.schema([("n", pa.int64()), ("d", pa.time64("ns"))]), "of type time64[ns]: Iceberg has times in microseconds"),
    ],
)
def test_columns_that_no_table_can_have_are_refused(tmp_path: Path, by: str, schema: pa.Schema, finding: str) -> None:
    apart(lambda: _refused(tmp_path, by, schema, finding))()


def _refused(folder: Path, by: str, schema: pa.Schema, finding: str) -> None:
    assert finding in refusals(sink_in(folder, partitionBy=by), schema)[0]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"table": "out"}, "option table must be NAMESPACE.NAME, not 'out'"),
        ({"catalog.type": "hive"}, "option catalog.type must be sql or rest, not 'hive'"),
        ({"path": "x"}, "format iceberg has no option 'path'; it has: table, catalog.type, partitionBy"),
        ({"partitionBy": " "}, "option partitionBy must be names of columns"),
        ({"catalog.token": "${env:NOT_SET}"}, "option catalog.token needs the environment variable NOT_SET, which is not set"),
        ({"catalog.uri": None}, "format iceberg needs option catalog.uri"),
        ({"catalog.warehouse": None}, "a sql catalogue needs option catalog.warehouse, a folder or s3://BUCKET/PREFIX"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, options: dict[str, str | None], complaint: str) -> None:
    given = {**sink_in(tmp_path).options, **options}
    sink = topology.Sink("out", "counts", "iceberg", {name: value for name, value in given.items() if value is not None})
    (problem,) = check(sink, tmp_path)
    assert complaint in problem.message


def test_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamtopology.jobs.connectors.sinks.registry.find_spec", lambda name: None)
    (problem,) = check(sink_in(tmp_path), tmp_path)
    assert problem.message == "sink 'out': format iceberg needs the package pyiceberg; install streamtopology[iceberg]"


@apart
def test_catalogue_that_is_away_is_named_before_the_start(tmp_path: Path) -> None:
    sink = sink_in(tmp_path, **{"catalog.uri": f"sqlite:///{tmp_path}/none/catalog.db"})
    assert refusals(sink) == []
    with pytest.raises(SinkError, match=r"sink 'out': table lake.out: .*unable to open database file$"):
        open_sink(sink, WRITER)
    (tmp_path / "warehouse").write_text("in the way")
    with pytest.raises(SinkError, match=r"sink 'out': table lake.out: .*warehouse"):
        open_sink(sink_in(tmp_path), WRITER, rows=ROWS)


# --- a catalogue that is a server


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[RestCatalog]:
    with RestCatalog(tmp_path).serving() as catalog:
        yield catalog


def sink_by(rest: RestCatalog, token: str = "${env:LAKE_TOKEN}") -> topology.Sink:
    of_catalog = {"catalog.type": "rest", "catalog.uri": rest.uri, "catalog.token": token}
    return topology.Sink("out", "counts", "iceberg", {"table": "lake.out", "partitionBy": "day", **of_catalog})


def numbers_by(rest: RestCatalog) -> list[int]:
    rows = load_catalog("default", type="rest", uri=rest.uri, token=TOKEN).load_table("lake.out").scan().to_arrow()
    return sorted(rows["n"].to_pylist())


def test_server_holds_each_batch_once(rest: RestCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_TOKEN", TOKEN)
    for _ in range(2):
        sink = open_sink(sink_by(rest), WRITER)
        for batch in (0, 1, 1):
            sink.publish(batch, staged(tmp_path, batch), f"end {batch}")
    assert numbers_by(rest) == [0, 1]


def test_server_that_fails_after_a_commit_is_asked_again(
    rest: RestCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE_TOKEN", TOKEN)
    sink = open_sink(sink_by(rest), WRITER, rows=ROWS)
    rest.fails = 1
    sink.publish(0, staged(tmp_path, 0))
    sink.publish(1, staged(tmp_path, 1))
    assert numbers_by(rest) == [0, 1]


@pytest.mark.parametrize("passes", range(3))
def test_answer_of_the_server_that_is_lost_is_a_sentence_and_the_batch_is_there_once(
    rest: RestCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, passes: int
) -> None:
    monkeypatch.setenv("LAKE_TOKEN", TOKEN)
    rest.passes, rest.loses = passes, 1
    lost = 0
    for batch in (0, 1):
        for _ in range(2):
            try:
                open_sink(sink_by(rest), WRITER).publish(batch, staged(tmp_path, batch))
            except SinkError as error:
                lost += 1
                assert "sink 'out': table lake.out: " in str(error)  # noqa: PT017 - it need not come
                assert "Connection aborted" in str(error)  # noqa: PT017
    assert (lost, numbers_by(rest)) == (1, [0, 1])


def test_table_of_a_version_that_pyiceberg_does_not_write_is_refused(
    rest: RestCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE_TOKEN", TOKEN)
    open_sink(sink_by(rest), WRITER, rows=ROWS)
    assert refusals(sink_by(rest)) == []
    answer = rest.answer

    def of_version_3(*asked: Any) -> tuple[int, str]:
        status, text = answer(*asked)
        return status, text.replace('"format-version": 2', '"format-version": 3')

    monkeypatch.setattr(rest, "answer", of_version_3)
    (refusal,) = refusals(sink_by(rest))
    assert refusal.endswith("has Iceberg's version 3, pyiceberg writes up to 2; name another table")


def test_server_without_rights_or_away_is_named_and_its_token_is_not(
    rest: RestCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE_TOKEN", "wrong-token")
    with pytest.raises(SinkError, match=r"sink 'out': table lake.out: Refusal: no rights$"):
        open_sink(sink_by(rest), WRITER)
    monkeypatch.setenv("LAKE_TOKEN", "127.0.0.1")
    away = sink_by(rest)
    away.options["catalog.uri"] = "http://127.0.0.1:1"  # type: ignore[index]
    with pytest.raises(SinkError, match=r"sink 'out': table lake.out: .*host='\$\{env:LAKE_TOKEN\}', port=1.*refused"):
        open_sink(away, WRITER)


def test_commit_whose_outcome_is_unknown_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apart(lambda: _unknown(tmp_path, monkeypatch))()


def _unknown(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink: Any = open_sink(sink_in(folder), WRITER, rows=ROWS)
    commit, lost = sink._place._catalog.commit_table, list[int]()

    def commits_and_fails(*arguments: Any) -> Any:
        answer = commit(*arguments)
        if not lost:
            lost.append(1)
            raise CommitStateUnknownException("no answer")
        return answer

    monkeypatch.setattr(sink._place._catalog, "commit_table", commits_and_fails)
    sink.publish(0, staged(folder, 0))
    assert (lost, numbers_in(folder)) == ([1], [0])


# --- deaths

BATCHES = 6


def manifest_to(folder: Path, table: str) -> dict[str, Any]:
    every = {"name": "all", "inputs": ["s"], "run": "filter", "with": {"where": "n % 5 < 4"}}
    options = {**sink_in(folder, partitionBy="day").options, "table": table}
    sinks = [{"name": "out", "input": "all", "format": "iceberg", "options": options}]
    return manifest([every], {"s": "n BIGINT, day STRING"}, sinks=sinks)


def flow_to(folder: Path, table: str) -> Flow:
    given = manifest_to(folder, table)

    def sink(name: str, checkpoint: Any) -> BatchSink:
        return open_sink(topology.parse(given).sinks[0], Writer("flow", checkpoint.run))

    return Flow(folder, given, sink=sink)


def life(folder: Path, crash_at: str | None) -> None:
    arm(crash_at)
    flow = flow_to(folder, "lake.out")
    last = flow.checkpoint.last_commit()
    for batch in range(0 if last is None else last.spark_batch + 1, BATCHES):
        flow.batch(s=pa.table({"n": pa.array([batch], pa.int64()), "day": [f"d{batch % 2}"]}))


def test_a_death_before_or_after_any_commit_of_the_table_costs_nothing(tmp_path: Path) -> None:
    for point in ("sink.publishing", "sink.published", "sink.publishing:2", "sink.published:2"):
        assert killed_in(lambda point=point: life(tmp_path, point))
    assert not killed_in(lambda: life(tmp_path, None))

    def read() -> None:
        assert Counter(numbers_in(tmp_path)) == Counter(n for n in range(BATCHES) if n % 5 < 4)

    apart(read)()
