"""The arena's case keyed: a count by key on four equal workers, of which one is then slowed to 30 %, or the hot keys move.

Every engine reads the same files, which follow each other without an end: an engine is measured for a time, not for a number
of rows. What a run is judged by are two windows of it: the last seconds before the change, and the last of the run.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamtopology.lab.arena.engines import EngineMissing, Place
from streamtopology.lab.arena.keyed_rows import NAMES, write_rows
from streamtopology.lab.arena.peer import SCRIPTS, Arena, Measurement
from streamtopology.lab.arena.timeline import lead, rate

WORKERS = 4
# Of the machine's cores, what the workers have; the rest is for drivers, JobManagers and what starts them.
SHARE_OF_CORES = 0.75
SLOW = 0.3

# Seconds after rows begin to flow: until the change, to the end, and the windows that count before either.
CHANGED_AT, SECONDS, WINDOW = 60.0, 130.0, 30.0

SKEWS = (0.0, 1.0, 1.2)
CHANGES = {"slowed": f"one of {WORKERS} workers falls to {SLOW:.0%}", "moved": "the hot keys move"}


@dataclass(frozen=True)
class Case:
    """What is computed: its name, and a heading of its page.

    `peers`: by engine its script, and what of the request is its own; `files`: which it reads. `write` makes the rows of a skew
    in a folder: by kind of files KIND-names, which it reads over and over, and KIND-once, whose results `expected.json` has.
    `more`: what else an engine is asked, of that folder; it raises EngineMissing.
    """

    name: str
    title: str
    peers: Mapping[str, tuple[str, Mapping[str, Any]]]
    write: Callable[[Path, float], None]
    more: Callable[[str, Path, Place, Callable[[str], None]], Mapping[str, Any]] = lambda *_: {}


_PEERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "streamtopology": ("streamtopology_keyed.py", {"rerouted": True, "files_of_a_batch": 12}),
    "streamtopology-fixed": ("streamtopology_keyed.py", {"rerouted": False, "files_of_a_batch": 12}),
    "flink": ("flink_keyed.py", {}),
    "spark": ("spark_keyed.py", {"by": "sql", "files_of_a_batch": 8}),
    "spark-state": ("spark_keyed.py", {"by": "state", "files_of_a_batch": 1, "files": "small"}),
    "bytewax": ("bytewax_keyed.py", {}),
    "pathway": ("pathway_keyed.py", {"files": "csv"}),
}


COUNT = Case("keyed", "A keyed count", _PEERS, write_rows)


@dataclass(frozen=True)
class Keyed:
    """What is measured: the case with each of `skews` (Zipf's exponent of the keys) through each of `changes`.

    `runs` times, by each of `engines` in turns. Of uniform keys there are no hot ones that could move.
    """

    case: Case
    skews: Sequence[float]
    changes: Sequence[str]
    runs: int
    engines: Sequence[str]


def worker_cpu(cores: int | None = None) -> float:
    """Cores of each worker, on a machine with as many (default: this one)."""
    return min(1.0, round((cores or os.cpu_count() or 1) * SHARE_OF_CORES / WORKERS, 3))


def measure(asked: Keyed, arena: Arena, place: Place, announce: Callable[[str], None]) -> list[dict[str, Any]]:
    """A row of each skew, change, run and engine."""
    rows: list[dict[str, Any]] = []
    for skew in asked.skews:
        data = place.folder.absolute() / "data" / f"{asked.case.name}-{skew:g}"
        if not (data / "expected.json").exists():
            announce(f"writes rows to {data}")
            data.mkdir(parents=True, exist_ok=True)
            asked.case.write(data, skew)
        expected = json.loads((data / "expected.json").read_text())
        more = {engine: _more(asked.case, engine, data, arena, place, announce) for engine in asked.engines}
        for change in asked.changes if skew else [change for change in asked.changes if change != "moved"]:
            for run, engine in itertools.product(range(asked.runs), asked.engines):
                script, own = asked.case.peers[engine]
                kind = own.get("files", "parquet")
                request = {**own, **more[engine], **_request(change, data, kind)}
                lead(data / f"{kind}-now", data / f"{kind}-{NAMES[0]}")
                case = f"{asked.case.name}-{skew:g}/{change}/run-{run}"
                row = arena.row(Measurement(engine, case, SCRIPTS / script, request))
                rows.append({**row, "skew": skew, "change": change, "run": run, "expected": expected[kind]})
    return rows


def _more(
    case: Case, engine: str, data: Path, arena: Arena, place: Place, announce: Callable[[str], None]
) -> Mapping[str, Any]:
    try:
        return case.more(engine, data, place, announce)
    except EngineMissing as reason:
        arena.cannot_have(engine, reason)
        return {}


def _request(change: str, data: Path, kind: str) -> Mapping[str, Any]:
    """Of all engines that read such files."""
    cpu, now = worker_cpu(), str(data / f"{kind}-now")
    changes = {
        "slowed": {"worker": WORKERS - 1, "cpu": cpu * SLOW},
        "moved": {"link": now, "target": str(data / f"{kind}-{NAMES[1]}")},
    }
    return {
        "cpus": [cpu] * WORKERS,
        "change": {"at": CHANGED_AT, **changes[change]},
        "seconds": SECONDS,
        "data": now,
        "checked": str(data / f"{kind}-once"),
    }


@dataclass(frozen=True)
class Found:
    """Of one run: rows/s and the share of the paid CPU that worked, before the change and at the end.

    The bound: the engine's speed before, times the share of the CPU that is left. `back_after`: seconds from the change to
    when rows are within 5 % of the bound, in the next five seconds and to the end; None: never. `batches`: how many ended
    until then, of an engine that says its rows batch by batch.
    """

    before: float
    after: float
    busy_before: float
    busy_after: float
    share_of_bound: float
    back_after: float | None
    batches: int | None


STEP, NEAR = 5.0, 0.95


def judge(row: Mapping[str, Any]) -> Found:
    """What the samples of a run say."""
    rows = [(at, float(count)) for at, count in row["rows_at"]]
    cpu = [(at, float(sum(of_workers))) for at, of_workers in row["cpu_at"]]
    paid, paid_after = _paid(row["request"])
    changed, end = row["changed_at"], min(rows[-1][0], row["request"]["seconds"])
    before, after = rate(rows, changed - WINDOW, changed), rate(rows, end - WINDOW, end)
    bound = before * paid_after / paid
    back = _back_after(rows, changed, end, bound)
    counts_batches = back is not None and "files_of_a_batch" in row["request"]
    return Found(
        before,
        after,
        rate(cpu, changed - WINDOW, changed) / paid,
        rate(cpu, end - WINDOW, end) / paid_after,
        after / bound,
        back,
        sum(changed < at <= changed + back for at, _ in rows) if counts_batches else None,
    )


def _paid(request: Mapping[str, Any]) -> tuple[float, float]:
    """Cores of all workers, before the change and after it."""
    cpus, change = request["cpus"], request["change"]
    lost = cpus[change["worker"]] - change["cpu"] if "worker" in change else 0
    return sum(cpus), sum(cpus) - lost


def _back_after(rows: Sequence[tuple[float, float]], changed: float, end: float, bound: float) -> float | None:
    """One burst is not enough: the rows from then to the end are near the bound, too."""
    second = changed
    while second <= end - WINDOW:
        if min(rate(rows, second, second + STEP), rate(rows, second, end)) >= NEAR * bound:
            return second - changed
        second += 0.5
    return None
