"""PySpark's StatefulProcessors by Spark's own query, and by our operator with its store and deltas: the same class and files.

Ours is one instance in this process, without cluster, sources and sinks: what a processor costs itself. CPU seconds of Spark's
side are those of all its processes, of ours those of this one; batches after the first ones count.

Then the counter in a whole run, from files of ours to commit records: on the same executors of unequal CPU, with its share of
the bound, beside Spark, of which the share of the executors' CPU is known that it used; and on two executors without limits.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from streamtopology.jobs.local.embedded_cluster import EmbeddedCluster
from streamtopology.jobs.observe.history import History
from streamtopology.jobs.operators.base import BatchInfo, Rows
from streamtopology.jobs.operators.processors.operator import operator_of
from streamtopology.jobs.scripts.executors import shape_of
from streamtopology.jobs.state import KeyedState, KeyedStateSchema
from streamtopology.jobs.state.encoding import encode
from streamtopology.lab.bench.cluster import (
    ONE_OF_FOUR_SLOW,
    TWO_UNLIMITED,
    announce,
    cluster_for,
    fresh_folder,
    machine,
    run_topology,
    topology,
)
from streamtopology.lab.bench.figures import figure
from streamtopology.lab.bench.flights_data import KEYS_DDL, make_keys
from streamtopology.lab.bench.job import (
    BATCHES,
    EXECUTORS,
    FILES,
    KEYS,
    QUERIES,
    SPARK,
    WARM,
    Speed,
    Spent,
    measured,
    speed_of,
)
from streamtopology.lab.bench.job_processors import Counter, CounterInPandas, Newest
from streamtopology.topology import Topology

OURS = "operator, store and deltas"
WHOLE = "whole run, counter"
ROWS = 2_400_000  # so that the fixed tenths of a second of a batch weigh little
ROW_GROUPS = 33
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
                    (SPARK, measured(embedded, query, place, SPARK, size).per_cpu_second),
                    (OURS, _of_operator(*case, place / "data")),
                ):
                    speeds.setdefault(f"{name}: {side}", []).append(speed)
                    announce(f"{name}: {side}: {speed:,.0f} rows per CPU second")
        results = [*_figures(speeds), *_unequal(embedded, folder, range(seed, seed + runs), quick)]
    with cluster_for(_counting("free", folder, TWO_UNLIMITED), folder) as embedded:
        of_run = [
            _whole(embedded, folder / f"free-{number}", TWO_UNLIMITED, number, quick) for number in range(seed, seed + runs)
        ]
    speed = [ran.rows_per_second for ran, _ in of_run]
    results.append(figure(f"{WHOLE}, two executors without limits", "throughput", "rows/s", speed))
    return {"name": "processors", "machine": machine(keys=KEYS), "results": results}


def _unequal(embedded: EmbeddedCluster, folder: Path, numbers: Sequence[int], quick: bool) -> Iterator[dict[str, Any]]:
    """Both sides on executors of unequal CPU, in turns."""
    query, rows = QUERIES["transformWithState, counter"]
    ours: list[Speed] = []
    sparks: list[Speed] = []
    shares: list[float] = []
    for number in numbers:
        place = folder / f"unequal-{number}"
        size = rows // 50 if quick else rows
        make_keys(place / "spark" / "data", "zipf-1.2", BATCHES * FILES, size // FILES, KEYS, number, first_key=0)
        sparks.append(measured(embedded, query, place / "spark", SPARK, size))
        ran, share = _whole(embedded, place, ONE_OF_FOUR_SLOW, number, quick)
        ours.append(ran)
        shares.append(share)
    name = f"{WHOLE}, one of four executors at 30 %"
    beside = {f"{name}: {SPARK}": [speed.rows_per_second for speed in sparks]}
    yield figure(f"{name}: {SPARK}", "throughput", "rows/s", beside[f"{name}: {SPARK}"])
    yield figure(name, "throughput", "rows/s", [speed.rows_per_second for speed in ours], beside)
    yield figure(f"{name}: {SPARK}", "of the executors' CPU", "", [speed.at_work for speed in sparks])
    yield figure(name, "of the executors' CPU", "", [speed.at_work for speed in ours])
    yield figure(name, "share of bound", "", shares)


def _whole(
    embedded: EmbeddedCluster, folder: Path, executors: Sequence[Mapping[str, Any]], number: int, quick: bool
) -> tuple[Speed, float]:
    """The speed of a run of the counter under `auto`, and its share of the bound that it measured."""
    rows = ROWS // 50 if quick else ROWS
    make_keys(folder / "data", "zipf-1.2", BATCHES, rows, KEYS, number, ROW_GROUPS, first_key=0)
    commits: list[Spent] = []

    def note(history: History) -> None:
        if len(history.batches) > len(commits):
            commits.append(Spent.so_far(embedded))

    counting = _counting(folder.name, folder, executors)
    ran = run_topology(embedded, counting, folder, BATCHES, lambda run, history: history.listen(note))
    # From commit to commit: sources are read during the batch before, which a batch's own seconds do not count.
    seconds = [0.0, *(later.at - earlier.at for earlier, later in pairwise(commits))]
    speed = speed_of(seconds, commits, rows, sum(slot.cpu for slot in embedded.slots))
    announce(f"{folder.name}: {speed.rows_per_second:,.0f} rows/s, bound {ran.bound:,.0f}")
    return speed, speed.rows_per_second / ran.bound


def _counting(name: str, folder: Path, executors: Sequence[Mapping[str, Any]]) -> Topology:
    operator = {
        "name": "counts",
        "inputs": ["rows"],
        "grouping": {"key": "key"},
        "parallelism": 4,
        "run": f"{Counter.__module__}:{Counter.__name__}",
        "with": {"output": "key bigint, n bigint"},
    }
    return topology(name, folder / "data", KEYS_DDL, [operator], executors, {"mode": "Auto", "interval": "2s"})


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
