"""Where instances live: which executor slots there are, and the slot of each instance, the same for all operators.

A slot bears a name (`large-0`) and keeps the number that it got when it first came, also when it is gone: so a number in
a report means the same slot under every epoch, and executors that come or go change the place of no other's instances.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

NOWHERE = -1
"""The home of an instance that is not active."""


@dataclass(frozen=True)
class Placement:
    """slots: names by slot number, those that are gone included. present: numbers of the slots that are there, in order.

    homes: slot number by instance number; `NOWHERE` for a number that no instance has. ValueError says what does not fit.
    """

    slots: tuple[str, ...]
    present: tuple[int, ...]
    homes: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(set(self.slots)) < len(self.slots):
            raise ValueError(f"slots have names of their own; found {self.slots}")
        if not self.present or list(self.present) != sorted(set(self.present) & set(range(len(self.slots)))):
            raise ValueError(f"present slots are numbers below {len(self.slots)} in order, at least one; found {self.present}")
        if strangers := set(self.homes) - {NOWHERE, *self.present}:
            raise ValueError(f"instances live on present slots {self.present}, not on {sorted(strangers)}")

    @staticmethod
    def first(names: Sequence[str], instances: int) -> Placement:
        """All of `names` are there; instance i lives on slot i mod their number."""
        slots = tuple(names)
        return Placement(slots, tuple(range(len(slots))), tuple(i % len(slots) for i in range(instances)))

    @property
    def names(self) -> tuple[str, ...]:
        """The slots that are there, by number."""
        return tuple(self.slots[number] for number in self.present)

    def number_of(self, name: str) -> int | None:
        """The number of a slot that is there or has been; None for one that never was."""
        return self.slots.index(name) if name in self.slots else None

    def home(self, instance: int) -> int:
        """The slot of an instance, `NOWHERE` when it is not active."""
        return self.homes[instance] if instance < len(self.homes) else NOWHERE

    def instances(self, count: int) -> tuple[int, ...]:
        """The instances of an operator that has `count` of them: one on every slot before a second one on any."""
        laps: Counter[int] = Counter()
        order: list[tuple[int, int, int]] = []
        for instance, home in enumerate(self.homes):
            if home != NOWHERE:
                order.append((laps[home], home, instance))
                laps[home] += 1
        return tuple(sorted(instance for _, _, instance in sorted(order)[:count]))

    def rescaled(self, names: Sequence[str], instances: int) -> Placement:
        """`instances` on the slots `names` as evenly as can be, with no instance moved without need.

        An instance whose slot stays stays on it, unless that slot has too many. Those without a slot are moved whole where
        there is room for them, and are not active any more where there is none.
        """
        slots = (*self.slots, *(name for name in dict.fromkeys(names) if name not in self.slots))
        present = tuple(sorted(slots.index(name) for name in set(names)))
        here = {slot: [i for i, home in enumerate(self.homes) if home == slot] for slot in present}
        each, larger = divmod(instances, len(present))
        by_held = sorted(present, key=lambda slot: (-len(here[slot]), slot))
        room = {slot: each + (rank < larger) for rank, slot in enumerate(by_held)}
        homes = {instance: slot for slot in present for instance in here[slot][: room[slot]]}
        vacant = sorted((lap, slot) for slot in present for lap in range(len(here[slot]), room[slot]))
        known = [instance for instance, home in enumerate(self.homes) if home != NOWHERE]
        homeless = (instance for instance in known if instance not in homes)
        fresh = (instance for instance in itertools.count() if instance not in known)
        movers = itertools.chain(list(homeless), fresh)
        homes.update({next(movers): slot for _, slot in vacant})
        return Placement(slots, present, tuple(homes.get(i, NOWHERE) for i in range(1 + max(homes, default=-1))))

    def to_wire(self) -> dict[str, object]:
        """A JSON-able dict, as epochs carry it."""
        return {"slots": list(self.slots), "present": list(self.present), "homes": list(self.homes)}

    @staticmethod
    def from_wire(wire: Mapping[str, object]) -> Placement:
        """The placement that `to_wire` was called on. ValueError says what does not fit."""
        if set(wire) != {"slots", "present", "homes"} or not all(isinstance(value, list) for value in wire.values()):
            raise ValueError(f"a placement has lists of slots, present and homes; found {sorted(wire)}")
        slots, present, homes = (cast("list[object]", wire[name]) for name in ("slots", "present", "homes"))
        numbers = [*present, *homes]
        if not all(isinstance(name, str) for name in slots) or not all(type(number) is int for number in numbers):
            raise ValueError("a placement's slots are names, present and homes are whole numbers")
        return Placement(
            tuple(cast("list[str]", slots)), tuple(cast("list[int]", present)), tuple(cast("list[int]", homes))
        )  # fmt: skip
