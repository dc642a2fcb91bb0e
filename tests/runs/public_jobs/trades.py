"""Bought and sold in each quarter of an hour, as rows change: event times, CASE, a console."""

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, expr, sum, to_timestamp, window

if __name__ == "__main__":
    spark = SparkSession.builder.appName("trades").config("spark.sql.shuffle.partitions", 2).getOrCreate()
    trades = (
        spark.readStream.schema("CreatedTime STRING, Type STRING, Amount INT").option("maxFilesPerTrigger", 1).json("in/trades")
    )
    trades = (
        trades.withColumn("CreatedTime", to_timestamp(col("CreatedTime"), "yyyy-MM-dd HH:mm:ss"))
        .withColumn("Buy", expr("case when Type == 'BUY' then Amount else 0 end"))
        .withColumn("Sell", expr("case when Type == 'SELL' then Amount else 0 end"))
    )
    totals = (
        trades.withWatermark("CreatedTime", "30 minute")
        .groupBy(window(col("CreatedTime"), "15 minute"))
        .agg(sum("Buy").alias("TotalBuy"), sum("Sell").alias("TotalSell"))
        .select("window.start", "window.end", "TotalBuy", "TotalSell")
    )
    query = (
        totals.writeStream.format("console")
        .outputMode("update")
        .option("numRows", 1000)
        .option("truncate", False)
        .option("checkpointLocation", "checkpoints/trades")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
