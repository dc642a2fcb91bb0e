"""The papers' set-up: four executors, one with 30 % of the others' CPU, skewed keys, 10 us of work per tuple.

The same parquet files go through one topology under `fields` (source shared equally, then by capacity), under `mixed`
re-routed live, and through plain Spark. Seconds of a topology's batch are those from its taking to its commit record;
plain Spark's are those of its one action, which commits nothing; those with its own state are of a streaming query.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.state import GroupStateTimeout

from streamtopology.jobs.columnar.keys import KeyColumns
from streamtopology.jobs.local.embedded_cluster import EmbeddedCluster
from streamtopology.lab.bench.cluster import (
    ONE_OF_FOUR_SLOW,
    Ran,
    announce,
    cluster_for,
    fresh_folder,
    machine,
    plain_spark,
    run_topology,
    source_by_capacity,
    topology,
)
from streamtopology.lab.bench.figures import figure
from streamtopology.lab.bench.flights_data import KEYS_DDL, Distribution, make_keys
from streamtopology.lab.bench.spark_counting import count_in_spark_state, count_in_task
from streamtopology.routing.table.table import RoutingTable
from streamtopology.topology import Topology, parse_cpu

DISTRIBUTIONS: tuple[Distribution, ...] = ("zipf-1.0", "zipf-1.2", "tweets")
CPU = np.array([parse_cpu(of_class["cpu"]) for of_class in ONE_OF_FOUR_SLOW for _ in range(of_class["replicas"])])
COST_SECONDS = 10e-6
KEYS = 100_000
ROWS_PER_BATCH = 300_000  # at the bound some 2 s, of which 0.2-0.3 s do not depend on the rows
ROW_GROUPS = 33  # whole ones both in equal shares and, 10:10:10:3, by capacity
STATIC_BATCHES = 3
LIVE_BATCHES = 14
# The last batches of the live run, which are measured; by then it has been re-routed as far as it pays.
SETTLED = 5

PARTITIONS = (8, 16, 32)
SPARK_BATCHES = 2
STATE_PARTITIONS = 8
STATE_ROWS = 30_000
# Spark's own Python state is given a tenth of the rows a batch: it calls a function for every key.
STATE_BATCHES = 3

FIELDS, FIELDS_PLACED, MIXED = "fields", "fields, source by capacity", "mixed, re-routed live"
SPARK_HASH, SPARK_PULL, SPARK_STATE = "plain Spark, hash", "plain Spark, round robin", "plain Spark, its own Python state"
POSSIBLE = "any routing, by arithmetic"
CASES = (FIELDS, FIELDS_PLACED, MIXED, SPARK_HASH, SPARK_PULL, SPARK_STATE)


def run(runs: int = 5, real_time: bool = False, distributions: Sequence[Distribution] = DISTRIBUTIONS) -> dict[str, Any]:
    """Rows/s and share of the capacity bound of every case, for `runs` sets of key names (so hashings) a distribution.

    A plain Spark case is the best of 8, 16 and 32 partitions in each run, next to the bound that `mixed` measured.
    Ratios are to both `fields` cases. The bound differs much from one hashing to the next, by whether the heaviest keys fell
    to the slow executor: it is printed next to them. Takes about 3 minutes per run and distribution on 2 cores.
    """
    folder = fresh_folder("heterogeneous")
    results: list[dict[str, Any]] = []
    with cluster_for(_counting("heterogeneous", folder, "fields", real_time), folder) as embedded:
        for distribution in distributions:
            folders = [folder / f"{distribution}-{seed}" for seed in range(runs)]
            measured = [_one_run(embedded, each, distribution, seed, real_time) for seed, each in enumerate(folders)]
            possible = [_possible_gain(each / "data") for each in folders]
            results += [*_figures(distribution, measured), figure(f"{distribution}: {POSSIBLE}", f"to {FIELDS}", "x", possible)]
    of = machine(rows_per_batch=ROWS_PER_BATCH, keys=KEYS, real_time=real_time)
    return {"name": "heterogeneous", "machine": of, "results": results}


# case -> (rows/s, bound in rows/s).
Measured = Mapping[str, tuple[float, float]]


def _one_run(embedded: EmbeddedCluster, folder: Path, distribution: Distribution, seed: int, real_time: bool) -> Measured:
    """All cases on the same files."""
    name = f"{distribution.replace('.', '-')}-seed-{seed}"
    files = make_keys(
        folder / "data", distribution, LIVE_BATCHES, ROWS_PER_BATCH, KEYS, seed, ROW_GROUPS, first_key=seed * 10 * KEYS
    )
    measured: dict[str, tuple[float, float]] = {}

    def topology_case(case: str, ran: Ran, batches: int) -> None:
        seconds = statistics.median(batch.seconds for batch in ran.batches[-batches:])
        measured[case] = (ROWS_PER_BATCH / seconds, ran.bound)
        announce(f"{name}: {case}: {ROWS_PER_BATCH / seconds:,.0f} rows/s, bound {ran.bound:,.0f}")

    equal = _counting(f"{name}-fields", folder, "fields", real_time)
    topology_case(FIELDS, run_topology(embedded, equal, folder, STATIC_BATCHES), STATIC_BATCHES - 1)
    placed = _counting(f"{name}-placed", folder, "fields", real_time)
    topology_case(
        FIELDS_PLACED, run_topology(embedded, placed, folder, STATIC_BATCHES, source_by_capacity(embedded)), STATIC_BATCHES - 1
    )
    live = _counting(f"{name}-mixed", folder, "mixed", real_time, {"mode": "Auto", "interval": "2s"})
    topology_case(MIXED, run_topology(embedded, live, folder, LIVE_BATCHES), SETTLED)

    plain = {**_plain_spark(embedded, files), SPARK_STATE: _spark_state(embedded, folder / "state", distribution, seed)}
    for case, best in plain.items():
        measured[case] = (best, measured[MIXED][1])
        announce(f"{name}: {case}: {best:,.0f} rows/s at best")
    return measured


def _possible_gain(data: Path) -> float:
    """The speed-up over `fields` that no routing can beat: all CPU busy, against the wait for the instance with the most."""
    rows = pq.read_table(data, columns=["key"]).combine_chunks().to_batches()[0]
    owners = RoutingTable.uniform(range(len(CPU))).lookup(KeyColumns.from_arrow(rows, ("key",)).hashes)
    shares = np.bincount(owners, minlength=len(CPU)) / len(owners)
    return float((shares / CPU).max() * CPU.sum())


def _counting(name: str, folder: Path, policy: str, real_time: bool, rebalance: Mapping[str, Any] | None = None) -> Topology:
    operator = {
        "name": "counts",
        "inputs": ["rows"],
        "grouping": {"policy": policy, "key": "key"},
        "parallelism": 4,
        "run": "count",
        "with": {"costPerTuple": f"{COST_SECONDS * 1e6:g}us", "emit": "nothing"},
    }
    trigger = {"realTime": real_time}
    return topology(name, folder / "data", KEYS_DDL, [operator], ONE_OF_FOUR_SLOW, rebalance, trigger=trigger)


def _plain_spark(embedded: EmbeddedCluster, files: Sequence[Path]) -> dict[str, float]:
    """Rows/s of both ways of plain Spark, each with the number of partitions that did best."""
    count = count_in_task("key", COST_SECONDS)
    ways: dict[str, Callable[[DataFrame, int], DataFrame]] = {
        SPARK_HASH: lambda rows, partitions: rows.repartition(partitions, "key"),
        SPARK_PULL: lambda rows, partitions: rows.repartition(partitions),
    }
    rows_per_second: dict[str, list[float]] = {way: [] for way in ways}
    with plain_spark(embedded.spark) as spark, ExitStack() as warming:
        warming.enter_context(embedded.unlimited())
        for split in ways.values():
            _seconds(spark, files[-1], lambda rows, split=split: split(rows, PARTITIONS[-1]).mapInArrow(count, "n long"))
        warming.close()
        for partitions in PARTITIONS:
            for way, split in ways.items():
                seconds = [
                    _seconds(spark, file, lambda rows, split=split, n=partitions: split(rows, n).mapInArrow(count, "n long"))
                    for file in files[:SPARK_BATCHES]
                ]
                rows_per_second[way].append(ROWS_PER_BATCH / statistics.median(seconds))
    return {way: max(of_way) for way, of_way in rows_per_second.items()}


def _spark_state(embedded: EmbeddedCluster, folder: Path, distribution: Distribution, seed: int) -> float:
    """Rows/s of a streaming query that counts by `applyInPandasWithState`, by Spark's own progress after its first batch."""
    make_keys(folder / "data", distribution, STATE_BATCHES, STATE_ROWS, KEYS, seed, ROW_GROUPS, first_key=seed * 10 * KEYS)
    with plain_spark(embedded.spark, {"spark.sql.shuffle.partitions": str(STATE_PARTITIONS)}) as spark:
        rows = spark.readStream.schema(KEYS_DDL).option("maxFilesPerTrigger", 1).parquet(str(folder / "data"))
        counted = rows.groupBy("key").applyInPandasWithState(
            count_in_spark_state(COST_SECONDS), "n long", "n long", "update", GroupStateTimeout.NoTimeout
        )
        writer = counted.writeStream.format("noop").outputMode("update").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
        query.awaitTermination()
        seconds = [progress.durationMs["triggerExecution"] / 1000 for progress in query.recentProgress if progress.numInputRows]
    assert len(seconds) == STATE_BATCHES, "every file is a batch"
    return STATE_ROWS / statistics.median(seconds[1:])


def _seconds(spark: SparkSession, file: Path, action: Callable[[DataFrame], DataFrame]) -> float:
    started = time.perf_counter()
    counted = action(spark.read.schema(KEYS_DDL).parquet(str(file))).collect()
    seconds = time.perf_counter() - started
    assert sum(row.n for row in counted) == ROWS_PER_BATCH, "every row is counted once"
    return seconds


def _figures(distribution: str, measured: Sequence[Measured]) -> list[dict[str, Any]]:
    speeds = {case: [of_run[case][0] for of_run in measured] for case in CASES}
    results: list[dict[str, Any]] = []
    for case in CASES:
        beside = {f"{distribution}: {other}": speeds[other] for other in (FIELDS, FIELDS_PLACED) if other != case}
        results.append(figure(f"{distribution}: {case}", "throughput", "rows/s", speeds[case], beside))
    for case in CASES:
        shares = [of_run[case][0] / of_run[case][1] for of_run in measured]
        results.append(figure(f"{distribution}: {case}", "share of bound", "", shares))
    return results
