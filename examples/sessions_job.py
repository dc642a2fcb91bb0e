"""Sessions of trades as a PySpark job. Nothing of StreamTopology is imported.

With Spark:          spark-submit examples/sessions_job.py
Re-routed, as it is: streamtopology run examples/sessions_job.py --executors large:1:0.5,small:1:0.25
"""

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from sessions import Sessions

STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

spark = (
    SparkSession.builder.appName("sessions")
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.sql.streaming.stateStore.providerClass", STATE_STORE)
    .getOrCreate()
)

trades = (
    spark.readStream.schema("id BIGINT, symbol STRING, price DOUBLE, at TIMESTAMP")
    .option("header", True)
    .option("maxFilesPerTrigger", 1)
    .csv("examples/data/trades")
    .withWatermark("at", "5 seconds")
)
sessions = trades.groupBy("symbol").transformWithState(
    statefulProcessor=Sessions(pause=20),
    outputStructType="symbol string, start timestamp, end timestamp, rows bigint",
    outputMode="Append",
    timeMode="EventTime",
)
longer = sessions.where("rows > 1").withColumn("seconds", F.col("end").cast("double") - F.col("start").cast("double"))

query = (
    longer.writeStream.format("json")
    .option("checkpointLocation", "build/sessions-job-checkpoint")
    .trigger(availableNow=True)
    .start("build/sessions-job")
)
query.awaitTermination()
print(f"{spark.read.json('build/sessions-job').count()} sessions of more than one trade")
