"""Nexmark's queries that Spark's streams can say, as a PySpark job. Nothing of StreamTopology is imported.

With Spark:          spark-submit examples/nexmark/job.py q11 build/nexmark OUT
Re-routed, as it is: streamtopology run examples/nexmark/job.py q11 build/nexmark OUT --executors a:3:1,b:1:0.3

Spark cannot chain windows in the mode `update` (q4, q6, q9), count what is distinct (q15, q16), rank (q19), or join on bounds
that it does not know (q7); q5 and q8 it can, with a second operator with state.
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

QUERY, DATA, RESULTS = sys.argv[1:]
SCHEMAS = {
    "person": "id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING, state STRING, dateTime TIMESTAMP, "
    "extra STRING",
    "auction": "id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT, dateTime TIMESTAMP, "
    "expires TIMESTAMP, seller BIGINT, category BIGINT, extra STRING",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, dateTime TIMESTAMP, extra STRING",
}
spark = SparkSession.builder.appName(f"nexmark {QUERY}").config("spark.sql.session.timeZone", "UTC").getOrCreate()


def read(name):
    return spark.readStream.schema(SCHEMAS[name]).option("maxFilesPerTrigger", 1).parquet(f"{DATA}/{name}")


def q1():
    return read("bid").select("auction", "bidder", (0.908 * F.col("price")).alias("price"), "dateTime", "extra"), "append"


def q2():
    return read("bid").where("auction % 123 = 0").select("auction", "price"), "append"


def q3():
    sold = read("auction").where("category = 10").select("id", "seller")
    people = read("person").where("state IN ('OR', 'ID', 'CA')").select(F.col("id").alias("person"), "name", "city", "state")
    return sold.join(people, sold["seller"] == people["person"]).select("name", "city", "state", "id"), "append"


def q11():
    bids = read("bid").withWatermark("dateTime", "4 seconds")
    counts = bids.groupBy(F.session_window("dateTime", "10 seconds").alias("session"), "bidder").count()
    return counts.select("bidder", "count", "session.start", "session.end"), "append"


def q12():
    """Spark's windows of processing time are of the moment of a batch."""
    bids = read("bid").withColumn("processed", F.current_timestamp()).withWatermark("processed", "0 seconds")
    return bids.groupBy(F.window("processed", "10 seconds"), "bidder").count(), "update"


def q17():
    price = F.col("price")
    ranks = {"rank1": price < 10_000, "rank2": price.between(10_000, 999_999), "rank3": price >= 1_000_000}
    counts = [F.count_if(where).alias(f"{rank}_bids") for rank, where in ranks.items()]
    prices = [F.min(price), F.max(price), F.avg(price), F.sum(price)]
    by_day = read("bid").groupBy("auction", F.date_format("dateTime", "yyyy-MM-dd").alias("day"))
    return by_day.agg(F.count("*").alias("total_bids"), *counts, *prices), "update"


def q18():
    newest = F.max_by(F.struct("price", "channel", "url", "dateTime", "extra"), F.struct("dateTime", "price", "url"))
    return read("bid").groupBy("bidder", "auction").agg(newest.alias("bid")), "update"


def q20():
    sold = read("auction").where("category = 10").drop("dateTime", "extra")
    bids = read("bid")
    return bids.join(sold, bids["auction"] == sold["id"]), "append"


def q22():
    folders = [F.split_part("url", F.lit("/"), F.lit(place + 1)).alias(f"dir{place - 2}") for place in (3, 4, 5)]
    return read("bid").select("auction", "bidder", "price", "channel", *folders), "append"


def write(rows, number):
    rows.write.mode("overwrite").parquet(f"{RESULTS}/{QUERY}/batch={number}")


if __name__ == "__main__":
    result, mode = globals()[QUERY]()
    writer = result.writeStream.outputMode(mode).foreachBatch(write).trigger(availableNow=True)
    writer.option("checkpointLocation", f"{RESULTS}/{QUERY}-checkpoint").start().awaitTermination()
