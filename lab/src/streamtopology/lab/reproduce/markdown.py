"""The report as Markdown, and its parts that the page shares: counts, figures next to the paper's, parameters in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamtopology.contract import formatting
from streamtopology.lab.reproduce.figure import Figure
from streamtopology.lab.reproduce.verdict import Result, Verdict, claims_in_words, verdict_in_words

LEAD = (
    "Experiments of the papers, held against what the papers claim: run in the simulator on the same groupings and "
    "planners that run on Spark, or, where the title says so, on Spark. Hollow marks in a figure are the paper's own points. "
    "A claim that does not hold is shown as it is, with a sentence why, or that it is not known."
)
_MOST_LISTED = 12


@dataclass(frozen=True)
class Counts:
    """The numbers of experiments, of those that hold, depend on the seed or failed to run; and the claims in words."""

    experiments: int
    held: int
    depend: int
    failed: int
    claims: str
    seconds: float
    quick: bool

    @staticmethod
    def of(results: Sequence[Result]) -> Counts:
        claims = [claim for result in results for claim in result.get("claims", ())]
        return Counts(
            experiments=len(results),
            held=sum(bool(result["holds"]) for result in results),
            depend=sum(result.get("verdict") == Verdict.DEPENDS for result in results),
            failed=sum("error" in result for result in results),
            claims=claims_in_words(claims),
            seconds=sum(result["seconds"] for result in results),
            quick=any(result["quick"] for result in results),
        )


def figures_beside(result: Result) -> list[tuple[str, str, str, str]]:
    """(name, ours, its spread over the seeds, the paper's) of every figure, at last those that only the paper has."""
    ours, papers, spreads = result["summary"], result["paper"], result["spread"]
    names = [*ours, *(name for name in papers if name not in ours)]
    return [
        (name, formatting.figure(ours.get(name)), _between(spreads.get(name)), formatting.figure(papers.get(name)))
        for name in names
    ]


def _between(spread: Sequence[float] | None) -> str:
    return "-" if spread is None else f"{formatting.figure(spread[0])} to {formatting.figure(spread[1])}"


def parameter(value: Any) -> str:
    """A parameter's value in words; of a long list its ends."""
    if not isinstance(value, list):
        return str(value)
    if len(value) > _MOST_LISTED:
        return f"{', '.join(map(str, value[:3]))}, ... {value[-1]} ({len(value)} values)"
    return ", ".join(map(str, value))


def figure_file(name: str, number: int) -> str:
    """The path of an experiment's figure, relative to the report."""
    return f"figures/{name}-{number}.svg"


def report(papers: Mapping[str, Sequence[Result]], figures: Mapping[str, Sequence[Figure]]) -> str:
    """The whole report; `papers` maps titles to results."""
    results = [result for of_paper in papers.values() for result in of_paper]
    counts = Counts.of(results)
    lines = ["# The papers, reproduced", "", LEAD, ""]
    lines += [
        f"**{counts.held} of {counts.experiments} experiments hold**, {counts.depend} depend on the seed, {counts.failed} "
        f"failed to run; {counts.claims}. {formatting.duration(counts.seconds)} of measuring.",
        "",
    ]
    if counts.quick:
        lines += ["Run with `--quick`: smaller and repeated less often than in the papers.", ""]
    lines += ["| experiment | | | claims that hold |", "| --- | --- | --- | --- |"]
    lines += [_overview(result) for result in results]
    for title, of_paper in papers.items():
        lines += ["", f"## {title}"]
        for result in of_paper:
            lines += ["", *_section(result, figures.get(result["id"], ()))]
    return "\n".join(lines) + "\n"


def _overview(result: Result) -> str:
    if "error" in result:
        return f"| [{result['id']}](#{result['id']}) | {_cell(result['title'])} | failed to run | |"
    claims = claims_in_words(result["claims"])
    return f"| [{result['id']}](#{result['id']}) | {_cell(result['title'])} | {result['verdict']} | {claims} |"


def _section(result: Result, figures: Sequence[Figure]) -> list[str]:
    lines = [f"### {result['id']}", "", f"{result['title']} ({result['source']})", ""]
    if "error" in result:
        return [*lines, f"It failed: `{result['error']}`"]
    for number, figure in enumerate(figures, 1):
        file = figure_file(result["id"], number)
        lines += [f"![{figure.title}]({file})" if figure.svg else f"Not drawn. {figure.problem}", ""]
    for claim in result["claims"]:
        verdict = claim["verdict"] if claim["holds"] else f"**{verdict_in_words(claim, len(result['seeds']))}**"
        lines.append(f"- {verdict}: {claim['sentence']}")
        lines += [f"  Why not: {claim['why_not']}"] if claim["why_not"] else []
        lines += [f"  It cannot fail: {claim['by_construction']}"] if claim["by_construction"] else []
    lines += ["", "| figure | here | least to largest over the seeds | paper |", "| --- | --- | --- | --- |"]
    lines += [f"| {_cell(name)} | {ours} | {spread} | {papers} |" for name, ours, spread, papers in figures_beside(result)]
    if result["stand_in"]:
        lines += ["", f"Stand-in: {result['stand_in']}"]
    given = "; ".join(f"`{name}` {parameter(value)}" for name, value in result["parameters"].items())
    seeds = ", ".join(map(str, result["seeds"]))
    return [
        *lines,
        "",
        f"Parameters: {given}; runs: {result['runs']}; seeds: {seeds}; {formatting.duration(result['seconds'])}.",
    ]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
