"""The changing part of a driver: its newest commit, the batch in progress, the next batch's prefetch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamtopology.jobs.checkpoint import CommitRecord, SourceEnd, TableCopy
from streamtopology.jobs.connectors.sources.descriptors import Descriptor
from streamtopology.jobs.driver.attempt_runner import Executor, ForeignRows
from streamtopology.jobs.driver.batch_pace import BatchPace
from streamtopology.jobs.driver.host_clocks import HostClocks
from streamtopology.jobs.driver.knowledge import ChooserKnowledge
from streamtopology.jobs.driver.prefetch import Prefetch
from streamtopology.jobs.driver.read_sizes import ReadSizes
from streamtopology.jobs.driver.timeline import Timeline
from streamtopology.jobs.driver.watermarks import Poll
from streamtopology.jobs.plan.attempt import Attempt
from streamtopology.jobs.plan.dag import Dag
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.jobs.plan.results import Results
from streamtopology.jobs.plan.span import clock_of_this_host
from streamtopology.routing.control.window import MIN_BATCHES
from streamtopology.routing.epochs.placement import Placement
from streamtopology.routing.epochs.switch_progress import GradualSwitch

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


@dataclass(frozen=True)
class BatchInput:
    """The rows of one batch.

    `descriptors`: JSON texts; after them the sources are at `end`. `rows` are those of sources that the runner's engine reads,
    of its batch `spark_batch`; without rows that is the newest one before. `poll`: when the sources were asked for them; None
    for a batch that is run again, and for a part that is not the last. `range_end`: where the range ends of which later
    batches read the rest; None for the last part, or all of it. `is_limited`: False if the rows cannot be cut, however large
    they are. `flush` empties all partials, `final` closes all windows, too.
    """

    spark_batch: int
    descriptors: Sequence[str] = ()
    rows: ForeignRows = None
    end: SourceEnd = field(default_factory=SourceEnd)
    poll: Poll | None = None
    range_end: Mapping[str, Any] | None = None
    is_limited: bool = True
    flush: bool = False
    final: bool = False

    @property
    def to_read(self) -> dict[str, object]:
        """The content of its records about its sources."""
        part = {} if self.range_end is None else {"range_end": dict(self.range_end)}
        return {"descriptors": len(self.descriptors), "end": dict(self.end.positions), **part}

    @property
    def is_whole(self) -> bool:
        """True if nothing of its range is left after it."""
        return self.range_end is None


@dataclass(frozen=True)
class BatchInProgress:
    """A batch that is not committed yet, and the plan that all its attempts run under.

    `parts`: its descriptors. `tables`: by operator, what it looks up in.
    """

    number: int
    input: BatchInput
    plan: ExecutionPlan
    dag: Dag
    switch: GradualSwitch | None
    first_attempt: int
    parts: Sequence[Descriptor]
    timeline: Timeline
    tables: Mapping[str, TableCopy]


@dataclass(frozen=True)
class RunningAttempt:
    """The newest attempt that was recorded, and the executors and the plan that it runs with."""

    attempt: Attempt
    executors: tuple[Executor, ...]
    plan: ExecutionPlan


@dataclass
class Progress:
    """The progress of a run. `commit` is the newest one, `plan` the plan that it ran under."""

    commit: CommitRecord | None = None
    plan: ExecutionPlan | None = None
    knowledge: ChooserKnowledge = field(default_factory=ChooserKnowledge)
    clocks: HostClocks = field(default_factory=lambda: HostClocks(clock_of_this_host()))
    running: RunningAttempt | None = None
    prefetch: Prefetch | None = None
    sizes: ReadSizes = field(default_factory=ReadSizes)
    pace: BatchPace = field(default_factory=BatchPace)
    network: NetworkShare = field(default_factory=NetworkShare)
    # Time the sources took in the newest batch that was not prefetched.
    reading_seconds: float = 0.0
    # The event time at which some operator has something to do without rows (None: never); unknown before the first commit.
    due: float | None = -math.inf
    _measured_batches: int = 0
    _dag: tuple[int, Dag] | None = None

    @property
    def next_batch(self) -> int:
        """The number of the batch that follows the newest commit."""
        return 0 if self.commit is None else self.commit.batch + 1

    @property
    def may_prefetch(self) -> bool:
        """True if a batch is running and enough batches were measured without a prefetch.

        In a run's first batches source shares are wrong, and a slow executor's prefetch would distort all measurements.
        """
        return self.running is not None and self.commit is not None and self._measured_batches >= MIN_BATCHES

    def committed(self, commit: CommitRecord, plan: ExecutionPlan, due: float | None) -> None:
        self.commit, self.plan, self.due = commit, plan, due
        self._measured_batches += 1

    def dag(self, plan: ExecutionPlan) -> Dag:
        """Return the compiled `plan`; compiled once per epoch."""
        if self._dag is None or self._dag[0] != plan.epoch.number:
            self._dag = plan.epoch.number, plan.compile()
        return self._dag[1]

    def placement_before(self, plan: ExecutionPlan) -> Placement | None:
        """Return the placement of the newest commit if that ran under another epoch than `plan`'s, else None."""
        if self.plan is None or self.plan.epoch.number == plan.epoch.number:
            return None
        return self.plan.placement

    def take_prefetch(self, attempt: Attempt, executors: Sequence[Executor]) -> Prefetch | None:
        """Return the prefetch if it serves `attempt`; it is used at most once."""
        prefetch, self.prefetch = self.prefetch, None
        return prefetch if prefetch is not None and prefetch.serves(attempt, executors) else None
