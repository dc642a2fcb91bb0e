"""What a small batch costs: 1,000 rows a batch, against a `foreachBatch` that runs one pinned Python stage and no more.

Both queries have the same source and trigger. Seconds of a batch are from Spark's trigger to when the batch is done: our
commit record, the return of the other's `foreachBatch` (without the commit file that Spark writes after it for either).
Batches follow each other without a break, so a batch of ours also waits for the end of the one before it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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

from streamtopology.jobs.bench.cluster import (
    TWO_UNLIMITED,
    cluster_for,
    figure,
    fresh_folder,
    machine,
    run_topology,
    tell,
    topology,
)
from streamtopology.jobs.bench.flights_data import KEYS_DDL, make_keys
from streamtopology.jobs.embedded import EmbeddedCluster
from streamtopology.jobs.pinning import placed, stage
from streamtopology.jobs.sources.descriptors import SourceSpec
from streamtopology.jobs.sources.stream import descriptor_stream
from streamtopology.jobs.tasks import warm_stage
from streamtopology.routing.topology import Topology

ROWS_PER_BATCH = 1_000
BATCHES = 110
WARM_UP = 10
KEYS = 1_000
OURS, BARE = "topology", "one pinned stage"
_PATIENCE_SECONDS = 30.0
"""How long Spark may take to tell of a query's last batch and its end."""


def run(runs: int = 5) -> dict[str, Any]:
    """p50 and p99 of `BATCHES` - `WARM_UP` batches a run, `runs` times in turns; the topology counts by key and commits."""
    folder = fresh_folder("latency")
    make_keys(folder / "data", "uniform", BATCHES, ROWS_PER_BATCH, KEYS, row_groups=2)
    seconds: dict[str, list[list[float]]] = {OURS: [], BARE: []}
    with cluster_for(_counting("latency", folder), folder) as embedded:
        for number in range(runs):
            with _timed(embedded.spark) as times:
                described = _counting(f"latency-{number}", folder)
                ran = run_topology(embedded, described, folder, BATCHES)
            committed = {batch.number: batch.committed_at for batch in ran.batches}
            seconds[OURS].append(times.until(committed))
            with _timed(embedded.spark) as times:
                _run_bare(embedded, described, folder / f"bare-{number}")
            seconds[BARE].append(times.until_returned())
            p50 = {case: float(np.median(of_case[-1])) for case, of_case in seconds.items()}
            tell(f"run {number + 1} of {runs}: p50 {p50[OURS]:.3f} s, {BARE} {p50[BARE]:.3f} s")
    results = [row for percent in (50, 99) for row in _figures(percent, seconds)]
    return {"name": "latency", "machine": machine(rows_per_batch=ROWS_PER_BATCH, batches=BATCHES), "results": results}


def _figures(percent: int, seconds: dict[str, list[list[float]]]) -> list[dict[str, Any]]:
    of = {case: [float(np.percentile(run, percent)) for run in runs] for case, runs in seconds.items()}
    metric = f"p{percent} of a batch"
    return [figure(OURS, metric, "s", of[OURS], {BARE: of[BARE]}), figure(BARE, metric, "s", of[BARE])]


def _counting(name: str, folder: Path) -> Topology:
    operator = {
        "name": "counts", "inputs": ["rows"], "grouping": {"policy": "fields", "key": "key"}, "parallelism": 2, "run": "count",
    }  # fmt: skip
    return topology(name, folder / "data", KEYS_DDL, [operator], TWO_UNLIMITED)


def _run_bare(embedded: EmbeddedCluster, described: Topology, folder: Path) -> None:
    """The other query: as many batches of the same source, each one empty Python task on every executor."""
    spark, slots = embedded.spark, [executor.slot for executor in embedded.watch.await_admitted()]
    enough, done = threading.Event(), 0

    def one_stage(frame: DataFrame, number: int) -> None:
        nonlocal done
        if enough.is_set():
            return
        stage(placed(spark, slots), warm_stage(1)).collect()
        done += 1
        if done == BATCHES:
            enough.set()

    frame = descriptor_stream(spark, [SourceSpec.of(source) for source in described.sources], folder / "files")
    writer = frame.writeStream.foreachBatch(one_stage).option("checkpointLocation", str(folder / "spark"))
    query = writer.trigger(processingTime="0 seconds").start()
    while query.isActive and not enough.wait(0.2):
        pass
    failure = query.exception()
    if failure is not None:
        raise failure
    query.stop()


class _Times(StreamingQueryListener):
    """Notes what Spark tells of each batch while one query runs; the names of its methods are Spark's."""

    def __init__(self) -> None:
        self._triggered: dict[int, float] = {}  # epoch seconds
        self._returned: dict[int, float] = {}
        self._over = threading.Event()

    def until(self, done: Mapping[int, float]) -> list[float]:
        """Seconds from each batch's trigger to `done` (batch -> epoch seconds), after the warm-up."""
        told = sorted(done.keys() & self._triggered.keys())  # a query that is stopped may keep its last batch to itself
        return [done[number] - self._triggered[number] for number in told[WARM_UP:BATCHES]]

    def until_returned(self) -> list[float]:
        """Seconds from each batch's trigger to the return of its `foreachBatch`, after the warm-up."""
        return self.until(self._returned)

    def wait(self) -> None:
        """Until the query's end has been told of, and so all its batches."""
        if not self._over.wait(_PATIENCE_SECONDS):
            raise RuntimeError(f"Spark did not tell of the query's end within {_PATIENCE_SECONDS:.0f} s")

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        progress = json.loads(event.progress.json)
        took = progress["durationMs"]
        if "addBatch" in took:  # else a look for new files that found none
            triggered = datetime.fromisoformat(progress["timestamp"]).timestamp()
            self._triggered[progress["batchId"]] = triggered
            self._returned[progress["batchId"]] = triggered + (took["triggerExecution"] - took.get("commitOffsets", 0)) / 1000

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
