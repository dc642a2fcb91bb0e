"""In how many portions state moves to its new owners, and how many of them each batch takes.

State that moves with one batch makes that batch as much longer as there is state. In portions every batch is a little
longer instead, and the switch takes as many batches. A run starts with one portion a batch and takes more as long as
batches stay close to what was usual.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import UnionType

from streamtopology.jobs.batch import Attempt, Plan
from streamtopology.jobs.checkpoint import Checkpoint, CommitRecord, Copied
from streamtopology.jobs.checkpoint.migrations import is_whole_after
from streamtopology.jobs.migrate import moving_bytes
from streamtopology.jobs.state import StateSchema
from streamtopology.routing.switching import Switch, can_be_in_portions

MOST_PORTIONS = 256
LITTLE_LONGER, TOO_LONG = 1.1, 1.2
"""A batch that takes up to so many times a usual one may take more portions; from so many times on, fewer."""

BATCHES_OF_LATE = 8


def moving(before: Plan, plan: Plan, commit: CommitRecord, kinds: type | UnionType = StateSchema) -> int:
    """About how many bytes of state of these kinds `plan` moves, as of `commit`."""
    owned = _owned(before, kinds) & _owned(plan, kinds)
    return moving_bytes(plan.epoch, commit, sorted(owned), before.epoch)


def _owned(plan: Plan, kinds: type | UnionType) -> set[str]:
    """The nodes whose state belongs to the owner of its key."""
    return {node.name for node in plan.compile().nodes if isinstance(node.state, kinds) and not node.is_partial}


def portions_for(before: Plan, plan: Plan, commit: CommitRecord) -> int:
    """In how many portions to switch from `before` to `plan`, by the manifest's size of one; 1 where it has to be at once."""
    if not can_be_in_portions(before.placed_epoch, plan.placed_epoch):
        return 1
    per_executor = moving(before, plan, commit) / len(plan.placement.present)
    slowest = min(1.0, *(executors.cpu for executors in plan.topology.executors))
    portion = max(slowest * plan.topology.migration.portion_bytes, 1)
    return min(max(math.ceil(per_executor / portion), 1), MOST_PORTIONS)


@dataclass
class Pace:
    """How many portions the next batch takes, by how long batches take. All seconds are of whole batches."""

    portions: int = 1
    _usual: deque[float] = field(default_factory=lambda: deque(maxlen=BATCHES_OF_LATE))

    def usual_batch(self, seconds: float) -> None:
        """A batch without a portion was committed: the next switch starts slowly."""
        self._usual.append(seconds)
        self.portions = 1

    def batch_with_portions(self, seconds: float, taken: int) -> None:
        """A batch that took so many portions was committed. Where nothing is known of usual ones, the pace stays."""
        if not self._usual:
            return
        longer = seconds / statistics.median(self._usual)
        if longer <= LITTLE_LONGER:
            self.portions = 2 * taken
        elif longer > TOO_LONG:
            self.portions = max(1, taken // 2)
        else:
            self.portions = taken


@dataclass
class Switching:
    """How far each batch of a run is switched to its plan's epoch, and what of that was copied ahead."""

    checkpoint: Checkpoint
    tell: Callable[[str], None]
    pace: Pace = field(default_factory=Pace)
    _said: tuple[tuple[int, Switch | None, int], Switch | None] | None = None

    def of_batch(self, last: CommitRecord | None, before: Plan | None, plan: Plan) -> Switch | None:
        """How far the batch after `last`, which ran under `before`, is switched to `plan`; None: as a whole.

        What was once said of a batch stays, so that it can be read ahead.
        """
        if last is None or before is None:
            return None
        asked = last.epoch, last.switch, plan.epoch.number
        if self._said is None or self._said[0] != asked:
            self._said = asked, self._say(last, before, plan)
        return self._said[1]

    def _say(self, last: CommitRecord, before: Plan, plan: Plan) -> Switch | None:
        if plan.epoch.number == last.epoch:
            return None if last.switch is None else last.switch.further(self.pace.portions)
        portions = self._portions(before, plan, last)
        if portions > 1:
            self.tell(f"epoch {plan.epoch.number}: state moves in {portions} portions, over up to as many batches")
        return Switch.begun(last.epoch, self.pace.portions, portions)

    def committed(self, seconds: float, attempt: Attempt) -> None:
        """The attempt at a batch was committed, in so many seconds."""
        if not attempt.hands_over:
            self.pace.usual_batch(seconds)
        elif attempt.switch is not None:
            self.pace.batch_with_portions(seconds, len(attempt.portions_moving(attempt.switch.portions)))

    def copied_at(self, last: CommitRecord | None, plan: Plan) -> int | None:
        """The batch as of which the state that moves now was copied ahead; None: it all moves with this batch."""
        if last is None or (plan.epoch.number == last.epoch and last.switch is None):
            return None
        copied = self.checkpoint.migrations.copied(plan.epoch.number)
        return copied.batch if copied is not None and _serves(copied, last) else None

    def _portions(self, before: Plan, plan: Plan, last: CommitRecord) -> int:
        copied = self.checkpoint.migrations.copied(plan.epoch.number)
        if copied is not None and _serves(copied, last):
            return copied.portions
        return portions_for(before, plan, last) if last.switch is None else 1


def _serves(copied: Copied, last: CommitRecord) -> bool:
    """Whether what was copied is what moves after `last`: nothing else has moved since, and no delta is gone."""
    under_way = last.switch if last.epoch == copied.epoch else None
    follows = last.epoch if under_way is None else under_way.follows
    return copied.follows == follows and is_whole_after(last.state, copied.batch)
