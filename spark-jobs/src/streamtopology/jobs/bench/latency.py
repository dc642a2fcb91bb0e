"""What a small batch costs: 1,000 rows a batch, against a `foreachBatch` that runs one pinned Python stage and no more.

Both queries have the same source and trigger. Seconds of a batch are from Spark's trigger to when the batch is done: our
commit record, the return of the other's `foreachBatch` (without the commit file that Spark writes after it for either).
Taken twice: with a batch every half second, so that each is alone and this is what a row waits; and back to back, where a
batch of ours also waits for the end of the one before it (Spark is let go early), so that the seconds between two commits
tell how many small batches can be had.
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

from streamtopology.jobs.bench.cluster import (
    TWO_UNLIMITED,
    cluster_for,
    fresh_folder,
    machine,
    run_topology,
    tell,
    topology,
)
from streamtopology.jobs.bench.figures import figure
from streamtopology.jobs.bench.flights_data import KEYS_DDL, make_keys
from streamtopology.jobs.embedded import EmbeddedCluster
from streamtopology.jobs.pinning import placed, stage
from streamtopology.jobs.sources.descriptors import SourceSpec
from streamtopology.jobs.sources.stream import descriptor_stream
from streamtopology.jobs.tasks import warm_stage
from streamtopology.routing.topology import Topology, format_duration

ROWS_PER_BATCH = 1_000
BATCHES = 70
WARM_UP = 10
KEYS = 1_000
PACES = {"one every 0.5 s": 0.5, "back to back": 0.0}
"""How batches follow each other -> seconds of the trigger."""

OURS, BARE = "topology", "one pinned stage"
_PATIENCE_SECONDS = 30.0
"""How long Spark may take to tell of a query's last batch and its end."""


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
                    seconds[case].append([done.at[batch] - done.triggered[batch] for batch in done.told()])
                    periods[case].append(float(np.median(np.diff([done.at[batch] for batch in done.told()]))))
                p50 = {case: float(np.median(of_case[-1])) for case, of_case in seconds.items()}
                tell(f"{pace}, run {number + 1} of {runs}: p50 {p50[OURS]:.3f} s, {BARE} {p50[BARE]:.3f} s")
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
        "name": "counts", "inputs": ["rows"], "grouping": {"policy": "fields", "key": "key"}, "parallelism": 2, "run": "count",
    }  # fmt: skip
    trigger = {"interval": format_duration(interval)}
    return topology(name, folder / "data", KEYS_DDL, [operator], TWO_UNLIMITED, trigger=trigger)


@dataclass(frozen=True)
class _Done:
    """When each batch was triggered, and when it was done: epoch seconds by its number."""

    triggered: Mapping[int, float]
    at: Mapping[int, float]

    def told(self) -> list[int]:
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
    query = writer.trigger(processingTime=f"{interval} seconds").start()
    while query.isActive and not enough.wait(0.2):
        pass
    failure = query.exception()
    if failure is not None:
        raise failure
    query.stop()


class _Times(StreamingQueryListener):
    """Notes what Spark tells of each batch while one query runs; the names of its methods are Spark's."""

    def __init__(self) -> None:
        self.triggered: dict[int, float] = {}  # epoch seconds
        self.returned: dict[int, float] = {}
        self._over = threading.Event()

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
