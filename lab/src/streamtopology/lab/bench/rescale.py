"""The cost of one executor more, and one fewer, under a running topology.

Executors are held to less CPU than the machine has, so that a third one is a third more. Scaled by the command that
people use; the other executors continue with batches all the time.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamtopology.jobs.observe.history import History
from streamtopology.jobs.observe.outcome import BatchOutcome
from streamtopology.jobs.runtime.topology_run import TopologyRun
from streamtopology.lab.bench.cluster import announce, cluster_for, fresh_folder, machine, run_topology, topology
from streamtopology.lab.bench.figures import figure, switch_to
from streamtopology.lab.bench.flights_data import KEYS_DDL

KEYS = 200_000
ROWS_PER_BATCH = 200_000
COST = "2us"
EXECUTORS = ({"name": "even", "replicas": 2, "cpu": 0.4, "memory": "1Gi"},)
ROW_GROUPS = 16
DIFFERENT_FILES = 8
# Batches before each change, with whose median the switching batch is compared, and after it.
USUAL = 5
# Batches after a change before the next one.
SETTLED = 8
MOST_BATCHES = 1500
# A new executor carries its share when it has this part of the mean of all.
ITS_SHARE = 0.9


@dataclass
class _Story:
    """Scale out, wait until the new executor has worked, scale in, and again."""

    run: TopologyRun
    rounds: int
    asked: list[tuple[str, int, float]] = field(default_factory=list)  # out or in, batches done, when (epoch seconds)
    since: int = 0

    def after_batch(self, history: History) -> None:
        done = history.batches
        if len(done) <= self.since:
            return
        in_use = len({report.slot for report in done[-1].reports})
        wanted = 3 if self.asked and self.asked[-1][0] == "out" else 2
        settled = sum(len({report.slot for report in batch.reports}) == wanted for batch in done[self.since :])
        if in_use != wanted or settled < USUAL + SETTLED:
            return
        self.since = len(done)
        if len(self.asked) == 2 * self.rounds:
            threading.Thread(target=self.run.stop).start()
            return
        what = "in" if wanted == 3 else "out"
        self.asked.append((what, len(done), time.time()))
        threading.Thread(target=self.run.scale, args=("even", 2 if what == "in" else 3)).start()


def run(runs: int = 3) -> dict[str, Any]:
    """`runs` times one executor more and one fewer: 200,000 keys with state, 200,000 uniform rows a batch."""
    folder = fresh_folder("rescale")
    _make_rows(folder / "data")
    operator = {
        "name": "counts",
        "inputs": ["rows"],
        "grouping": {"policy": "mixed", "key": "key"},
        "run": "count",
        "with": {"emit": "nothing", "costPerTuple": COST},
    }
    described = topology("rescale", folder / "data", KEYS_DDL, [operator], EXECUTORS, {"mode": "Auto", "interval": "5s"})
    stories: list[_Story] = []

    def follow(run: TopologyRun, history: History) -> None:
        stories.append(_Story(run, runs))
        history.listen(stories[0].after_batch)

    with cluster_for(described, folder) as embedded:
        ran = run_topology(embedded, described, folder, MOST_BATCHES, follow)
    return {
        "name": "rescale",
        "machine": machine(keys=KEYS, rows_per_batch=ROWS_PER_BATCH, cost_per_tuple=COST, cpu=EXECUTORS[0]["cpu"]),
        "results": _figures(ran.batches, stories[0].asked),
    }


def _make_rows(folder: Path) -> None:
    """A few files of uniform keys under many names; the first has each key once."""
    folder.mkdir()
    for number in range(DIFFERENT_FILES):
        random = np.random.default_rng(number)
        keys = np.arange(KEYS) if number == 0 else random.integers(0, KEYS, ROWS_PER_BATCH)
        rows = pa.table({"key": keys, "value": random.random(len(keys))})
        pq.write_table(rows, folder / f"keys-{number:06d}.parquet", row_group_size=-(-len(keys) // ROW_GROUPS))
    for number in range(DIFFERENT_FILES, MOST_BATCHES):
        os.link(folder / f"keys-{number % DIFFERENT_FILES:06d}.parquet", folder / f"keys-{number:06d}.parquet")


def _figures(batches: Sequence[BatchOutcome], asked: Sequence[tuple[str, int, float]]) -> list[dict[str, Any]]:
    joined_after: list[float] = []
    until_share: list[float] = []
    switching: dict[str, list[float]] = {"out": [], "in": []}
    before: dict[str, list[float]] = {"out": [], "in": []}
    after: dict[str, list[float]] = {"out": [], "in": []}
    for what, done, at in asked:
        wanted = 3 if what == "out" else 2
        first = next(i for i in range(done, len(batches)) if _slots_in_use(batches[i]) == wanted)
        usual = statistics.median(batch.seconds for batch in batches[max(first - USUAL, 0) : first])
        switch = switch_to(batches, next(batch.epoch for batch in batches[first:] if not batch.moving))
        switching[what].append(max(batch.seconds for batch in switch))
        before[what].append(usual)
        after[what].append(statistics.median(batch.seconds for batch in batches[first + SETTLED : first + SETTLED + USUAL]))
        if what == "out":
            joined_after.append(batches[first].committed_at - batches[first].seconds - at)
            until_share.append(next(i for i in range(first, len(batches)) if _has_its_share(batches[i])) - first + 1)
        announce(f"{what}: switching batch {switching[what][-1]:.2f} s after {usual:.2f} s, then {after[what][-1]:.2f} s")
    return [
        figure("one executor more", "command to work", "s", joined_after),
        figure("one executor more", "batches to its share", "", until_share),
        figure("one executor more", "switching batch", "s", switching["out"], {"usual before": before["out"]}),
        figure("one executor more", "usual after", "s", after["out"], {"usual before": before["out"]}),
        figure("one executor fewer", "switching batch", "s", switching["in"], {"usual after": after["in"]}),
        figure("one executor fewer", "usual after", "s", after["in"], {"usual before": before["in"]}),
    ]


def _slots_in_use(batch: BatchOutcome) -> int:
    return len({report.slot for report in batch.reports})


def _has_its_share(batch: BatchOutcome) -> bool:
    """True if the executor that came last has nearly as many rows as the mean."""
    rows = {report.slot: report.rows for report in batch.reports}
    return rows[max(rows)] >= ITS_SHARE * sum(rows.values()) / len(rows)
