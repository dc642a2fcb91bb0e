"""One of the queries of our PySpark job on Spark itself: how many rows it gives, and its seconds.

The first run writes the rows as files, which are counted. It checks, and it warms up. Then the query runs with the sink `noop`,
as often as `runs` says.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import importlib.util
import json
import os
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from spark_cluster import SparkCluster

# Two partitions a core, of the two to three that Spark's tuning guide has; RocksDB, as its guide has it for large state.
SETTINGS = {
    "spark.executor.cores": "1",
    "spark.executor.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.driver.host": "localhost",
}
# What is counted of the rows that a query has emitted, where that is not their number: each key's newest.
COUNTED = {
    "q12": "SELECT sum(n) FROM (SELECT max(count) AS n FROM rows GROUP BY window, bidder)",
    "q17": "SELECT count(DISTINCT auction, day) FROM rows",
    "q18": "SELECT count(DISTINCT bidder, auction) FROM rows",
}


def query_of(request: dict[str, Any]) -> tuple[DataFrame, str]:
    """The query of our job, and its output mode."""
    sys.argv = [request["job"], request["query"], request["data"], request["work"]]
    spec = importlib.util.spec_from_file_location("nexmark_job", request["job"])
    assert spec is not None
    assert spec.loader is not None
    job: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(job)
    return getattr(job, request["query"])()


def moment(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def main() -> None:
    request: dict[str, Any] = json.loads(sys.argv[1])
    work = Path(request["work"])
    os.environ["PYSPARK_PYTHON"] = sys.executable  # of the workers' Python, too
    settings = {**SETTINGS, "spark.sql.shuffle.partitions": str(2 * len(request["cpus"]))}
    with SparkCluster(work, request["join"], "3g") as cluster:
        builder = SparkSession.builder.master(cluster.master)
        for name, value in settings.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        print(json.dumps({"progress": "counts", "settings": settings}), flush=True)
        frame, mode = query_of(request)

        def write(rows: DataFrame, number: int) -> None:
            rows.write.mode("overwrite").parquet(f"{work}/results/batch={number}")

        once = frame.writeStream.outputMode(mode).foreachBatch(write).trigger(availableNow=True)
        once.option("checkpointLocation", str(work / "once")).start().awaitTermination()
        spark.read.parquet(f"{work}/results").createOrReplaceTempView("rows")
        count = spark.sql(COUNTED.get(request["query"], "SELECT count(*) FROM rows")).first()
        assert count is not None
        print(json.dumps({"progress": "runs", "count": count[0]}), flush=True)
        seconds: list[float] = []
        for number in range(request["runs"]):
            run = frame.writeStream.outputMode(mode).format("noop").trigger(availableNow=True)
            query = run.option("checkpointLocation", str(work / f"run-{number}")).start()
            query.awaitTermination()
            batches = query.recentProgress
            last = moment(batches[-1]["timestamp"]) + batches[-1]["durationMs"]["triggerExecution"] / 1000
            seconds.append(last - moment(batches[0]["timestamp"]))
        spark.stop()
    print(json.dumps({"seconds": seconds}), flush=True)


main()
