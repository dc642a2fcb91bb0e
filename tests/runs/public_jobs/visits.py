"""What each user did in half an hour, once it is over: counts of cases, the newest and oldest time, columns of both."""

from pyspark.sql import SparkSession
from pyspark.sql.functions import avg, col, count, from_json, max, min, sum, when, window
from pyspark.sql.types import IntegerType, StringType, StructField, StructType, TimestampType

spark = SparkSession.builder.appName("visits").getOrCreate()
schema = StructType(
    [
        StructField("user_id", StringType(), True),
        StructField("price", IntegerType(), True),
        StructField("event_type", StringType(), True),
        StructField("timestamp", TimestampType(), True),
    ]
)
lines = spark.readStream.option("maxFilesPerTrigger", 1).text("in/clicks")
clicks = lines.select(from_json(col("value"), schema).alias("data")).select("data.*").withWatermark("timestamp", "10 minutes")
sold = when(col("event_type") == "purchase", col("price")).otherwise(0)
visits = (
    clicks.groupBy(col("user_id"), window(col("timestamp"), "30 minutes", "10 minutes"))
    .agg(
        count("*").alias("events"),
        count(when(col("event_type") == "view", 1)).alias("views"),
        sum(sold).alias("revenue"),
        avg("price").alias("mean_price"),
        min("timestamp").alias("first"),
        max("timestamp").alias("last"),
    )
    .filter(col("events") > 2)
    .select(
        "user_id",
        col("window.start").alias("window_start"),
        "events",
        "views",
        "revenue",
        "mean_price",
        ((col("last").cast("long") - col("first").cast("long")) / 60).alias("minutes"),
        when(col("revenue") > 0, "CONVERTED").otherwise("BROWSING").alias("outcome"),
    )
)
writer = visits.writeStream.outputMode("append").format("console").option("numRows", 1000).option("truncate", False)
writer.trigger(availableNow=True).start().awaitTermination()
