"""Sessions by a function with a state: a row while a session grows, and one when event time has passed its end."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.functions import col
from pyspark.sql.streaming.state import GroupState
from pyspark.sql.types import BooleanType, LongType, StructField, StructType, TimestampType

spark = SparkSession.builder.appName("sessions").getOrCreate()
ticks = spark.readStream.schema("timestamp TIMESTAMP, value LONG").option("maxFilesPerTrigger", 1).json("in/ticks")


def follow(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    if state.hasTimedOut:
        start, end = state.get
        state.remove()
    else:
        frame = pd.concat(frames)
        start, end = frame["timestamp"].min(), frame["timestamp"].max()
        if state.exists:
            before, until = state.get
            start, end = min(start, before), max(end, until)
        state.update((start, end))
        newest = max(state.getCurrentWatermarkMs(), int(pd.Timestamp(end).timestamp() * 1000))
        state.setTimeoutTimestamp(newest + 16 * 60 * 1000)
    seconds = int((end - start).total_seconds())
    yield pd.DataFrame({"group_id": [key[0]], "start": [start], "seconds": [seconds], "is_final": [state.hasTimedOut]})


sessions = (
    ticks.select("value", "timestamp", (col("value") % 6).alias("group_id"))
    .withWatermark("timestamp", "15 minutes")
    .groupBy(col("group_id"))
    .applyInPandasWithState(
        func=follow,
        outputStructType=StructType(
            [
                StructField("group_id", LongType()),
                StructField("start", TimestampType()),
                StructField("seconds", LongType()),
                StructField("is_final", BooleanType()),
            ]
        ),
        stateStructType=StructType([StructField("start", TimestampType()), StructField("end", TimestampType())]),
        outputMode="update",
        timeoutConf="EventTimeTimeout",
    )
)
writer = sessions.writeStream.outputMode("update").format("console").option("truncate", False).option("numRows", 1000)
writer.trigger(availableNow=True).start().awaitTermination()
