"""The port between the driver and the source of its epochs: a controller in this process, or a ConfigMap.

The driver asks the same questions in both cases, so the batch loop does not know where plans are made.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from streamtopology.contract.stats import BatchSteps
from streamtopology.jobs.plan.attempt import Attempt
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.jobs.plan.results import Results
from streamtopology.routing.table.pouring import Pace


class Router(Protocol):
    """Gives the driver its plans, and learns from its committed batches."""

    def arrived(self, slots: Collection[str]) -> None:
        """Note, as a batch begins, that the executors of these slots may be given work."""
        ...

    def ready(self) -> ExecutionPlan:
        """Return the newest plan that a batch may run under; a plan whose pre-copy is over becomes that one."""
        ...

    def must_flush(self) -> bool:
        """True if the next batch must flush its partials because the plan after it has none."""
        ...

    def paces(self, plan: ExecutionPlan) -> Mapping[str, Pace]:
        """Return, by node whose rows are poured, the speed of its instances under `plan`; none before it is measured."""
        ...

    def active(self, epoch: int, batch: int) -> None:
        """Note that `batch` is recorded to run under `epoch`; from now on that epoch can only be superseded."""
        ...

    def committed(self, done: CommittedAttempt) -> None:
        """Learn from a committed batch."""
        ...


@dataclass(frozen=True)
class CommittedAttempt:
    """The attempt that committed a batch. `seconds`: from its start to its publication; `started_at`: in epoch seconds.

    `steps`: where its seconds went, if that was measured.
    """

    attempt: Attempt
    results: Results
    rows: int
    seconds: float
    started_at: float
    steps: BatchSteps | None = None
