"""Visits by page as a PySpark job: of 1,000 pages one has every third visit. Nothing of StreamTopology is imported.

With Spark:          spark-submit examples/skewed_job.py
Re-routed, as it is: streamtopology run examples/skewed_job.py --executors large:1:1,small:2:0.25 --report build/skewed
"""

import hashlib

from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor

STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SECONDS = 60


class Visitors(StatefulProcessor):
    """A page's visits, and a digest of who came: some work for each row."""

    def init(self, handle):
        self.seen = handle.getValueState("seen", "visits bigint, digest string")

    def handleInputRows(self, key, rows, timerValues):
        visits, digest = self.seen.get() if self.seen.exists() else (0, "")
        for row in rows:
            visits += 1
            for _ in range(100):
                digest = hashlib.sha256(f"{digest}{row.visitor}".encode()).hexdigest()
        self.seen.update((visits, digest))
        yield Row(page=key[0], visits=visits, digest=digest)

    def close(self):
        pass


spark = SparkSession.builder.appName("skewed").config("spark.sql.streaming.stateStore.providerClass", STATE_STORE).getOrCreate()
made = spark.readStream.format("rate").option("rowsPerSecond", 8000).load()
visits = made.selectExpr("CAST(1000 * pow(rand(1), 6) AS BIGINT) AS page", "value % 997 AS visitor")
counts = visits.groupBy("page").transformWithState(
    statefulProcessor=Visitors(),
    outputStructType="page bigint, visits bigint, digest string",
    outputMode="Update",
    timeMode="None",
)
query = counts.writeStream.outputMode("update").format("noop").trigger(processingTime="1 second").start()
query.awaitTermination(SECONDS)
query.stop()
