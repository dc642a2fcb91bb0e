"""The values that describe one attempt at a batch, as the driver hands them to its tasks."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from streamtopology.jobs.dag import Dag, compile_dag
from streamtopology.routing.epoch import Epoch
from streamtopology.routing.topology import Topology, parse, to_manifest


@dataclass(frozen=True)
class Plan:
    """A topology (whose policies are the epoch's) under one epoch: a worker compiles it once and keeps it."""

    topology: Topology
    epoch: Epoch
    sources: Mapping[str, pa.Schema]
    base_dir: Path

    def compile(self) -> Dag:
        return compile_dag(self.topology, self.sources, self.base_dir)

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


@dataclass(frozen=True)
class Attempt:
    """One try at batch `number`.

    `homes[s]` is the home slot of the executor at place s of this attempt; `placement[i]` the place that instance i of
    every operator runs at. `previous` is (number, attempt) of the newest commit, the version all state must have.
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
    knowledge: Mapping[str, Any] = field(default_factory=dict)

    @property
    def places(self) -> int:
        return len(self.homes)

    @property
    def readers(self) -> tuple[int, ...]:
        """The places with a task in stage 0: those with descriptors, and under a new epoch all, to hand over state."""
        if self.dry or self.previous_epoch not in (None, self.epoch):
            return tuple(range(self.places))
        return tuple(place for place, dealt in enumerate(self.descriptors) if dealt) or (0,)

    def place_of(self, instance: int) -> int:
        """The place (index into this attempt's executors) that runs `instance` of every operator."""
        return self.placement[instance % len(self.placement)]

    def instances_at(self, place: int, parallelism: int) -> list[int]:
        return [i for i in range(parallelism) if self.place_of(i) == place]


def place_instances(homes: tuple[int, ...], slots: int, parallelism: int) -> tuple[int, ...]:
    """Where each instance runs when the executors of the slots `homes` are left of `slots`.

    Instance i lives at slot i mod slots. The instances of a lost slot are dealt to the places that are left, so that
    all others stay where their state is.
    """
    place_at = {home: place for place, home in enumerate(homes)}
    orphans = 0
    placement: list[int] = []
    for instance in range(parallelism):
        home = instance % slots
        if home in place_at:
            placement.append(place_at[home])
        else:
            placement.append(orphans % len(homes))
            orphans += 1
    return tuple(placement)
