"""The source stage of the next batch, run while the current batch ends.

The executors that finish first would otherwise wait for the slowest one, which is the very time that this project is
about. Reading and routing change nothing, so the driver uses a prefetch when the next batch turns out as foreseen, and
discards it otherwise. The record of a batch still precedes all work that could leave a trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from streamtopology.jobs.driver.attempt_runner import Executor, Prefetched
from streamtopology.jobs.plan.attempt import Attempt
from streamtopology.routing.epochs.switch_progress import GradualSwitch


@dataclass(frozen=True)
class Prefetch:
    """The first stage of a foreseen `attempt`, started on `executors`."""

    attempt: Attempt
    executors: tuple[Executor, ...]
    sent: Prefetched

    def serves(self, attempt: Attempt, executors: Sequence[Executor]) -> bool:
        """True if `attempt` would read the same rows and send them to the same partitions."""
        foreseen = self.attempt
        return (
            (attempt.epoch, attempt.switch, attempt.blobs) == (foreseen.epoch, foreseen.switch, foreseen.blobs)
            and attempt.partition_by_instance == foreseen.partition_by_instance
            and attempt.descriptors == foreseen.descriptors
            and tuple(executors) == self.executors
        )


def foreseen_attempt(
    running: Attempt, epoch: int, switch: GradualSwitch | None, descriptors: tuple[tuple[str, ...], ...], blobs: int
) -> Attempt:
    """Return the first attempt at the batch after `running`, on the same executors, under `epoch` as far as `switch` has it."""
    return replace(
        running,
        number=running.number + 1,
        attempt=1,
        epoch=epoch,
        previous=None,
        previous_epoch=running.epoch,
        previous_switch=running.switch,
        switch=switch,
        descriptors=descriptors,
        blobs=blobs,
    )
