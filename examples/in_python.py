"""The examples of this folder in Python: each function gives the values of the YAML file of its name.

python examples/in_python.py wordcount
"""

import sys

from streamtopology import Topology

TEXT = "examples/data/text/*.txt"
WORD = "unnest(string_split(trim(regexp_replace(lower(value), '[^a-z]+', ' ', 'g')), ' ')) AS word"


def on_two(topology):
    return topology.executors("large", replicas=1, cpu="500m").executors("small", replicas=1, cpu="250m")


def tour():
    topology = Topology("tour", trigger={"availableNow": True}, rebalance={"interval": "3s"})
    topology.executors("large", replicas=3, cpu="450m").executors("small", replicas=1, cpu="135m")
    flights = topology.read.parquet(
        "flights", "build/flights", "tailnum STRING, arr_delay INT", maxFilesPerTrigger=1, where="arr_delay IS NOT NULL"
    )
    delays = flights.key_by("tailnum").quantiles("delays", column="arr_delay", min=-60, max=180, costPerTuple="10us")
    delays.write.parquet("out", "build/delays")
    return topology


def clicks():
    topology = Topology("clicks", rebalance={"interval": "3s"})
    topology.executors("large", replicas=2, cpu="400m").executors("small", replicas=1, cpu="150m")
    page = "CAST(floor(1000 * power((value * 7919 % 1000003) / 1000003, 4)) AS BIGINT) AS page"
    rows = topology.read.format("clicks", "rate", {"rowsPerSecond": 10000}, select=[page])
    rows.key_by("page").count("pages", costPerTuple="20us").write.parquet("counts", "build/pages")
    return topology


def wordcount():
    topology = on_two(Topology("wordcount", trigger={"availableNow": True}))
    lines = topology.read.text("lines", TEXT, maxFilesPerTrigger=1)
    words = lines.map("words", select=[WORD], where="regexp_matches(value, '[A-Za-z]')")
    counts = words.key_by("word", policy="partial-key").count("counts")
    counts.write.parquet("counts", "build/wordcount/counts")
    return topology


def top_ten():
    topology = on_two(Topology("top-ten", trigger={"availableNow": True}))
    word = "unnest(regexp_extract_all(lower(value), '[a-z]+')) AS word"
    words = topology.read.text("words", TEXT, maxFilesPerTrigger=1, select=[word])
    counts = words.key_by("word", policy="partial-key").count("counts")
    labelled = counts.map("labelled", select=["'all words' AS board", "word", "count"])
    top = labelled.key_by("board", policy="partial-key").top_k("top", id="word", by="count", k=10)
    top.write.json("top", "build/top-ten")
    return topology


def _trades(topology, **options):
    schema = "id BIGINT, symbol STRING, price DOUBLE, at TIMESTAMP"
    return topology.read.csv("trades", "examples/data/trades", schema, header=True, maxFilesPerTrigger=1, **options)


def self_join():
    topology = on_two(Topology("self-join", trigger={"availableNow": True}))
    trades = _trades(topology, watermark={"column": "at", "delay": "5s", "idleTimeout": "1m"})
    jumps = (
        trades.alias("earlier")
        .union(trades.alias("later"))
        .key_by("symbol")
        .window_join(
            "jumps",
            time="at",
            within="2s",
            where="earlier.at < later.at AND abs(later.price / earlier.price - 1) > 0.01",
            select=[
                "earlier.symbol AS symbol",
                "earlier.id AS earlier",
                "later.id AS later",
                "later.price / earlier.price - 1 AS jump",
            ],
        )
    )
    jumps.write.json("jumps", "build/self-join/jumps")
    return topology


def sessions():
    topology = on_two(Topology("sessions", trigger={"availableNow": True}))
    trades = _trades(topology, watermark={"column": "at", "delay": "5s"})
    found = trades.key_by("symbol").transform_with_state(
        "sessions",
        "sessions.py:Sessions",
        output="symbol string, start timestamp, end timestamp, rows bigint",
        timeMode="EventTime",
        time="at",
        args={"pause": 20},
    )
    found.write.json("sessions", "build/sessions")
    return topology


def enrich():
    topology = on_two(Topology("enrich"))
    trips = topology.read.format(
        "trips", "rate", {"rowsPerSecond": 20000}, select=["value AS trip", "value % 97 AS miles"]
    ).key_by(policy="shuffle")
    fares = trips.enrich("priced", add={"km": "miles * 1.609", "fare": "2.5 + miles * 1.75"}, cost="2 + miles / 5")
    fares.write.parquet("fares", "build/enrich/fares")
    return topology


def upsert():
    topology = on_two(Topology("upsert", trigger={"availableNow": True}))
    lines = topology.read.text("lines", TEXT, maxFilesPerTrigger=1)
    words = lines.map("words", select=[WORD], where="regexp_matches(value, '[A-Za-z]')")
    words.write.function("totals", "upsert.py:add", frame="arrow")
    return topology


def own_operator():
    topology = on_two(Topology("own-operator", trigger={"availableNow": True}))
    readings = topology.read.csv(
        "readings", "examples/data/readings", "sensor INT, celsius DOUBLE", header=True, maxFilesPerTrigger=1
    )
    drift = readings.key_by("sensor").operator("drift", "own_operator.py:Drift", {"column": "celsius"})
    alarm = drift.key_by("sensor").operator("alarm", "own_operator.py:Alarm", {"above": 5.0, "costPerTuple": "10us"})
    alarm.write.json("alarms", "build/own-operator/alarms")
    return topology


def kafka():
    topology = on_two(Topology("spending", onBadTuple="deadLetter"))
    text = "decode(value, 'replace')"
    purchases = topology.read.kafka(
        "purchases",
        "localhost:9092",
        "purchases",
        startingOffsets="earliest",
        maxOffsetsPerTrigger=100000,
        select=[
            f"json_extract_string({text}, '$.customer') AS customer",
            f"TRY_CAST(json_extract_string({text}, '$.amount') AS DOUBLE) AS amount",
            f"TRY_CAST(json_extract_string({text}, '$.at') AS TIMESTAMPTZ) AS at",
        ],
        where=f"json_valid({text})",
        watermark={"column": "at", "delay": "10s"},
    )
    spending = purchases.key_by("customer").window_aggregate(
        "spending", time="at", size="1m", aggregates={"purchases": "count()", "total": "sum(amount)"}
    )
    spending.write.kafka("spending", "localhost:9092", "spending")
    return topology


def flights():
    topology = Topology("flights", trigger={"realTime": True}, rebalance={"interval": "5s"})
    topology.executors("small", replicas=1, cpu="135m").executors("large", replicas=3, cpu="450m")
    schema = "year INT, month INT, day INT, dep_delay INT, arr_delay INT, carrier STRING, tailnum STRING, origin STRING"
    rows = topology.read.parquet(
        "flights",
        "build/data/flights",
        f"{schema}, dest STRING, distance INT, seq BIGINT",
        maxFilesPerTrigger=1,
        select=["tailnum", "dest", "arr_delay"],
        where="arr_delay IS NOT NULL",
    )
    tail = rows.key_by("tailnum").quantiles(
        "tail", column="arr_delay", min=-60, max=180, quantiles=[0.5, 0.9, 0.99], emit="tuples", costPerTuple="8us"
    )
    destination = tail.key_by("dest").quantiles(
        "destination", column="arr_delay", min=-60, max=180, quantiles=[0.5, 0.9, 0.99], emit="updates", costPerTuple="4us"
    )
    destination.write.parquet("delays", "build/flights/delays")
    return topology


if __name__ == "__main__":
    {name.replace("_", "-"): make for name, make in globals().items()}[sys.argv[1]]().run()
