"""The placement of instances on executor slots, one for all operators.

An executor slot has a name (`large-0`) and keeps its number for good, also when it is gone: a number in a report means the
same slot under every epoch, and executors that come or go do not move other executors' instances.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from streamtopology.contract.wire_values import named

# The slot of an instance that is not active.
NOWHERE = -1


@dataclass(frozen=True)
class Placement:
    """Executor slots and the instances on them. Raises ValueError if the fields contradict each other.

    slots: names by slot number, including slots that are gone. present: numbers of the slots that exist now, in order.
    slot_by_instance: slot number by instance number; `NOWHERE` for an instance that is not active.
    """

    EXACT: ClassVar[bool] = True

    slots: tuple[str, ...]
    present: tuple[int, ...]
    slot_by_instance: tuple[int, ...] = field(metadata=named("homes"))

    def __post_init__(self) -> None:
        if len(set(self.slots)) < len(self.slots):
            raise ValueError(f"slots have names of their own; found {self.slots}")
        if not self.present or list(self.present) != sorted(set(self.present) & set(range(len(self.slots)))):
            raise ValueError(f"present slots are numbers below {len(self.slots)} in order, at least one; found {self.present}")
        if strangers := set(self.slot_by_instance) - {NOWHERE, *self.present}:
            raise ValueError(f"instances live on present slots {self.present}, not on {sorted(strangers)}")

    @staticmethod
    def first(names: Sequence[str], instances: int) -> Placement:
        """Return the placement in which all of `names` are present and instance i is on slot i mod their number."""
        slots = tuple(names)
        return Placement(slots, tuple(range(len(slots))), tuple(i % len(slots) for i in range(instances)))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the present slots, by number."""
        return tuple(self.slots[number] for number in self.present)

    def slot_of(self, instance: int) -> int:
        """Return the slot number of an instance, `NOWHERE` if it is not active."""
        return self.slot_by_instance[instance] if instance < len(self.slot_by_instance) else NOWHERE

    def instances(self, count: int) -> tuple[int, ...]:
        """Return the instances of an operator with `count` of them: one on every slot before a second one on any."""
        laps: Counter[int] = Counter()
        order: list[tuple[int, int, int]] = []
        for instance, slot in enumerate(self.slot_by_instance):
            if slot != NOWHERE:
                order.append((laps[slot], slot, instance))
                laps[slot] += 1
        return tuple(sorted(instance for _, _, instance in sorted(order)[:count]))

    def rescaled(self, names: Sequence[str], instances: int) -> Placement:
        """Return the placement of `instances` instances on the slots `names`, evenly and with as few moves as possible.

        An instance stays on a slot that stays, unless that slot has too many. Instances without a slot move to free room;
        where there is none they become inactive.
        """
        slots = (*self.slots, *(name for name in dict.fromkeys(names) if name not in self.slots))
        present = tuple(sorted(slots.index(name) for name in set(names)))
        held = {number: [i for i, slot in enumerate(self.slot_by_instance) if slot == number] for number in present}
        each, larger = divmod(instances, len(present))
        by_held = sorted(present, key=lambda number: (-len(held[number]), number))
        room = {number: each + (rank < larger) for rank, number in enumerate(by_held)}
        slot_of = {instance: number for number in present for instance in held[number][: room[number]]}
        vacant = sorted((lap, number) for number in present for lap in range(len(held[number]), room[number]))
        active = [instance for instance, slot in enumerate(self.slot_by_instance) if slot != NOWHERE]
        without_slot = (instance for instance in active if instance not in slot_of)
        new = (instance for instance in itertools.count() if instance not in active)
        movers = itertools.chain(list(without_slot), new)
        slot_of.update({next(movers): number for _, number in vacant})
        return Placement(slots, present, tuple(slot_of.get(i, NOWHERE) for i in range(1 + max(slot_of, default=-1))))
