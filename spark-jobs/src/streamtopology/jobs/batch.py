"""The values that describe one attempt at a batch, as the driver hands them to its tasks."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from streamtopology.jobs.dag import Dag, compile_dag
from streamtopology.routing.epoch import Epoch
from streamtopology.routing.placement import NOWHERE, Placement
from streamtopology.routing.rescaling import most_instances, slot_names
from streamtopology.routing.switching import Switch, epoch_amid
from streamtopology.routing.topology import Topology, parse, to_manifest


@dataclass(frozen=True)
class Plan:
    """A topology (whose policies are the epoch's) under one epoch: a worker compiles it once and keeps it."""

    topology: Topology
    epoch: Epoch
    sources: Mapping[str, pa.Schema]
    base_dir: Path

    @property
    def placement(self) -> Placement:
        """The epoch's; where it says nothing, all of the topology's slots are there, in their order."""
        names = slot_names(self.topology)
        return self.epoch.placement or Placement.first(names, most_instances(self.topology, len(names)))

    @property
    def placed_epoch(self) -> Epoch:
        """The epoch, which says its placement."""
        return replace(self.epoch, placement=self.placement)

    def amid(self, before: Plan, switch: Switch | None) -> Plan:
        """This plan as batches run it that are switched so far from `before`."""
        return self if switch is None else replace(self, epoch=epoch_amid(before.epoch, self.epoch, switch))

    def is_rerouting_of(self, other: Plan) -> bool:
        """Whether it is the same topology with the same instances in the same places."""
        mine, theirs = ({node: route.instances for node, route in plan.epoch.routes.items()} for plan in (self, other))
        return self.topology == other.topology and self.placement == other.placement and mine == theirs

    def compile(self) -> Dag:
        return compile_dag(self.topology, self.sources, self.base_dir)

    def misfit(self, epoch: Epoch) -> str | None:
        """What an epoch made elsewhere has that a run under this plan cannot go on with; None if it can.

        Who takes part is decided by the topology and the executors there are, so slots and instances are those of the plan.
        """
        routes, slots = self.epoch.routes, len(self.placement.slots)
        if set(routes) != set(epoch.routes):
            return f"epoch {epoch.number} routes {_names(epoch.routes)}; the topology has {_names(routes)}"
        if epoch.placement not in (None, self.placement):
            return f"epoch {epoch.number} was planned for {epoch.placement}; the run has {self.placement}"
        if epoch.source_shares and len(epoch.source_shares) != slots:
            return f"epoch {epoch.number} has source shares of {len(epoch.source_shares)} slots; the topology has {slots}"
        for name, route in epoch.routes.items():
            if route.policy != routes[name].policy:
                return f"epoch {epoch.number} routes {name} by {route.policy}; its policy is {routes[name].policy}"
            if route.instances != routes[name].instances:
                found, active = list(route.instances), list(routes[name].instances)
                return f"epoch {epoch.number} routes {name} over the instances {found}; active are {active}"
        return None

    def to_json(self) -> str:
        """As the checkpoint keeps it: one file per epoch, all that a worker needs to run it."""
        schemas = {name: base64.b64encode(schema.serialize()).decode() for name, schema in self.sources.items()}
        wire = {
            "manifest": to_manifest(self.topology), "epoch": self.epoch.to_wire(), "sources": schemas,
            "baseDir": str(self.base_dir),
        }  # fmt: skip
        return json.dumps(wire)

    @staticmethod
    def from_json(text: str) -> Plan:
        wire = json.loads(text)
        schemas = {name: pa.ipc.read_schema(pa.py_buffer(base64.b64decode(schema))) for name, schema in wire["sources"].items()}
        return Plan(parse(wire["manifest"]), Epoch.from_wire(wire["epoch"]), schemas, Path(wire["baseDir"]))


def _names(nodes: Iterable[str]) -> str:
    return ", ".join(sorted(nodes))


@dataclass(frozen=True)
class Attempt:
    """One try at batch `number`.

    `homes[s]` is the slot number of the executor at place s of this attempt; `placement[i]` the place that instance i of
    every operator runs at, or hands its state over from if this epoch has it no more; `NOWHERE` for any other number.
    `previous` is (number, attempt) of the newest commit, the version all state must have.
    `switch`: how far this batch is switched to `epoch`, and `previous_switch` the one before to `previous_epoch`; None: as a
    whole. Under an epoch whose state was copied ahead, `copied_at` is the batch as of which.
    `knowledge`: by node what its choosers are told, in wire form, where they learn from their instances.
    `flush` asks partials to hand over; `final` says that the input has ended. `dry` attempts write nothing and know no
    state: they warm executors up.
    """

    run: str
    checkpoint: str
    number: int
    attempt: int
    epoch: int
    previous_epoch: int | None
    previous: tuple[int, int] | None
    homes: tuple[int, ...]
    placement: tuple[int, ...]
    watermark: float | None = None
    flush: bool = False
    final: bool = False
    dry: bool = False
    descriptors: tuple[tuple[str, ...], ...] = ()
    chooser_loads: Mapping[str, np.ndarray] = field(default_factory=dict)
    iterations_per_second: float = 0.0
    dead_letter: bool = False
    copied_at: int | None = None
    switch: Switch | None = None
    previous_switch: Switch | None = None
    knowledge: Mapping[str, Any] = field(default_factory=dict)

    @property
    def places(self) -> int:
        return len(self.homes)

    @property
    def hands_over(self) -> bool:
        """Whether state changes its owner in this batch: it is routed otherwise than the one before."""
        if self.dry or self.previous is None or self.previous_epoch is None:
            return False
        return (self.previous_epoch, self.previous_switch) != (self.epoch, self.switch)

    def portions_moving(self, portions: int) -> range:
        """Which of that many portions of the keys change their owner in this batch."""
        begun = self.previous_switch.done if self.previous_switch and self.previous_epoch == self.epoch else 0
        return range(begun, portions if self.switch is None else self.switch.done)

    @property
    def readers(self) -> tuple[int, ...]:
        """The places with a task in stage 0: those with descriptors, and all where state is handed over."""
        if self.dry or self.hands_over:
            return tuple(range(self.places))
        return tuple(place for place, dealt in enumerate(self.descriptors) if dealt) or (0,)

    def place_of(self, instance: int) -> int:
        """The place (index into this attempt's executors) that runs `instance` of every operator; see `placement`."""
        return self.placement[instance] if instance < len(self.placement) else NOWHERE

    def instances_at(self, place: int, instances: Iterable[int]) -> list[int]:
        """Those of `instances` that are at `place`."""
        return [instance for instance in instances if self.place_of(instance) == place]


def place_instances(places: Sequence[int], now: Placement, before: Placement | None = None) -> tuple[int, ...]:
    """Where each instance runs when the executors at `places` (their slot numbers) are there.

    The instances of a slot without executor are dealt to the places of the others, so that all else stays where its state
    is. An instance that only `before` has, the placement of the batch before, hands over from where it was.
    """
    place_at = {slot: place for place, slot in enumerate(places)}
    orphanages = [place for place, slot in enumerate(places) if slot in now.present]
    orphans = itertools.cycle(orphanages)
    former = before.homes if before is not None else ()
    homes = [
        now.home(instance) if now.home(instance) != NOWHERE or before is None else before.home(instance)
        for instance in range(max(len(now.homes), len(former)))
    ]
    return tuple(NOWHERE if home == NOWHERE else place_at[home] if home in place_at else next(orphans) for home in homes)
