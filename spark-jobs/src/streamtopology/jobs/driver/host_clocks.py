"""The clocks of executors' hosts, set against the driver's by the order of events: no task begins before it is submitted."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace

from streamtopology.jobs.plan.results import Results
from streamtopology.jobs.plan.span import Span

# The number of batches of which the quickest start of a task counts: clocks drift by some milliseconds in as many.
BATCHES = 32


class HostClocks:
    """The offsets of other clocks to the driver's clock `own`, learned from the tasks of each attempt.

    A clock's offset is taken to be that at which its quickest task began the moment it was submitted, so it is wrong by
    the few milliseconds that this took.
    """

    def __init__(self, own: str) -> None:
        self._own = own
        self._bounds: dict[str, deque[float]] = {}

    def by_driver(self, results: Results, submitted_at: float, collected_at: float, prefetched: bool) -> Results:
        """`results` with all spans by the driver's clock; its tasks were submitted and their results collected at these times.

        `prefetched`: the source tasks may have begun earlier.
        """
        sources = [task.span for task in results.source_tasks]
        instances = [result.span for result in results.instances]
        if all(span.clock == self._own for span in (*sources, *instances)):
            return results
        self._learn([*instances, *([] if prefetched else sources)], submitted_at, collected_at)
        offsets = {span.clock: self._offset(span, submitted_at) for span in (*sources, *instances)}
        return replace(
            results,
            instances=[replace(result, span=self._shifted(result.span, offsets)) for result in results.instances],
            source_tasks=[replace(task, span=self._shifted(task.span, offsets)) for task in results.source_tasks],
        )

    def _learn(self, spans: Iterable[Span], submitted_at: float, collected_at: float) -> None:
        """Note the bounds of each clock's offset: at most a start after `submitted_at`, at least an end before `collected_at`.

        Clocks that no task ran by are forgotten, and bounds from before one of the clocks stood still.
        """
        most: dict[str, float] = {}
        least: dict[str, float] = {}
        for span in spans:
            most[span.clock] = min(most.get(span.clock, span.began_at - submitted_at), span.began_at - submitted_at)
            least[span.clock] = max(least.get(span.clock, span.ended_at - collected_at), span.ended_at - collected_at)
        known, self._bounds = self._bounds, {}
        for clock in most:
            former = [bound for bound in known.get(clock, ()) if bound >= least[clock]]
            self._bounds[clock] = deque([*former, most[clock]], maxlen=BATCHES)

    def _offset(self, span: Span, submitted_at: float) -> float:
        """The offset of the span's clock. One that only a prefetch ran by is unknown: it ended as the batch began."""
        if span.clock == self._own:
            return 0.0
        return min(self._bounds.get(span.clock, [span.ended_at - submitted_at]))

    def _shifted(self, span: Span, offsets: Mapping[str, float]) -> Span:
        offset = offsets[span.clock]
        return Span(self._own, span.began_at - offset, span.ended_at - offset)
