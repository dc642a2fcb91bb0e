"""A case: what its manifest says, and steps of rows, events and edits. Everything that happens is in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from support.differential.values import Column
from support.stages import manifest

# reroute: random tables. precopy: random tables for the next batch, their state copied ahead. restart: a new driver; replicas:
# with another number of executors. loss: an attempt is lost at a stage. forget: a worker's memory is gone. resubmit: the tasks
# of a stage run twice. prefetch: the next rows are read in the middle of the batch. silence: no rows come until nothing is due.
EVENTS = ("reroute", "precopy", "restart", "replicas", "loss", "forget", "resubmit", "prefetch", "silence")

# An operator as in the manifest.
Spec = Mapping[str, Any]


def columns_named(options: Spec) -> tuple[str, ...]:
    """The columns that an operator's options name as values; expressions are not looked into."""
    calls = [call[call.index("(") + 1 : -1] for call in options.get("aggregates", {}).values()]
    named = [*calls, options.get("column"), options.get("by"), options.get("id")]
    return tuple(dict.fromkeys(column for column in named if column and column != "*"))


@dataclass(frozen=True)
class Source:
    """A source with an optional watermark on the column `time`, `delay` in seconds."""

    name: str
    columns: tuple[Column, ...]
    select: tuple[str, ...] = ()
    where: str = ""
    time: str = ""
    delay: int = 0

    @property
    def schema(self) -> pa.Schema:
        """The rows as declared, before select and where."""
        return pa.schema([(column.name, column.kind.arrow) for column in self.columns])

    def spec(self) -> dict[str, Any]:
        """The source in the manifest."""
        ddl = ", ".join(f"`{column.name}` {column.kind.ddl}" for column in self.columns)
        made: dict[str, Any] = {"name": self.name, "format": "parquet", "schema": ddl, "options": {"path": "unused"}}
        if self.select:
            made["select"] = list(self.select)
        if self.where:
            made["where"] = self.where
        if self.time:
            made["watermark"] = {"column": self.time, "delay": f"{self.delay}s"}
        return made


@dataclass(frozen=True)
class Version:
    """The manifest at one time. Operators come after those that they read."""

    sources: tuple[Source, ...]
    operators: tuple[Spec, ...]

    def sinks(self) -> dict[str, str]:
        """The operator of each sink: one of its name if it emits rows, and one for its late rows where it has one."""
        emitting = [given["name"] for given in self.operators if given.get("with", {}).get("emit") != "nothing"]
        return {name: name for name in emitting} | {spec["late"]: spec["name"] for spec in self.operators if "late" in spec}

    def manifest(self, replicas: int = 4, portion: str = "512Ki") -> dict[str, Any]:
        executors = [{"name": "slot", "replicas": replicas, "cpu": "1"}]
        made = manifest(self.operators, {}, executors=executors, migration={"portion": portion})
        made["spec"]["onRemove"] = "drop"
        made["spec"]["sources"] = [source.spec() for source in self.sources]
        made["spec"]["sinks"] = [{"name": name, "input": of, "format": "memory"} for name, of in self.sinks().items()]
        return made


@dataclass(frozen=True)
class Event:
    """One of EVENTS, before the rows of its step, except for `prefetch` (during them) and `silence` (after them)."""

    name: str
    seed: int


@dataclass(frozen=True)
class Step:
    """The rows of a batch by source, the events around it, and the manifest with which the driver is started before it."""

    rows: Mapping[str, pa.Table]
    events: tuple[Event, ...] = ()
    edit: Version | None = None

    def has(self, name: str) -> bool:
        return any(event.name == name for event in self.events)


@dataclass(frozen=True)
class Case:
    """`now`: epoch seconds on the driver's clock, which stands still. `files`: by name, tables for lookups. `portion`: state
    that moves in one batch.
    """

    seed: int
    first: Version
    steps: tuple[Step, ...]
    now: int
    files: Mapping[str, pa.Table] = field(default_factory=dict)
    portion: str = "512Ki"

    def versions(self) -> list[Version]:
        """The manifest at each step."""
        found = [self.first]
        for step in self.steps:
            found.append(step.edit or found[-1])
        return found[1:]
