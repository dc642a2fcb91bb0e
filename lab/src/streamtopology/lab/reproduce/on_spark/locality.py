"""`locality-cluster`: a chain of two keyed operators before and after it is re-routed for locality (figures 13 and 14).

Stable keys: each key of the first operator continues by one key of the second, so that all tuples could stay.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import TYPE_CHECKING

from streamtopology.contract.reasons import RemedyKind
from streamtopology.lab.reproduce.experiment import Claim, Experiment, Measured, Parameters, Plot, Progress, Row, Summary

if TYPE_CHECKING:  # Spark is started by those who measure only
    from streamtopology.lab.bench.cluster import Ran
    from streamtopology.topology import Topology

EDGE = ("first", "second")


def _measure(given: Parameters, runs: int, seed: int, progress: Progress) -> Measured:
    from streamtopology.lab.bench import cluster
    from streamtopology.lab.bench.flights_data import make_keys

    folder = cluster.fresh_folder("locality-cluster")
    series: list[Row] = []
    summaries: list[Summary] = []
    with cluster.cluster_for(_topology("locality-cluster", folder, given), folder) as embedded:
        for run in range(runs):
            name = f"locality-cluster-{seed + run}"
            batches, rows, keys = int(given["batches"]), int(given["rows"]), int(given["keys"])
            make_keys(folder / name, "tweets", batches, rows, keys, seed + run, 16, (seed + run) * 10**7)
            ran = cluster.run_topology(embedded, _topology(name, folder / name, given), folder, batches)
            series += _series(ran, run, rows)
            summaries.append(summary(ran))
            progress((run + 1) / runs)
    return Measured(series, {name: statistics.median(each[name] for each in summaries) for name in summaries[0]})


def _series(ran: Ran, run: int, rows: int) -> list[Row]:
    from streamtopology.jobs.observe.figures import locality

    return [
        {"batch": batch.number, "run": run, "rows_per_second": rows / batch.seconds, "locality": locality(batch)[EDGE]}
        for batch in ran.batches
    ]


def summary(ran: Ran) -> Summary:
    """Locality and seconds a batch before the first re-routing for locality, in its first batch, and after it."""
    from streamtopology.jobs.observe.figures import locality

    changes = [change.batch for change in ran.reconfigurations if change.reason.brings(RemedyKind.LOCALITY)]
    first = min(changes, default=len(ran.batches))
    before, after = ran.batches[1:first], ran.batches[first + 1 :]
    if not before or not after:
        raise ValueError(f"re-routed for locality in batch {first} of {len(ran.batches)}: too few batches before or after it")
    usual = statistics.median(batch.seconds for batch in before)
    return {
        "locality_before": statistics.median(locality(batch)[EDGE] for batch in before),
        "locality_at_once": locality(ran.batches[first])[EDGE],
        "locality_after": statistics.median(locality(batch)[EDGE] for batch in after),
        "slowest_after_over_before": max(batch.seconds for batch in ran.batches[first:]) / usual,
        "throughput_gain": usual / statistics.median(batch.seconds for batch in after),
    }


def _topology(name: str, data: Path, given: Parameters) -> Topology:
    from streamtopology.lab.bench import cluster
    from streamtopology.lab.bench.flights_data import KEYS_DDL

    spread = int(given["keys"]) // int(given["second_keys"])
    operators = [
        {"name": "pairs", "inputs": ["rows"], "run": "map", "with": {"select": ["key", f"key // {spread} AS next"]}},
        {
            "name": "first",
            "inputs": ["pairs"],
            "grouping": {"policy": "locality", "key": "key"},
            "run": "count",
            "with": {"emit": "tuples"},
        },
        {
            "name": "second",
            "inputs": ["first"],
            "grouping": {"policy": "locality", "key": "next"},
            "run": "count",
            "with": {"emit": "nothing"},
        },
    ]
    executors = [{"name": "server", "replicas": int(given["servers"]), "cpu": given["cpu"], "memory": "1Gi"}]
    rebalance = {"mode": "Auto", "interval": given["interval"], "maxTableEntries": int(given["keys"])}
    return cluster.topology(name, data, KEYS_DDL, operators, executors, rebalance)


LOCALITY_CLUSTER = Experiment(
    id="locality-cluster",
    title="Locality and throughput before and after one reconfiguration of a stable stream (locality-reconfigure on Spark)",
    source="Locality-aware routing, figures 13 and 14",
    parameters={
        "rows": 200_000,
        "keys": 3000,
        "second_keys": 300,
        "batches": 20,
        "servers": 4,
        "cpu": "500m",
        "interval": "6s",
    },
    quick={"rows": 100_000},
    runs=3,
    quick_runs=1,
    seconds=120,
    quick_seconds=60,
    seeds=1,
    measure=_measure,
    claims=[
        Claim(
            "Hashing leaves one tuple in four on its server (within 10 points)",
            lambda found: abs(found["locality_before"] - 0.25) <= 0.1,
            {"locality_before": 0.25},
            "A few frequent keys make much of it: by where hashing puts a key and the one that follows it, all of its tuples"
            " stay or none.",
        ),
        Claim(
            "After it, nine of ten tuples stay, from its first batch on",
            lambda found: found["locality_at_once"] >= 0.9,
            why_not="A key that was not seen before the plan, or that has to go elsewhere for balance's sake, is on another"
            " executor than the key that follows it.",
        ),
        Claim(
            "Throughput does not dip: no batch from the first under it on takes twice as long as those before",
            lambda found: found["slowest_after_over_before"] < 2,
            why_not="The first batch moves the state of the re-routed keys; a later one that is slow has other causes.",
        ),
        Claim(
            "Throughput rises (by a tenth at least)",
            lambda found: found["throughput_gain"] >= 1.1,
            why_not="On one host the executors' network is the loopback, which costs next to nothing: it does not show here.",
        ),
    ],
    plots=[
        Plot("Locality over batches", x="batch", y="locality", line="run"),
        Plot("Throughput over batches", x="batch", y="rows_per_second", line="run", y_label="rows/s"),
    ],
    stand_in="Zipf keys, each of which is always followed by the same one",
)
