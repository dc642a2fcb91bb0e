"""A StatefulProcessor that keeps its state as JSON in a frame, and hands rows on as frames."""

import json
from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import LongType, StringType, StructField, StructType


class Flights(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self.seen = handle.getValueState("seen", StructType([StructField("state_json", StringType(), True)]))

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        kept = {"state": "unknown", "count": 0}
        if self.seen.exists():
            kept = json.loads(self.seen.get()[0])
        for frame in rows:
            for state in frame.sort_values("value")["state"]:
                kept = {"state": state, "count": kept["count"] + 1}
        self.seen.update((json.dumps(kept),))
        yield pd.DataFrame({"flight": [key[0]], "current_state": [kept["state"]], "updates": [kept["count"]]})

    def close(self) -> None:
        pass


output = StructType(
    [StructField("flight", StringType()), StructField("current_state", StringType()), StructField("updates", LongType())]
)
spark = SparkSession.builder.appName("flights").getOrCreate()
ticks = spark.readStream.schema("timestamp TIMESTAMP, value LONG").option("maxFilesPerTrigger", 1).json("in/ticks")
flights = ticks.select(
    expr("CASE value % 3 WHEN 0 THEN 'D1247' WHEN 1 THEN 'U892' ELSE 'S5031' END AS flight"),
    expr("CASE value % 4 WHEN 0 THEN 'boarding' WHEN 1 THEN 'flying' ELSE 'landed' END AS state"),
    "value",
)
states = flights.groupBy("flight").transformWithStateInPandas(
    statefulProcessor=Flights(), outputStructType=output, outputMode="Update", timeMode="None"
)
writer = states.writeStream.outputMode("update").format("console").option("truncate", False)
writer.trigger(availableNow=True).start().awaitTermination()
