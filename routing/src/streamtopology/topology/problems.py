"""Mistakes in a manifest: all of them at once, each with its place in the file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from streamtopology.contract.errors import InvalidInput

SECTIONS = ("sources", "operators", "sinks", "executors")
_PLACE = re.compile(r"spec\.(\w+)(?:\[(\d+)\])?")


@dataclass(frozen=True)
class Problem:
    """One mistake: a path such as `spec.operators[1].grouping.policy`, and what was found there and what is allowed."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class Doubt(Problem):
    """A value that may be meant, but rarely is; or a fact about the manifest's surroundings that may still change."""


class ManifestError(InvalidInput):
    """A manifest that cannot run; `problems` names every mistake, in the order of the manifest's own sections.

    unchecked: a sentence on what could not be checked because of them; "" if everything was.
    """

    exit_code = 2

    def __init__(self, problems: Sequence[Problem], where: str = "the manifest", unchecked: str = "") -> None:
        self.problems = tuple(problems)
        self.where = where
        self.unchecked = unchecked
        super().__init__(self.problems, where, unchecked)

    def __str__(self) -> str:
        return "\n  ".join([listed(self.where, "problem", self.problems), *([self.unchecked] if self.unchecked else [])])


def listed(where: str, what: str, findings: Sequence[Problem]) -> str:
    """The findings below a header that counts them, each on a line of its own."""
    count = f"1 {what}" if len(findings) == 1 else f"{len(findings)} {what}s"
    return "\n".join([f"{where} has {count}:", *(f"  {finding}" for finding in findings)])


def nearest(found: str, allowed: Iterable[str]) -> str | None:
    """The allowed word that `found` looks like a slip of, if any."""
    by_lower_case = {name.lower(): name for name in allowed}
    close = get_close_matches(found.lower(), by_lower_case, n=1, cutoff=0.6)
    return by_lower_case[close[0]] if close else None


def did_you_mean(found: str, allowed: Iterable[str]) -> str:
    """The end of a sentence about a word that is not among the allowed ones: the nearest of them, or nothing."""
    near = nearest(found, allowed)
    return "" if near is None else f"; did you mean {near!r}?"


NO_OTHERS: Mapping[str, str] = {}


def one_of(found: str, allowed: Iterable[str], called: str = "allowed", others: Mapping[str, str] = NO_OTHERS) -> str:
    """The sentence for a word that is not among the allowed ones, with the nearest of them if it looks like a slip.

    others: words of other systems, and what is said here in their place.
    """
    names = list(allowed)
    here = f"; {others[found]}" if found in others else did_you_mean(found, names)
    return f"found {found!r}, {called}: {', '.join(names) or 'nothing'}{here}"


def concerns(path: str, other: str) -> bool:
    """True if one of two paths is equal to, or inside, the other."""
    shorter, longer = sorted((path, other), key=len)
    return longer.startswith(shorter) and longer[len(shorter) : len(shorter) + 1] in ("", ".", "[")


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    """The problems in the order of the manifest's usual sections, and of the items in each."""

    def place(problem: Problem) -> tuple[int, int]:
        match = _PLACE.match(problem.path)
        if match is None or match[1] not in SECTIONS:
            return (len(SECTIONS) if match else -1, 0)
        return SECTIONS.index(match[1]), int(match[2] or -1)

    return sorted(problems, key=place)


def without_consequences(found: Iterable[Problem], earlier: Sequence[Problem]) -> list[Problem]:
    """The problems that are about other places than the `earlier` ones: others may only follow from these."""
    return [problem for problem in found if not any(concerns(problem.path, known.path) for known in earlier)]
