"""An experiment: parameters as in its paper, a measurement, and the paper's sentences that it is compared with."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from streamtopology.contract.errors import InvalidInput

# JSON-able values by name: numbers, strings, lists of them.
Parameters = Mapping[str, Any]

# One measured point: columns by name. Every row of a series has the same columns.
Row = Mapping[str, float | int | str]

# The few figures that claims are about, by name.
Summary = Mapping[str, float]

# Called with the share of the work that is done, 0..1, at least every few seconds.
Progress = Callable[[float], None]


class ExperimentError(InvalidInput):
    """An experiment is unknown, or is given what it does not take; the message says what is allowed."""


@dataclass(frozen=True)
class Measured:
    """The measurements: `series` to be drawn, `summary` to be compared with the paper."""

    series: Sequence[Row]
    summary: Summary


# (parameters, runs, seed, progress) -> Measured: the same arguments give the same result.
Measure = Callable[[Parameters, int, int, Progress], Measured]


# The reason in a result where a claim does not hold and the cause is not known.
NOT_KNOWN = "It is not known."

# Seeds over which a claim is judged in the simulator.
SEEDS = 5


class _Read(Mapping[str, float]):
    """A summary that remembers, in their order, the figures that were read from it by name."""

    def __init__(self, summary: Summary) -> None:
        self._summary = summary
        self.names: dict[str, None] = {}

    def __getitem__(self, name: str) -> float:
        self.names[name] = None
        return self._summary[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._summary)

    def __len__(self) -> int:
        return len(self._summary)


@dataclass(frozen=True)
class Claim:
    """One sentence of the paper, with its figure where it has one, and whether a summary bears it out.

    `holds` has the tolerance in it and says so in the sentence; it is written from the paper, never from our result.
    `paper`: the paper's figures, under the names that the summary has for ours. `why_not`: a sentence for people
    why it does not hold here, or what is known of that; shown only when it does not hold. `by_construction`: why it cannot
    fail here, where that is so: it is checked all the same, but not counted.
    """

    sentence: str
    holds: Callable[[Summary], bool]
    paper: Mapping[str, float] = field(default_factory=dict[str, float])
    why_not: str = ""
    by_construction: str = ""

    def judged(self, summary: Summary) -> dict[str, Any]:
        """The claim as a result lists it; `figures` are those of the summary that decided."""
        read = _Read(summary)
        holds = bool(self.holds(read))
        paper = {name: _plain(value) for name, value in self.paper.items()}
        return {
            "sentence": self.sentence,
            "holds": holds,
            "paper": paper,
            "why_not": "" if holds else self.why_not or NOT_KNOWN,
            "by_construction": self.by_construction,
            "figures": list(read.names),
        }


@dataclass(frozen=True)
class Plot:
    """A drawing of the series: columns for the axes and for the lines, and the paper's own points.

    `only`: rows whose columns have these values are drawn, for experiments with several plots. `paper`: rows with the
    same three columns, read from the paper's text or figure. `x_label`, `y_label`: what the axes measure, with units,
    where the columns' names do not say it.
    """

    title: str
    x: str
    y: str
    line: str
    log_x: bool = False
    log_y: bool = False
    only: Mapping[str, float | int | str] = field(default_factory=dict[str, float | int | str])
    paper: Sequence[Row] = ()
    x_label: str = ""
    y_label: str = ""

    def rows(self, series: Sequence[Row]) -> list[Row]:
        """The rows of `series` that this plot draws: those that `only` chooses and that have all three columns.

        ExperimentError: there is none, or a row of the paper lacks a column.
        """
        columns = (self.x, self.y, self.line)
        chosen = [row for row in series if all(row.get(name) == value for name, value in self.only.items())]
        drawn = [row for row in chosen if all(name in row for name in columns)]
        if not drawn:
            where = "".join(f", {name} = {value}" for name, value in self.only.items())
            raise ExperimentError(f"plot {self.title!r}: no row of the series has {', '.join(columns)}{where}")
        for row in self.paper:
            if missing := [name for name in columns if name not in row]:
                raise ExperimentError(f"plot {self.title!r}: a row of the paper has no {missing[0]}; it has {', '.join(row)}")
        return drawn


@dataclass(frozen=True)
class Experiment:
    """One row of the claims. `quick` replaces some of `parameters`; `runs` and `quick_runs` are how often each is repeated.

    `seeds`: over how many it is judged, which share out the `runs`; with 1 it runs in the command's own process, as an
    experiment on a cluster must. `stand_in` names what replaces data of the paper that cannot be had. `seconds` and
    `quick_seconds`: about how long all runs take on two cores, where that is far from the others; it is what is expected
    before they have begun. `takes`: the kind of trace (`trace.py`) that its parameter `trace` may name, in place of the
    stand-in.
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
    seconds: float | None = None
    quick_seconds: float | None = None
    seeds: int = SEEDS
    takes: str = ""

    def expected_seconds(self, quick: bool = False, runs: int | None = None) -> float | None:
        """Seconds that it takes, repeated `runs` times or as often as by default; None if unknown."""
        seconds, times = (self.quick_seconds, self.quick_runs) if quick else (self.seconds, self.runs)
        return None if seconds is None else seconds * (runs or times) / times

    def check(self, given: Parameters) -> None:
        """Raise ExperimentError if `given` names a parameter that is none, or has another kind of value than it has."""
        if unknown := sorted(set(given) - set(self.parameters)):
            allowed = ", ".join(self.parameters)
            raise ExperimentError(f"{self.id} has no parameter {', '.join(unknown)}; it has {allowed}")
        for name, value in given.items():
            own = self.parameters[name]
            if _kind(value) != _kind(own):
                raise ExperimentError(f"{self.id}: {name}: {value!r} is {_kind(value)}; it takes {_kind(own)} such as {own!r}")

    def carry_out(
        self, given: Parameters, progress: Progress, quick: bool = False, runs: int | None = None, seed: int = 1
    ) -> dict[str, Any]:
        """Measure with `given` over the experiment's own parameters; returns the JSON-able result of one experiment."""
        self.check(given)
        if runs is not None and runs < 1:
            raise ExperimentError(f"runs: {runs}: an experiment runs at least once")
        parameters = {**self.parameters, **(self.quick if quick else {}), **given}
        times = runs or (self.quick_runs if quick else self.runs)
        measured = self.measure(parameters, times, seed, progress)
        claims = [claim.judged(measured.summary) for claim in self.claims]
        return {
            "id": self.id,
            "title": self.title,
            "source": self.source,
            "quick": quick,
            "parameters": _plain({**parameters, "seed": seed}),
            "runs": times,
            "series": [{name: _plain(value) for name, value in row.items()} for row in measured.series],
            "summary": {name: _plain(value) for name, value in measured.summary.items()},
            "paper": {name: value for claim in claims for name, value in claim["paper"].items()},
            "claims": claims,
            "stand_in": f"trace {parameters['trace']}" if parameters.get("trace") else self.stand_in,
            "holds": all(claim["holds"] for claim in claims),
        }


def _kind(value: Any) -> str:
    if isinstance(value, bool | str):
        return "a text"
    if isinstance(value, int | float):
        return "a number"
    return "a table" if isinstance(value, Mapping) else "a list"


def _plain(value: Any) -> Any:
    """The value as JSON has it: numpy's numbers and arrays as Python's, and None for what is not a finite number."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in cast("Sequence[Any]", value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value
