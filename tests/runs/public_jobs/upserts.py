"""The newest totals of each candidate and place, kept in a database by foreachBatch; structs as columns of the group."""

import sqlite3

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json, struct, sum, to_json

spark = SparkSession.builder.appName("votes").getOrCreate()
database = sqlite3.connect("votes.db", check_same_thread=False)
database.execute("CREATE TABLE IF NOT EXISTS totals (place TEXT PRIMARY KEY, row TEXT, batch INT)")
lines = spark.readStream.option("maxFilesPerTrigger", 1).text("in/votes")
schema = "candidate STRING, vote INT, voting_time TIMESTAMP, address STRUCT<city: STRING, state: STRING>"
votes = lines.select(from_json("value", schema).alias("data")).select("data.*").withWatermark("voting_time", "1 minute")
totals = (
    votes.groupBy("address.state", "candidate")
    .agg(sum("vote").alias("votes"))
    .withColumn("place", struct("state", "candidate"))
)


def upsert(rows: DataFrame, batch: int) -> None:
    found = rows.select(to_json("place").alias("place"), to_json(struct("votes", "state")).alias("row")).collect()
    database.executemany("INSERT OR REPLACE INTO totals VALUES (?, ?, ?)", [(row.place, row.row, batch) for row in found])
    database.commit()


query = (
    totals.filter(col("candidate").isNotNull())
    .writeStream.outputMode("update")
    .foreachBatch(upsert)
    .option("checkpointLocation", "checkpoints/votes")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
kept = database.execute("SELECT * FROM totals").fetchall()
spark.createDataFrame(kept, "place STRING, row STRING, batch INT").show(100, False)
