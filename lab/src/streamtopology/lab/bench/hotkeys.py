"""The share of the capacity bound that `policy: auto` reaches on Spark, next to other policies and to plain Spark.

The same parquet files go through one topology under each policy, re-routed live from hashing on. Four executors, one with 30 %
of the others' CPU unless a stream says equal; 10 us of work a row. The bound of a stream is the median of those that its runs
measured: all CPU busy with rows, the source's part included, without fixed seconds and without merging.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from streamtopology.jobs.local.embedded_cluster import EmbeddedCluster
from streamtopology.lab.bench.cluster import (
    ONE_OF_FOUR_SLOW,
    announce,
    cluster_for,
    fresh_folder,
    machine,
    plain_spark,
    run_topology,
    topology,
)
from streamtopology.lab.bench.figures import figure
from streamtopology.lab.bench.flights_data import KEYS_DDL, key_shares
from streamtopology.lab.bench.spark_counting import count_in_task
from streamtopology.lab.numbered_files import write_batches
from streamtopology.topology import Topology

COST_SECONDS = 10e-6
KEYS = 100_000
ROWS = 300_000
ROW_GROUPS = 33
BATCHES = 24
# The last batches, which are measured: by then every policy has been re-routed as far as it pays.
SETTLED = 12

HOT = 0.6
MOVES_EVERY = 6
PARTITIONS = 16
PLAIN = "plain Spark, hash"
AUTO = "auto"

FOUR_EQUAL: tuple[dict[str, Any], ...] = ({"name": "large", "replicas": 4, "cpu": "420m", "memory": "1Gi"},)


@dataclass(frozen=True)
class Stream:
    """shares: of each key (float64[KEYS]) in the batch of this number."""

    name: str
    shares: Callable[[int], np.ndarray]
    policies: tuple[str, ...]
    executors: tuple[dict[str, Any], ...] = ONE_OF_FOUR_SLOW
    emit: str = "nothing"


def _zipf(exponent: float) -> Callable[[int], np.ndarray]:
    return lambda number: key_shares(f"zipf-{exponent}", KEYS) if exponent else key_shares("uniform", KEYS)  # type: ignore[arg-type]


def _hot(moves: bool) -> Callable[[int], np.ndarray]:
    def shares(number: int) -> np.ndarray:
        of_keys = np.full(KEYS, (1 - HOT) / (KEYS - 1))
        of_keys[number // MOVES_EVERY if moves else 0] = HOT
        return of_keys

    return shares


SPLITTING = ("fields", "mixed", "partial-key", "w-choices", AUTO)
STREAMS = (
    Stream("one key 60 %", _hot(moves=False), SPLITTING),
    Stream("60 % key moves every 6 batches", _hot(moves=True), ("mixed", "w-choices", AUTO)),
    Stream("one key 60 %, not combinable", _hot(moves=False), ("mixed", AUTO), emit="tuples"),
    Stream("Zipf 1.0", _zipf(1.0), ("mixed", "w-choices", AUTO)),
    Stream("Zipf 1.2", _zipf(1.2), ("mixed", "w-choices", AUTO)),
    Stream("uniform, equal", _zipf(0.0), ("fields", AUTO), executors=FOUR_EQUAL),
)


@dataclass(frozen=True)
class Reached:
    """rows/s of a run's median settled batch; the slowest of them over it; the bound in rows/s that the run measured."""

    rows_per_second: float
    slowest: float
    bound: float


def run(runs: int = 3, seed: int = 1, real_time: bool = False) -> dict[str, Any]:
    """Share of the bound by stream and policy, and `auto` against each other policy. About 4 minutes a run of a stream."""
    results: list[dict[str, Any]] = []
    for stream in STREAMS:
        folder = fresh_folder("hotkeys")
        first = _counting("first", folder, stream, "fields", real_time)
        with cluster_for(first, folder) as embedded:
            measured = [_one_run(embedded, folder / f"seed-{n}", stream, seed + n, real_time) for n in range(runs)]
        results += _lines(stream, measured)
    return {"name": "hotkeys", "machine": machine(rows_per_batch=ROWS, keys=KEYS, real_time=real_time), "results": results}


def _one_run(embedded: EmbeddedCluster, folder: Path, stream: Stream, seed: int, real_time: bool) -> Mapping[str, Reached]:
    """All policies, and plain Spark, on the same files."""
    files = _files(folder / "data", stream, seed)
    reached: dict[str, Reached] = {}
    for policy in stream.policies:
        described = _counting(f"{policy}-{seed}", folder, stream, policy, real_time)
        ran = run_topology(embedded, described, folder, BATCHES)
        seconds = [batch.seconds for batch in ran.batches[-SETTLED:]]
        median = statistics.median(seconds)
        reached[policy] = Reached(ROWS / median, max(seconds) / median, ran.bound)
        announce(f"{stream.name}, seed {seed}: {policy}: {ROWS / median:,.0f} rows/s, bound {ran.bound:,.0f}")
    plain = _plain_spark(embedded, files[-1])
    announce(f"{stream.name}, seed {seed}: {PLAIN}: {plain:,.0f} rows/s")
    return {**reached, PLAIN: Reached(plain, 1.0, statistics.median(one.bound for one in reached.values()))}


def _files(folder: Path, stream: Stream, seed: int) -> list[Path]:
    names = np.random.default_rng(seed).permutation(KEYS) + seed * 10 * KEYS

    def batch(number: int) -> pa.Table:
        random = np.random.default_rng([seed, number])
        cumulative = np.cumsum(stream.shares(number))
        drawn = np.searchsorted(cumulative / cumulative[-1], random.random(ROWS), side="right")
        return pa.table({"key": names[drawn], "value": random.random(ROWS)})

    return write_batches(folder, "keys", BATCHES, ROW_GROUPS, batch)


def _counting(name: str, folder: Path, stream: Stream, policy: str, real_time: bool) -> Topology:
    operator = {
        "name": "counts",
        "inputs": ["rows"],
        "grouping": {"policy": policy, "key": "key"},
        "parallelism": 4,
        "run": "count",
        "with": {"costPerTuple": f"{COST_SECONDS * 1e6:g}us", "emit": stream.emit},
    }
    rebalance = {"mode": "Auto", "interval": "2s"}
    trigger = {"realTime": real_time}
    return topology(name, folder / "data", KEYS_DDL, [operator], stream.executors, rebalance, trigger=trigger)


def _plain_spark(embedded: EmbeddedCluster, file: Path) -> float:
    """Rows/s of Spark's own shuffle by the key's hash, with the same work a row: the better of two."""
    count = count_in_task("key", COST_SECONDS)

    def seconds(spark: Any) -> float:
        started = time.perf_counter()
        rows = spark.read.schema(KEYS_DDL).parquet(str(file)).repartition(PARTITIONS, "key")
        counted = sum(row.n for row in rows.mapInArrow(count, "n long").collect())
        assert counted == ROWS, "every row is counted once"
        return time.perf_counter() - started

    with plain_spark(embedded.spark) as spark:
        return ROWS / min(seconds(spark) for _ in range(3))


def _lines(stream: Stream, measured: Sequence[Mapping[str, Reached]]) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    for policy in (*stream.policies, PLAIN):
        shares = [of_run[policy].rows_per_second / of_run[PLAIN].bound for of_run in measured]
        lines.append(figure(f"{stream.name}: {policy}", "share of bound", "", shares))
    auto = [of_run[AUTO].rows_per_second for of_run in measured]
    others = {
        f"{stream.name}: {policy}": [of_run[policy].rows_per_second for of_run in measured]
        for policy in (*stream.policies, PLAIN)
        if policy != AUTO
    }
    lines.append(figure(f"{stream.name}: {AUTO}", "throughput", "rows/s", auto, others))
    slowest = [of_run[AUTO].slowest for of_run in measured]
    return [*lines, figure(f"{stream.name}: {AUTO}", "slowest batch to median", "", slowest)]
