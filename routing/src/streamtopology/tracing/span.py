"""Spans as values: what is made of recorded times, before anything of OpenTelemetry sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

Value = str | int | float | bool
Attributes = Mapping[str, Value]


def _none() -> dict[str, Value]:
    return {}


@dataclass(frozen=True)
class SpanEvent:
    """Something that happened in a span, `at` epoch seconds."""

    name: str
    at: float
    attributes: Attributes = field(default_factory=_none)


@dataclass(frozen=True)
class TraceSpan:
    """A piece of work from `began_at` to `ended_at`, in epoch seconds, and its parts. `failure`: why it failed, if it did."""

    name: str
    began_at: float
    ended_at: float
    attributes: Attributes = field(default_factory=_none)
    events: Sequence[SpanEvent] = ()
    children: Sequence[TraceSpan] = ()
    failure: str | None = None


# Takes a function that makes the root span of a finished trace, and calls it. Neither blocks nor raises.
Emit = Callable[[Callable[[], TraceSpan]], None]
