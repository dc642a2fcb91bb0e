"""cg-range: the paper's whole range of unequal clusters, y = 1..n-1 workers z = 2..10 times as fast as the others."""

from __future__ import annotations

from itertools import product

import numpy as np

from streamtopology.lab.reproduce.experiment import Claim, Experiment, Measured, Parameters, Plot, Progress, Row
from streamtopology.lab.reproduce.experiments.consistent.balance import SOURCE, WIKIPEDIA
from streamtopology.lab.reproduce.experiments.consistent.messages import STAND_IN
from streamtopology.lab.reproduce.experiments.consistent.queues import (
    LINES,
    METRICS,
    Simulated,
    capacities,
    consistent,
    of_scheme,
    over_runs,
    plain,
)
from streamtopology.lab.reproduce.trace import KEYS

# Between busy (0.85) and idle (0.75): workers whose utilisations differ by less need not exchange anything.
THRESHOLDS_APART = 0.1


def _measure(parameters: Parameters, runs: int, seed: int, progress: Progress) -> Measured:
    n, each = parameters["workers"], parameters["virtual_workers"]
    clusters = list(product(parameters["faster"], parameters["times"]))
    rows: list[Row] = []
    for done, (faster, times) in enumerate(clusters):
        of = capacities(n, faster, times)

        def start(seed: int, of: np.ndarray = of) -> dict[str, Simulated]:
            return {**plain(n, of, seed, "KG", "SG"), "CG": consistent(parameters, of, each, seed, parameters["slot"])}

        def advance(share: float, done: int = done) -> None:
            progress((done + share) / len(clusters))

        series = over_runs(parameters, runs, seed, advance, start, {})
        for scheme in ("KG", "SG", "CG"):
            rows.append(
                {
                    "line": f"{scheme}, y = {faster}",
                    "scheme": scheme,
                    "faster": faster,
                    "times": times,
                    "queue": float(of_scheme(series, scheme, "queue")[-1]),
                    "latency": float(of_scheme(series, scheme, "latency")[-1]),
                    "utilisation": float(_second_half(of_scheme(series, scheme, "utilisation"))),
                    "virtual worker": 1 / (n * each) / float(of.min()),
                }
            )
    return Measured(rows, _summary(rows))


def _second_half(values: np.ndarray) -> float:
    return float(values[len(values) // 2 :].mean())


def _summary(rows: list[Row]) -> dict[str, float]:
    by_scheme = {scheme: [row for row in rows if row["scheme"] == scheme] for scheme in ("KG", "SG", "CG")}

    def most(metric: str, scheme: str) -> float:
        return max(float(row[metric]) for row in by_scheme[scheme])

    def most_over_kg(metric: str) -> float:
        pairs = zip(by_scheme["CG"], by_scheme["KG"], strict=True)
        return max(float(ours[metric]) / float(theirs[metric]) for ours, theirs in pairs)

    return {
        "largest virtual worker, share of a slow worker": max(float(row["virtual worker"]) for row in rows),
        **{f"largest {metric} of {scheme}": most(metric, scheme) for scheme in by_scheme for metric in METRICS},
        "largest queue of CG over KG's": most_over_kg("queue"),
        "largest latency of CG over KG's": most_over_kg("latency"),
        "largest utilisation of CG beyond the thresholds and a virtual worker": max(
            float(row["utilisation"]) - THRESHOLDS_APART - float(row["virtual worker"]) for row in by_scheme["CG"]
        ),
    }


CG_RANGE = Experiment(
    id="cg-range",
    title="Queues, latency and utilisation where y of 10 workers are z times as fast: y = 1..9, z = 2..10",
    source=f"{SOURCE} VI-B, the range of which figure 8 shows one",
    parameters={
        **WIKIPEDIA,
        **LINES,
        "messages": 1_500_000,
        "keys": 200_000,
        "windows": 30,
        "virtual_workers": 10,
        "faster": [1, 2, 3, 4, 5, 6, 7, 8, 9],
        "times": [2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0],
    },
    quick={"messages": 500_000, "keys": 50_000, "slot": 500, "faster": [1, 5, 9], "times": [2.0, 5.0, 10.0]},
    runs=1,
    quick_runs=1,
    measure=_measure,
    claims=[
        Claim(
            "CG's queues and latencies stay low with every y and z (below 1 % of KG's at the end)",
            lambda s: max(s["largest queue of CG over KG's"], s["largest latency of CG over KG's"]) < 0.01,
        ),
        Claim(
            "its imbalance is close to zero with every y and z (utilisations no further apart than the thresholds and one"
            " virtual worker, which is up to 0.73 of a slow worker's capacity)",
            lambda s: s["largest utilisation of CG beyond the thresholds and a virtual worker"] <= 0,
        ),
    ],
    plots=[Plot(f"Over z: {metric}, max - min", "times", metric, "line", log_y=metric != "utilisation") for metric in METRICS],
    stand_in=STAND_IN,
    takes=KEYS,
)
