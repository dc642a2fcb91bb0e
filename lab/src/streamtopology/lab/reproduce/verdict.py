"""The verdicts of one experiment over several seeds: a claim holds with all of them, with none, or it depends on the seed."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any

from streamtopology.contract import formatting

Result = Mapping[str, Any]

# From one seed to the next: an experiment's repetitions take the numbers in between.
SEEDS_APART = 10_000

# A claim that reads more figures than these is listed without them.
_MOST_FIGURES = 4


class Verdict(enum.StrEnum):
    """The answer of all seeds to a claim, or of all its claims to an experiment."""

    HOLDS = "holds"
    DEPENDS = "depends on the seed"
    DOES_NOT = "does not hold"
    BY_CONSTRUCTION = "by construction"

    @staticmethod
    def of_claim(held: int, seeds: int, by_construction: str) -> Verdict:
        """`held` of the seeds bear the claim out; one that cannot fail is counted only if it does."""
        if held == seeds:
            return Verdict.BY_CONSTRUCTION if by_construction else Verdict.HOLDS
        return Verdict.DEPENDS if held else Verdict.DOES_NOT

    @staticmethod
    def of_claims(claims: Sequence[Result]) -> Verdict:
        """The worst of the claims."""
        found = {claim["verdict"] for claim in claims}
        return next((each for each in (Verdict.DOES_NOT, Verdict.DEPENDS) if each in found), Verdict.HOLDS)


def seeds_from(first: int, count: int) -> list[int]:
    """The seeds of `count` runs that share no random numbers."""
    return [first + SEEDS_APART * index for index in range(count)]


def over_seeds(results: Sequence[Result]) -> dict[str, Any]:
    """One result from those of the same experiment with different seeds, in their order.

    `series` has all rows, each with its `seed`; `summary` the means, and `spread` the least and the largest of each figure; a
    figure that was not measured with every seed is None in both. `claims` have a `verdict`, how often they `held`, and the
    `spread` of the figures that decided.
    """
    first = results[0]
    seeds = [result["parameters"]["seed"] for result in results]
    summaries = [result["summary"] for result in results]
    spread = {name: _spread([summary.get(name) for summary in summaries]) for name in first["summary"]}
    claims = [_claim(of_claim, spread) for of_claim in zip(*(result["claims"] for result in results), strict=True)]
    verdict = Verdict.of_claims(claims)
    return {
        **first,
        "parameters": {name: value for name, value in first["parameters"].items() if name != "seed"},
        "seeds": seeds,
        "series": [{**row, "seed": seed} for seed, result in zip(seeds, results, strict=True) for row in result["series"]],
        "summary": {name: _mean([summary.get(name) for summary in summaries]) for name in first["summary"]},
        "spread": spread,
        "claims": claims,
        "verdict": verdict.value,
        "holds": verdict is Verdict.HOLDS,
    }


def counted(claims: Sequence[Result], verdict: Verdict) -> int:
    """The claims that have this verdict."""
    return sum(claim["verdict"] == verdict for claim in claims)


def verdict_in_words(claim: Result, seeds: int) -> str:
    """`holds`, `does not hold`, or `depends on the seed, holds with 3 of 5`."""
    return (
        f"{claim['verdict']}, holds with {claim['held']} of {seeds}"
        if claim["verdict"] == Verdict.DEPENDS
        else claim["verdict"]
    )


def claims_in_words(claims: Sequence[Result]) -> str:
    """`5 of 7 claims, 1 depends on the seed, 2 more by construction`."""
    by_construction = counted(claims, Verdict.BY_CONSTRUCTION)
    text = f"{counted(claims, Verdict.HOLDS)} of {len(claims) - by_construction} claims"
    if depends := counted(claims, Verdict.DEPENDS):
        text += f", {depends} {'depends' if depends == 1 else 'depend'} on the seed"
    return f"{text}, {by_construction} more by construction" if by_construction else text


def figures_of(claim: Result, summary: Result, seeds: int) -> str:
    """The claim's figures: `speed-up: paper 1.25, here 0.98 (0.95 to 1.01)`; "" where there are none or too many."""
    names = [*claim["paper"], *(name for name in claim["spread"] if name not in claim["paper"])]
    if len(names) > _MOST_FIGURES:
        names = list(claim["paper"])
    return "; ".join(_figure(name, claim, summary, seeds) for name in names)


def _figure(name: str, claim: Result, summary: Result, seeds: int) -> str:
    paper = f"paper {formatting.figure(claim['paper'][name])}, here " if name in claim["paper"] else ""
    text = f"{name}: {paper}{formatting.figure(summary.get(name))}"
    spread = claim["spread"].get(name)
    if seeds == 1 or spread is None:
        return text
    return f"{text} ({formatting.figure(spread[0])} to {formatting.figure(spread[1])})"


def _claim(of_seeds: Sequence[Result], spread: Mapping[str, list[float] | None]) -> dict[str, Any]:
    first = of_seeds[0]
    held = sum(bool(claim["holds"]) for claim in of_seeds)
    verdict = Verdict.of_claim(held, len(of_seeds), first["by_construction"])
    read = dict.fromkeys(name for claim in of_seeds for name in claim["figures"])
    return {
        "sentence": first["sentence"],
        "holds": held == len(of_seeds),
        "verdict": verdict.value,
        "held": held,
        "paper": first["paper"],
        "why_not": next((claim["why_not"] for claim in of_seeds if claim["why_not"]), ""),
        "by_construction": first["by_construction"],
        "spread": {name: spread[name] for name in read if name in spread},
    }


def _spread(values: Sequence[float | None]) -> list[float] | None:
    known = [value for value in values if value is not None]
    return [min(known), max(known)] if len(known) == len(values) else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None
