"""The cost of a small batch: 1,000 rows a batch, against a `foreachBatch` that runs one pinned Python stage and no more.

Both queries have the same source and trigger. Seconds of a batch are from Spark's trigger to when the batch is done: our
commit record, the return of the other's `foreachBatch` (without the commit file that Spark writes after it for either).
Taken twice: with a batch every half second, so that each is alone and this is what a row waits; and back to back, where a
batch of ours also waits for the end of the one before it (Spark is let go early), so that the seconds between two commits
show how many small batches are possible.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from streamtopology.jobs.connectors.sources.descriptor_stream import descriptor_stream
from streamtopology.jobs.connectors.sources.descriptors import SourceSpec
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

OURS, BARE = "topology", "one pinned stage"
# Longest time until Spark reports a query's last batch and its end.
_PATIENCE_SECONDS = 30.0


def run(runs: int = 5) -> dict[str, Any]:
    """p50 and p99 of `BATCHES` - `WARM_UP` batches a run, `runs` times in turns; the topology counts by key and commits."""
    folder = fresh_folder("latency")
    make_keys(folder / "data", "uniform", BATCHES, ROWS_PER_BATCH, KEYS, row_groups=2)
    results: list[dict[str, Any]] = []
    with cluster_for(_counting("latency", folder, 0.0), folder) as embedded:
        for pace, interval in PACES.items():
            seconds: dict[str, list[list[float]]] = {OURS: [], BARE: []}
            periods: dict[str, list[float]] = {OURS: [], BARE: []}
            for number in range(runs):
                described = _counting(f"latency-{number}-{len(results)}", folder, interval)
                for case, run_case in ((OURS, _run_ours), (BARE, _run_bare)):
                    done = run_case(embedded, described, folder / f"{case}-{described.name}", interval)
                    seconds[case].append([done.at[batch] - done.triggered[batch] for batch in done.reported()])
                    periods[case].append(float(np.median(np.diff([done.at[batch] for batch in done.reported()]))))
                p50 = {case: float(np.median(of_case[-1])) for case, of_case in seconds.items()}
                announce(f"{pace}, run {number + 1} of {runs}: p50 {p50[OURS]:.3f} s, {BARE} {p50[BARE]:.3f} s")
            results += [row for percent in (50, 99) for row in _figures(pace, percent, seconds)]
            if not interval:
                results.append(figure(OURS, f"between two commits, {pace}", "s", periods[OURS], {BARE: periods[BARE]}))
    return {"name": "latency", "machine": machine(rows_per_batch=ROWS_PER_BATCH, batches=BATCHES), "results": results}


def _figures(pace: str, percent: int, seconds: dict[str, list[list[float]]]) -> list[dict[str, Any]]:
    of = {case: [float(np.percentile(run, percent)) for run in runs] for case, runs in seconds.items()}
    metric = f"p{percent} of a batch, {pace}"
    return [figure(OURS, metric, "s", of[OURS], {BARE: of[BARE]}), figure(BARE, metric, "s", of[BARE])]


def _counting(name: str, folder: Path, interval: float) -> Topology:
    operator = {
        "name": "counts",
        "inputs": ["rows"],
        "grouping": {"policy": "fields", "key": "key"},
        "parallelism": 2,
        "run": "count",
    }
    trigger = {"interval": format_duration(interval)}
    return topology(name, folder / "data", KEYS_DDL, [operator], TWO_UNLIMITED, trigger=trigger)


@dataclass(frozen=True)
class _Done:
    """The times when each batch was triggered and done: epoch seconds by its number."""

    triggered: Mapping[int, float]
    at: Mapping[int, float]

    def reported(self) -> list[int]:
        """The batches after the warm-up; a query that is stopped may keep its last one to itself."""
        return sorted(self.at.keys() & self.triggered.keys())[WARM_UP:]


def _run_ours(embedded: EmbeddedCluster, described: Topology, folder: Path, interval: float) -> _Done:
    """The topology itself, done with a batch at its commit record; its trigger has the interval."""
    with _timed(embedded.spark) as times:
        ran = run_topology(embedded, described, folder, BATCHES)
    return _Done(times.triggered, {batch.number: batch.committed_at for batch in ran.batches})


def _run_bare(embedded: EmbeddedCluster, described: Topology, folder: Path, interval: float) -> _Done:
    """The other query: as many batches of the same source, each one empty Python task on every executor."""
    with _timed(embedded.spark) as times:
        _bare_query(embedded, described, folder, interval)
    return _Done(times.triggered, times.returned)


def _bare_query(embedded: EmbeddedCluster, described: Topology, folder: Path, interval: float) -> None:
    spark, slots = embedded.spark, [executor.ref for executor in embedded.watch.await_admitted()]
    enough, done = threading.Event(), 0

    def one_stage(frame: DataFrame, number: int) -> None:
        nonlocal done
        if enough.is_set():
            return
        stage(placed(spark, slots), warm_stage(1)).collect()
        done += 1
        if done == BATCHES:
            enough.set()

    frame = descriptor_stream(spark, [SourceSpec.of(source) for source in described.sources], folder / "files", {})
    writer = frame.writeStream.foreachBatch(one_stage).option("checkpointLocation", str(folder / "spark"))
    query = writer.trigger(processingTime=f"{interval} seconds").start()
    while query.isActive and not enough.wait(0.2):
        pass
    failure = query.exception()
    if failure is not None:
        raise failure
    query.stop()


class _Times(StreamingQueryListener):
    """Records Spark's events of each batch while one query runs; the names of its methods are Spark's."""

    def __init__(self) -> None:
        self.triggered: dict[int, float] = {}  # epoch seconds
        self.returned: dict[int, float] = {}
        self._over = threading.Event()

    def wait(self) -> None:
        """Wait until Spark has reported the query's end, and so all its batches."""
        if not self._over.wait(_PATIENCE_SECONDS):
            raise RuntimeError(f"Spark did not report the query's end within {_PATIENCE_SECONDS:.0f} s")

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        progress = json.loads(event.progress.json)
        took = progress["durationMs"]
        if "addBatch" in took:  # else a look for new files that found none
            triggered = datetime.fromisoformat(progress["timestamp"]).timestamp()
            self.triggered[progress["batchId"]] = triggered
            self.returned[progress["batchId"]] = triggered + (took["triggerExecution"] - took.get("commitOffsets", 0)) / 1000

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        self._over.set()


@contextmanager
def _timed(spark: SparkSession) -> Iterator[_Times]:
    times = _Times()
    spark.streams.addListener(times)
    try:
        yield times
        times.wait()
    finally:
        spark.streams.removeListener(times)
