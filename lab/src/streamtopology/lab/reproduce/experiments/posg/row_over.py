"""An experiment of POSG's paper that compares mean completion times over one parameter: a row of its own figures and claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streamtopology.lab.reproduce.experiment import (
    Claim,
    Experiment,
    ExperimentError,
    Measured,
    Parameters,
    Plot,
    Progress,
    Row,
    Summary,
)
from streamtopology.lab.reproduce.experiments.posg.comparison import POSG, Floats, MakeStream, measured
from streamtopology.lab.reproduce.experiments.posg.workloads import synthetic

# Section V-A; the last two are `earliest-finish`'s own.
SYNTHETIC: Parameters = {
    "n": 4096,
    "m": 32768,
    "wn": 64,
    "wmin": 1.0,
    "wmax": 64.0,
    "alpha": 1.0,
    "k": 5,
    "provisioning": 100.0,
    "window": 1024,
    "tolerance": 0.05,
    "eps": 0.05,
    "delta": 0.1,
    "keys": 4096,
    "tolerated_drift": 2.0,
}

# Streams a point, as in the paper.
RUNS = 100

Gains = Mapping[tuple[float, str], Floats]
Figures = Callable[[Gains, Measured], Summary]

OURS_BEATS_MERGED = Claim(
    "Ours: earliest-finish is never slower than posg-merged (to 1 in 1,000), at no point of this row",
    lambda summary: summary["ours_over_merged_min"] >= 0.999,
)


def row_over(
    id: str,
    title: str,
    source: str,
    x: str,
    values: Sequence[float],
    quick: Sequence[float],
    claims: Sequence[Claim],
    plots: Sequence[Plot],
    figures: Figures,
    make: MakeStream = synthetic,
    parameters: Parameters = SYNTHETIC,
    **others: Any,
) -> Experiment:
    """A row over the parameter `x`, whose values are the parameter `values`; its own figures come on top of the common."""

    def measure(given: Parameters, runs: int, seed: int, progress: Progress) -> Measured:
        if missing := sorted(set(quick) - set(given["values"])):
            raise ExperimentError(f"{id}: values: its claims need {missing}, too; found {given['values']}")
        found, gains = measured(given, x, given["values"], make, runs, seed, progress)
        return Measured(found.series, {**found.summary, **figures(gains, found)})

    return Experiment(
        id=id,
        title=title,
        source=f"Rivetti et al., {source}",
        parameters={**parameters, "values": list(values)},
        quick={"values": list(quick), **others.pop("also_quick", {})},
        runs=others.pop("runs", RUNS),
        quick_runs=others.pop("quick_runs", 5),
        measure=measure,
        claims=[*claims, OURS_BEATS_MERGED],
        plots=plots,
        **others,
    )


def near(name: str, figure: float, tolerance: float) -> Callable[[Summary], bool]:
    return lambda summary: abs(summary[name] - figure) <= tolerance


def at_least(name: str, figure: float) -> Callable[[Summary], bool]:
    return lambda summary: summary[name] >= figure


def speed_ups(x: str, title: str, paper: Sequence[Row] = (), log_x: bool = False) -> list[Plot]:
    return [Plot(title, x=x, y="speed_up", line="algorithm", log_x=log_x, paper=paper)]


def paper_points(x: str, points: Sequence[tuple[float, float]]) -> list[Row]:
    """The paper's points for POSG: (x, speed-up)."""
    return [{x: value, "speed_up": speed_up, "algorithm": POSG} for value, speed_up in points]
