"""Figures 6 to 9: what mu, theta and the length of learning do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from streamtopology.lab.reproduce.experiment import Claim, Experiment, Measured, Parameters, Plot, Progress, Row
from streamtopology.lab.reproduce.experiments.dkg.solutions import Contest, deviation, imbalance
from streamtopology.lab.reproduce.experiments.dkg.streams import SETUP, streams
from streamtopology.lab.simulate.streams import zipf_probabilities
from streamtopology.routing.planners.dkg import DkgSettings

Floats = npt.NDArray[np.float64]

# The share of the most frequent item, as the paper rounds it down: the theta at which it is found.
TOP_SHARES = {1.0: 0.1, 2.0: 0.6, 3.0: 0.8}

# Tuples after which DKG has learnt enough (section 5.2, on figure 9).
CONVERGED_BY = {3.0: 100, 2.0: 1_000, 1.0: 10_000}

# Converged: sigma within this share of what it is after the whole learning set.
NEAR = 0.1

# A smaller lambda by less than this share of it is no significant improvement.
NO_IMPROVEMENT = 0.1

_ALPHAS = [1.0, 2.0, 3.0]


def mean_and_worst(
    p: Parameters,
    runs: int,
    seed: int,
    progress: Progress,
    points: list[tuple[DkgSettings, int]],
    metric: Callable[[Floats], float],
) -> dict[tuple[float, int], tuple[float, float]]:
    """(alpha, index of the point) -> mean and worst over the runs, of DKG with these settings learning this many tuples."""
    found: dict[tuple[float, int], tuple[float, float]] = {}
    for part, alpha in enumerate(p["alphas"]):
        values = np.zeros((len(points), runs))
        share = (part / len(p["alphas"]), (part + 1) / len(p["alphas"]))
        lengths = sorted({learning for _, learning in points})
        for nth, length in enumerate(lengths):
            step = (share[1] - share[0]) / len(lengths)
            its_share = (share[0] + nth * step, share[0] + (nth + 1) * step)
            setup = {**p, "learning": length}
            of_length = [i for i, (_, learning) in enumerate(points) if learning == length]
            for run, stream, _ in streams(alpha, setup, runs, seed, progress, its_share):
                contest = Contest(stream, int(p["instances"]))
                sketches = {points[i][0].precision: stream.sketch(points[i][0].precision) for i in of_length}
                for i in of_length:
                    settings = points[i][0]
                    values[i, run] = metric(contest.dkg(sketches[settings.precision], settings))
        for i in range(len(points)):
            found[alpha, i] = float(values[i].mean()), float(values[i].max())
    return found


def _rows(found: dict[tuple[float, int], tuple[float, float]], column: str, xs: list[float], metric: str) -> list[Row]:
    return [
        {"line": f"Zipf-{alpha:g} {statistic}", column: xs[i], metric: value}
        for (alpha, i), values in found.items()
        for statistic, value in zip(("mean", "worst"), values, strict=True)
    ]


def measure_mu(p: Parameters, runs: int, seed: int, progress: Progress) -> Measured:
    mus: list[int] = p["mus"]
    points = [(DkgSettings(p["theta"], None, mu), int(p["learning"])) for mu in mus]
    found = mean_and_worst(p, runs, seed, progress, points, imbalance)
    first, second, last = mus.index(1), mus.index(2), len(mus) - 1
    summary: dict[str, float] = {}
    for alpha in p["alphas"]:
        (mean_1, worst_1), (mean_2, _), (mean_n, worst_n) = (found[alpha, i] for i in (first, second, last))
        summary[f"Zipf-{alpha:g}: mean, points gained from mu 1 to 2"] = mean_1 - mean_2
        summary[f"Zipf-{alpha:g}: mean, points gained from mu 2 on"] = mean_2 - mean_n
        summary[f"Zipf-{alpha:g}: worst, share gained"] = 1 - worst_n / worst_1
        summary[f"Zipf-{alpha:g}: mean, share gained"] = 1 - mean_n / mean_1
    return Measured(_rows(found, "mu", [float(mu) for mu in mus], "lambda"), summary)


def measure_theta(p: Parameters, runs: int, seed: int, progress: Progress) -> Measured:
    thetas: list[float] = p["thetas"]
    points = [(DkgSettings(theta, None, p["mu"]), int(p["learning"])) for theta in thetas]
    found = mean_and_worst(p, runs, seed, progress, points, imbalance)
    optimum: defaultdict[float, list[float]] = defaultdict(list)
    summary: dict[str, float] = {}
    for alpha in p["alphas"]:
        for _, stream, _ in streams(alpha, p, runs, seed, lambda _: None):
            optimum[alpha].append(imbalance(Contest(stream, int(p["instances"])).optimum()))
        at = thetas.index(TOP_SHARES[alpha])
        above, here, least = (found[alpha, i] for i in (at - 1, at, len(thetas) - 1))
        summary[f"Zipf-{alpha:g}: mean, before theta reaches p1"] = above[0]
        summary[f"Zipf-{alpha:g}: mean, when it does"] = here[0]
        summary[f"Zipf-{alpha:g}: mean, at the least theta"] = least[0]
        summary[f"Zipf-{alpha:g}: worst, before theta reaches p1"] = above[1]
        summary[f"Zipf-{alpha:g}: worst, when it does"] = here[1]
        summary[f"Zipf-{alpha:g}: share of the most frequent item"] = float(zipf_probabilities(int(p["items"]), alpha)[0])
        summary[f"Zipf-{alpha:g}: O-apx"] = float(np.mean(optimum[alpha]))
    return Measured(_rows(found, "theta", thetas, "lambda"), summary)


def measure_learning(p: Parameters, runs: int, seed: int, progress: Progress) -> Measured:
    lengths: list[int] = p["lengths"]
    points = [(DkgSettings(p["theta"], None, p["mu"]), length) for length in lengths]
    found = mean_and_worst(p, runs, seed, progress, points, deviation)
    summary: dict[str, float] = {}
    for alpha in p["alphas"]:
        final = found[alpha, len(lengths) - 1][0]
        unconverged = [lengths[i] for i in range(len(lengths)) if abs(found[alpha, i][0] - final) > NEAR * final]
        summary[f"Zipf-{alpha:g}: tuples until converged"] = float(min(m for m in lengths if m > max(unconverged, default=0)))
    return Measured(_rows(found, "m", [float(m) for m in lengths], "sigma"), summary)


# The reason why the worst case falls with mu, by alpha; at Zipf-3 it hardly does.
WORST_OVER_MU = {
    1.0: "No item is heavy at Zipf-1 (the first has 10 %), so that more buckets help the worst mapping as they do the mean; why"
    " the paper's worst case stays is not known.",
    2.0: "The worst mapping has several frequent items in the bucket of the first, which is rarer with more buckets; with the"
    " paper's 10,000 repetitions instead of ours it would still fall by a quarter (docs/internals/papers/dkg.md), so its own is"
    " not explained by that.",
}


# The reason why lambda falls further below the theta of the first item, by alpha.
SMALLER_THETA = {
    1.0: "The second item has 5 % of a Zipf-1 stream: theta = 0.05 finds it, too, and it is a piece with which to even out the"
    " two buckets. In points of lambda that is 2 to 3, which the paper's figure may not show.",
}


def _mu_claims(alpha: float) -> list[Claim]:
    name = f"Zipf-{alpha:g}"
    return [
        Claim(
            f"{name}: mu from 1 to 2 decreases the mean imbalance more than all larger mu together",
            lambda s: s[f"{name}: mean, points gained from mu 1 to 2"] > s[f"{name}: mean, points gained from mu 2 on"],
        ),
        Claim(
            f"{name}: the worst case is only slightly affected by mu (by a fifth at most)",
            lambda s: s[f"{name}: worst, share gained"] <= 0.2,
            why_not=WORST_OVER_MU.get(alpha, ""),
        ),
    ]


def _theta_claims(alpha: float) -> list[Claim]:
    name, share = f"Zipf-{alpha:g}", TOP_SHARES[alpha]
    claims = [
        Claim(
            f"{name}: mean and worst case drop when theta reaches {share} (both by a tenth at least)",
            lambda s: (
                s[f"{name}: mean, when it does"] <= 0.9 * s[f"{name}: mean, before theta reaches p1"]
                and s[f"{name}: worst, when it does"] <= 0.9 * s[f"{name}: worst, before theta reaches p1"]
            ),
            {f"{name}: share of the most frequent item": share},
        ),
        Claim(
            f"{name}: smaller theta brings no significant improvement (a tenth of lambda at most)",
            lambda s: s[f"{name}: mean, at the least theta"] >= (1 - NO_IMPROVEMENT) * s[f"{name}: mean, when it does"],
            why_not=SMALLER_THETA.get(alpha, ""),
        ),
    ]
    if alpha > 1:
        claims.append(
            Claim(
                f"{name}: the mean at theta = {share} is that of O-apx (within 1 point of lambda)",
                lambda s: s[f"{name}: mean, when it does"] - s[f"{name}: O-apx"] <= 1,
            )
        )
    return claims


def _learning_claim(alpha: float, tuples: int) -> Claim:
    return Claim(
        f"Zipf-{alpha:g}: {tuples:,} tuples are enough (sigma within {NEAR:.0%} of its final value)",
        lambda s: s[f"Zipf-{alpha:g}: tuples until converged"] <= tuples,
        {f"Zipf-{alpha:g}: tuples until converged": float(tuples)},
    )


DKG_MU = Experiment(
    id="dkg-mu",
    title="Imbalance of DKG over mu",
    source="DKG, figure 6",
    parameters={"alphas": _ALPHAS, "theta": 1.0, "mus": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], "instances": 2, **SETUP},
    quick={"mus": [1, 2, 5, 10]},
    runs=600,
    quick_runs=100,
    measure=measure_mu,
    claims=[claim for alpha in _ALPHAS for claim in _mu_claims(alpha)],
    plots=[Plot("Imbalance over mu, theta = 1, k = 2", "mu", "lambda", "line")],
)

DKG_THETA = Experiment(
    id="dkg-theta",
    title="Imbalance of DKG over theta",
    source="DKG, figure 7",
    parameters={
        "alphas": _ALPHAS,
        "thetas": [1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05],
        "mu": 1,
        "instances": 2,
        **SETUP,
    },
    quick={"thetas": [1.0, 0.9, 0.8, 0.7, 0.6, 0.2, 0.1, 0.05]},
    runs=500,
    quick_runs=100,
    measure=measure_theta,
    claims=[claim for alpha in _ALPHAS for claim in _theta_claims(alpha)],
    plots=[Plot("Imbalance over theta, mu = 1, k = 2", "theta", "lambda", "line")],
)

DKG_LEARN = Experiment(
    id="dkg-learn",
    title="Standard deviation of DKG over the length of the learning set",
    source="DKG, figure 9",
    parameters={
        "alphas": _ALPHAS,
        "theta": 0.1,
        "mu": 2,
        "instances": 2,
        "lengths": [10, 20, 30, 50, 100, 200, 300, 500, 1_000, 3_000, 10_000, 30_000, 80_000],
        **SETUP,
    },
    quick={"lengths": [10, 30, 100, 300, 1_000, 10_000, 80_000]},
    runs=500,
    quick_runs=100,
    measure=measure_learning,
    claims=[
        *(_learning_claim(alpha, tuples) for alpha, tuples in CONVERGED_BY.items()),
        Claim(
            "The more skew, the faster it learns",
            lambda s: (
                s["Zipf-3: tuples until converged"] < s["Zipf-2: tuples until converged"] < s["Zipf-1: tuples until converged"]
            ),
        ),
    ],
    plots=[Plot("Standard deviation over the learning set, theta = 0.1, mu = 2, k = 2", "m", "sigma", "line", log_x=True)],
)
