"""What an experiment is: parameters as in its paper, a measurement, and the sentences of the paper it is held against."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Parameters = Mapping[str, Any]
"""JSON-able values by name: numbers, strings, lists of them."""

Row = Mapping[str, float | int | str]
"""One measured point: columns by name. Every row of a series has the same columns."""

Summary = Mapping[str, float]
"""The few figures that claims are about, by name."""

Progress = Callable[[float], None]
"""Told the share of the work that is done, 0..1, at least every few seconds."""


class ExperimentError(ValueError):
    """An experiment is unknown, or is given what it does not take; the message says what is allowed."""


@dataclass(frozen=True)
class Measured:
    """What came out: `series` to be drawn, `summary` to be held against the paper."""

    series: Sequence[Row]
    summary: Summary


Measure = Callable[[Parameters, int, int, Progress], Measured]
"""(parameters, runs, seed, progress) -> Measured: the same arguments give the same result."""


@dataclass(frozen=True)
class Claim:
    """One sentence of the paper, with its figure where it has one, and whether a summary bears it out.

    `holds` has the tolerance in it and says so in the sentence; it is written from the paper, never from our result.
    """

    sentence: str
    holds: Callable[[Summary], bool]
    paper: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True)
class Plot:
    """How to draw the series: columns for the axes and for what tells lines apart, and the paper's own points.

    `only`: rows whose columns have these values are drawn, for experiments with several plots. `paper`: rows with the
    same three columns, read from the paper's text or figure.
    """

    title: str
    x: str
    y: str
    line: str
    log_x: bool = False
    log_y: bool = False
    only: Mapping[str, float | int | str] = field(default_factory=dict[str, float | int | str])
    paper: Sequence[Row] = ()


@dataclass(frozen=True)
class Experiment:
    """One row of the claims. `quick` replaces some of `parameters`; `runs` and `quick_runs` are how often each is repeated.

    `stand_in` names what replaces data of the paper that cannot be had.
    """

    id: str
    title: str
    source: str
    parameters: Parameters
    quick: Parameters
    runs: int
    quick_runs: int
    measure: Measure
    claims: Sequence[Claim]
    plots: Sequence[Plot]
    stand_in: str = ""

    def carry_out(
        self, given: Parameters, progress: Progress, quick: bool = False, runs: int | None = None, seed: int = 1
    ) -> dict[str, Any]:
        """Measure with `given` over the experiment's own parameters; returns the JSON-able result of one experiment."""
        if unknown := sorted(set(given) - set(self.parameters)):
            allowed = ", ".join(self.parameters)
            raise ExperimentError(f"{self.id} has no parameter {', '.join(unknown)}; it has {allowed}")
        if runs is not None and runs < 1:
            raise ExperimentError(f"runs: {runs}: an experiment runs at least once")
        parameters = {**self.parameters, **(self.quick if quick else {}), **given}
        times = runs or (self.quick_runs if quick else self.runs)
        measured = self.measure(parameters, times, seed, progress)
        claims = [{"sentence": claim.sentence, "holds": bool(claim.holds(measured.summary))} for claim in self.claims]
        return {
            "id": self.id,
            "parameters": {**parameters, "seed": seed},
            "runs": times,
            "series": [dict(row) for row in measured.series],
            "summary": dict(measured.summary),
            "paper": {name: value for claim in self.claims for name, value in claim.paper.items()},
            "claims": claims,
            "stand_in": self.stand_in,
            "holds": all(claim["holds"] for claim in claims),
        }
