"""What moving rows costs: two chained stateful operators without declared work, against Spark's own row exchange.

Both count the same rows with the same kernels and the same state in memory, batch by batch in turns: one batch of the
topology, then plain Spark over the same file. Only the topology commits its state (a delta per instance and batch).
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from streamtopology.jobs.bench.cluster import (
    TWO_UNLIMITED,
    cluster_for,
    fresh_folder,
    machine,
    plain_spark,
    run_topology,
    tell,
    topology,
)
from streamtopology.jobs.bench.figures import figure
from streamtopology.jobs.bench.spark_counting import count_and_end, count_and_pass
from streamtopology.jobs.history import History
from streamtopology.jobs.runner import TopologyRun

ROWS_PER_BATCH = 1_000_000
KEYS = 100_000
ROW_GROUPS = 16
WARM_UP = 6
"""Batches of either side that are not counted: Spark's generated code is still being compiled in the first five."""

SCHEMA = "first BIGINT, second BIGINT"
OURS, SPARK = "topology", "Spark's row exchange"


def run(runs: int = 5) -> dict[str, Any]:
    """Rows/s of both, over `runs` batches each after the warm-up, and of each pair the ratio.

    A batch of the topology ends with its commit record; plain Spark's is one action that commits nothing. Every row
    passes two exchanges on both sides, as the second operator has another key than the first.
    """
    folder = fresh_folder("dataplane")
    files = _make_rows(folder / "data", WARM_UP + runs)
    chain = [
        {"name": "first", "inputs": ["rows"], "grouping": {"policy": "fields", "key": "first"}, "parallelism": 2,
         "run": "count", "with": {"emit": "tuples"}},
        {"name": "second", "inputs": ["first"], "grouping": {"policy": "fields", "key": "second"}, "parallelism": 2,
         "run": "count", "with": {"emit": "nothing"}},
    ]  # fmt: skip
    described = topology("dataplane", folder / "data", SCHEMA, chain, TWO_UNLIMITED)
    by_spark: list[float] = []
    with cluster_for(described, folder) as embedded:

        def take_turns(run: TopologyRun, history: History) -> None:
            def after_batch(history: History) -> None:
                done = len(history.batches)
                if done <= len(by_spark):
                    return  # something else than a batch was noted
                by_spark.append(_seconds_of_spark(embedded.spark, files[done - 1], embedded.cluster.slots))
                tell(f"batch {done} of {len(files)}: topology {history.batches[-1].seconds:.2f} s, Spark {by_spark[-1]:.2f} s")

            history.listen(after_batch)

        ran = run_topology(embedded, described, folder, len(files), take_turns)
    ours = [batch.rows / batch.seconds for batch in ran.batches[WARM_UP:]]
    theirs = [ROWS_PER_BATCH / seconds for seconds in by_spark[WARM_UP:]]
    results = [
        figure(OURS, "throughput", "rows/s", ours, {SPARK: theirs}),
        figure(SPARK, "throughput", "rows/s", theirs),
    ]
    return {"name": "dataplane", "machine": machine(rows_per_batch=ROWS_PER_BATCH, keys=KEYS), "results": results}


def _make_rows(folder: Path, batches: int) -> list[Path]:
    """Files of uniform keys; `second` is independent of `first`."""
    folder.mkdir()
    files: list[Path] = []
    for number in range(batches):
        random = np.random.default_rng(number)
        columns = {name: random.integers(0, KEYS, ROWS_PER_BATCH) for name in ("first", "second")}
        files.append(folder / f"rows-{number:06d}.parquet")
        pq.write_table(pa.table(columns), files[-1], row_group_size=-(-ROWS_PER_BATCH // ROW_GROUPS))
    return files


def _seconds_of_spark(session: SparkSession, file: Path, slots: tuple[object, ...]) -> float:
    with plain_spark(session) as spark:
        started = time.perf_counter()
        rows = spark.read.schema(SCHEMA).parquet(str(file))
        first = rows.repartition(len(slots), "first").mapInArrow(count_and_pass("first", "first"), SCHEMA)
        second = first.repartition(len(slots), "second").mapInArrow(count_and_end("second", "second"), "n long")
        counted = second.collect()
        seconds = time.perf_counter() - started
    assert sum(row.n for row in counted) == ROWS_PER_BATCH, "every row is counted once"
    return seconds
