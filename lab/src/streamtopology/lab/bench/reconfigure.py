"""The cost of a re-routing for a running topology: a tenth of a million keys changes its instance, state and all.

The new table is published in the middle of a batch, as it happens in life; what the controller needs to find one is not
part of this.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamtopology.contract.reasons import EpochReason
from streamtopology.jobs.observe.history import History
from streamtopology.jobs.rerouting.router import InProcessRouter
from streamtopology.jobs.runtime.topology_run import TopologyRun
from streamtopology.lab.bench.cluster import (
    TWO_UNLIMITED,
    Ran,
    announce,
    cluster_for,
    fresh_folder,
    machine,
    run_topology,
    topology,
)
from streamtopology.lab.bench.figures import figure, switch_to
from streamtopology.lab.bench.flights_data import KEYS_DDL
from streamtopology.routing.epochs.epoch import Epoch
from streamtopology.routing.table.table import RoutingTable

KEYS = 1_000_000
ROWS_PER_BATCH = 1_000_000
SHARE_MOVED = 0.1
INSTANCES = 2
ROW_GROUPS = 16
# Batches before the first usual one; the very first has every key once.
WARM_UP = 3

# Usual batches before each publication; the switching batch is compared with their median.
USUAL = 3

# Batches from one publication to the next: the current batch, up to seven in which state moves, the usual ones.
PERIOD = USUAL + 8


def run(runs: int = 5) -> dict[str, Any]:
    """`runs` re-routings in one run of a topology that counts 1 M keys, 1 M uniform rows a batch, no declared work."""
    folder = fresh_folder("reconfigure")
    batches = WARM_UP + PERIOD * runs + 1
    _make_rows(folder / "data", batches)
    operator = {
        "name": "counts",
        "inputs": ["rows"],
        "grouping": {"policy": "mixed", "key": "key"},
        "parallelism": INSTANCES,
        "run": "count",
        "with": {"emit": "nothing"},
    }
    described = topology("reconfigure", folder / "data", KEYS_DDL, [operator], TWO_UNLIMITED)
    published: dict[int, float] = {}

    def publish_now_and_then(run: TopologyRun, history: History) -> None:
        def after_batch(history: History) -> None:
            done = len(history.batches)
            due = done >= WARM_UP + USUAL and (done - WARM_UP - USUAL) % PERIOD == 0
            if due and done not in seen and len(seen) < runs:
                seen.add(done)
                middle = history.batches[-1].seconds / 2
                threading.Timer(middle, publish_another, (run.router, published)).start()

        seen: set[int] = set()
        history.listen(after_batch)

    with cluster_for(described, folder) as embedded:
        ran = run_topology(embedded, described, folder, batches, publish_now_and_then)
    return {
        "name": "reconfigure",
        "machine": machine(keys=KEYS, rows_per_batch=ROWS_PER_BATCH),
        "results": _figures(ran, published),
    }


def _make_rows(folder: Path, batches: int) -> None:
    """Files of uniform keys; the first has each key once, so that all state is there from then on."""
    folder.mkdir()
    for number in range(batches):
        random = np.random.default_rng(number)
        keys = np.arange(KEYS) if number == 0 else random.integers(0, KEYS, ROWS_PER_BATCH)
        rows = pa.table({"key": keys, "value": random.random(len(keys))})
        pq.write_table(rows, folder / f"keys-{number:06d}.parquet", row_group_size=-(-len(keys) // ROW_GROUPS))


def publish_another(router: InProcessRouter, published: dict[int, float]) -> None:
    """Give a tenth of the buckets, others each time, to the next instance; note when, in epoch seconds."""
    now = router.epoch
    route = now.routes["counts"]
    assert route.table is not None, "mixed routes by a table"
    buckets = route.table.buckets.copy()
    chosen = np.random.default_rng(now.number).choice(len(buckets), round(SHARE_MOVED * len(buckets)), replace=False)
    buckets[chosen] = (buckets[chosen] + 1) % INSTANCES
    table = RoutingTable(route.table.entry_hashes, route.table.entry_instances, buckets)
    number = now.number + 1
    published[number] = time.time()
    routes = {"counts": replace(route, table=table)}
    router.publish(Epoch(number, routes, now.source_shares, EpochReason.of_text("a tenth of the keys moves")))


def _figures(ran: Ran, published: dict[int, float]) -> list[dict[str, Any]]:
    between: list[float] = []
    switching: list[float] = []
    longest: list[float] = []
    took: list[float] = []
    usual: list[float] = []
    for epoch, at in published.items():
        switch = switch_to(ran.batches, epoch)
        index = ran.batches.index(switch[0])
        waited = [batch for batch in ran.batches[:index] if batch.committed_at > at]
        before = ran.batches[index - len(waited) - USUAL : index - len(waited)]
        between.append(len(waited))
        switching.append(switch[0].seconds)
        longest.append(max(batch.seconds for batch in switch))
        took.append(len(switch))
        usual.append(statistics.median(batch.seconds for batch in before))
        announce(f"epoch {epoch}: {len(waited)} batches later, {switching[-1]:.2f} s after {usual[-1]:.2f} s as usual")
    moved: Sequence[float] = [change.keys_moved for change in ran.reconfigurations if change.operator == "counts"]
    return [
        figure("switching batch", "batches before it", "", between),
        figure("switching batch", "batches of a switch", "", took),
        figure("switching batch", "batch time", "s", switching, {"usual batch": usual}),
        figure("longest batch of a switch", "batch time", "s", longest, {"usual batch": usual}),
        figure("usual batch", "batch time", "s", usual),
        figure("switching batch", "keys moved", "keys", moved),
    ]
