"""The same in SQL: a view of the stream, HAVING, ORDER BY, and LIMIT."""

from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("tweets").getOrCreate()
tweets = spark.readStream.option("sep", ";").option("header", "false").option("maxFilesPerTrigger", 1)
tweets.schema("id INT, hashtags STRING, likes INT").csv("in/tweets").createOrReplaceTempView("tweets")
top = spark.sql("""
    SELECT hashtags AS tags, count(*) AS n, sum(likes) / count(likes) AS mean_likes, max(likes) - min(likes) AS spread
    FROM tweets WHERE likes > 10 GROUP BY hashtags HAVING count(hashtags) > 1 ORDER BY mean_likes DESC, tags LIMIT 7""")
query = top.writeStream.outputMode("complete").format("console").option("truncate", "false").trigger(availableNow=True).start()
query.awaitTermination()
