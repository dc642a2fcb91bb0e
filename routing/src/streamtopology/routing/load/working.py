"""The seconds of a batch that its rows need."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from streamtopology.routing.load.load_report import LoadReport, SourceReport


def working_seconds(sources: Iterable[SourceReport], instances: Iterable[LoadReport]) -> float:
    """Return those of the source and of each operator's busiest instance, one after the other, from the reports of a batch.

    The rest is the fixed cost of a batch: tasks, exchange, commit.
    """
    busiest: defaultdict[str, float] = defaultdict(float)
    for report in instances:
        busiest[report.operator] = max(busiest[report.operator], report.busy_seconds)
    return max((source.busy_seconds for source in sources), default=0.0) + sum(busiest.values())
