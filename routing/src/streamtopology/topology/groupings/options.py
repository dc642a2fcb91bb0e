"""Options of groupings: how a value from a manifest is read and checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from streamtopology.contract.errors import InvalidInput


class GroupingOptionError(InvalidInput):
    """The value of a grouping's option is invalid; the message gives the value found and the values allowed."""


@dataclass(frozen=True)
class Option:
    """An option of a grouping.

    default: the value if the manifest gives none. read: converts the manifest's value, or raises `GroupingOptionError`.
    summary: one line of documentation.
    """

    default: object
    read: Callable[[object], object]
    summary: str


def read_number(value: object) -> float:
    """Read a finite number >= 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise GroupingOptionError(f"found {value!r}, expected a finite number >= 0")
    return float(value)


def read_count(value: object) -> int:
    """Read a whole number >= 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise GroupingOptionError(f"found {value!r}, expected a whole number >= 1")
    return value


def read_fraction(value: object) -> float:
    """Read a number > 0 and <= 1."""
    number = read_number(value)
    if not 0 < number <= 1:
        raise GroupingOptionError(f"found {value!r}, expected a number with 0 < number <= 1")
    return number


def read_fraction_or_none(value: object) -> float | None:
    """Read a number > 0 and <= 1, or None."""
    return None if value is None else read_fraction(value)


def read_capacities(value: object) -> tuple[float, ...] | None:
    """Read the relative capacities of the active instances, in their order. None means equal capacities."""
    if value is None:
        return None
    if not isinstance(value, list | tuple):
        raise GroupingOptionError(f"found {value!r}, expected a list of numbers, one for each active instance")
    numbers = tuple(read_number(number) for number in cast("Sequence[object]", value))
    if not any(numbers):
        raise GroupingOptionError(f"found {value!r}, expected at least one capacity greater than 0")
    return numbers
