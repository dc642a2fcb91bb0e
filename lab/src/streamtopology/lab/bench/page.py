"""The cost of the page: the topology of `dataplane`, back to back, while ten readers ask for its figures and while none does.

A reader asks as an open page does: once a second, for the batches that it lacks. All are one process of their own, which
starts before the first batch.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from streamtopology.jobs.observe.history import History
from streamtopology.jobs.runtime.topology_run import TopologyRun
from streamtopology.lab.bench import page_readers
from streamtopology.lab.bench.cluster import TWO_UNLIMITED, announce, cluster_for, fresh_folder, machine, run_topology
from streamtopology.lab.bench.dataplane import KEYS, ROWS_PER_BATCH, WARM_UP, counting_twice, make_rows
from streamtopology.lab.bench.figures import figure
from streamtopology.lab.bench.page_readers import READERS

# Batches with readers, then as many without; the first two of each are not counted: readers begin and end in them.
BLOCK = 15

_SKIPPED = 2
_SETTLED = WARM_UP + BLOCK

WATCHED, UNWATCHED = f"{READERS} open pages", "no open page"


def run(runs: int = 5) -> dict[str, Any]:
    """Rows/s of `runs` blocks of batches with readers and without, in turns, and of each pair the ratio."""
    folder = fresh_folder("page")
    batches = _SETTLED + 2 * runs * BLOCK
    make_rows(folder / "data", batches)
    described = counting_twice("page", folder / "data", TWO_UNLIMITED)
    command = [sys.executable, "-m", page_readers.__name__]
    with cluster_for(described, folder) as embedded, subprocess.Popen(command, stdin=subprocess.PIPE, text=True) as readers:

        def watch_in_turns(run: TopologyRun, history: History) -> None:
            sent: list[str] = []

            def after_batch(history: History) -> None:
                address = history.address if _is_watched(history.totals.batches) else ""
                if sent[-1:] != [address] and readers.stdin is not None:
                    sent.append(address)
                    readers.stdin.write(f"{address}\n")
                    readers.stdin.flush()

            history.listen(after_batch)

        ran = run_topology(embedded, described, folder, batches, watch_in_turns)
        readers.kill()
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
