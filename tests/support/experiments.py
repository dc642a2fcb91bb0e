"""Small experiments with known outcomes: what the papers' ones are, in miniature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from streamtopology.lab.reproduce.experiment import Claim, Experiment, Measured, Parameters, Plot, Progress


def throws(parameters: Parameters, runs: int, seed: int, progress: Progress) -> Measured:
    """Mean of dice per number of dice; `sides` and `dice` as given."""
    random = np.random.default_rng(seed)
    rows = []
    for index, count in enumerate(parameters["dice"]):
        sums = random.integers(1, parameters["sides"] + 1, (parameters["throws"], runs, count)).sum(axis=2).mean(axis=0)
        rows += [{"dice": count, "sum": mean, "kind": "thrown"} for mean in sums]
        progress((index + 1) / len(parameters["dice"]))
    per_die = np.mean([row["sum"] / row["dice"] for row in rows])
    return Measured(rows, {"mean of a die": per_die, "runs": np.int64(runs)})


DICE = Experiment(
    id="dice-mean",
    title="The mean of dice",
    source="Dice & Sons, figure 1",
    parameters={"sides": 6, "throws": 500, "dice": [1, 2, 3, 4]},
    quick={"throws": 50, "dice": [1, 2]},
    runs=3,
    quick_runs=2,
    measure=throws,
    claims=(Claim("a die shows 3.5 on average, within 5 %", lambda s: abs(s["mean of a die"] - 3.5) < 0.175,
                  {"mean of a die": 3.5}),),
    plots=(Plot("The sum of dice", "dice", "sum", "kind", paper=({"dice": 2, "sum": 7, "kind": "thrown"},)),),
)  # fmt: skip

LOADED = replace(
    DICE,
    id="dice-loaded",
    title="Loaded <dice>",
    claims=(
        *DICE.claims,
        Claim(
            "a die shows 6 always",
            lambda s: s["mean of a die"] == 6,
            {"mean of a die": 6.0},
            why_not="these dice are fair & square",
        ),
    ),
    stand_in="numpy's generator for <real> dice",
)


def fails(parameters: Parameters, runs: int, seed: int, progress: Progress) -> Measured:
    progress(0.5)
    raise ZeroDivisionError("no dice")


FAILING = replace(DICE, id="dice-lost", title="Lost dice", measure=fails)


def measuring(series: Sequence[Mapping[str, Any]], summary: Mapping[str, Any], **changed: Any) -> Experiment:
    """DICE with a measurement that is known beforehand."""
    return replace(DICE, measure=lambda parameters, runs, seed, progress: Measured(series, summary), **changed)
