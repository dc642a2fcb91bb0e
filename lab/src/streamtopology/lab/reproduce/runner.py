"""`streamtopology reproduce`: the papers' experiments, one after another, each with several seeds, held against the papers.

An experiment that fails is reported and loses nothing of the others: results and page are rewritten after each.
"""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from streamtopology.contract import formatting
from streamtopology.jobs.errors import WrongUse
from streamtopology.lab.reproduce.experiment import Experiment, ExperimentError, Parameters
from streamtopology.lab.reproduce.experiments import EXPERIMENTS
from streamtopology.lab.reproduce.figure import Figure, draw
from streamtopology.lab.reproduce.on_spark import NOT_BUILT, ON_SPARK
from streamtopology.lab.reproduce.page import write_page
from streamtopology.lab.reproduce.progress import Progress
from streamtopology.lab.reproduce.trace import kind_of, read_trace
from streamtopology.lab.reproduce.verdict import (
    SEEDS_APART,
    Result,
    Verdict,
    claims_in_words,
    figures_of,
    over_seeds,
    seeds_from,
    verdict_in_words,
)
from streamtopology.lab.reproduce.workers import Workers

ALL = "all"


@dataclass(frozen=True)
class Request:
    """The options of every experiment; `seeds` None: as many as it has; `runs`, with each seed, None: its own, shared out.

    `seed` is the first one; `given` replaces parameters of a single experiment.
    """

    quick: bool = False
    runs: int | None = None
    json_file: Path | None = None
    report_dir: Path | None = None
    seed: int = 1
    seeds: int | None = None
    given: Parameters = field(default_factory=dict[str, Any])
    trace: Path | None = None

    def seeds_of(self, experiment: Experiment) -> list[int]:
        return seeds_from(self.seed, self.seeds or experiment.seeds)

    def runs_of(self, experiment: Experiment) -> int:
        """Repetitions with each seed: its own number is that over all of them, at least one."""
        own = experiment.quick_runs if self.quick else experiment.runs
        return self.runs or max(round(own / len(self.seeds_of(experiment))), 1)

    def seconds_of(self, experiment: Experiment) -> float | None:
        """About how long the experiment takes, if that is known."""
        seconds = experiment.expected_seconds(self.quick, self.runs_of(experiment))
        return None if seconds is None else seconds * len(self.seeds_of(experiment))


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


# The id of an experiment, and a seed.
Task = tuple[str, int]


def reproduce(
    name: str,
    request: Request,
    experiments: Mapping[str, Experiment] = EXPERIMENTS,
    console: Console | None = None,
    clock: Callable[[], float] = time.monotonic,
    processes: int = 0,
    cpu_clock: Callable[[], float] = time.process_time,
) -> int:
    """Run the experiment `name`, or `all`; returns the exit code: 0 when every claim holds with every seed.

    `processes` carry out the seeds of an experiment side by side; 0: one after another, in this process. `cpu_clock`: seconds
    of CPU that the process has used. WrongUse: there is no such experiment, or it cannot have what was given.
    """
    console = console or Console()
    if request.trace is not None:
        experiments = _of_trace(name, request.trace, experiments)
    chosen = _chosen(name, experiments)
    _check_given(name, request, chosen)
    for folder in (request.report_dir, request.json_file and request.json_file.parent):
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
    outcomes: list[Outcome] = []
    expected = [request.seconds_of(experiment) for experiment in chosen]

    def carry_out(task: Task, advance: Callable[[float], None]) -> Result:
        started = cpu_clock()
        result = _carried_out(experiments[task[0]], request, task[1], advance)
        return {**result, "cpu_seconds": cpu_clock() - started}

    alone = Workers(carry_out, 0)
    with Workers(carry_out, processes) as workers, Progress(expected, console, clock) as progress:
        for experiment in chosen:
            progress.begin(experiment.id)
            started = clock()
            tasks = [(experiment.id, seed) for seed in request.seeds_of(experiment)]
            results = (alone if experiment.seeds == 1 else workers).results(tasks, progress.advance)
            outcome = _outcome(experiment, results, request, clock() - started)
            outcomes.append(outcome)
            progress.end(_lines(outcome))
            _write(outcomes, request, single=name != ALL)
    _print_end(outcomes, request, console)
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


def _of_trace(name: str, trace: Path, experiments: Mapping[str, Experiment]) -> Mapping[str, Experiment]:
    """The experiments that take such a trace, each with it as a parameter. WrongUse: it cannot be read, or not by `name`."""
    try:
        kind = kind_of(trace)
        read_trace(str(trace), kind)
    except ExperimentError as error:
        raise WrongUse(f"--trace {error}") from None
    taking = {
        each: replace(experiment, parameters={**experiment.parameters, "trace": str(trace)})
        for each, experiment in experiments.items()
        if experiment.takes == kind
    }
    if name in experiments and name not in taking:
        raise WrongUse(f"--trace {trace}: {name} takes no trace of {kind}; these do: {', '.join(taking)}")
    return taking


def _check_given(name: str, request: Request, chosen: list[Experiment]) -> None:
    if request.given and name == ALL:
        raise WrongUse(
            f"--set {next(iter(request.given))}: parameters are those of one experiment; name it in place of {ALL!r}"
        )
    if request.runs is not None and request.runs > SEEDS_APART:
        raise WrongUse(f"--runs {request.runs}: the next seed's repetitions begin after {SEEDS_APART}; raise --seeds instead")
    for experiment in chosen:
        try:
            experiment.check(request.given)
        except ExperimentError as error:
            raise WrongUse(f"--set: {error}") from None


def _carried_out(experiment: Experiment, request: Request, seed: int, advance: Callable[[float], None]) -> Result:
    """The experiment's result with one seed, or its failure."""
    try:
        return experiment.carry_out(request.given, advance, request.quick, request.runs_of(experiment), seed)
    except Exception as error:  # noqa: BLE001 - whatever an experiment raises must not lose the others' results
        return {"error": _one_line(error), "trace": traceback.format_exc(), "seed": seed}


def _outcome(experiment: Experiment, results: list[Result], request: Request, seconds: float) -> Outcome:
    took = {"seconds": seconds, "cpu_seconds": sum(result["cpu_seconds"] for result in results)}
    if failed := next((result for result in results if "error" in result), None):
        about = {"id": experiment.id, "title": experiment.title, "source": experiment.source, "quick": request.quick}
        return Outcome(experiment, {**about, "holds": False, **failed, **took})
    result = {**over_seeds(results), **took}
    return Outcome(experiment, result, _figures(experiment, result, request))


def _figures(experiment: Experiment, result: Mapping[str, Any], request: Request) -> tuple[Figure, ...]:
    if request.report_dir is None:
        return ()
    return tuple(draw(plot, result["series"]) for plot in experiment.plots)


def _one_line(error: Exception) -> str:
    """The error, and where it was raised."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message} ({Path(last.filename).name}, line {last.lineno})"


def _lines(outcome: Outcome) -> list[str]:
    """A line on the experiment, then lines on what does not hold and why."""
    result = outcome.result
    seconds = formatting.duration(result["seconds"])
    if outcome.error is not None:
        return [f"{result['id']:22} {'FAILED':19} {seconds:>12}  {outcome.error} (seed {result['seed']})"]
    lines = [f"{result['id']:22} {result['verdict']:19} {seconds:>12}  {claims_in_words(result['claims'])}"]
    for claim in result["claims"]:
        if claim["verdict"] in (Verdict.DEPENDS, Verdict.DOES_NOT):
            words = "not" if claim["verdict"] == Verdict.DOES_NOT else verdict_in_words(claim, len(result["seeds"]))
            lines.append(f"    {words}: {claim['sentence']}{_beside(claim, result)}")
            lines += [f"    why: {claim['why_not']}"] if claim["why_not"] else []
    return lines


def _beside(claim: Mapping[str, Any], result: Result) -> str:
    """The claim's figures: ` [speed-up: paper 1.25, here 0.98 (0.95 to 1.01)]`."""
    figures = figures_of(claim, result["summary"], len(result["seeds"]))
    return f" [{figures}]" if figures else ""


def _write(outcomes: list[Outcome], request: Request, single: bool) -> None:
    results = [dict(outcome.result) for outcome in outcomes]
    if request.json_file is not None:
        text = json.dumps(results[0] if single else results, indent=1, allow_nan=False)
        request.json_file.write_text(text + "\n")
    if request.report_dir is not None:
        write_page(request.report_dir, results, {outcome.experiment.id: outcome.figures for outcome in outcomes})


def _print_end(outcomes: list[Outcome], request: Request, console: Console) -> None:
    failed = sum(outcome.error is not None for outcome in outcomes)
    held = sum(outcome.holds for outcome in outcomes)
    depends = sum(outcome.result.get("verdict") == Verdict.DEPENDS for outcome in outcomes)
    text = f"{held} of {len(outcomes)} hold"
    text += f", {depends} depend on the seed" if depends else ""
    text += f", {failed} failed" if failed else ""
    claims = [claim for outcome in outcomes for claim in outcome.result.get("claims", ())]
    text += (
        f"; {claims_in_words(claims)}; {formatting.duration(sum(outcome.result['cpu_seconds'] for outcome in outcomes))} of CPU"
    )
    console.print(text, highlight=False)
    for what, path in (("results", request.json_file), ("report", request.report_dir and request.report_dir / "index.html")):
        if path is not None:
            console.print(f"{what}: {path}", highlight=False, soft_wrap=True)
