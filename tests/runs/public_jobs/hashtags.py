"""The five most frequent words of a column, after each batch."""

from pyspark.sql import SparkSession
from pyspark.sql.functions import desc, explode, split

spark = SparkSession.builder.appName("hashtags").getOrCreate()
tweets = (
    spark.readStream.schema("id INT, hashtags STRING, likes INT")
    .option("sep", ";")
    .option("maxFilesPerTrigger", 1)
    .csv("in/tweets/")
)
tags = tweets.select(explode(split(tweets.hashtags, ",")).alias("tag")).groupBy("tag").count()
top = tags.sort(desc("count"), "tag").limit(5).select("tag", "count")
query = top.writeStream.outputMode("complete").format("console").trigger(availableNow=True).start()
query.awaitTermination(100)
query.stop()
