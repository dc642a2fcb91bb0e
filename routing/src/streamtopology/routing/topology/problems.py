"""What is wrong with a manifest: every mistake at once, each with the place where a person finds it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches


@dataclass(frozen=True)
class Problem:
    """One mistake: a path such as `spec.operators[1].grouping.policy`, and what was found there and what is allowed."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class ManifestError(ValueError):
    """A manifest that cannot run; `problems` names every mistake, in the order of the manifest's own sections."""

    def __init__(self, problems: Sequence[Problem], where: str = "the manifest") -> None:
        self.problems = tuple(problems)
        self.where = where
        super().__init__(self.problems, where)

    def __str__(self) -> str:
        count = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        return "\n".join([f"{self.where} has {count}:", *(f"  {problem}" for problem in self.problems)])


def one_of(found: str, allowed: Iterable[str]) -> str:
    """The sentence for a word that is not among the allowed ones, with the nearest of them if it looks like a slip."""
    names = list(allowed)
    sentence = f"found {found!r}, allowed: {', '.join(names) or 'nothing'}"
    by_lower_case = {name.lower(): name for name in names}
    close = get_close_matches(found.lower(), by_lower_case, n=1, cutoff=0.6)
    return f"{sentence}; did you mean {by_lower_case[close[0]]!r}?" if close else sentence
