"""The keyed count by Spark's Structured Streaming from Kafka to Kafka, in real-time mode or in micro-batches.

Nothing is done to it: it moves no keys of a running query.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from switching import Play

# As many partitions as the topics have, so that all tasks of real-time mode find a core. RocksDB writes what has changed.
SETTINGS = {
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
    "spark.driver.memory": "3g",
    "spark.driver.host": "localhost",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
# Real-time mode runs all tasks of a query at once: those that read, and those that count.
CORES = 8


def counted(spark: SparkSession, topics: dict[str, str], request: dict[str, Any]) -> StreamingQuery:
    broker = {"kafka.bootstrap.servers": topics["bootstrap"]}
    rows = spark.readStream.format("kafka").options(subscribe=topics["source"], startingOffsets="earliest", **broker).load()
    counts = rows.selectExpr("CAST(CAST(value AS STRING) AS BIGINT) AS key").groupBy("key").count()
    sink = counts.selectExpr("to_json(struct(key, count)) AS value").writeStream.format("kafka").outputMode("update")
    written = sink.options(topic=topics["sink"], checkpointLocation=str(Path(request["work"]) / "checkpoint"), **broker)
    return written.trigger(**request["trigger"]).start()


def main() -> None:
    request = json.loads(sys.argv[1])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {**SETTINGS, "spark.jars": ",".join(request["jars"])}
    with Play(request) as play:
        builder = SparkSession.builder.master(f"local[{CORES}]")
        for name, value in settings.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        print(json.dumps({"settings": {**settings, "master": f"local[{CORES}]", "trigger": request["trigger"]}}), flush=True)
        query = counted(spark, play.topics, request)
        threading.Thread(target=_until_it_fails, args=(query,), daemon=True).start()
        play.run({})
        query.stop()
        spark.stop()


def _until_it_fails(query: StreamingQuery) -> None:
    """A query that fails ends the script, which would wait for counts otherwise."""
    try:
        query.awaitTermination()
    except Exception as error:  # noqa: BLE001 - said, and the end of the process
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)


main()
