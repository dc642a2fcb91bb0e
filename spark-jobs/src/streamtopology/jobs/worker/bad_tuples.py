"""The search for the tuple that makes an operator raise, among all that one instance got in a batch.

An error is a tuple's fault only if it repeats: a service that is away for a moment must not cost good tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from streamtopology.jobs.checkpoint import CheckpointError
from streamtopology.jobs.errors import PartsDoNotFit, PrecopyUnusable
from streamtopology.jobs.operators.base import ERRORS_OF_NO_TUPLE, REPETITIONS, Rows, UnusableBadTuple
from streamtopology.jobs.operators.returned import WrongOutput
from streamtopology.jobs.state import StateFileError

# The number of errors in a batch that do not repeat, after which an instance ends the run.
MOST_OUTAGES = 3

# The error that the operator raises on these arrivals, from the state of the last commit; None if they pass.
ErrorOf = Callable[[Sequence[Rows]], Exception | None]


@dataclass(frozen=True)
class Culprit:
    """The tuple at fault: row `row` of arrival `which`, on which the operator raises `error`."""

    which: int
    row: int
    error: Exception


class Blameless(Enum):
    """Reasons why an error is no tuple's fault."""

    WITHOUT_TUPLES = "the operator raises without any tuple, too"
    NOT_REPEATED = "the error did not repeat"


def may_be_a_tuples_fault(error: Exception) -> bool:
    """False for full memory, errors of disk and network, the checkpoint's, and those of a class, such as another output."""
    of_classes = (WrongOutput, UnusableBadTuple)
    of_state = (CheckpointError, StateFileError, PrecopyUnusable, PartsDoNotFit)
    return not isinstance(error, (*ERRORS_OF_NO_TUPLE, *of_state, *of_classes))


def find_bad_tuple(arrivals: Sequence[Rows], error_of: ErrorOf) -> Culprit | Blameless:
    """The first tuple on which the operator raises, every time, after the tuples before it pass."""
    total = sum(len(rows) for rows in arrivals)
    if total == 0 or error_of(_prefix(arrivals, 0)):
        return Blameless.WITHOUT_TUPLES
    if not error_of(arrivals):
        return Blameless.NOT_REPEATED
    low, high = 0, total  # the prefix of length low passes, that of length high fails
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if error_of(_prefix(arrivals, middle)) else (middle, high)
    which, row = _place(arrivals, low)
    alone = [arrivals[which].take(np.array([row]))]
    case = alone if error_of(alone) else _prefix(arrivals, high)
    errors = [error_of(case) for _ in range(REPETITIONS)]
    if errors[0] is None or None in errors or error_of(_prefix(arrivals, low)):
        return Blameless.NOT_REPEATED
    return Culprit(which, row, errors[0])


def without(arrivals: Sequence[Rows], culprit: Culprit) -> list[Rows]:
    """The arrivals without this tuple."""
    left, blamed = list(arrivals), arrivals[culprit.which]
    left[culprit.which] = blamed.take(np.delete(np.arange(len(blamed)), culprit.row))
    return left


def _place(arrivals: Sequence[Rows], number: int) -> tuple[int, int]:
    """(which arrival, row) of tuple `number` of all."""
    ends = np.cumsum([len(rows) for rows in arrivals])
    which = int(np.searchsorted(ends, number, side="right"))
    return which, number - int(ends[which] - len(arrivals[which]))


def _prefix(arrivals: Sequence[Rows], length: int) -> list[Rows]:
    kept: list[Rows] = []
    for rows in arrivals:
        if length >= len(rows):
            kept.append(rows)
        elif length > 0:
            kept.append(rows.take(np.arange(length)))
        length = max(0, length - len(rows))
    return kept
