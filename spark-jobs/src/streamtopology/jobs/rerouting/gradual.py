"""The gradual switch: the number of portions in which state moves to its new owners, and how many each batch takes.

If all state moved with one batch, that batch would grow with the state, and every row in it would wait. In portions each
batch is a little longer instead, and the switch takes several batches. A portion is a set of buckets, so a key has one
owner in every batch, and no row is forwarded or buffered.

A switch starts with few portions a batch. It takes more as long as moving them takes little of a usual batch, because the
gain of the new tables comes only with the last portions. The commit record has the progress, so a restart resumes it.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from streamtopology.jobs.checkpoint import Checkpoint, CommitRecord, Copied
from streamtopology.jobs.checkpoint.precopies import is_whole_after
from streamtopology.jobs.plan.attempt import Attempt
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.jobs.rerouting.movement import moving_state_bytes
from streamtopology.routing.epochs.gradual_switch import can_switch_gradually
from streamtopology.routing.epochs.switch_progress import GradualSwitch
from streamtopology.routing.planners.switch_costs import MOVED_BYTES_PER_SECOND
from streamtopology.topology import Topology

MOST_PORTIONS = 256
# Of a usual batch's seconds, those that moving takes: up to the first the next batch takes more portions, above the second
# fewer.
LITTLE, TOO_MUCH = 0.1, 0.2
# The same, relative to the least that a batch of this switch took. A part of it is fixed, such as a pass over all rows of a
# join: with fewer portions a batch it would be paid more often.
LITTLE_MORE, MUCH_MORE = 1.5, 2.0
# Of a usual batch's seconds, what the first portions should take by the planners' speed of moving; and their largest share of
# all, as that speed is another on other machines.
FIRST, MOST_AT_FIRST = 0.05, 1 / 8

BATCHES_OF_LATE = 8


def portions_for(before: ExecutionPlan, plan: ExecutionPlan, commit: CommitRecord) -> int:
    """Return the number of portions of a switch from `before` to `plan`, by the manifest's size; 1 if it cannot be gradual."""
    if not can_switch_gradually(before.placed_epoch, plan.placed_epoch):
        return 1
    moving = moving_state_bytes(before, plan, commit)
    portion = portion_bytes(plan.topology, len(plan.placement.present))
    return min(max(math.ceil(moving / portion), 1), MOST_PORTIONS)


def portion_bytes(topology: Topology, executors: int) -> float:
    """Return the bytes of state that a portion has at this number of executors together: less, the slower the slowest is."""
    slowest = min(1.0, *(of_class.cpu for of_class in topology.executors))
    return max(slowest * topology.migration.portion_bytes * executors, 1.0)


@dataclass
class SwitchPace:
    """The portions of the next batch, by how long moving took in earlier ones."""

    portions: int = 1
    _usual: deque[float] = field(default_factory=lambda: deque(maxlen=BATCHES_OF_LATE))
    _least: float = math.inf

    def usual_batch(self, seconds: float) -> None:
        """Note a committed batch without a portion, of so many `seconds` in all: the next switch starts slowly."""
        self._usual.append(seconds)
        self.portions, self._least = 1, math.inf

    def first_portions(self, portions: int, moving: float) -> int:
        """Return with how many of its `portions` a switch starts that moves so many bytes."""
        if not self._usual:
            return 1
        in_time = FIRST * statistics.median(self._usual) * MOVED_BYTES_PER_SECOND / max(moving, 1.0)
        return max(int(min(in_time, MOST_AT_FIRST) * portions), 1)

    def batch_with_portions(self, moving_seconds: float, taken: int) -> None:
        """Note a committed batch that took `taken` portions. Without a usual batch to compare with, the pace stays."""
        if not self._usual:
            return
        usual, self._least = statistics.median(self._usual), min(self._least, moving_seconds)
        if moving_seconds <= max(LITTLE * usual, LITTLE_MORE * self._least):
            self.portions = 2 * taken
        elif moving_seconds > max(TOO_MUCH * usual, MUCH_MORE * self._least):
            self.portions = max(1, taken // 2)
        else:
            self.portions = taken


@dataclass
class GradualSwitching:
    """The course of gradual switches: each batch's share of its plan's epoch, and the pre-copy that the share uses."""

    checkpoint: Checkpoint
    notify: Callable[[str], None]
    pace: SwitchPace = field(default_factory=SwitchPace)
    _answered: tuple[tuple[int, GradualSwitch | None, int], GradualSwitch | None] | None = None

    def of_batch(self, last: CommitRecord | None, before: ExecutionPlan | None, plan: ExecutionPlan) -> GradualSwitch | None:
        """Return how far the batch after `last`, which ran under `before`, is switched to `plan`; None: completely.

        The answer for a batch stays the same, so that the batch can be prefetched.
        """
        if last is None or before is None:
            return None
        asked = last.epoch, last.switch, plan.epoch.number
        if self._answered is None or self._answered[0] != asked:
            self._answered = asked, self._switch(last, before, plan)
        return self._answered[1]

    def _switch(self, last: CommitRecord, before: ExecutionPlan, plan: ExecutionPlan) -> GradualSwitch | None:
        if plan.epoch.number == last.epoch:
            return None if last.switch is None else last.switch.advanced(self.pace.portions)
        portions = self._portions(before, plan, last)
        if portions == 1:
            return None
        self.notify(f"epoch {plan.epoch.number}: state moves in {portions} portions, over up to as many batches")
        first = self.pace.first_portions(portions, moving_state_bytes(before, plan, last))
        return GradualSwitch.started(last.epoch, first, portions)

    def committed(self, seconds: float, moving_seconds: float, attempt: Attempt) -> None:
        """Note that `attempt` was committed, `seconds` after its batch began, of which it took some to move state."""
        if not attempt.hands_over:
            self.pace.usual_batch(seconds)
        elif attempt.switch is not None:
            self.pace.batch_with_portions(moving_seconds, len(attempt.portions_moving(attempt.switch.portions)))

    def copied_at(self, last: CommitRecord | None, plan: ExecutionPlan) -> int | None:
        """Return the batch as of which the moving state was pre-copied; None: all of it moves with this batch."""
        if last is None or (plan.epoch.number == last.epoch and last.switch is None):
            return None
        copied = self.checkpoint.precopies.copied(plan.epoch.number)
        return copied.batch if copied is not None and _serves(copied, last) else None

    def _portions(self, before: ExecutionPlan, plan: ExecutionPlan, last: CommitRecord) -> int:
        copied = self.checkpoint.precopies.copied(plan.epoch.number)
        if copied is not None and _serves(copied, last):
            return copied.portions
        return portions_for(before, plan, last) if last.switch is None else 1


def _serves(copied: Copied, last: CommitRecord) -> bool:
    """True if the pre-copy is of what moves after `last`: nothing else has moved since, and no delta is gone."""
    under_way = last.switch if last.epoch == copied.epoch else None
    follows = last.epoch if under_way is None else under_way.follows
    return copied.follows == follows and is_whole_after(last.state, copied.batch)
