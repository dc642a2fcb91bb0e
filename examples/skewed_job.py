"""Visits by page as a PySpark job, with pages that everybody visits. Nothing of StreamTopology is imported.

With Spark:          spark-submit examples/skewed_job.py
Re-routed, as it is: streamtopology run examples/skewed_job.py --executors large:1:1,small:2:0.25 --report build/skewed
"""

import hashlib
from collections.abc import Iterator

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle


class Visitors(StatefulProcessor):
    """How many of a page's visits there were, and a digest of who came: some work for each row."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._seen = handle.getValueState("seen", "visits bigint, digest string")

    def handleInputRows(self, key, rows, timerValues) -> Iterator[Row]:
        visits, digest = self._seen.get() if self._seen.exists() else (0, "")
        for row in rows:
            visits += 1
            for _ in range(20):
                digest = hashlib.md5(f"{digest}{row.visitor}".encode(), usedforsecurity=False).hexdigest()
        self._seen.update((visits, digest))
        yield Row(page=key[0], visits=visits, digest=digest)

    def close(self) -> None:
        pass


spark = (
    SparkSession.builder.appName("skewed")
    .config("spark.sql.streaming.stateStore.providerClass", "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider")
    .getOrCreate()
)
# Of 1,000 pages the first has about every third visit.
visits = (
    spark.readStream.format("rate").option("rowsPerSecond", 6000).load()
    .selectExpr("CAST(1000 * pow(rand(1), 6) AS BIGINT) AS page", "value % 997 AS visitor")
)
counts = visits.groupBy("page").transformWithState(
    statefulProcessor=Visitors(), outputStructType="page bigint, visits bigint, digest string", outputMode="Update", timeMode="None",
)
query = counts.writeStream.outputMode("update").format("noop").trigger(processingTime="1 second").start()
query.awaitTermination(60)
query.stop()
