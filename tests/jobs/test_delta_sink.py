"""A table of Delta Lake holds each batch once, whoever else writes to it, and is compared before the start."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas  # noqa: F401 - pyarrow would import it in each fork
import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from support.connectors import stage
from support.processes import apart, killed_in
from support.stages import Flow, manifest

from streamtopology import topology
from streamtopology.jobs.connectors.sinks import BatchSink, SinkError, Writer, check, open_sink, written, written_batch
from streamtopology.jobs.connectors.sinks.registry import takes
from streamtopology.jobs.driver.publisher import Publisher
from streamtopology.jobs.failpoints import arm

WRITER = Writer(topology="flights", run="run-1")
ROWS = pa.schema([("n", pa.int64()), ("day", pa.string())])


def sink_at(place: Path | str, **options: str) -> topology.Sink:
    return topology.Sink("out", "counts", "delta", {"path": str(place), **options})


def staged(folder: Path, *numbers: int, **columns: Any) -> list[Path]:
    path = folder / f"staged-{time.monotonic_ns()}.arrow"
    rows = pa.record_batch({"n": pa.array(numbers, pa.int64()), "day": ["mon" if n % 2 else "tue" for n in numbers], **columns})
    stage(path, rows.schema, [rows])
    return [path]


def numbers_in(place: Path) -> list[int]:
    """The rows of the files that the newest version of the log names, read by DuckDB."""
    files = DeltaTable(str(place)).file_uris()
    query = f"SELECT n FROM read_parquet({files}, union_by_name = true) ORDER BY n"
    found = duckdb.connect().sql(query).fetchall() if files else []  # the threads of the default one a fork does not have
    return [n for (n,) in found]


def refusals(sink: topology.Sink, schema: pa.Schema = ROWS) -> list[str]:
    return takes(sink, schema).refusals(schema)


@apart
def test_publishing_again_changes_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    batches = {0: [], 1: staged(tmp_path, 1, 2), 2: staged(tmp_path), 3: staged(tmp_path, 3)}
    for _ in range(2):  # the second sink is a restarted process
        sink = open_sink(sink_at(out, partitionBy="day"), WRITER)
        for _ in range(2):
            for batch, files in batches.items():
                sink.publish(batch, files, f"end {batch}")
        sink.close()
    assert numbers_in(out) == [1, 2, 3]
    assert DeltaTable(str(out)).version() == 2, "a commit that makes the table, and one of each batch with rows"
    assert DeltaTable(str(out)).metadata().partition_columns == ["day"]
    assert written_batch(sink_at(out), WRITER, 3, "end 3") == str(out)
    assert written_batch(sink_at(out), WRITER, 4, "end 4") is None
    assert written(sink_at(out), WRITER) is None, "a fresh start deletes nothing there"


@apart
def test_batch_that_a_former_place_has_does_not_come_to_the_new_one(tmp_path: Path) -> None:
    """Such as after a kill between the table's commit and the driver's note, and an edit of the path."""
    flow = flow_to(tmp_path, "former")
    flow.batch(s=pa.table({"n": pa.array([1], pa.int64()), "day": ["mon"]}))
    edited = topology.parse(manifest_to(tmp_path, "new"))
    Publisher.of(flow.checkpoint, edited, tmp_path).publish_again(flow.last, flow.topology)
    assert numbers_in(tmp_path / "former") == [1]
    assert not (tmp_path / "new").exists()


@apart
def test_table_in_a_bucket_without_credentials_here_is_left_to_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI"):
        monkeypatch.delenv(name, raising=False)
    sink = sink_at("s3://b/out")
    assert refusals(sink) == []
    with pytest.raises(SinkError, match="sink 'out': path s3://b/out needs credentials in the environment of the driver: AWS_"):
        open_sink(sink, WRITER)


@apart
def test_other_checkpoints_and_sinks_have_their_own_numbers(tmp_path: Path) -> None:
    out = tmp_path / "out"
    sinks = [(sink_at(out), WRITER), (sink_at(out), Writer("flights", "run-2")), (sink_at(out), Writer("trips", "run-1"))]
    sinks.append((topology.Sink("other", "counts", "delta", {"path": str(out)}), WRITER))
    for _ in range(2):
        for number, (sink, writer) in enumerate(sinks):
            open_sink(sink, writer).publish(0, staged(tmp_path, number))
    assert numbers_in(out) == [0, 1, 2, 3]


@apart
def test_batch_that_ends_elsewhere_or_was_left_out_is_refused(tmp_path: Path) -> None:
    sink = open_sink(sink_at(tmp_path / "out"), WRITER)
    for batch, end in ((0, "a"), (2, "c")):
        sink.publish(batch, staged(tmp_path, batch), end)
    restored = open_sink(sink_at(tmp_path / "out"), WRITER)
    restored.publish(0, staged(tmp_path, 0), "a")
    restored.publish(1, [], "b")
    for batch, end in ((0, "x"), (1, "b"), (2, "x")):
        with pytest.raises(SinkError, match=rf"table .*/out has another batch {batch}, .*before the checkpoint went back"):
            restored.publish(batch, staged(tmp_path, 9), end)
    assert numbers_in(tmp_path / "out") == [0, 2]


OTHERS: dict[str, Callable[[str], object]] = {
    "append": lambda out: write_deltalake(out, pa.table({"n": [7], "day": ["mon"]}), mode="append"),
    "delete": lambda out: DeltaTable(out).delete("n = 0"),
    "compact": lambda out: DeltaTable(out).optimize.compact(),
    "column": lambda out: DeltaTable(out).alter.add_columns([Field("note", "string")]),  # type: ignore[arg-type]
}


@apart
@pytest.mark.parametrize("other", OTHERS)
def test_commit_of_another_writer_between_look_and_commit_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    out = str(tmp_path / "out")
    sink: Any = open_sink(sink_at(out), WRITER)
    for batch in (0, 1):
        sink.publish(batch, staged(tmp_path, batch))
    seen, looked = sink._place.table, list[int]()

    def overtaken() -> DeltaTable | None:
        table = seen()
        if not looked:
            OTHERS[other](out)
        looked.append(1)
        return table

    monkeypatch.setattr(sink._place, "table", overtaken)
    sink.publish(2, staged(tmp_path, 2))
    assert numbers_in(tmp_path / "out") == {"append": [0, 1, 2, 7], "delete": [1, 2]}.get(other, [0, 1, 2])


@apart
@pytest.mark.parametrize("is_made", [True, False])
def test_two_processes_that_publish_a_batch_at_once_write_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_made: bool
) -> None:
    """Such as a driver that stood still, and a client whose answer was lost and which asks again."""
    out = tmp_path / "out"
    first: Any = open_sink(sink_at(out), WRITER)
    if is_made:
        first.publish(0, staged(tmp_path, 0))
    seen, looked = first._place.table, list[int]()

    def stands_still() -> DeltaTable | None:
        table = seen()
        if not looked:
            looked.append(1)
            open_sink(sink_at(out), WRITER).publish(1, staged(tmp_path, 1))
        return table

    monkeypatch.setattr(first._place, "table", stands_still)
    first.publish(1, staged(tmp_path, 1))
    assert numbers_in(out) == ([0, 1] if is_made else [1])


@apart
def test_table_that_changed_meanwhile_is_an_error_and_takes_the_batch_later(tmp_path: Path) -> None:
    out = tmp_path / "out"
    sink = open_sink(sink_at(out), WRITER)
    sink.publish(0, staged(tmp_path, 0))
    was = DeltaTable(str(out)).version()
    write_deltalake(str(out), pa.table({"n": ["x"]}), mode="overwrite", schema_mode="overwrite")
    for _ in range(2):
        with pytest.raises(
            SinkError, match=r"changed meanwhile: column 'n' is string in the table, and int64 in the rows.*'day'"
        ):
            sink.publish(1, staged(tmp_path, 1))
    DeltaTable(str(out)).restore(was)
    sink.publish(1, staged(tmp_path, 1))
    assert numbers_in(out) == [0, 1]


@apart
def test_rows_are_compared_with_the_table_before_the_start(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert refusals(sink_at(out)) == []
    table = pa.schema([pa.field("n", pa.int32()), ("city", pa.string()), pa.field("at", pa.timestamp("us", "UTC"), False)])
    DeltaTable.create(str(out), table, partition_by=["city"])
    where = f"does not fit table {out}: "
    assert refusals(sink_at(out, partitionBy="day")) == [
        where + "partitionBy is day, and the table is partitioned by city; leave it out, or name another table",
        where + "column 'n' is int32 in the table, and int64 in the rows; cast it in a map, or write it to another format",
        where + "column 'day' of type string is not in the table, which has n, city, at; add it there, or do not emit it",
        where + "column 'at' is NOT NULL in the table, and not in the rows; drop NOT NULL there, or emit it",
    ]
    fits = pa.schema([("n", pa.int32()), pa.field("at", pa.timestamp("us", "Europe/Berlin"), False)])
    assert refusals(sink_at(out), fits) == []
    (nullable,) = refusals(sink_at(out), fits.set(1, pa.field("at", pa.timestamp("us", "UTC"))))
    assert "column 'at' is NOT NULL in the table, and may be NULL in the rows; drop NOT NULL there" in nullable


@pytest.mark.parametrize(
    ("by", "schema", "finding"),
    [
        ("city", ROWS, "cannot partition by 'city', which is no column; partitionBy can name n, day"),
        (
            "tags",
            pa.schema([("n", pa.int64()), ("tags", pa.list_(pa.string()))]),
            "cannot partition by column 'tags' of type list",
        ),
        ("n, day", ROWS, "cannot partition by all columns"),
        ("n", pa.schema([("n", pa.int64()), ("count (all)", pa.int64())]), "column 'count (all)': names of Delta have no ' '"),
        ("n", pa.schema([("n", pa.int64()), ("d", pa.uint64())]), "column 'd' of type uint64: Delta has no such type"),
        (
            "n",
            pa.schema([("n", pa.int64()), ("d", pa.timestamp("ns"))]),
            "of type timestamp[ns]: Delta has times in microseconds",
        ),
    ],
)
def test_columns_that_no_table_can_have_are_refused(tmp_path: Path, by: str, schema: pa.Schema, finding: str) -> None:
    assert finding in refusals(sink_at(tmp_path / "out", partitionBy=by), schema)[0]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (
            {"partitionBy": "day, day"},
            "option partitionBy must be names of columns, each once, such as day, city, not 'day, day'",
        ),
        ({"partitionBy": " "}, "option partitionBy must be names of columns"),
        ({"filePerTask": "true"}, "format delta has no option 'filePerTask'; it has: path, partitionBy"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, options: dict[str, str], complaint: str) -> None:
    (problem,) = check(sink_at(tmp_path / "out", **options), tmp_path)
    assert complaint in problem.message


def test_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamtopology.jobs.connectors.sinks.registry.find_spec", lambda name: None)
    (problem,) = check(sink_at(tmp_path / "out"), tmp_path)
    assert problem.message == "sink 'out': format delta needs the package deltalake; install streamtopology[delta]"


@apart
def test_constraint_of_the_table_is_named_without_a_backtrace(tmp_path: Path) -> None:
    out = tmp_path / "out"
    sink = open_sink(sink_at(out), WRITER)
    sink.publish(0, staged(tmp_path, 0))
    DeltaTable(str(out)).alter.add_constraint({"small": "n < 5"})
    with pytest.raises(
        SinkError, match=r"sink 'out': table .*/out: .*1 rows failed validation check\. Preview of invalid data:$"
    ):
        sink.publish(1, staged(tmp_path, 9))


# --- deaths

BATCHES = 6


def manifest_to(folder: Path, table: str) -> dict[str, Any]:
    every = {"name": "all", "inputs": ["s"], "run": "filter", "with": {"where": "n % 5 < 4"}}
    sinks = [{"name": "out", "input": "all", "format": "delta", "options": {"path": str(folder / table), "partitionBy": "day"}}]
    return manifest([every], {"s": "n BIGINT, day STRING"}, sinks=sinks)


def flow_to(folder: Path, table: str) -> Flow:
    given = manifest_to(folder, table)

    def sink(name: str, checkpoint: Any) -> BatchSink:
        return open_sink(topology.parse(given).sinks[0], Writer("flow", checkpoint.run))

    return Flow(folder, given, sink=sink)


def life(folder: Path, crash_at: str | None) -> None:
    arm(crash_at)
    flow = flow_to(folder, "out")
    last = flow.checkpoint.last_commit()
    for batch in range(0 if last is None else last.spark_batch + 1, BATCHES):
        flow.batch(s=pa.table({"n": pa.array([batch], pa.int64()), "day": [f"d{batch % 2}"]}))


def test_a_death_before_or_after_any_commit_of_the_table_costs_nothing(tmp_path: Path) -> None:
    for point in ("sink.publishing", "sink.published", "sink.publishing:2", "sink.published:2"):
        assert killed_in(lambda point=point: life(tmp_path, point))
    assert not killed_in(lambda: life(tmp_path, None))

    def read() -> None:
        assert Counter(numbers_in(tmp_path / "out")) == Counter(n for n in range(BATCHES) if n % 5 < 4)

    apart(read)()
