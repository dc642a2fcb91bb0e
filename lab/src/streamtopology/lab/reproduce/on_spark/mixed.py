"""`mixed-throughput`: word counts, a self-join of trades and TPC-H's query 5 on Spark (Mixed routing, figures 13 to 16).

The streams change as in section 5: in each interval a random instance gains f x mean by hash. With f = 0.8 eight instances are
under hashing about as uneven as the paper's 40 (the fullest 2.5 times the emptiest, figure 7). Throughput is by the clock, from
the first change to the end, so that planning, moving state and every batch before a planner has noticed count.

A batch is done when its last instance is, so its seconds stand for latency, too: the paper's -40 % against PKG is no claim of
its own, as it would be 1.67 times the throughput, for which the paper has 1.1. Ideal, which the paper plays by shuffling, is
the run of hash with the work of every stage, in seconds, divided perfectly; in rows it would be wrong where work is pairs.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from streamtopology.lab.reproduce.experiment import Claim, Experiment, Measured, Parameters, Plot, Progress, Row, Summary
from streamtopology.lab.reproduce.on_spark.changing import Changes
from streamtopology.lab.reproduce.on_spark.mixed_workloads import WORKLOADS

if TYPE_CHECKING:  # Spark is started by those who measure only
    from streamtopology.jobs.observe.history import BatchOutcome
    from streamtopology.lab.bench.cluster import Ran

NAMES = [workload.name.replace("-", "_") for workload in WORKLOADS]

# workload -> scheme -> one number a run.
Figures = Mapping[str, Mapping[str, Sequence[float]]]


def _measure(given: Parameters, runs: int, seed: int, progress: Progress) -> Measured:
    from streamtopology.lab.bench import cluster

    folder, changes = cluster.fresh_folder("mixed-throughput"), Changes.of(given)
    rates: dict[str, dict[str, list[float]]] = {workload.name: defaultdict(list) for workload in WORKLOADS}
    planning: dict[str, dict[str, list[float]]] = {workload.name: defaultdict(list) for workload in WORKLOADS}
    uneven: dict[str, dict[str, list[float]]] = {workload.name: defaultdict(list) for workload in WORKLOADS}
    series: list[Row] = []
    in_all, done = runs * sum(len(workload.schemes) for workload in WORKLOADS), 0
    with cluster.cluster_for(WORKLOADS[0].topology("mixed-throughput", folder, "fields", given), folder) as embedded:
        for run in range(runs):
            for workload in WORKLOADS:
                name = f"{workload.name}-{seed + run}"
                workload.write(folder / name, given, seed + run)
                for scheme, policy in workload.schemes.items():
                    topology = workload.topology(f"{name}-{policy}", folder / name, policy, given)
                    ran = cluster.run_topology(embedded, topology, folder, changes.batches)
                    lines = {scheme: rows_per_second(ran.batches, changes)}
                    if scheme == "hash":
                        lines["Ideal"] = rows_per_second(ran.batches, changes, divided=True)
                        uneven[workload.name][scheme].append(unevenness(ran.batches[changes.first_changed :]))
                    planning[workload.name][scheme].append(planning_share(ran, changes))
                    for line, of_line in lines.items():
                        rates[workload.name][line].append(of_line)
                        series.append({"workload": workload.name, "scheme": line, "run": run, "rows_per_second": of_line})
                    done += 1
                    progress(done / in_all)
    return Measured(series, {**summary(rates), **medians("max_to_min", uneven), **medians("planning_share", planning)})


def rows_per_second(batches: Sequence[BatchOutcome], changes: Changes, divided: bool = False) -> float:
    """Source rows/s by the clock from the first change to the end; `divided`: with all work divided perfectly."""
    measured = batches[changes.first_changed :]
    seconds = measured[-1].committed_at - batches[changes.first_changed - 1].committed_at
    waited = sum(waiting_seconds(batch) for batch in measured) if divided else 0.0
    return sum(batch.rows for batch in measured) / (seconds - waited)


def waiting_seconds(batch: BatchOutcome) -> float:
    """Seconds that like instances wait for the last one of each stage."""
    busy: defaultdict[str, list[float]] = defaultdict(list)
    for report in batch.reports:
        busy[report.operator].append(report.busy_seconds)
    return sum(max(of_stage) - statistics.fmean(of_stage) for of_stage in busy.values())


def unevenness(batches: Sequence[BatchOutcome]) -> float:
    """Rows of the fullest instance over the emptiest one's, averaged by rank, at the operator where that is most."""
    by_operator: defaultdict[str, list[list[int]]] = defaultdict(list)
    for batch in batches:
        for operator in {report.operator for report in batch.reports}:
            by_operator[operator].append(sorted(report.rows for report in batch.reports if report.operator == operator))
    # An operator such as Q5's revenues has fewer keys than instances.
    return max(
        statistics.fmean(rows[-1] for rows in of_batches) / statistics.fmean(rows[0] for rows in of_batches)
        for of_batches in by_operator.values()
        if all(rows[0] > 0 for rows in of_batches)
    )


def planning_share(ran: Ran, changes: Changes) -> float:
    """Share of the measured time that the planner took between two batches."""
    took = sum(change.plan_seconds for change in ran.reconfigurations if change.batch >= changes.first_changed)
    return took / (ran.batches[-1].committed_at - ran.batches[changes.first_changed - 1].committed_at)


def medians(of: str, figures: Figures) -> Summary:
    """Medians over runs, by workload and scheme: `words_max_to_min_of_hash` and so on."""
    return {
        f"{workload.replace('-', '_')}_{of}_of_{scheme.lower()}": statistics.median(values)
        for workload, schemes in figures.items()
        for scheme, values in schemes.items()
    }


def summary(found: Figures) -> Summary:
    """Medians over runs of Mixed's throughput over the others', by workload: `words_over_hash` and so on; and of Ideal over
    hash."""
    return {
        f"{workload.replace('-', '_')}_over_{scheme.lower()}": statistics.median(
            ours / theirs for theirs, ours in zip(of_scheme, schemes["Mixed"], strict=True)
        )
        for workload, schemes in found.items()
        for scheme, of_scheme in schemes.items()
        if scheme != "Mixed"
    } | {
        f"{workload.replace('-', '_')}_ideal_over_hash": statistics.median(
            ideal / hashed for ideal, hashed in zip(schemes["Ideal"], schemes["hash"], strict=True)
        )
        for workload, schemes in found.items()
    }


MIXED_THROUGHPUT = Experiment(
    id="mixed-throughput",
    title="Throughput of word counts, a windowed self-join and TPC-H Q5 on like executors, in streams that change, on Spark",
    source="Mixed routing, figures 13 to 16",
    parameters={
        "rows": 120_000,
        "words": 100_000,
        "symbols": 1036,
        "trades": 60_000,
        "work_exponent": 0.85,
        "batches": 24,
        "intervals": 3,
        "fluctuation": 0.8,
        "servers": 8,
        "cpu": "125m",
        "cost": "20us",
        "interval": "2s",
        "within": "400ms",
        "scale": 0.5,
        "exponent": 0.8,
        "weeks": 6,
    },
    quick={"rows": 60_000, "trades": 30_000, "batches": 16, "intervals": 2, "scale": 0.25},
    runs=3,
    quick_runs=1,
    seconds=4200,
    quick_seconds=900,
    seeds=1,
    measure=_measure,
    claims=[
        Claim(
            "Words: Mixed has a higher throughput than hash",
            lambda found: found["words_over_hash"] > 1,
            {"words_over_hash": 2.0},
            "Re-routing costs more than it brings here.",
        ),
        Claim(
            "Joins: Mixed has about twice the throughput of hash (within a third)",
            lambda found: min(found["self_join_over_hash"], found["q5_over_hash"]) >= 2 * 2 / 3,
            {"self_join_over_hash": 2.0, "q5_over_hash": 2.0},
            "Twice cannot be had: by `ideal_over_hash` a perfect division of the work would bring less, where hashing is as"
            " uneven as in the paper's figure 7 (`max_to_min_of_hash`); and after each change two or three of eight batches"
            " run by the former table.",
        ),
        Claim(
            "Mixed is about twice as fast as Readj (within a third)",
            lambda found: min(found[f"{name}_over_readj"] for name in NAMES) >= 2 * 2 / 3,
            {f"{name}_over_readj": 2.0 for name in NAMES},
            "Readj's plans are inside the loop, and take next to none of its time (`planning_share_of_readj`): it is compiled,"
            " and weighs the 4,096 heaviest keys and as many buckets, not each key.",
        ),
        Claim(
            "Words: a tenth more throughput than PKG",
            lambda found: found["words_over_pkg"] >= 1.1,
            {"words_over_pkg": 1.1},
            "PKG is balanced from the first batch after a change, Mixed from the third; its merge costs little: one partial"
            " result a key, instance and batch.",
        ),
        Claim(
            "Near Ideal: at least 0.8 of it",
            lambda found: min(found[f"{name}_over_ideal"] for name in NAMES) >= 0.8,
            {f"{name}_over_ideal": 1.0 for name in NAMES},
            "The batches after each change that run by the former table, and the one with which state moves.",
        ),
    ],
    plots=[
        Plot(workload.name, x="run", y="rows_per_second", line="scheme", only={"workload": workload.name}, y_label="rows/s")
        for workload in WORKLOADS
    ],
    stand_in="Zipf words with the top share of the papers' Twitter trace; Zipf trades of 1,036 symbols; TPC-H by tpchgen",
)
