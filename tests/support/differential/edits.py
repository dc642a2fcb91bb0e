"""Edits of a manifest between two batches: what a user may change in a topology that has state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from support.differential.case import Spec, Version
from support.differential.draw_operators import draw_operator, draw_policy, settled
from support.differential.drawing import Drawing, Stream
from support.differential.operators import COMBINABLE, inputs_of, is_split


class Editing:
    """Edits of one topology, one after the other. `streams`: what its sources and operators give."""

    def __init__(self, drawing: Drawing, version: Version, streams: list[Stream]) -> None:
        self._drawing = drawing
        self._streams = streams
        self._names = 0
        self.version = version

    def edit(self) -> Version:
        """Make one edit at random, if it fits; the manifest after it."""
        edits = (self._add, self._remove, self._rename, self._change_policy, self._change_options, self._change_source)
        self._drawing.some(edits)()
        self.version = replace(self.version, operators=settled(self.version.operators, self._streams))
        return self.version

    def _add(self) -> None:
        spec, emitted = draw_operator(self._drawing, self._new_name(), self._streams)
        self._streams += emitted
        self.version = replace(self.version, operators=(*self.version.operators, spec))

    def _remove(self) -> None:
        ends = self._ends()
        if len(self.version.operators) > 1:
            name = self._drawing.some(ends)["name"]
            self._streams = [stream for stream in self._streams if stream.name != name]
            self.version = replace(
                self.version, operators=tuple(spec for spec in self.version.operators if spec["name"] != name)
            )

    def _rename(self) -> None:
        """Another name, under which an operator has no state; the state of those that read it stays."""
        old = self._drawing.some(self.version.operators)["name"]
        new = self._new_name()
        self._streams = [replace(stream, name=new) if stream.name == old else stream for stream in self._streams]
        self.version = replace(self.version, operators=tuple(_renamed(spec, old, new) for spec in self.version.operators))

    def _change_policy(self) -> None:
        able = [spec for spec in self.version.operators if "key" in spec.get("grouping", {})]
        if not able:
            return
        spec = self._drawing.some(able)
        keeps = spec["run"].startswith("window") or spec["with"].get("emit") == "tuples"
        if is_split(spec) and spec.get("aggregateEvery", 1) > 1:
            return  # refused while tuples are held back
        grouping = {**spec["grouping"], "policy": draw_policy(self._drawing, may_split=not keeps)}
        self._replace(spec, {**spec, "grouping": grouping})

    def _change_options(self) -> None:
        """Results that the state already has, under other names; what is emitted, and when."""
        spec = self._drawing.some(self._ends())
        options: dict[str, Any] = dict(spec["with"])
        if spec["run"] == "quantiles":
            options["quantiles"] = self._drawing.some(([0.25], [0.5, 1]))
        if spec["run"] in ("aggregate", "window-aggregate"):
            options["aggregates"] = {f"renamed_{result}": call for result, call in options["aggregates"].items()}
        if spec["run"] in COMBINABLE and options["emit"] == "nothing":
            options["emit"] = "updates"
        every = {"aggregateEvery": self._drawing.random.randint(1, 3)} if spec["run"] in COMBINABLE and is_split(spec) else {}
        self._streams = [stream for stream in self._streams if stream.name != spec["name"]]
        self._replace(spec, {**spec, "with": options, **every})

    def _change_source(self) -> None:
        source = self._drawing.some(self.version.sources)
        where = self._drawing.condition(source.columns) if self._drawing.chance(0.5) else ""
        changed = replace(source, where=where, delay=self._drawing.some((0, 3, 10)) * self._drawing.unit)
        sources = tuple(changed if other == source else other for other in self.version.sources)
        self.version = replace(self.version, sources=sources)

    def _ends(self) -> list[Spec]:
        """The operators that no other reads."""
        read = {item["from"] for spec in self.version.operators for item in inputs_of(spec).values()}
        return [spec for spec in self.version.operators if spec["name"] not in read]

    def _replace(self, spec: Spec, changed: Spec) -> None:
        operators = tuple(changed if other["name"] == spec["name"] else other for other in self.version.operators)
        self.version = replace(self.version, operators=operators)

    def _new_name(self) -> str:
        self._names += 1
        return f"e{self._names}"


def _renamed(spec: Spec, old: str, new: str) -> Spec:
    inputs = [
        {**item, "from": new, "as": alias} if item["from"] == old else {**item, "as": alias}
        for alias, item in inputs_of(spec).items()
    ]
    made = {**spec, "inputs": [{key: value for key, value in item.items() if value} for item in inputs]}
    if spec["name"] == old:
        made["name"] = new
        made |= {"late": f"{new}-late"} if "late" in spec else {}
    return made
