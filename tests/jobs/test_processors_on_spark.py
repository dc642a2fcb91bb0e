"""The same StatefulProcessor on Spark and here, on the same files: batch by batch both emit the same rows."""

from __future__ import annotations

import datetime
import os
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from support import scripted_processor
from support.scripted_processor import OUTPUT, Scripted
from support.stages import Flow, Loss, manifest

SCHEMA = pa.schema(
    {"k": pa.int64(), "what": pa.string(), "name": pa.string(), "n": pa.int64(), "at": pa.timestamp("us", "UTC")}
)
DDL = "k BIGINT, what STRING, name STRING, n BIGINT, at TIMESTAMP"
STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
CHANGES = ("update", "clear", "deepen", "append", "put", "extend", "map", "unmap", "register", "unregister")

Batches = dict[int, list[tuple[int, str]]]


def files(folder: Path, count: int, rows: int, keys: int, seed: int) -> list[pa.Table]:
    """Files of commands, some of them late, or just not, or without a time, which are not.

    Within a file a key has one row only: Spark promises no order of rows.
    """
    rng = random.Random(seed)
    folder.mkdir()
    made: list[pa.Table] = []
    for number in range(count):
        seconds = 10 * (number + 100)  # Spark takes what is before 1970 for late from the start
        of_keys = rng.sample(range(keys), rows)
        times_in_seconds = [rng.randint(seconds - 15, seconds + 9) + rng.choice((0, 0.0006, 0.9996)) for _ in of_keys]
        times = [datetime.datetime.fromtimestamp(time, datetime.UTC) for time in times_in_seconds]
        timers = [(seconds + rng.randint(10, 30)) * 1000 for _ in of_keys]
        columns = [
            of_keys,
            [rng.choice(CHANGES) for _ in of_keys],
            [rng.choice("abü") for _ in of_keys],
            timers,
            [time if rng.random() < 0.9 else None for time in times],
        ]
        made.append(pa.table([pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], SCHEMA))
        file = folder / f"{number:03d}.parquet"
        pq.write_table(made[-1], file)
        os.utime(file, (number, number))  # by which Spark orders them
    return made


def on_spark(spark: SparkSession, folder: Path, work: Path) -> Batches:
    cloudpickle.register_pickle_by_value(scripted_processor)
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", STATE_STORE)
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    emitted: Batches = defaultdict(list)

    def keep(frame: Any, batch: int) -> None:
        emitted[batch] += [(row.k, row.saw) for row in frame.collect()]

    rows = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(folder)).withWatermark("at", "5 seconds")
    query = (
        rows.groupBy("k")
        .transformWithState(Scripted(), OUTPUT, outputMode="Update", timeMode="EventTime")
        .writeStream.outputMode("update")
        .option("checkpointLocation", str(work / "spark"))
        .foreachBatch(keep)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return emitted


def here(work: Path, tables: list[pa.Table]) -> Batches:
    """With attempts that are lost, and workers that lose their memory, all along."""
    rng = random.Random(1)
    run = {"run": "support.scripted_processor:Scripted", "with": {"output": OUTPUT, "timeMode": "EventTime", "time": "at"}}
    own = {"name": "own", "inputs": ["s"], "grouping": {"policy": "mixed", "key": "k"}, **run}
    flow = Flow(work, manifest([own], {"s": DDL}, watermarks={"s": {"column": "at", "delay": "5s"}}))
    for table in tables:
        if rng.random() < 0.5:
            flow.losses = [Loss(rng.randint(1, 2), rng.randint(0, 3))]
        flow.batch(s=table)
    flow.silence()
    kept: Any = flow.sinks["own"]
    return {n: [(row["k"], row["saw"]) for row in table.to_pylist()] for n, table in kept.batches.items()}


@pytest.mark.clusters
def test_processor_emits_batch_by_batch_what_it_emits_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    tables = files(tmp_path / "in", count=8, rows=60, keys=90, seed=5)
    expected, found = on_spark(spark, tmp_path / "in", tmp_path), here(tmp_path, tables)
    assert sum(map(len, expected.values())) > 400
    for number in expected.keys() | found.keys():
        only_here = sorted(set(found.get(number, [])) - set(expected.get(number, [])))
        only_on_spark = sorted(set(expected.get(number, [])) - set(found.get(number, [])))
        assert (number, only_here, only_on_spark) == (number, [], [])
        assert len(found.get(number, [])) == len(expected.get(number, []))
