"""A sink that is a writer of Spark: batches are appended, and a wrong writer is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from support.connectors import stage
from support.stages import Flow, manifest

from streamtopology import topology
from streamtopology.jobs.connectors.sinks import SinkError, Writer, check, destination, open_sink, written, written_batch
from streamtopology.jobs.connectors.sinks.registry import takes
from streamtopology.jobs.driver.publisher import Publisher

WRITER = Writer(topology="flights", run="run-1")
ROWS = pa.schema([("n", pa.int64()), ("day", pa.string())])


def sink_of(writer: str, **options: str) -> topology.Sink:
    return topology.Sink("out", "all", "spark", {"writer": writer, **options})


def staged(folder: Path, *numbers: int) -> list[Path]:
    rows = pa.record_batch({"n": list(numbers), "day": ["mon" if n % 2 else None for n in numbers]}, ROWS)
    path = folder / f"staged-{len(list(folder.glob('staged-*')))}.arrow"
    stage(path, ROWS, [rows])
    return [path]


@pytest.mark.clusters
def test_batches_of_files_are_there_for_every_reader_once_a_process(spark: SparkSession, tmp_path: Path) -> None:
    sink = sink_of("orc", path=str(tmp_path / "out"), partitionBy="day", compression="zlib")
    batches = {0: staged(tmp_path, 1, 2), 1: staged(tmp_path), 2: staged(tmp_path, 3)}
    opened = open_sink(sink, WRITER, rows=ROWS)
    for _ in range(2):
        for batch, files in batches.items():
            opened.publish(batch, files)
    opened.close()
    found = spark.read.orc(str(tmp_path / "out"))
    assert sorted((row["n"], row["day"]) for row in found.collect()) == [(1, "mon"), (2, None), (3, "mon")]
    assert not (tmp_path / "out" / "_spark_metadata").exists()
    open_sink(sink, WRITER, rows=ROWS).publish(2, batches[2])  # of a process that was killed before it noted the batch
    assert spark.read.orc(str(tmp_path / "out")).where("n = 3").count() == 2
    assert list((tmp_path / "out").glob("day=__HIVE_DEFAULT_PARTITION__/*.zlib.orc"))
    assert written(sink, WRITER) is None, "a fresh start deletes nothing there"
    assert written_batch(sink, WRITER, 2, None) is None


@pytest.mark.clusters
def test_what_spark_says_of_a_writer_is_a_sentence_before_the_first_batch(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(
        SinkError, match=r"sink 'out': Spark does not write with writer 'orcc': \[DATA_SOURCE_NOT_FOUND\] .*: orcc"
    ) as refused:
        open_sink(sink_of("orcc", path=str(tmp_path / "out")), WRITER, rows=ROWS)
    assert "\n" not in str(refused.value)


@pytest.mark.clusters
def test_password_is_not_in_what_a_writer_says(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE", "jdbc:nothing:s3cret")
    sink = sink_of("jdbc", url="${env:DATABASE}", dbtable="t", driver="org.example.Driver")
    opened = open_sink(sink, WRITER, rows=ROWS)
    with pytest.raises(SinkError, match=r"sink 'out': batch 0 cannot be written by Spark with writer 'jdbc': ") as refused:
        opened.publish(0, staged(tmp_path, 1))
    assert "s3cret" not in str(refused.value)


def flow_to(folder: Path, opened: Callable[[topology.Topology], Any]) -> Flow:
    every = {"name": "all", "inputs": ["s"], "run": "filter", "with": {"where": "n > 0"}}
    sinks = [{"name": "out", "input": "all", "format": "spark", "options": {"writer": "noop", "url": "x"}}]
    given = manifest([every], {"s": "n BIGINT"}, sinks=sinks)
    return Flow(folder, given, sink=lambda name, _: opened(topology.parse(given)))


class Kept:
    def __init__(self) -> None:
        self.batches: list[int] = []

    def publish(self, batch: int, files: Sequence[Path], end: str | None = None) -> None:
        self.batches.append(batch)

    def close(self) -> None:
        pass


@pytest.mark.parametrize("ended_in_order", [True, False])
def test_writer_gets_the_newest_batch_again_only_after_a_kill(tmp_path: Path, ended_in_order: bool) -> None:
    flow = flow_to(tmp_path, lambda _: Kept())
    flow.batch(s=pa.table({"n": [1]}))
    if ended_in_order:
        flow.checkpoint.publications.complete(flow.last.batch, flow.last.attempt)
    kept = Kept()
    Publisher(flow.checkpoint, {"out": kept}, lambda sink: kept).publish_again(flow.last, flow.topology)
    assert kept.batches == ([] if ended_in_order else [0])


def test_wrong_options_are_refused_before_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PASSWORD", raising=False)
    (problem,) = check(topology.Sink("out", "all", "spark", {"path": "/x"}), tmp_path)
    assert problem.message == "sink 'out': format spark needs option writer"
    (problem,) = check(sink_of("jdbc", url="jdbc:x", password="${env:PASSWORD}"), tmp_path)
    assert problem.path == "options.password"
    assert "option password needs the environment variable PASSWORD, which is not set here" in problem.message
    assert not check(sink_of("orc", path="hdfs://lake/x"), tmp_path)
    assert destination(sink_of("orc", path="hdfs://lake/x")) == "writer orc of Spark"


@pytest.mark.parametrize(
    ("schema", "finding"),
    [
        (
            pa.schema([("n", pa.uint64()), ("day", pa.string())]),
            "cannot write column 'n' of type uint64: Spark has",
        ),
        (pa.schema([("n", pa.int64()), ("night", pa.string())]), "cannot partition by 'day', which is no column"),
        (pa.schema([("n", pa.int64()), ("n", pa.int64()), ("day", pa.string())]), "cannot write two columns of the name 'n'"),
    ],
)
def test_rows_that_no_dataframe_has_are_refused(schema: pa.Schema, finding: str) -> None:
    (found,) = takes(sink_of("orc", path="/x", partitionBy="day"), schema).refusals(schema)
    assert re.match(re.escape(finding), found)
    assert "`frame: arrow`" not in found
