"""Two counts of one stream, as tables in memory, which the script reads when both have ended."""

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, from_json

spark = SparkSession.builder.appName("tables").getOrCreate()
lines = spark.readStream.option("maxFilesPerTrigger", 1).text("in/clicks")
clicks = lines.select(from_json(col("value"), "user_id STRING, event_type STRING").alias("data")).select("data.*")
by_type, by_user = clicks.groupBy("event_type").count(), clicks.groupBy("user_id").count()
for name, counts in (("events_by_type", by_type), ("events_by_user", by_user)):
    counts.writeStream.outputMode("complete").format("memory").queryName(name).trigger(availableNow=True).start()
for query in spark.streams.active:
    query.awaitTermination()
spark.sql("SELECT * FROM events_by_type ORDER BY event_type").show()
spark.table("events_by_user").orderBy("user_id").show(100)
