"""The cost of a small batch: 1,000 rows a batch, against a query of Spark's over the same files whose `foreachBatch` runs one
pinned Python stage and no more.

Seconds of a batch are from its trigger to when it is done: our commit record, the return of the other's `foreachBatch`
(without the commit file that Spark writes after it). Taken twice: with a batch every half second, so that each is alone and
this is what a row waits; and back to back, where a batch is triggered by the end of the one before it, so that the seconds
between two commits show how many small batches are possible. The stage by itself, without what Spark does around it, is
shown beside it. `real_time`: our batches run without jobs of Spark.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import DataFrame

from streamtopology.jobs.local.embedded_cluster import EmbeddedCluster
from streamtopology.jobs.spark.pinned_rdd import placed, stage
from streamtopology.jobs.worker.stage_tasks import warm_stage
from streamtopology.lab.bench.cluster import TWO_UNLIMITED, announce, cluster_for, fresh_folder, machine, run_topology, topology
from streamtopology.lab.bench.figures import figure
from streamtopology.lab.bench.flights_data import KEYS_DDL, make_keys
from streamtopology.topology import Topology, format_duration

ROWS_PER_BATCH = 1_000
BATCHES = 70
WARM_UP = 10
KEYS = 1_000
# Seconds of the trigger, by how batches follow each other.
PACES = {"one every 0.5 s": 0.5, "back to back": 0.0}

OURS, BARE, STAGE = "topology", "one pinned stage", "the stage by itself"


def run(runs: int = 5, real_time: bool = False) -> dict[str, Any]:
    """p50 and p99 of `BATCHES` - `WARM_UP` batches a run, `runs` times in turns; the topology counts by key and commits."""
    folder = fresh_folder("latency")
    make_keys(folder / "data", "uniform", BATCHES, ROWS_PER_BATCH, KEYS, row_groups=2)
    results: list[dict[str, Any]] = []
    with cluster_for(_counting("latency", folder, 0.0, real_time), folder) as embedded:
        for pace, interval in PACES.items():
            seconds: dict[str, list[list[float]]] = {OURS: [], BARE: [], STAGE: []}
            periods: dict[str, list[float]] = {OURS: [], BARE: []}
            for number in range(runs):
                described = _counting(f"latency-{number}-{len(results)}", folder, interval, real_time)
                for case, run_case in ((OURS, _run_ours), (BARE, _run_bare)):
                    done = run_case(embedded, described, folder / f"{case}-{described.name}", interval)
                    seconds[case].append(done.seconds(interval))
                    periods[case].append(float(np.median(np.diff([done.at[batch] for batch in done.measured()]))))
                    if done.stage:
                        seconds[STAGE].append([done.stage[batch] for batch in done.measured()])
                p50 = {case: float(np.median(of_case[-1])) for case, of_case in seconds.items()}
                of_run = ", ".join(f"{case} {value:.3f} s" for case, value in p50.items())
                announce(f"{pace}, run {number + 1} of {runs}: p50 {of_run}")
            results += [row for percent in (50, 99) for row in _figures(pace, percent, seconds)]
            if not interval:
                results.append(figure(OURS, f"between two commits, {pace}", "s", periods[OURS], {BARE: periods[BARE]}))
    of = machine(rows_per_batch=ROWS_PER_BATCH, batches=BATCHES, real_time=real_time)
    return {"name": "latency", "machine": of, "results": results}


def _figures(pace: str, percent: int, seconds: dict[str, list[list[float]]]) -> list[dict[str, Any]]:
    of = {case: [float(np.percentile(run, percent)) for run in runs] for case, runs in seconds.items()}
    metric = f"p{percent} of a batch, {pace}"
    ours = figure(OURS, metric, "s", of[OURS], {BARE: of[BARE], STAGE: of[STAGE]})
    return [ours, *(figure(case, metric, "s", of[case]) for case in (BARE, STAGE))]


def _counting(name: str, folder: Path, interval: float, real_time: bool) -> Topology:
    operator = {
        "name": "counts",
        "inputs": ["rows"],
        "grouping": {"policy": "fields", "key": "key"},
        "parallelism": 2,
        "run": "count",
    }
    trigger = {"interval": format_duration(interval), "realTime": real_time}
    return topology(name, folder / "data", KEYS_DDL, [operator], TWO_UNLIMITED, trigger=trigger)


@dataclass(frozen=True)
class _Done:
    """When each batch was begun and done, in seconds of a clock of its own. `stage`: the seconds of its stage.

    The trigger's ticks are the clock's multiples of its interval.
    """

    began: Mapping[int, float]
    at: Mapping[int, float]
    stage: Mapping[int, float] = field(default_factory=dict[int, float])

    def measured(self) -> list[int]:
        """The batches after the warm-up."""
        return sorted(self.at)[WARM_UP:]

    def seconds(self, interval: float) -> list[float]:
        """From the trigger of each batch to its end."""
        return [self.at[batch] - self._triggered(batch, interval) for batch in self.measured()]

    def _triggered(self, batch: int, interval: float) -> float:
        before = self.at[batch - 1]
        return before if not interval else max(before, self.began[batch] // interval * interval)


def _run_ours(embedded: EmbeddedCluster, described: Topology, folder: Path, interval: float) -> _Done:
    """The topology itself, done with a batch at its commit record; its ticks are of the monotonic clock."""
    epoch = time.time() - time.monotonic()
    ran = run_topology(embedded, described, folder, BATCHES)
    at = {batch.number: batch.committed_at - epoch for batch in ran.batches}
    return _Done({batch.number: at[batch.number] - batch.seconds for batch in ran.batches}, at)


def _run_bare(embedded: EmbeddedCluster, described: Topology, folder: Path, interval: float) -> _Done:
    """The other query: as many batches of the same files, each one empty Python task on every executor; ticks of the epoch."""
    spark, slots = embedded.spark, [executor.ref for executor in embedded.watch.await_admitted()]
    enough = threading.Event()
    began, at, stages = dict[int, float](), dict[int, float](), dict[int, float]()

    def one_stage(frame: DataFrame, number: int) -> None:
        if enough.is_set():
            return
        began[number] = time.time()
        stage(placed(spark, slots), warm_stage(1)).collect()
        at[number] = time.time()
        stages[number] = at[number] - began[number]
        if len(at) == BATCHES:
            enough.set()

    (source,) = described.sources
    frame = spark.readStream.schema(KEYS_DDL).format("parquet").options(**source.options).load()
    writer = frame.writeStream.foreachBatch(one_stage).option("checkpointLocation", str(folder / "spark"))
    query = writer.trigger(processingTime=f"{interval} seconds").start()
    while query.isActive and not enough.wait(0.2):
        pass
    failure = query.exception()
    if failure is not None:
        raise failure
    query.stop()
    return _Done(began, at, stages)
