"""Each event once, and what is sold of them in each window: first alone, then both."""

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, from_json, sum, window

spark = SparkSession.builder.appName("duplicates").getOrCreate()
lines = spark.readStream.option("maxFilesPerTrigger", 1).text("in/clicks")
clicks = lines.select(from_json("value", "user_id STRING, price INT, timestamp TIMESTAMP").alias("data")).select("data.*")
once = (
    clicks.filter(col("user_id").isNotNull()).withWatermark("timestamp", "30 minutes").dropDuplicates(["user_id", "timestamp"])
)
sold = once.groupBy(window("timestamp", "30 minutes")).agg(sum("price").alias("sold"))
for rows in (once, sold):
    writer = rows.writeStream.format("console").option("numRows", 1000).option("truncate", False)
    writer.trigger(availableNow=True).start().awaitTermination()
