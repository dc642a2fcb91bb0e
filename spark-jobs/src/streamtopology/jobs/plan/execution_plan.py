"""The plan of one epoch: the topology and how its tuples are routed."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import pyarrow as pa

from streamtopology.contract.format_number import FORMAT, ONE_VERSION, check_format
from streamtopology.contract.wire_values import Form, WireError, from_wire, named, to_wire
from streamtopology.jobs.plan.dag import Dag, compile_dag
from streamtopology.routing.epochs.epoch import Epoch, EpochFormatError
from streamtopology.routing.epochs.gradual_switch import mixed_epoch
from streamtopology.routing.epochs.placement import Placement
from streamtopology.routing.epochs.rescaling import most_instances, slot_names
from streamtopology.routing.epochs.switch_progress import GradualSwitch
from streamtopology.topology import Level, Topology, difference, parse, to_manifest

PLAN_FORMAT = 1


def _schema_text(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize()).decode()


def _schema_of(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


@dataclass(frozen=True)
class ExecutionPlan:
    """A topology, whose policies are the epoch's, under one epoch. A worker compiles it once.

    forgotten_until: by operator whose `allowedLateness` was raised, the event time (epoch seconds) up to which its windows had
    been forgotten by then.
    """

    topology: Annotated[Topology, Form(to_manifest, parse)] = field(metadata=named("manifest"))
    epoch: Epoch
    sources: Mapping[str, Annotated[pa.Schema, Form(_schema_text, _schema_of, str)]]
    base_dir: Annotated[Path, Form(str, Path, str)] = field(metadata=named("baseDir"))
    forgotten_until: Mapping[str, float] = field(default_factory=dict[str, float], metadata=named("forgottenUntil"))

    @property
    def placement(self) -> Placement:
        """The epoch's placement; by default, all of the topology's slots in their order."""
        names = slot_names(self.topology)
        return self.epoch.placement or Placement.first(names, most_instances(self.topology, len(names)))

    @property
    def placed_epoch(self) -> Epoch:
        """The epoch with its placement filled in."""
        return replace(self.epoch, placement=self.placement)

    def mixed_with(self, before: ExecutionPlan, switch: GradualSwitch | None) -> ExecutionPlan:
        """The mixed plan of batches that are partly switched from `before` to this plan."""
        return self if switch is None else replace(self, epoch=mixed_epoch(before.epoch, self.epoch, switch))

    def is_rerouting_of(self, other: ExecutionPlan) -> bool:
        """True if both plans have the same topology, the same instances and the same placement."""
        mine, theirs = ({node: route.instances for node, route in plan.epoch.routes.items()} for plan in (self, other))
        return self.topology == other.topology and self.placement == other.placement and mine == theirs

    def processes_as(self, other: ExecutionPlan) -> bool:
        """True if both plans do the same with tuples, wherever they send them: the files of operators are in `base_dir`."""
        same = (self.base_dir, dict(self.forgotten_until)) == (other.base_dir, dict(other.forgotten_until))
        return same and difference(self.topology, other.topology).level == Level.IGNORE

    def compile(self) -> Dag:
        return compile_dag(self.topology, self.sources, self.base_dir)

    def misfit(self, epoch: Epoch) -> str | None:
        """The reason why a run under this plan cannot take over an epoch made elsewhere; None if it can.

        Slots and instances must be those of the plan: the topology and the live executors decide them.
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
        """The form in the checkpoint: one file per epoch, with everything that a worker needs to run it."""
        return json.dumps({FORMAT: PLAN_FORMAT, **to_wire(self)})

    @staticmethod
    def from_json(text: str) -> ExecutionPlan:
        wire = json.loads(text)
        check_format(wire, PLAN_FORMAT, "the plan of an epoch", ONE_VERSION, EpochFormatError)
        try:
            return from_wire(ExecutionPlan, wire)
        except WireError as wrong:
            raise EpochFormatError(f"the plan of an epoch does not hold: {wrong}") from wrong


def _names(nodes: Iterable[str]) -> str:
    return ", ".join(sorted(nodes))
