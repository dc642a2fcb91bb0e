"""The cost of moving rows: two chained stateful operators without declared work, against Spark's own row exchange.

Both count the same rows with the same kernels and the same state in memory, batch by batch in turns: one batch of the
topology, then plain Spark over the same file. Only the topology commits its state (a delta per instance and batch).

At the end the topology runs some batches without Spark's turns between them: work in the background, such as compaction,
has no second in which it costs nothing, then. `real_time`: the workers have the executors to themselves for as long as the
topology runs, so Spark's turns come after it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from streamtopology.jobs.observe.history import History
from streamtopology.jobs.observe.outcome import BatchOutcome
from streamtopology.jobs.runtime.topology_run import TopologyRun
from streamtopology.lab.bench.cluster import (
    TWO_UNLIMITED,
    announce,
    cluster_for,
    fresh_folder,
    machine,
    plain_spark,
    run_topology,
    topology,
)
from streamtopology.lab.bench.figures import figure
from streamtopology.lab.bench.spark_counting import count_and_end, count_and_pass
from streamtopology.topology import Topology

ROWS_PER_BATCH = 1_000_000
KEYS = 100_000
ROW_GROUPS = 16
# Batches of either side that are not counted: Spark's generated code is still being compiled in the first five.
WARM_UP = 6

SCHEMA = "first BIGINT, second BIGINT"
# Batches at the end without Spark's turns; the first quarter is not counted.
BACK_TO_BACK = 40

OURS, SPARK, ALONE = "topology", "Spark's row exchange", "topology, back to back"


def run(runs: int = 5, real_time: bool = False) -> dict[str, Any]:
    """Rows/s of both, over `runs` batches each after the warm-up, and of each pair the ratio.

    A batch of the topology ends with its commit record; plain Spark's is one action that commits nothing. Every row
    passes two exchanges on both sides, as the second operator has another key than the first.
    """
    folder = fresh_folder("dataplane")
    turns = WARM_UP + runs
    files = make_rows(folder / "data", turns + BACK_TO_BACK)
    described = counting_twice("dataplane", folder / "data", TWO_UNLIMITED, real_time)
    by_spark: list[float] = []
    with cluster_for(described, folder) as embedded:

        def take_turns(run: TopologyRun, history: History) -> None:
            def after_batch(history: History) -> None:
                done = len(history.batches)
                if done <= len(by_spark) or done > turns:
                    return  # something else than a batch was noted, or the turns are over
                turn_of_spark(history.batches)

            if not real_time:
                history.listen(after_batch)

        def turn_of_spark(batches: Sequence[BatchOutcome]) -> None:
            done = len(by_spark)
            by_spark.append(_seconds_of_spark(embedded.spark, files[done], embedded.cluster.slots))
            announce(f"batch {done + 1} of {turns}: topology {batches[done].seconds:.2f} s, Spark {by_spark[-1]:.2f} s")

        ran = run_topology(embedded, described, folder, len(files), take_turns)
        while len(by_spark) < turns:
            turn_of_spark(ran.batches)
    ours, alone = (
        [batch.rows / batch.seconds for batch in batches]
        for batches in (ran.batches[WARM_UP:turns], ran.batches[turns + BACK_TO_BACK // 4 :])
    )
    theirs = [ROWS_PER_BATCH / seconds for seconds in by_spark[WARM_UP:]]
    results = [
        figure(OURS, "throughput", "rows/s", ours, {SPARK: theirs}),
        figure(SPARK, "throughput", "rows/s", theirs),
        figure(ALONE, "throughput", "rows/s", alone),
    ]
    of = machine(rows_per_batch=ROWS_PER_BATCH, keys=KEYS, real_time=real_time)
    return {"name": "dataplane", "machine": of, "results": results}


def counting_twice(name: str, data: Path, executors: Sequence[Mapping[str, Any]], real_time: bool = False) -> Topology:
    """Two chained counts, whose second has another key than the first."""
    chain = [
        {
            "name": "first",
            "inputs": ["rows"],
            "grouping": {"policy": "fields", "key": "first"},
            "parallelism": 2,
            "run": "count",
            "with": {"emit": "tuples"},
        },
        {
            "name": "second",
            "inputs": ["first"],
            "grouping": {"policy": "fields", "key": "second"},
            "parallelism": 2,
            "run": "count",
            "with": {"emit": "nothing"},
        },
    ]
    return topology(name, data, SCHEMA, chain, executors, trigger={"realTime": real_time})


def make_rows(folder: Path, batches: int) -> list[Path]:
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
