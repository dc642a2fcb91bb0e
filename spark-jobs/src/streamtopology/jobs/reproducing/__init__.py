"""`streamtopology reproduce`: the papers' experiments, one after another, held against the papers.

An experiment that fails is told and loses nothing of the others: results and page are written anew after each.
"""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from streamtopology.jobs import wording
from streamtopology.jobs.failures import WrongUse
from streamtopology.jobs.reproducing.figure import Figure, draw
from streamtopology.jobs.reproducing.on_spark import NOT_BUILT, ON_SPARK
from streamtopology.jobs.reproducing.page import write_page
from streamtopology.jobs.reproducing.progress import Progress
from streamtopology.routing.simulator.experiment import Experiment
from streamtopology.routing.simulator.experiments import EXPERIMENTS

ALL = "all"


@dataclass(frozen=True)
class Request:
    """What is asked of every experiment: `runs` None is as often as the experiment says."""

    quick: bool = False
    runs: int | None = None
    json_file: Path | None = None
    report_dir: Path | None = None


@dataclass(frozen=True)
class Outcome:
    """An experiment that ran, or failed: then `result` has the error in place of measurements."""

    experiment: Experiment
    result: Mapping[str, Any]
    figures: tuple[Figure, ...] = field(default=())

    @property
    def error(self) -> str | None:
        return self.result.get("error")

    @property
    def holds(self) -> bool:
        return bool(self.result["holds"])


def reproduce(
    name: str,
    request: Request,
    experiments: Mapping[str, Experiment] = EXPERIMENTS,
    console: Console | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Run the experiment `name`, or `all`; returns the exit code: 0 when every claim holds. WrongUse: there is none."""
    console = console or Console()
    chosen = _chosen(name, experiments)
    for folder in (request.report_dir, request.json_file and request.json_file.parent):
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
    outcomes: list[Outcome] = []
    expected = [experiment.expected_seconds(request.quick, request.runs) for experiment in chosen]
    with Progress(expected, console, clock) as progress:
        for experiment in chosen:
            progress.begin(experiment.id)
            outcome = _outcome(experiment, request, progress.tell, clock)
            outcomes.append(outcome)
            progress.end(_told(outcome))
            _write(outcomes, request, single=name != ALL)
    _tell_end(outcomes, request, console)
    if name == ALL and not ON_SPARK.keys().isdisjoint(experiments):
        for row, why in NOT_BUILT.items():
            console.print(f"not built on Spark: {row}: {why}", highlight=False, soft_wrap=True)
    return 0 if all(outcome.holds for outcome in outcomes) else 1


def to_run(on_spark: bool) -> Mapping[str, Experiment]:
    """The experiments of the simulator and, where asked for, those on an embedded cluster after them."""
    return {**EXPERIMENTS, **ON_SPARK} if on_spark else EXPERIMENTS


def _chosen(name: str, experiments: Mapping[str, Experiment]) -> list[Experiment]:
    if name == ALL and experiments:
        return list(experiments.values())
    if name in experiments:
        return [experiments[name]]
    if name in ON_SPARK:
        raise WrongUse(f"{name} is measured on Spark, on an embedded cluster: add --spark")
    known = "\n".join(f"  {experiment.id:22} {experiment.title}" for experiment in experiments.values())
    raise WrongUse(f"there is no experiment {name!r}; there is {ALL!r}, or one of:\n{known}")


def _outcome(experiment: Experiment, request: Request, tell: Callable[[float], None], clock: Callable[[], float]) -> Outcome:
    started = clock()
    try:
        result = experiment.carry_out({}, tell, request.quick, request.runs)
        return Outcome(experiment, {**result, "seconds": clock() - started}, _figures(experiment, result, request))
    except Exception as error:  # noqa: BLE001 - whatever an experiment raises must not lose the others' results
        failed = {
            "id": experiment.id, "title": experiment.title, "source": experiment.source, "quick": request.quick,
            "holds": False, "error": _one_line(error), "trace": traceback.format_exc(), "seconds": clock() - started,
        }  # fmt: skip
        return Outcome(experiment, failed)


def _figures(experiment: Experiment, result: Mapping[str, Any], request: Request) -> tuple[Figure, ...]:
    if request.report_dir is None:
        return ()
    return tuple(draw(plot, result["series"]) for plot in experiment.plots)


def _one_line(error: Exception) -> str:
    """The error, and where it was raised."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message} ({Path(last.filename).name}, line {last.lineno})"


def _told(outcome: Outcome) -> list[str]:
    """A line on the experiment, then lines on what does not hold and why."""
    result = outcome.result
    seconds = wording.duration(result["seconds"])
    if outcome.error is not None:
        return [f"{result['id']:22} FAILED         {seconds:>8}  {outcome.error}"]
    claims = result["claims"]
    held = sum(claim["holds"] for claim in claims)
    verdict = "holds" if outcome.holds else "does not hold"
    lines = [f"{result['id']:22} {verdict:14} {seconds:>8}  {held} of {len(claims)} claims"]
    for claim in claims:
        if not claim["holds"]:
            lines.append(f"    not: {claim['sentence']}{_beside(claim, result['summary'])}")
            lines += [f"    why: {claim['why_not']}"] if claim["why_not"] else []
    return lines


def _beside(claim: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    """The claim's figures: ` [speed-up: paper 1.25, here 0.98]`."""
    figures = [
        f"{name}: paper {wording.figure(paper)}, here {wording.figure(summary.get(name))}"
        for name, paper in claim["paper"].items()
    ]
    return f" [{'; '.join(figures)}]" if figures else ""


def _write(outcomes: list[Outcome], request: Request, single: bool) -> None:
    results = [dict(outcome.result) for outcome in outcomes]
    if request.json_file is not None:
        text = json.dumps(results[0] if single else results, indent=1, allow_nan=False)
        request.json_file.write_text(text + "\n")
    if request.report_dir is not None:
        write_page(request.report_dir, results, {outcome.experiment.id: outcome.figures for outcome in outcomes})


def _tell_end(outcomes: list[Outcome], request: Request, console: Console) -> None:
    failed = sum(outcome.error is not None for outcome in outcomes)
    held = sum(outcome.holds for outcome in outcomes)
    text = f"{held} of {len(outcomes)} hold"
    if failed:
        text += f", {failed} failed"
    console.print(text, highlight=False)
    for what, path in (("results", request.json_file), ("report", request.report_dir and request.report_dir / "index.html")):
        if path is not None:
            console.print(f"{what}: {path}", highlight=False, soft_wrap=True)
