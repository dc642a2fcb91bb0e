"""PySpark's StatefulProcessors by Spark's own query, and by our operator with its store and deltas: the same class and files.

Ours is one instance in this process, without cluster, sources and sinks (`bench job` has these): what a processor costs itself.
CPU seconds of Spark's side are those of all its processes, of ours those of this one; batches after the first ones count.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from streamtopology.jobs.operators.base import BatchInfo, Rows
from streamtopology.jobs.operators.processors.operator import operator_of
from streamtopology.jobs.scripts.executors import shape_of
from streamtopology.jobs.state import KeyedState, KeyedStateSchema
from streamtopology.jobs.state.encoding import encode
from streamtopology.lab.bench.cluster import announce, cluster_for, fresh_folder, machine
from streamtopology.lab.bench.figures import figure
from streamtopology.lab.bench.flights_data import make_keys
from streamtopology.lab.bench.job import BATCHES, EXECUTORS, FILES, KEYS, QUERIES, SPARK, WARM, measured
from streamtopology.lab.bench.job_processors import Counter, CounterInPandas, Newest

OURS = "operator, store and deltas"
# A query of `bench job` -> the class that it runs, in its form and time mode.
CASES: Mapping[str, tuple[type[StatefulProcessor], str, str]] = {
    "transformWithState, counter": (Counter, "rows", "None"),
    "transformWithState, list and timer": (Newest, "rows", "ProcessingTime"),
    "transformWithStateInPandas": (CounterInPandas, "pandas", "None"),
}


def run(runs: int = 3, seed: int = 1, quick: bool = False) -> dict[str, Any]:
    """Rows per CPU second of each processor by Spark and by its operator, in turns, on `runs` sets of keys."""
    folder = fresh_folder("processors")
    speeds: dict[str, list[float]] = {}
    with cluster_for(shape_of("processors", EXECUTORS, {}), folder) as embedded:
        for number in range(seed, seed + runs):
            for name, case in CASES.items():
                query, rows = QUERIES[name]
                size = rows // 50 if quick else rows
                place = folder / f"{number}-{name.replace(' ', '-').replace(',', '')}"
                make_keys(place / "data", "zipf-1.2", BATCHES * FILES, size // FILES, KEYS, number, first_key=0)
                for side, speed in (
                    (SPARK, measured(embedded, query, place, SPARK, size)[1]),
                    (OURS, _of_operator(*case, place / "data")),
                ):
                    speeds.setdefault(f"{name}: {side}", []).append(speed)
                    announce(f"{name}: {side}: {speed:,.0f} rows per CPU second")
    return {"name": "processors", "machine": machine(keys=KEYS), "results": list(_figures(speeds))}


def _figures(speeds: Mapping[str, list[float]]) -> Iterator[dict[str, Any]]:
    for case, values in speeds.items():
        sparks = f"{case.rpartition(':')[0]}: {SPARK}"
        yield figure(case, "of CPU", "rows/CPU-s", values, {} if case == sparks else {sparks: speeds[sparks]})


def _of_operator(processor: type[StatefulProcessor], form: str, mode: str, data: Path) -> float:
    """Rows per CPU second of the batches after the first ones, from read columns to a delta that could be written."""
    files = sorted(data.glob("*.parquet"))
    assert len(files) == BATCHES * FILES
    operator = operator_of(processor)(output="key bigint, n bigint", timeMode=mode, form=form)
    operator.prepare({"rows": pq.read_schema(files[0])}, ("key",))
    assert isinstance(operator.state, KeyedStateSchema)
    state = KeyedState(operator.state)
    rows, seconds = 0, 0.0
    for number in range(BATCHES):
        read = pq.read_table(files[number * FILES : (number + 1) * FILES]).combine_chunks().to_batches()
        started = time.process_time()
        operator.begin(info := BatchInfo(number, now=time.time()))
        for arrived in operator.arranged([Rows.of(batch, "rows", ("key",)) for batch in read]):
            operator.accept(arrived, state)
        operator.finish(info, state)
        encode(state.delta())
        state.commit()
        if number >= WARM:
            seconds += time.process_time() - started
            rows += sum(batch.num_rows for batch in read)
    return rows / seconds
