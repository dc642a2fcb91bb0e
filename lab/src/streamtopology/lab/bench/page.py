"""The cost of the page: the topology of `dataplane`, back to back, while ten readers ask for its figures and while none does.

A reader asks as an open page does: once a second, for the batches that it lacks. All are one process of their own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any
from urllib.request import urlopen

from streamtopology.jobs.observe.history import History
from streamtopology.jobs.runtime.topology_run import TopologyRun
from streamtopology.lab.bench.cluster import TWO_UNLIMITED, announce, cluster_for, fresh_folder, machine, run_topology
from streamtopology.lab.bench.dataplane import KEYS, ROWS_PER_BATCH, WARM_UP, counting_twice, make_rows
from streamtopology.lab.bench.figures import figure

READERS = 10
BLOCK = 10
"""Batches with readers, then as many without; the first two of each are not counted: readers start and end in them."""

_SKIPPED = 2
_SETTLED = WARM_UP + BLOCK

WATCHED, UNWATCHED = f"{READERS} open pages", "no open page"


def run(runs: int = 5) -> dict[str, Any]:
    """Rows/s of `runs` blocks of batches with readers and without, in turns, and of each pair the ratio."""
    folder = fresh_folder("page")
    batches = _SETTLED + 2 * runs * BLOCK
    make_rows(folder / "data", batches)
    described = counting_twice("page", folder / "data", TWO_UNLIMITED)
    readers: list[subprocess.Popen[bytes]] = []

    def watch_in_turns(run: TopologyRun, history: History) -> None:
        def after_batch(history: History) -> None:
            wanted = _is_watched(history.totals.batches)
            if wanted and not readers:
                readers.append(subprocess.Popen([sys.executable, "-m", __name__, history.address]))
            elif not wanted and readers:
                readers.pop().kill()

        history.listen(after_batch)

    with cluster_for(described, folder) as embedded:
        try:
            ran = run_topology(embedded, described, folder, batches, watch_in_turns)
        finally:
            for reader in readers:
                reader.kill()
    rates = [batch.rows / batch.seconds for batch in ran.batches]
    blocks = [rates[start + _SKIPPED : start + BLOCK] for start in range(_SETTLED, batches, BLOCK)]
    means = [sum(block) / len(block) for block in blocks]
    watched, unwatched = means[::2], means[1::2]
    announce(f"{WATCHED}: {[round(rate) for rate in watched]} rows/s; {UNWATCHED}: {[round(rate) for rate in unwatched]}")
    results = [
        figure(WATCHED, "throughput", "rows/s", watched, {UNWATCHED: unwatched}),
        figure(UNWATCHED, "throughput", "rows/s", unwatched),
    ]
    return {"name": "page", "machine": machine(rows_per_batch=ROWS_PER_BATCH, keys=KEYS), "results": results}


def _is_watched(done: int) -> bool:
    """True if the batch after `done` others has readers."""
    return done >= _SETTLED and (done - _SETTLED) // BLOCK % 2 == 0


def read_for_ever(address: str, readers: int, second: float = 1.0) -> None:
    """Ask as that many open pages do."""
    known = [-1] * readers
    while True:
        started = time.monotonic()
        for reader in range(readers):
            with urlopen(f"{address}page.json?since={known[reader]}", timeout=60) as answer:
                known[reader] = json.load(answer)["batch"]
        time.sleep(max(0.0, second - (time.monotonic() - started)))


if __name__ == "__main__":
    read_for_ever(sys.argv[1], READERS)
