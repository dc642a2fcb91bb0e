"""Impressions with the click that follows within a quarter of an hour, and those without one: two streams."""

from pyspark.sql import SparkSession
from pyspark.sql.functions import expr

spark = SparkSession.builder.appName("pairs").getOrCreate()
read = spark.readStream.option("maxFilesPerTrigger", 1)
impressions = read.schema("ImpressionID STRING, ImpressionTime TIMESTAMP").json("in/impressions")
clicks = spark.readStream.schema("ClickID STRING, ClickTime TIMESTAMP").json("in/impression-clicks")
near = "ImpressionID == ClickID AND ClickTime BETWEEN ImpressionTime AND ImpressionTime + interval 15 minute"
pairs = impressions.withWatermark("ImpressionTime", "30 minute").join(
    clicks.withWatermark("ClickTime", "30 minute"), expr(near), "leftOuter"
)
writer = pairs.writeStream.format("console").option("numRows", 1000).option("truncate", False)
writer.trigger(availableNow=True).start().awaitTermination()
