"""The keyed count by Spark's Structured Streaming: first of one file, which is checked, then until the time is over.

By SQL's `count`, or by a `StatefulProcessor` in Python, as who writes state of his own has it. With rules in the request it is
ShuffleBench's job instead, by its own plan in Java.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from spark_cluster import SparkCluster

# Two partitions a core, of the two to three that Spark's tuning guide has.
SETTINGS = {
    "spark.executor.cores": "1",
    "spark.executor.memory": "1500m",
    "spark.sql.shuffle.partitions": "8",
    "spark.ui.enabled": "false",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.driver.host": "localhost",
}
# State of a StatefulProcessor has to be RocksDB's; the changelog is what Spark's guide recommends for it.
ROCKSDB = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
COUNTED = "k LONG, count LONG"


class Counting(StatefulProcessor):
    """A number by key."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "n LONG")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        before = self._count.get()
        count = (before[0] if before else 0) + sum(len(part) for part in rows)
        self._count.update((count,))
        yield pd.DataFrame({"k": [key[0]], "count": [count]})

    def close(self) -> None:
        pass


def counted(spark: SparkSession, request: dict[str, Any], data: str) -> DataFrame:
    options = {"maxFilesPerTrigger": request["files_of_a_batch"]}
    if "rules" in request:
        records = spark.readStream.schema("stamp LONG, data BINARY").options(**options).parquet(data)
        jvm: Any = spark._jvm
        events = jvm.streamtopology.arena.SparkShuffleBench.events
        return DataFrame(events(records._jdf, request["rules"], request["rate"], request["bytes"]), spark)
    by_key = spark.readStream.schema("k LONG").options(**options).parquet(data).groupBy("k")
    if request["by"] == "sql":
        return by_key.count()
    return by_key.transformWithStateInPandas(Counting(), COUNTED, "Update", "None")


def end_of(progress: Any) -> float:
    """When the batch was committed."""
    begin = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).timestamp()
    return begin + progress["durationMs"]["triggerExecution"] / 1000


def main() -> None:
    request: dict[str, Any] = json.loads(sys.argv[1])
    work = Path(request["work"])
    os.environ["PYSPARK_PYTHON"] = sys.executable  # of the workers' Python, too
    settings = {**SETTINGS, **(ROCKSDB if request["by"] == "state" else {})}
    if "jars" in request:
        settings["spark.jars"] = ",".join(request["jars"])
    with SparkCluster(work, request["join"], "2g") as cluster:
        builder = SparkSession.builder.master(cluster.master)
        for name, value in settings.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        shown = {**settings, "files of a batch": request["files_of_a_batch"], "by": request["by"]}
        print(json.dumps({"progress": "counts", "settings": shown}), flush=True)
        once = counted(spark, request, request["checked"]).writeStream.outputMode("update").format("memory").queryName("once")
        once.option("checkpointLocation", str(work / "once")).trigger(availableNow=True).start().awaitTermination()
        newest = "SELECT k, max(count) AS n FROM once GROUP BY k"
        if "rules" in request:
            newest = "SELECT consumer, count(*) AS n FROM once GROUP BY consumer"
        found = list(spark.sql(f"SELECT count(*), sum(n), max(n) FROM ({newest})").collect()[0])
        print(json.dumps({"progress": "runs", "found": found, "began": True}), flush=True)
        every = counted(spark, request, request["data"]).writeStream.outputMode("update").format("noop")
        query = every.option("checkpointLocation", str(work / "run")).start()
        until = time.time() + request["seconds"]
        rows, newest_batch = 0, -1
        while time.time() < until and query.isActive:
            for progress in query.recentProgress:
                if progress["batchId"] > newest_batch and progress["numInputRows"]:
                    newest_batch, rows = progress["batchId"], rows + progress["numInputRows"]
                    print(json.dumps({"rows": rows, "at": end_of(progress)}), flush=True)
            time.sleep(0.5)
        if (failure := query.exception()) is not None:
            raise failure
        query.stop()
        spark.stop()


main()
