"""Words on operators that leave out all rows of a batch: nothing comes out, and nothing else would say so."""

from __future__ import annotations

from collections import Counter

from streamtopology.jobs.plan.results import Results


class Lateness:
    """Names each operator once, until it keeps a row again."""

    def __init__(self) -> None:
        self._named: set[str] = set()

    def texts(self, batch: int, results: Results) -> list[str]:
        """Return a sentence for each operator that has begun to leave out all that it gets, with `batch`."""
        rows, late = Counter[str](), Counter[str]()
        for result in results.instances:
            rows[result.report.operator] += result.report.rows
            late[result.report.operator] += result.report.late_rows
        self._named -= {operator for operator in rows if rows[operator] > late[operator]}
        fresh = [operator for operator in rows if 0 < rows[operator] == late[operator] and operator not in self._named]
        self._named.update(fresh)
        untimed = any(report.rows for report in results.sources) and not any(results.event_times.values())
        why = _NO_TIME if untimed else _CLOSED
        return [f"operator {operator!r} leaves out all {rows[operator]:,} rows of batch {batch}: {why}" for operator in fresh]


_CLOSED = "their windows were closed before they came; a longer watermark delay waits for such rows"
_NO_TIME = (
    "no row of the sources has an event time of the years 1 to 9999; a number is read as epoch seconds, so milliseconds need "
    "epoch_ms(...) in the source's select"
)
