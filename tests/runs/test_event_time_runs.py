"""Windows of a real run beside those of Spark's own streaming aggregation, and a stream that falls silent."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession, functions

from streamtopology.jobs.connectors.sinks.memory import memory_rows

if TYPE_CHECKING:  # the plugins are imported by pytest, which then explains their assertions
    from support.topologies import Runner

from support.manifests import files, manifest, memory_sink

pytest_plugins = ("support.topologies",)
pytestmark = pytest.mark.timeout(300)

NOON = 1_700_000_000
# (key, start in epoch seconds, rows), sorted.
Windows = list[tuple[int, int, int]]


def feed(folder: Path, number: int, times: list[int]) -> None:
    """A file of rows of three keys, read after the files of lower numbers."""
    folder.mkdir(exist_ok=True)
    rows = pa.table(
        {"key": [time % 3 for time in times], "at": pa.array(times, pa.timestamp("s")).cast(pa.timestamp("us", "UTC"))}
    )
    unseen = folder / f".part-{number:04}"
    pq.write_table(rows, unseen)
    os.utime(unseen, (NOON + number, NOON + number))
    unseen.rename(folder / f"part-{number:04}.parquet")


def windowed(folder: Path, name: str, slide: str, **spec: Any) -> Mapping[str, Any]:
    source = files(folder, "key BIGINT, at TIMESTAMP") | {"watermark": {"column": "at", "delay": "5s"}}
    counts = {
        "name": "windows", "inputs": ["rows"], "grouping": {"policy": "mixed", "key": "key"}, "run": "window-aggregate",
        "with": {"time": "at", "size": "10s", "slide": slide, "aggregates": {"n": "count()"}}, "late": f"{name}-late",
    }  # fmt: skip
    sinks = [memory_sink(name, "windows"), memory_sink(f"{name}-late", "windows")]
    return manifest(name, [source], [counts], sinks, **spec)


def windows_in(sink: str) -> Windows:
    return sorted((row["key"], int(row["window_start"].timestamp()), row["n"]) for row in memory_rows(sink).to_pylist())


def windows_of_spark(spark: SparkSession, folder: Path, work: Path, slide: str) -> Windows:
    """The windows that Spark's own aggregation emits over the same files, one file a batch."""
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    rows = spark.readStream.schema("key BIGINT, at TIMESTAMP").option("maxFilesPerTrigger", 1).parquet(str(folder))
    window = functions.window("at", "10 seconds", slide)
    counted = rows.withWatermark("at", "5 seconds").groupBy("key", window).count()
    query = (
        counted.writeStream.format("memory")
        .queryName("of_spark")
        .outputMode("append")
        .trigger(availableNow=True)
        .option("checkpointLocation", str(work))
        .start()
    )
    query.awaitTermination()
    found = spark.sql("SELECT key, CAST(window.start AS BIGINT) AS start, count FROM of_spark").collect()
    return sorted((row["key"], row["start"], row["count"]) for row in found)


@pytest.mark.parametrize(("name", "slide"), [("tumbling", "10s"), ("sliding", "4s")])
def test_windows_of_a_shuffled_stream_are_those_of_spark(runner: Runner, name: str, slide: str) -> None:
    random = np.random.default_rng(7)
    folder = runner.folder / "rows"
    for number in range(12):
        feed(folder, number, (NOON + 7 * number + random.integers(-25, 7, 60)).tolist())
    runner.run(windowed(folder, name, slide))
    of_spark = windows_of_spark(runner.embedded.spark, folder, runner.folder / "spark", slide.replace("s", " seconds"))
    assert len(of_spark) > 20
    assert windows_in(name) == of_spark
    assert memory_rows(f"{name}-late").num_rows > 0


def test_silent_stream_closes_what_its_watermark_has_passed(runner: Runner) -> None:
    folder = runner.folder / "rows"
    feed(folder, 0, [NOON, NOON + 3, NOON + 16])
    with runner.running(windowed(folder, "silent", "10s", trigger={})) as running:
        running.wait_until(lambda: memory_rows("silent").num_rows)
        assert windows_in("silent") == [(NOON % 3, NOON, 2)]
        assert [batch.rows for batch in running.history.batches] == [3, 0]
