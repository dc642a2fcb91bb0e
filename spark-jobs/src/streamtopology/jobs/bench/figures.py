"""The lines of a bench's JSON and the machine they were measured on; a bench without Spark needs no more than this."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from typing import Any


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
    """A line whose ratio to each of the cases `beside` is the median of the ratios pair by pair."""
    ratios = {
        other: statistics.median(mine / theirs for mine, theirs in zip(values, of_other, strict=True))
        for other, of_other in (beside or {}).items()
    }
    return row(case, metric, unit, values, ratios)


def machine(**of_bench: object) -> dict[str, object]:
    """Where it ran, how much else the machine had to do, and what the bench says of itself: versions, sizes."""
    return {
        "cores": os.cpu_count(),
        "processor": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0],
        **of_bench,
    }
