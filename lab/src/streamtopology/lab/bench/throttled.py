"""A chain of two operators whose executors have slow links: `auto` next to other policies, on Spark.

The first key of a row has a community, and the second is of the same one in 80 % of the rows. Rows carry 200 bytes, and what an
executor sends (in real time, gets) goes through 40 Mbit/s of the machine's loopback, shaped by its address. Four executors, one
with 30 % of the others' CPU. Every policy starts from hashing and is re-routed live. Needs Linux, root and `tc`.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from streamtopology.jobs.errors import WrongUse
from streamtopology.jobs.local.embedded_cluster import EmbeddedCluster
from streamtopology.jobs.observe.outcome import BatchOutcome
from streamtopology.jobs.spark.pinned_rdd import executors
from streamtopology.lab.bench.cluster import (
    ONE_OF_FOUR_SLOW,
    announce,
    cluster_for,
    fresh_folder,
    machine,
    run_topology,
    topology,
)
from streamtopology.lab.bench.figures import figure
from streamtopology.lab.numbered_files import write_batches
from streamtopology.lab.simulate.streams import zipf_probabilities
from streamtopology.lab.simulate.throttled_chain import CommunityStream
from streamtopology.topology import Topology

ROWS, KEYS, COMMUNITIES, CORRELATED = 100_000, 20_000, 400, 0.8
MEGABITS = 40
PADDING = 200
ROW_GROUPS = 33
BATCHES, SETTLED = 40, 12
POLICIES = ("fields", "mixed", "locality", "auto")
DDL = "first BIGINT, second BIGINT, padding STRING"
_DEVICE = "lo"


def run(runs: int = 3, seed: int = 1, real_time: bool = False) -> dict[str, Any]:
    """Rows/s by policy, and the share of rows that stay on their executor. About 6 minutes a run."""
    folder = fresh_folder("throttled")
    measured: list[dict[str, tuple[float, float]]] = []
    end = "dst" if real_time else "src"  # a worker connects from no address of its own
    with cluster_for(_chain("first", folder, "fields", real_time), folder) as embedded, _slow_links(embedded, end):
        for n in range(seed, seed + runs):
            _files(folder / f"seed-{n}" / "data", n)
            measured.append({policy: _one(embedded, folder / f"seed-{n}", policy, n, real_time) for policy in POLICIES})
    return {
        "name": "throttled",
        "machine": machine(rows_per_batch=ROWS, keys=KEYS, megabits=MEGABITS, real_time=real_time),
        "results": [line for policy in POLICIES for line in _lines(policy, measured)],
    }


def _one(embedded: EmbeddedCluster, folder: Path, policy: str, seed: int, real_time: bool) -> tuple[float, float]:
    ran = run_topology(embedded, _chain(f"{policy}-{seed}", folder, policy, real_time), folder, BATCHES)
    settled = [batch for batch in ran.batches if batch.rows][-SETTLED:]  # state that still moves has batches without rows
    rate = ROWS / statistics.median(batch.seconds for batch in settled)
    stay = statistics.median(map(_stay, settled))
    remote = settled[-1].remote_seconds
    announce(
        f"seed {seed}: {policy}: {rate:,.0f} rows/s, {stay:.0%} of the rows stay, a remote one takes {remote * 1e6:.0f} us"
    )
    return rate, stay


def _stay(batch: BatchOutcome) -> float:
    sent = [onward for report in batch.reports for onward in report.onward.values()]
    return sum(onward.stayed for onward in sent) / sum(onward.rows for onward in sent)


def _lines(policy: str, measured: Sequence[dict[str, tuple[float, float]]]) -> list[dict[str, Any]]:
    rates = {name: [of_run[name][0] for of_run in measured] for name in POLICIES}
    others = {name: of_runs for name, of_runs in rates.items() if name != policy} if policy == "auto" else {}
    return [
        figure(policy, "throughput", "rows/s", rates[policy], others),
        figure(policy, "rows that stay", "", [of_run[policy][1] for of_run in measured]),
    ]


def _files(folder: Path, seed: int) -> None:
    names = np.random.default_rng(seed).permutation(2 * KEYS).astype(np.uint64).reshape(2, KEYS)
    stream = CommunityStream(KEYS, COMMUNITIES, CORRELATED, zipf_probabilities(KEYS, 0.9), seed)

    def batch(number: int) -> pa.Table:
        first, second = stream.batch(ROWS, (names[0], names[1]))
        columns = {"first": first.astype(np.int64), "second": second.astype(np.int64)}
        return pa.table({**columns, "padding": pa.array(["x" * PADDING]).take(np.zeros(ROWS, np.int32))})

    write_batches(folder, "rows", BATCHES, ROW_GROUPS, batch)


def _chain(name: str, folder: Path, policy: str, real_time: bool) -> Topology:
    def counting(operator: str, given: str, key: str, emit: str) -> dict[str, Any]:
        options = {"costPerTuple": "5us", "emit": emit}
        grouping = {"policy": policy, "key": key}
        return {"name": operator, "inputs": [given], "grouping": grouping, "parallelism": 4, "run": "count", "with": options}

    operators = [counting("near", "rows", "first", "tuples"), counting("far", "near", "second", "nothing")]
    rebalance, trigger = {"mode": "Auto", "interval": "2s"}, {"realTime": real_time}
    return topology(name, folder / "data", DDL, operators, ONE_OF_FOUR_SLOW, rebalance, trigger=trigger)


@contextmanager
def _slow_links(embedded: EmbeddedCluster, end: str) -> Iterator[None]:
    """While entered, messages with an executor's address at this `end` have `MEGABITS`. WrongUse: that cannot be had here."""
    if shutil.which("tc") is None or os.geteuid() != 0:
        raise WrongUse("links are slowed down by `tc` (Debian: iproute2), which needs root")
    if "qdisc noqueue" not in (present := _tc("qdisc", "show", "dev", _DEVICE)):
        raise WrongUse(f"the traffic of {_DEVICE} is shaped already: {present.strip()}")
    _tc("qdisc", "add", "dev", _DEVICE, "root", "handle", "1:", "htb")
    try:
        for number, executor in enumerate(executors(embedded.spark), start=1):
            of_class = ("parent", "1:", "classid", f"1:{number}", "htb", "rate", f"{MEGABITS}mbit", "burst", "64k")
            _tc("class", "add", "dev", _DEVICE, *of_class)
            sent_by = ("u32", "match", "ip", end, f"{executor.host}/32", "flowid", f"1:{number}")
            _tc("filter", "add", "dev", _DEVICE, "parent", "1:", "protocol", "ip", *sent_by)
        yield
    finally:
        _tc("qdisc", "del", "dev", _DEVICE, "root")


def _tc(*arguments: str) -> str:
    return subprocess.run(["tc", *arguments], check=True, capture_output=True, text=True).stdout
