"""Impressions with the click that follows within a quarter of an hour, then those without one, too: two streams."""

from pyspark.sql import SparkSession
from pyspark.sql.functions import expr

spark = SparkSession.builder.appName("pairs").getOrCreate()
read = spark.readStream.option("maxFilesPerTrigger", 1)
impressions = read.schema("ImpressionID STRING, ImpressionTime TIMESTAMP").json("in/impressions")
clicks = spark.readStream.schema("ClickID STRING, ClickTime TIMESTAMP").json("in/impression-clicks")
near = "ImpressionID == ClickID AND ClickTime BETWEEN ImpressionTime AND ImpressionTime + interval 15 minute"
timed = impressions.withWatermark("ImpressionTime", "30 minute"), clicks.withWatermark("ClickTime", "30 minute")
for how in ("inner", "leftOuter"):
    pairs = timed[0].join(timed[1], expr(near), how)
    writer = pairs.writeStream.format("console").option("numRows", 1000).option("truncate", False)
    writer.trigger(availableNow=True).start().awaitTermination()
