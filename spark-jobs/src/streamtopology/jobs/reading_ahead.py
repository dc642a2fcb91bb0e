"""The source stage of the next batch, at work while the batch before it ends.

Reading and routing change nothing: what was read ahead is used when the next batch turns out to be as it was foreseen,
and forgotten otherwise. So the record of a batch still comes before all work that could leave a trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from streamtopology.jobs.batch import Attempt
from streamtopology.jobs.pinning import Sending, Slot
from streamtopology.jobs.stages import read_ahead
from streamtopology.routing.switching import Switch

Dealt = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Ahead:
    """What is being read for the next batch, as `attempt` foresees it, by tasks on `slots`."""

    attempt: Attempt
    slots: tuple[Slot, ...]
    sending: Sending

    @staticmethod
    def begin(
        spark: SparkSession, at_work: Attempt, epoch: int, switch: Switch | None, slots: Sequence[Slot], descriptors: Dealt
    ) -> Ahead:  # fmt: skip
        """Read for the batch after `at_work` on the same executors and under this epoch, switched to it so far."""
        attempt = replace(
            at_work, number=at_work.number + 1, attempt=1, epoch=epoch, previous=None, previous_epoch=at_work.epoch,
            previous_switch=at_work.switch, switch=switch, descriptors=descriptors,
        )  # fmt: skip
        return Ahead(attempt, tuple(slots), read_ahead(spark, attempt, slots))

    def serves(self, attempt: Attempt, slots: Sequence[Slot]) -> bool:
        """Whether `attempt` would read the same rows and send them to the same places."""
        foreseen = self.attempt
        return (
            (attempt.epoch, attempt.switch) == (foreseen.epoch, foreseen.switch)
            and attempt.placement == foreseen.placement
            and attempt.descriptors == foreseen.descriptors
            and tuple(slots) == self.slots
        )
