"""The part of a batch that rows between executors take, by what was measured."""

from __future__ import annotations

from dataclasses import dataclass

from streamtopology.jobs.plan.results import Results

# The share of a batch's seconds from which on it is counted which keys follow each other: that costs every row some time.
WORTH = 0.05


@dataclass
class NetworkShare:
    """`matters`: rows between executors have taken a noticeable part of some batch. It stays so: the plan that follows makes
    that part smaller."""

    matters: bool = False

    def measured(self, results: Results, executors: int, seconds: float) -> None:
        """Learn from a committed batch of `seconds` on that number of executors, whose links are busy at the same time."""
        on_links = results.remote_seconds * results.remote_rows / max(executors, 1)
        self.matters = self.matters or on_links > WORTH * seconds
