"""One attempt at a batch, as the driver hands it to its tasks.

It holds what tasks have to agree on: epoch, placement, commit, descriptors. A task that looked these up by itself could
find newer ones than its neighbours.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamtopology.routing.epochs.placement import NOWHERE, Placement
from streamtopology.routing.epochs.switch_progress import GradualSwitch
from streamtopology.routing.table.pouring import Pace


@dataclass(frozen=True)
class Attempt:
    """One try at batch `number`.

    `run`: id of this start of the topology, part of the keys of worker caches. `iterations_per_second`: calibration of
    `costPerTuple`. `descriptors`: by partition, JSON texts. `most_bytes`: size of the rows that a task may read of them before
    it reports that the batch is too large; None: no limit. `blobs`: in that number a task sends what it has for a partition.
    `slot_by_partition`: the slot number of each partition's executor. `partition_by_instance`: the partition that runs the
    instance of this number of every operator, or that hands its state over if the epoch no longer has it; else `NOWHERE`.
    `previous`: (number, attempt) of the newest commit, the version that all state must have.
    `switch`: how far this batch is switched to `epoch`, `previous_switch`: how far the batch before was switched to
    `previous_epoch`; None: completely. `precopied_at`: the batch as of which the epoch's state was pre-copied, if it was.
    `watermark`: windows up to it close in this batch, `closed_until`: those up to it were closed by earlier batches; epoch
    seconds, as is `recorded_at`, the driver's clock.
    `knowledge`: by node, in wire form, what its choosers have learnt from their instances. `counts_pairs`: whether instances
    count which keys follow each other, also where that is of use only with a slow network.
    `flush` makes partials hand over their rows; `final` marks the end of the input. `dry` attempts warm executors up: they
    write nothing and have no state. `paces`: by node whose rows are poured, the speed of its instances as last measured.
    `partials`: by node, what instances gathered in the batch before of keys with another home, see `operators.partials`.
    `tables`: by operator, the file in the checkpoint with the rows in which it looks up.
    `compactions`: by node and instance, how many of the deltas of its state as of `previous`
    a snapshot shall cover, which the instance's worker makes in the background.
    """

    run: str
    checkpoint: str
    number: int
    attempt: int
    epoch: int
    previous_epoch: int | None
    previous: tuple[int, int] | None
    slot_by_partition: tuple[int, ...]
    partition_by_instance: tuple[int, ...]
    watermark: float | None = None
    closed_until: float | None = None
    recorded_at: float = math.inf
    flush: bool = False
    final: bool = False
    dry: bool = False
    descriptors: tuple[tuple[str, ...], ...] = ()
    most_bytes: int | None = None
    blobs: int = 1
    chooser_loads: Mapping[str, np.ndarray] = field(default_factory=dict)
    iterations_per_second: float = 0.0
    dead_letter: bool = False
    precopied_at: int | None = None
    switch: GradualSwitch | None = None
    previous_switch: GradualSwitch | None = None
    knowledge: Mapping[str, Any] = field(default_factory=dict)
    counts_pairs: bool = False
    compactions: Mapping[tuple[str, int], int] = field(default_factory=dict)
    paces: Mapping[str, Pace] = field(default_factory=dict)
    partials: Mapping[str, Sequence[str]] = field(default_factory=dict)
    tables: Mapping[str, str] = field(default_factory=dict)

    @property
    def partitions(self) -> int:
        return len(self.slot_by_partition)

    @property
    def hands_over(self) -> bool:
        """True if state changes its owner in this batch, because its routing differs from the batch before."""
        if self.dry or self.previous is None or self.previous_epoch is None:
            return False
        return (self.previous_epoch, self.previous_switch) != (self.epoch, self.switch)

    def portions_moving(self, portions: int) -> range:
        """The portions of the keys, out of `portions`, that change their owner in this batch."""
        begun = self.previous_switch.done if self.previous_switch and self.previous_epoch == self.epoch else 0
        return range(begun, portions if self.switch is None else self.switch.done)

    @property
    def reading_partitions(self) -> tuple[int, ...]:
        """The partitions with a task in stage 0: those with descriptors, or all of them if state is handed over."""
        if self.dry or self.hands_over:
            return tuple(range(self.partitions))
        return tuple(partition for partition, dealt in enumerate(self.descriptors) if dealt) or (0,)

    def partition_of(self, instance: int) -> int:
        """The partition of `instance`, the same for every operator; see `partition_by_instance`."""
        return self.partition_by_instance[instance] if instance < len(self.partition_by_instance) else NOWHERE

    def instances_on(self, partition: int, instances: Iterable[int]) -> list[int]:
        """Those of `instances` that run on `partition`."""
        return [instance for instance in instances if self.partition_of(instance) == partition]


def place_instances(slots: Sequence[int], now: Placement, before: Placement | None = None) -> tuple[int, ...]:
    """The partition of each instance, given the slots of the executors by partition.

    Instances of a slot without an executor are dealt to the partitions of the placement's other slots, so that all others
    stay where their state is. An instance that only `before` has, the placement of the batch before, keeps its partition to
    hand its state over.
    """
    partition_by_slot = {slot: partition for partition, slot in enumerate(slots)}
    present = frozenset(now.present)
    substitutes = itertools.cycle([partition for partition, slot in enumerate(slots) if slot in present])

    def partition_of(instance: int) -> int:
        slot = now.slot_of(instance)
        if slot == NOWHERE and before is not None:
            slot = before.slot_of(instance)
        if slot == NOWHERE:
            return NOWHERE
        return partition_by_slot[slot] if slot in partition_by_slot else next(substitutes)

    return tuple(
        map(partition_of, range(max(len(now.slot_by_instance), len(before.slot_by_instance) if before is not None else 0)))
    )
