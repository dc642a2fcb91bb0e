"""The columns of a sample as keys: a table for the terminal, two lines for the manifest."""

from __future__ import annotations

from collections.abc import Iterable

from streamtopology.jobs.scaffold.choice import Candidate, Fitness, ManifestChoice
from streamtopology.jobs.scaffold.sample import joined

# Columns of the table; the best are listed.
MOST_LINES = 12
_LONGEST_NAME = 32


def why_key(choice: ManifestChoice) -> str:
    """A sentence on the chosen key, or on why there is none."""
    if choice.key is None:
        return "no column can be a key: each is unique, constant, a time, long text or floating point"
    rivals = sum(one.fitness is choice.key.fitness for one in choice.candidates) > 1
    return f"key {choice.key.column!r}: {choice.key.fitness.value}{', the most skewed of those' if rivals else ''}"


def key_comment(choice: ManifestChoice) -> list[str]:
    """The chosen key with its figures, and the next best columns, a line each."""
    if choice.key is None:
        return [f"{why_key(choice)}. So nothing is gathered."]
    key, others = choice.key, [one for one in _ranked(choice.candidates) if one != choice.key and one.fitness is Fitness.GOOD]
    lines = [f"{why_key(choice)}:", f"{key.keys:,} values, the heaviest in {key.heaviest:.1%} of the rows."]
    if others:
        lines[-1] += f" Other keys: {joined(one.column for one in others)}."
    return lines


def key_table(choice: ManifestChoice, instances: int, rows: int) -> list[str]:
    """A line for each column of the sample: its values, its heaviest one, the fullest executor under a hash.

    `rows`: those of the sample. The key is marked.
    """
    ranked = _ranked(choice.candidates)
    listed = [one for place, one in enumerate(ranked) if place < MOST_LINES or one == choice.key]
    head = ["column", "values", "heaviest", f"fullest of {instances}", "as a key"]
    cells = [head, *(_cells(one) for one in listed)]
    widths = [max(len(row[place]) for row in cells) for place in range(len(head) - 1)]
    lines = [
        f"in a sample of {rows:,} rows; fullest: the share of them that hashing gives to the fullest executor",
    ]
    lines += [
        f"{'*' if one is not None and one == choice.key else ' '} {row[0]:<{widths[0]}}"
        + "".join(f"  {cell:>{width}}" for cell, width in zip(row[1:-1], widths[1:], strict=True))
        + f"  {row[-1]}"
        for one, row in zip([None, *listed], cells, strict=True)
    ]
    more = len(ranked) - len(listed)
    return [*lines, f"  and {more:,} more columns"] if more else lines


def _ranked(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The candidates, the fittest and of these the most skewed first."""
    order = list(Fitness)
    return sorted(candidates, key=lambda one: (order.index(one.fitness), -one.skew))


def _cells(one: Candidate) -> list[str]:
    name = one.column if len(one.column) <= _LONGEST_NAME else f"{one.column[: _LONGEST_NAME - 3]}..."
    figures = [f"{one.keys:,}", f"{one.heaviest:.1%}", f"{one.fullest:.0%}"] if one.keys else ["", "", ""]
    return [name, *figures, one.fitness.value]
