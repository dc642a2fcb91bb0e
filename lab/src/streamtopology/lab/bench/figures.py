"""The lines of a bench's JSON and the machine they were measured on; a bench without Spark needs no more than this."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from streamtopology.jobs.observe.outcome import BatchOutcome


def row(case: str, metric: str, unit: str, values: Sequence[float], ratio_to: Mapping[str, float]) -> dict[str, Any]:
    """One line of the bench JSON. `ratio_to`: by the name of another case."""
    return {
        "case": case,
        "metric": metric,
        "unit": unit,
        "min": min(values),
        "median": statistics.median(values),
        "max": max(values),
        "runs": len(values),
        "ratio_to": dict(ratio_to),
    }


def figure(
    case: str, metric: str, unit: str, values: Sequence[float], beside: Mapping[str, Sequence[float]] | None = None
) -> dict[str, Any]:
    """A line whose ratio to each case of `compared` is the median of the ratios pair by pair."""
    ratios = {
        other: statistics.median(mine / theirs for mine, theirs in zip(values, of_other, strict=True))
        for other, of_other in (beside or {}).items()
    }
    return row(case, metric, unit, values, ratios)


def met(holds: bool) -> str:
    """The unit of a bar."""
    return "met" if holds else "missed"


def machine(**of_bench: object) -> dict[str, object]:
    """The machine, its load before the benchmark, and the benchmark's own versions and sizes."""
    return {
        "cores": os.cpu_count(),
        "processor": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0],
        **of_bench,
    }


def switch_to(batches: Sequence[BatchOutcome], epoch: int) -> Sequence[BatchOutcome]:
    """The batches with which state moved to where `epoch` has it, one or more; none when it never ran."""
    end = next((i for i, batch in enumerate(batches) if batch.epoch == epoch), None)
    if end is None:
        return ()
    start = end
    while start > 0 and batches[start - 1].moving:
        start -= 1
    return batches[start : end + 1]
