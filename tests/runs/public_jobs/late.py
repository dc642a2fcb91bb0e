"""Counts of short windows with a watermark, in mode complete, where no window is ever let go."""

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, expr, when, window

spark = SparkSession.builder.appName("late").getOrCreate()
ticks = spark.readStream.schema("timestamp TIMESTAMP, value LONG").option("maxFilesPerTrigger", 1).json("in/ticks")
ticks = ticks.withColumn(
    "eventTime", when(col("value") % 3 == 0, expr("timestamp - INTERVAL 400 seconds")).otherwise(col("timestamp"))
)
counts = ticks.withWatermark("eventTime", "5 seconds").groupBy(window(col("eventTime"), "5 minutes")).count()
query = (
    counts.withColumnRenamed("count", "count_with_watermark")
    .orderBy("window")
    .writeStream.outputMode("complete")
    .format("console")
    .option("truncate", False)
    .option("numRows", 1000)
    .queryName("withWatermark")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
