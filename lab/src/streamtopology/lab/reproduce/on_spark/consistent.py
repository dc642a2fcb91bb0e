"""`cg-cluster`: KG, PKG, SG and CG on executors two of which have 30 % of the others' CPU (Consistent Grouping, figure 13).

The baselines are the paper's: they know nothing of capacities, so nothing is re-routed. The source is read by capacity in
every case, as it is no part of what is compared.

The paper has 3.44 and 2 times KG's, for throughput and latency or the other way round: its evaluation (section VI) says 3.44
for throughput, its abstract, introduction and conclusion say 3.44 for latency. Here both are a batch's seconds, so one claim
has the evaluation's 3.44, and 2 is met whenever it is.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from streamtopology.lab.reproduce.experiment import Claim, Experiment, Measured, Parameters, Plot, Progress, Row, Summary

if TYPE_CHECKING:  # Spark is started by those who measure only
    from streamtopology.lab.bench.cluster import Ran
    from streamtopology.topology import Topology

SCHEMES = {"KG": "fields", "PKG": "partial-key", "SG": "shuffle", "CG": "consistent"}
# Batches at the end of each run that are measured: the paper's statistics begin after ten minutes of grace.
SETTLED = 4


def _measure(given: Parameters, runs: int, seed: int, progress: Progress) -> Measured:
    from streamtopology.lab.bench import cluster
    from streamtopology.lab.bench.flights_data import make_keys

    folder = cluster.fresh_folder("cg-cluster")
    rows, seconds, replicas = int(given["rows"]), dict[str, list[float]](), dict[str, list[float]]()
    with cluster.cluster_for(_topology("cg-cluster", folder, "fields", given, live=False), folder) as embedded:
        for run in range(runs):
            name = f"cg-cluster-{seed + run}"
            batches = int(given["batches"])
            make_keys(folder / name, "tweets", batches, rows, int(given["keys"]), seed + run, 33, (seed + run) * 10**7)
            for done, (scheme, policy) in enumerate(SCHEMES.items()):
                live = scheme == "CG"
                topology = _topology(f"{name}-{policy}", folder / name, policy, given, live)
                ran = cluster.run_topology(
                    embedded, topology, folder, batches if live else SETTLED + 2, cluster.source_by_capacity(embedded)
                )
                last = ran.batches[-SETTLED:]
                seconds.setdefault(scheme, []).append(statistics.median(batch.seconds for batch in last))
                replicas.setdefault(scheme, []).append(_keys_held(ran))
                progress((run + (done + 1) / len(SCHEMES)) / runs)
    series: list[Row] = [
        {
            "scheme": scheme,
            "run": run,
            "rows_per_second": rows / took,
            "batch_seconds": took,
            "keys_held": replicas[scheme][run],
        }
        for scheme, of_scheme in seconds.items()
        for run, took in enumerate(of_scheme)
    ]
    return Measured(series, summary(seconds, replicas))


def summary(seconds: Mapping[str, Sequence[float]], replicas: Mapping[str, Sequence[float]]) -> Summary:
    """Medians over runs of CG's throughput over the others', and of the keys held over KG's."""
    gains = {
        f"cg_over_{other.lower()}": statistics.median(
            theirs / ours for ours, theirs in zip(seconds["CG"], seconds[other], strict=True)
        )
        for other in SCHEMES
        if other != "CG"
    }
    memory = {
        f"{other.lower()}_keys_over_kg": statistics.median(
            theirs / kg for kg, theirs in zip(replicas["KG"], replicas[other], strict=True)
        )
        for other in SCHEMES
        if other != "KG"
    }
    return {**gains, **memory}


def _keys_held(ran: Ran) -> float:
    """Keys in the instances' state after the first `SETTLED` batches, one counted for every instance that has it."""
    reports = ran.batches[SETTLED].reports
    splits = any(report.operator == "counts.partial" for report in reports)
    return sum(report.state_keys for report in reports if report.operator == ("counts.partial" if splits else "counts"))


def _topology(name: str, data: Path, policy: str, given: Parameters, live: bool) -> Topology:
    from streamtopology.lab.bench import cluster
    from streamtopology.lab.bench.flights_data import KEYS_DDL

    operator = {
        "name": "counts",
        "inputs": ["rows"],
        "grouping": {"policy": policy, "key": "key"},
        "run": "count",
        "with": {"costPerTuple": given["cost"], "emit": "nothing"},
        "aggregateEvery": int(given["batches"]) + 1,
    }
    executors = [
        {"name": "large", "replicas": 2, "cpu": given["cpu"], "memory": "1Gi"},
        {"name": "small", "replicas": 2, "cpu": given["limited_cpu"], "memory": "1Gi"},
    ]
    rebalance = {"mode": "Auto", "interval": "2s"} if live else None
    return cluster.topology(name, data, KEYS_DDL, [operator], executors, rebalance)


CG_CLUSTER = Experiment(
    id="cg-cluster",
    title="Throughput and memory on executors two of which are limited to 30 % CPU, on Spark",
    source="Consistent Grouping, figure 13 and section VI-B",
    parameters={"rows": 300_000, "keys": 100_000, "batches": 16, "cost": "10us", "cpu": "450m", "limited_cpu": "135m"},
    quick={"rows": 150_000, "batches": 12},
    runs=3,
    quick_runs=1,
    seconds=660,
    quick_seconds=180,
    seeds=1,
    measure=_measure,
    claims=[
        Claim(
            "CG has a higher throughput than KG, PKG and SG",
            lambda found: min(found["cg_over_kg"], found["cg_over_pkg"], found["cg_over_sg"]) > 1,
            why_not="CG alone is re-routed while it runs, by capacities that it measures on a busy machine: what moves within"
            " the last batches counts against it.",
        ),
        Claim(
            "Its throughput is up to 3.44 times KG's, in another sentence of the paper 2 times (of 3.44, within a third)",
            lambda found: found["cg_over_kg"] >= 3.44 * 2 / 3,
            {"cg_over_kg": 3.44},
            "What could be had depends on how many workers are limited: with two of four, dividing by capacity gives 2.2 times "
            "an even division, with two of the paper's 24 workers 3.1; the rest is what skew costs KG.",
        ),
        Claim(
            "Memory: PKG and CG need 8.5 / 7 of KG's (within 25 %)",
            lambda found: all(abs(found[f"{name}_keys_over_kg"] / (8.5 / 7) - 1) <= 0.25 for name in ("pkg", "cg")),
            {"pkg_keys_over_kg": 8.5 / 7, "cg_keys_over_kg": 8.5 / 7},
            "The paper's are shares of the cluster's memory, ours keys in the instances' state.",
        ),
        Claim(
            "SG needs most",
            lambda found: found["sg_keys_over_kg"] > max(found["pkg_keys_over_kg"], found["cg_keys_over_kg"]),
            why_not="Nothing is merged within a run: a virtual worker that moves leaves its keys' results where they were, and"
            " CG holds them twice while it finds its division.",
        ),
    ],
    plots=[Plot("Throughput", x="run", y="rows_per_second", line="scheme", y_label="rows/s")],
    stand_in="Zipf keys with the most frequent key's share of the TW dataset",
)
