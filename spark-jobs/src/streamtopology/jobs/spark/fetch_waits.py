"""The time for which a row between two executors keeps a link busy, by what Spark's tasks waited for remote blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from streamtopology.jobs.plan.results import Results

# A look takes milliseconds of the driver's time between two batches.
_LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class _Action:
    """A Spark action that has ended. `stages`: of the last ones, those that instances sent to; `rows`: between executors."""

    tag: str
    stages: int
    rows: int


class FetchWaits:
    """Looks at an action once the next one has ended: Spark's account of it is complete by then.

    An executor's tasks wait for what others send on their links, and the waits of all tasks together are the seconds that
    links were busy, as far as nothing else delayed them: what it takes to look blocks up is among them.
    """

    def __init__(self, spark: SparkSession, clock: Callable[[], float]) -> None:
        self._context = spark.sparkContext
        self._clock = clock
        self._looked_at = clock()
        self._before: _Action | None = None
        self.seconds: float | None = None
        """Of a row, as last measured."""

    def ended(self, tag: str, depth: int, results: Results) -> None:
        """Note an action of `depth` levels, whose jobs have `tag`, and look at the one before."""
        if self._before is not None and self._clock() - self._looked_at >= _LOOK_SECONDS:
            self._looked_at = self._clock()
            measured = self._seconds(self._before)
            self.seconds = self.seconds if measured is None else measured
        rows = results.remote_rows
        self._before = _Action(tag, depth - 1, rows) if rows else None

    def _seconds(self, action: _Action) -> float | None:
        """Of a row; None if Spark has dropped its account, as it does when it is too busy."""
        java_context: Any = self._context._jsc
        jobs = [*java_context.sc().statusTracker().getJobIdsForTag(action.tag)]
        job = self._context.statusTracker().getJobInfo(max(jobs)) if jobs else None
        if job is None:
            return None
        store = java_context.sc().statusStore()
        last = sorted(job.stageIds)[-action.stages :]
        try:
            waited = [store.lastStageAttempt(number).shuffleFetchWaitTime() for number in last]
        except Py4JJavaError:
            return None
        return sum(waited) / 1000 / action.rows
