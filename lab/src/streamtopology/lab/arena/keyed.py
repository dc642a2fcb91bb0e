"""The arena's case keyed: a count by key on four workers, which are equal at first, of which one is then slowed to 30 %.

Every engine reads the same files, which follow each other without an end: an engine is measured for a time, not for a number
of rows. What a run is judged by are two windows of it: the last seconds before the slowing, and the last of the run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

from streamtopology.lab.arena.engines import Place
from streamtopology.lab.arena.peer import SCRIPTS, Arena, Measurement
from streamtopology.lab.arena.timeline import rate
from streamtopology.lab.numbered_files import write_batches
from streamtopology.lab.simulate.streams import draw, zipf_probabilities

WORKERS = 4
# Of the machine's cores, what the workers have; the rest is for drivers, JobManagers and what starts them.
SHARE_OF_CORES = 0.75
SLOW = 0.3

KEYS = 1_000_000
ROWS_PER_FILE = 500_000
DIFFERENT_FILES, FILES = 20, 6_000
ROW_GROUPS = 20
# For an engine that needs minutes for one of those files: the first of them, cut into as many.
SMALL_FILES = 50

# Seconds after rows begin to flow: until the slowing, to the end, and the windows that count before either.
SLOWED_AT, SECONDS, WINDOW = 60.0, 130.0, 30.0

SKEWS = (0.0, 1.0, 1.2)


# By engine its script, and what of the request is its own; `files`: which it reads.
PEERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "streamtopology": ("streamtopology_keyed.py", {"rerouted": True, "files_of_a_batch": 12}),
    "streamtopology-fixed": ("streamtopology_keyed.py", {"rerouted": False, "files_of_a_batch": 12}),
    "flink": ("flink_keyed.py", {}),
    "spark": ("spark_keyed.py", {"by": "sql", "files_of_a_batch": 8}),
    "spark-state": ("spark_keyed.py", {"by": "state", "files_of_a_batch": 1, "files": "small"}),
    "bytewax": ("bytewax_keyed.py", {}),
    "pathway": ("pathway_keyed.py", {"files": "csv"}),
}


@dataclass(frozen=True)
class Keyed:
    """What is measured: a count of keys with each of `skews` (Zipf's exponent), `runs` times by each of `engines` in turns."""

    skews: Sequence[float]
    runs: int
    engines: Sequence[str]


def worker_cpu(cores: int | None = None) -> float:
    """Cores of each worker, on a machine with as many (default: this one)."""
    return min(1.0, round((cores or os.cpu_count() or 1) * SHARE_OF_CORES / WORKERS, 3))


def measure(asked: Keyed, arena: Arena, place: Place, announce: Callable[[str], None]) -> list[dict[str, Any]]:
    """A row of each skew, run and engine."""
    rows: list[dict[str, Any]] = []
    for skew in asked.skews:
        data = place.folder / "data" / f"keyed-{skew:g}"
        if not (data / "counts.json").exists():
            announce(f"writes {DIFFERENT_FILES * ROWS_PER_FILE:,} rows to {data}")
            _write(data, skew)
        expected = json.loads((data / "counts.json").read_text())
        for run in range(asked.runs):
            for engine in asked.engines:
                row = arena.row(_measurement(engine, f"keyed-{skew:g}/run-{run}", data))
                rows.append({**row, "skew": skew, "run": run, "expected": expected[row["request"].get("files", "parquet")]})
    return rows


def _measurement(engine: str, case: str, data: Path) -> Measurement:
    script, own = PEERS[engine]
    kind = own.get("files", "parquet")
    cpu = worker_cpu()
    request = {
        **own,
        "cpus": [cpu] * WORKERS,
        "slowing": {"worker": WORKERS - 1, "cpu": cpu * SLOW, "at": SLOWED_AT},
        "seconds": SECONDS,
        "data": str((data / kind).absolute()),
        "checked": str((data / f"{kind}-once").absolute()),
    }
    return Measurement(engine, case, SCRIPTS / script, request)


def _write(data: Path, skew: float) -> None:
    """Files of all rows, as Parquet, also small ones, and as CSV; links to them, over and over; the first by itself.

    `counts.json`: the counts of that first one, by kind.
    """
    shares = zipf_probabilities(KEYS, skew)
    rng = np.random.default_rng(7)
    names = rng.permutation(KEYS)

    def batch(number: int) -> pa.Table:
        return pa.table({"k": names[draw(shares, ROWS_PER_FILE, rng)]})

    def part(number: int) -> pa.Table:
        rows = ROWS_PER_FILE // SMALL_FILES
        return first.slice(number * rows, rows)

    files = {"parquet": write_batches(data / "rows", "rows", DIFFERENT_FILES, ROW_GROUPS, batch)}
    first = pq.read_table(files["parquet"][0])
    files["small"] = write_batches(data / "small-rows", "rows", SMALL_FILES, 1, part)
    files["csv"] = [file.with_suffix(".csv") for file in files["parquet"]]
    for file, text in zip(files["parquet"], files["csv"], strict=True):
        csv.write_csv(pq.read_table(file), text)
    for kind, of_kind in files.items():
        for folder, count in ((data / kind, FILES), (data / f"{kind}-once", 1)):
            folder.mkdir(exist_ok=True)
            for number in range(count):
                file = of_kind[number % len(of_kind)]
                link = folder / f"rows-{number:06d}{file.suffix}"
                if not link.exists():  # of an earlier try, which had the same rows
                    link.hardlink_to(file)
    expected = {"parquet": _counts(first), "csv": _counts(first), "small": _counts(part(0))}
    (data / "counts.json").write_text(json.dumps(expected) + "\n")


def _counts(rows: pa.Table) -> list[int]:
    """The number of keys, of rows, and the highest count."""
    _, counts = np.unique(rows["k"].to_numpy(), return_counts=True)
    return [len(counts), int(counts.sum()), int(counts.max())]


@dataclass(frozen=True)
class Found:
    """Of one run: rows/s and the share of the paid CPU that worked, before the slowing and at the end.

    The bound: the engine's speed before, times the share of the CPU that is left. `back_after`: seconds from the slowing to
    when rows are within 5 % of the bound, in the next five seconds and to the end; None: never.
    """

    before: float
    after: float
    busy_before: float
    busy_after: float
    share_of_bound: float
    back_after: float | None


STEP, NEAR = 5.0, 0.95


def judge(row: Mapping[str, Any]) -> Found:
    """What the samples of a run say."""
    rows = [(at, float(count)) for at, count in row["rows_at"]]
    cpu = [(at, float(sum(of_workers))) for at, of_workers in row["cpu_at"]]
    slowing, paid = row["request"]["slowing"], sum(row["request"]["cpus"])
    paid_after = paid - row["request"]["cpus"][slowing["worker"]] + slowing["cpu"]
    slowed, end = row["slowed_at"], min(rows[-1][0], row["request"]["seconds"])
    before, after = rate(rows, slowed - WINDOW, slowed), rate(rows, end - WINDOW, end)
    bound = before * paid_after / paid
    return Found(
        before,
        after,
        rate(cpu, slowed - WINDOW, slowed) / paid,
        rate(cpu, end - WINDOW, end) / paid_after,
        after / bound,
        _back_after(rows, slowed, end, bound),
    )


def _back_after(rows: Sequence[tuple[float, float]], slowed: float, end: float, bound: float) -> float | None:
    """One burst is not enough: the rows from then to the end are near the bound, too."""
    second = slowed
    while second <= end - WINDOW:
        if min(rate(rows, second, second + STEP), rate(rows, second, end)) >= NEAR * bound:
            return second - slowed
        second += 0.5
    return None
