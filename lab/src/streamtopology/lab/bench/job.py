"""The queries of PySpark scripts by Spark, and as topologies, on the same executors of unequal CPU and the same files.

Three executors alike, and one with 30 % of their CPU; keys are Zipf. A query's speed is that of its batches after the first
ones, from trigger to commit. CPU seconds are those of this process and of all that it has started, the same batches long.
"""

# As everybody calls it.
# ruff: noqa: N812

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from streamtopology.jobs.local.embedded_cluster import EmbeddedCluster
from streamtopology.jobs.local.run import Serving
from streamtopology.jobs.scripts.executors import shape_of
from streamtopology.jobs.scripts.session import ScriptSession
from streamtopology.lab.bench.cluster import (
    announce,
    cluster_for,
    fresh_folder,
    machine,
    plain_spark,
)
from streamtopology.lab.bench.cpu_times import cpu_times
from streamtopology.lab.bench.figures import figure
from streamtopology.lab.bench.flights_data import KEYS_DDL, make_keys
from streamtopology.lab.bench.job_processors import Counter, CounterInPandas, Newest
from streamtopology.topology import to_manifest

EXECUTORS = "large:3:0.45,small:1:0.135"
BATCHES, WARM = 12, 6
FILES = 4
KEYS = 100_000
PARTITIONS = 8
SPARK, OURS = "Spark", "streamtopology run"
_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

# A query of a script: what it makes of the rows, and its output mode.
Query = Callable[[DataFrame], DataFrame]


def _windows(rows: DataFrame) -> DataFrame:
    at = F.timestamp_seconds(F.lit(1_700_000_000) + (F.col("value") * 600).cast("bigint"))
    windows = rows.withColumn("at", at).withWatermark("at", "1 hour").groupBy(F.window("at", "1 minute"), "key")
    return windows.agg(F.count("*").alias("n"), F.sum("value"), F.avg("value"), F.max("value"))


def _sums(rows: DataFrame) -> DataFrame:
    return rows.groupBy("key").agg(F.count("*").alias("n"), F.sum("value"), F.avg("value"), F.max("value"))


def _processed(processor: type[StatefulProcessor], form: str, mode: str, rows: DataFrame) -> DataFrame:
    grouped: Any = rows.groupBy("key")
    return getattr(grouped, form)(
        statefulProcessor=processor(), outputStructType="key bigint, n bigint", outputMode="Update", timeMode=mode
    )


# A query -> it, and the rows of a batch: as many as Spark does in seconds.
QUERIES: Mapping[str, tuple[Query, int]] = {
    "sums by key": (_sums, 500_000),
    "sums by window and key": (_windows, 500_000),
    "transformWithState, counter": (partial(_processed, Counter, "transformWithState", "None"), 50_000),
    "transformWithState, list and timer": (partial(_processed, Newest, "transformWithState", "ProcessingTime"), 2_000),
    "transformWithStateInPandas": (partial(_processed, CounterInPandas, "transformWithStateInPandas", "None"), 2_000),
}


def run(runs: int = 3, seed: int = 1, quick: bool = False) -> dict[str, Any]:
    """Rows/s and rows per CPU second of each query by Spark and by `streamtopology run`, in turns, on `runs` sets of keys."""
    folder = fresh_folder("job")
    speeds: dict[str, list[float]] = {}
    of_cpu: dict[str, list[float]] = {}
    shape = shape_of("job", EXECUTORS, {})
    with cluster_for(shape, folder) as embedded:
        for number in range(seed, seed + runs):
            for name, (query, rows) in QUERIES.items():
                size = rows // 50 if quick else rows
                place = folder / f"{number}-{name.replace(' ', '-').replace(',', '')}"
                make_keys(
                    place / "data", "zipf-1.2", BATCHES * FILES, size // FILES, KEYS, number, first_key=number * 10 * KEYS
                )
                for side in (SPARK, OURS):
                    case = f"{name}: {side}"
                    speed = measured(embedded, query, place, side, size)
                    speeds.setdefault(case, []).append(speed.rows_per_second)
                    of_cpu.setdefault(case, []).append(speed.per_cpu_second)
                    announce(f"{case}: {speed.rows_per_second:,.0f} rows/s, {speed.per_cpu_second:,.0f} rows per CPU second")
    results = [*_figures("throughput", "rows/s", speeds), *_figures("of CPU", "rows/CPU-s", of_cpu)]
    return {"name": "job", "machine": machine(keys=KEYS), "results": results}


def _figures(metric: str, unit: str, measured: Mapping[str, list[float]]) -> Iterator[dict[str, Any]]:
    for case, values in measured.items():
        sparks = f"{case.rpartition(':')[0]}: {SPARK}"
        yield figure(case, metric, unit, values, {} if case == sparks else {sparks: measured[sparks]})


def _seconds(stream: StreamingQuery) -> list[float]:
    """Those of its batches with rows."""
    return [each.batchDuration / 1000 for each in stream.recentProgress if each.numInputRows]


@dataclass(frozen=True)
class Speed:
    """`per_cpu_second`: rows; `at_work`: CPU that the executors used, of what their limits allow."""

    rows_per_second: float
    per_cpu_second: float
    at_work: float


@dataclass(frozen=True)
class Spent:
    """Monotonic time, CPU seconds of all processes, and those of the executors alone, so far."""

    at: float
    of_all: float
    of_executors: float

    @staticmethod
    def so_far(embedded: EmbeddedCluster) -> Spent:
        of_executors = sum(embedded.cluster.cpu_seconds(slot.name) for slot in embedded.slots)
        return Spent(time.monotonic(), cpu_times().own, of_executors)


def speed_of(seconds: Sequence[float], commits: Sequence[Spent], rows: int, cpu: float) -> Speed:
    """That of the batches after the first ones. `seconds`, `commits`: one a batch of `rows`; `cpu`: the executors' limits."""
    warm, last = commits[WARM - 1], commits[BATCHES - 1]
    at_work = (last.of_executors - warm.of_executors) / (cpu * (last.at - warm.at))
    return Speed(rows / statistics.median(seconds[WARM:]), rows * (BATCHES - WARM) / (last.of_all - warm.of_all), at_work)


def measured(embedded: EmbeddedCluster, query: Query, folder: Path, side: str, rows: int) -> Speed:
    """The speed of `side`, SPARK or OURS, on the files of `folder`."""
    name = side.replace(" ", "-")
    with ExitStack() as entered:
        if side == OURS:
            shape: dict[str, Any] = to_manifest(shape_of("job", EXECUTORS, {}))
            executors = shape["spec"]["executors"]
            session = ScriptSession(lambda asked: embedded, Path(__file__), executors, folder / "work", Serving(), True, None)
            entered.enter_context(session.taken_over())
            spark = SparkSession.builder.getOrCreate()
        else:
            more = {
                "spark.sql.shuffle.partitions": str(PARTITIONS),
                "spark.sql.streaming.stateStore.providerClass": _STORE,
                "spark.sql.files.minPartitionNum": str(len(embedded.slots)),  # Spark's default: as many as there are cores
            }
            spark = entered.enter_context(plain_spark(embedded.spark, more))
        commits: list[Spent] = []

        def note(frame: DataFrame, batch: int) -> None:
            frame.write.format("noop").mode("overwrite").save()
            commits.append(Spent.so_far(embedded))

        stream = spark.readStream.schema(KEYS_DDL).option("maxFilesPerTrigger", FILES).parquet(str(folder / "data"))
        writer = query(stream).writeStream.outputMode("update").foreachBatch(note).trigger(availableNow=True)
        started: StreamingQuery = writer.option("checkpointLocation", str(folder / name)).start()
        # With timers of processing time Spark does not end by itself: it goes on with batches without rows.
        while not started.awaitTermination(1) and len(_seconds(started)) < BATCHES:
            pass
        started.stop()
        seconds = _seconds(started)
    assert len(seconds) == BATCHES, f"every few files are a batch, and there were {len(seconds)}"
    return speed_of(seconds, commits, rows, sum(slot.cpu for slot in embedded.slots))
