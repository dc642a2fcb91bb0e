"""`make demo`: real flights on four unequal executors, once under `fields`, once re-routed live, and both checked.

The check is a plain group-by of the same rows with pyarrow, which shares no code with the operators, the routing or the
state: it must find the same counts and the same quantiles for every key.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from rich.console import Console

from streamtopology.jobs.bench.flights_data import make_flights
from streamtopology.jobs.query import Until
from streamtopology.jobs.report import Check
from streamtopology.jobs.runner import RunOptions
from streamtopology.jobs.running import Session, as_baseline, write_report
from streamtopology.routing.topology import load

MANIFEST = Path("examples/flights.yaml")
DATA = Path("build/data/flights")
WORK_DIR = Path("build/demo/work")
ROWS_PER_BATCH = 150_000
ROW_GROUPS = 16  # fine enough to be dealt by capacity, coarse enough to be read in milliseconds


def run_demo(report_dir: Path, batches: int) -> int:
    """Both runs, the check, the report; returns the exit code: 0 when the results are equal to the group-by."""
    console = Console()
    topology = load(MANIFEST)
    baseline = as_baseline(topology, "fields")
    outputs = [Path(sink.options["path"]) for sink in (*topology.sinks, *baseline.sinks)]
    console.print(f"making {batches} files of {ROWS_PER_BATCH:,} flights in {DATA}")
    fresh(DATA, WORK_DIR, *outputs)
    make_flights(DATA, batches, ROWS_PER_BATCH, row_groups=ROW_GROUPS)
    options = RunOptions(Until(batches=batches), WORK_DIR)
    with Session(topology, MANIFEST.parent.resolve(), options, console) as session:
        before = session.run(baseline)
        ran = session.run(topology, MANIFEST)
    checks = [check_flights(DATA, Path(ran_one.sinks[0].options["path"])) for ran_one in (baseline, topology)]
    write_report(report_dir, ran, before, checks[1])
    return 0 if all(check.equal for check in checks) else 1


def fresh(*paths: Path) -> None:
    """The demo starts from nothing each time, so that its figures are about this run alone."""
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)


def check_flights(data: Path, results: Path) -> Check:
    """Compare the last row that `results` has for each destination with a group-by of all flights in `data`."""
    flights = ds.dataset(data).to_table(columns=["dest", "arr_delay"]).drop_null()
    expected = expected_quantiles(flights, "dest", "arr_delay")
    found = last_rows(results, "dest")
    rows_expected = sum(row[0] for row in expected.values())
    rows_seen = sum(row[0] for row in found.values())
    lost = sum(max(0, row[0] - found.get(key, (0,))[0]) for key, row in expected.items())
    duplicated = sum(max(0, row[0] - expected.get(key, (0,))[0]) for key, row in found.items())
    return Check(rows_expected, rows_seen, lost, duplicated, expected == found)


QUANTILES = (0.5, 0.9, 0.99)
CLIPPED = (-60, 180)  # the manifest's min and max: what lies outside counts as these


def expected_quantiles(rows: pa.Table, key: str, column: str) -> dict[str, tuple[int, ...]]:
    """key -> (count, element of rank ceil(q * count) for each quantile), by sorting all values of a key."""
    ordered = rows.sort_by([(key, "ascending"), (column, "ascending")])
    keys = ordered[key].combine_chunks()
    values = np.clip(ordered[column].to_numpy(), *CLIPPED)
    runs = pc.call_function("run_end_encode", [keys])
    ends = runs.run_ends.to_numpy()
    starts = np.concatenate([[0], ends[:-1]])
    expected: dict[str, tuple[int, ...]] = {}
    for name, start, end in zip(runs.values.to_pylist(), starts.tolist(), ends.tolist(), strict=True):
        count = end - start
        ranks = [max(1, -(-count * round(q * 1000) // 1000)) for q in QUANTILES]
        expected[name] = (count, *(int(values[start + rank - 1]) for rank in ranks))
    return expected


def last_rows(results: Path, key: str) -> dict[str, tuple[int, ...]]:
    """key -> (count, quantiles) as the sink's newest batch that names the key has them."""
    found: dict[str, tuple[int, ...]] = {}
    for path in sorted(results.glob("*.parquet")):
        for row in pq.read_table(path).to_pylist():
            found[row[key]] = tuple(value for name, value in row.items() if name != key)
    return found
