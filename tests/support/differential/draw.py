"""A case at random: sources, operators over them, rows, events and edits, all from one seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from support.differential.case import EVENTS, Case, Event, Source, Step, Version
from support.differential.draw_operators import Spec, draw_operator, settled
from support.differential.drawing import Drawing, Stream
from support.differential.edits import Editing
from support.differential.tables import quoted
from support.differential.values import BIGINT, KINDS, Column, drawn, partners

_NAMES = ("k", "g", "v", "w", "x", "y", "z", "order", "Größe", "a b", 'q"uote', "select", "Upper", "_u")
_Pools = Mapping[tuple[str, str], Sequence[Any]]


def draw(seed: int) -> Case:
    """The case of this seed."""
    drawing = Drawing(seed)
    sources = _sources(drawing)
    streams = [Stream.from_source(source) for source in sources]
    operators: list[Spec] = []
    for number in range(drawing.some((1, 1, 2, 2, 3, 4))):
        spec, emitted = draw_operator(drawing, f"o{number}", streams)
        operators.append(spec)
        streams += emitted
    first = Version(tuple(sources), settled(operators, streams))
    steps = _steps(drawing, first, streams)
    portion = drawing.some(("64", "400", "512Ki"))
    return Case(seed, first, steps, drawing.era + 1000 * drawing.unit, drawing.files, portion)


def _sources(drawing: Drawing) -> list[Source]:
    first = _source(drawing, "s0")
    if drawing.chance(0.6):
        return [first]
    return [first, _alike(drawing, first) if drawing.chance(0.6) else _source(drawing, "s1")]


def _alike(drawing: Drawing, first: Source) -> Source:
    """A source with the columns of `first`, some perhaps of types that meet theirs."""
    others = [
        column.kind if column.name == first.time else drawing.some([column.kind, *partners(column.kind)])
        for column in first.columns
    ]
    columns = tuple(Column(column.name, kind) for column, kind in zip(first.columns, others, strict=True))
    return replace(first, name="s1", columns=columns, where="", delay=_delay(drawing))


def _source(drawing: Drawing, name: str) -> Source:
    names = drawing.random.sample(_NAMES, drawing.random.randint(2, 5))
    kinds = [drawing.some(KINDS[:4] if drawing.chance(0.5) else KINDS) for _ in names]
    columns = [Column(*pair) for pair in zip(names, kinds, strict=True)]
    if not any(column.kind.can_be_key for column in columns):
        columns.append(Column("id", BIGINT))
    time = "t" if drawing.chance(0.7) else ""
    if time:
        columns.append(Column(time, drawing.time))
    drawing.random.shuffle(columns)
    where = drawing.condition(columns) if drawing.chance(0.2) else ""
    select = tuple(quoted(column.name) for column in columns) if drawing.chance(0.2) else ()
    return Source(name, tuple(columns), select, where, time, _delay(drawing))


def _delay(drawing: Drawing) -> int:
    return drawing.some((0, 0, 3, 10)) * drawing.unit


def _steps(drawing: Drawing, first: Version, streams: list[Stream]) -> tuple[Step, ...]:
    pools = _pools(drawing, first.sources)
    editing = Editing(drawing, first, streams) if drawing.chance(0.4) else None
    steps = []
    for number in range(drawing.random.randint(2, 7)):
        rows = {source.name: _rows(drawing, source, number, pools) for source in first.sources if drawing.chance(0.85)}
        events = tuple(Event(name, drawing.random.getrandbits(30)) for name in EVENTS if drawing.chance(0.15))
        edit = editing.edit() if editing is not None and number and drawing.chance(0.4) else None
        steps.append(Step(rows, events, edit))
    return tuple(steps)


def _pools(drawing: Drawing, sources: Sequence[Source]) -> _Pools:
    """Pools of columns that may be keys; those of one name share theirs, if values of one type are some of the other."""
    pools: dict[tuple[str, str], Sequence[Any]] = {}
    for source in sources:
        for column in source.columns:
            if column.name == source.time or not column.kind.can_be_key or drawing.chance(0.3):
                continue
            pools[source.name, column.name] = _pool(drawing, column)
            for other in sources[0].columns if source is not sources[0] else ():
                if other.name == column.name and other.kind is column.kind:
                    pools[source.name, column.name] = pools.get((sources[0].name, column.name), ())
                elif other.name == column.name and other.kind in partners(column.kind):
                    pools[sources[0].name, column.name] = pools[source.name, column.name] = [0, 1, None, 2, 3, 100, -1]
    return pools


def _pool(drawing: Drawing, column: Column) -> list[Any]:
    """The few values of a column that may be a key."""
    return [None if drawing.chance(0.1) else column.kind.draw(drawing.random) for _ in range(drawing.random.randint(1, 9))]


def _rows(drawing: Drawing, source: Source, step: int, pools: _Pools) -> pa.Table:
    many = drawing.some((0, 1, 5, 20, 40))
    columns = [
        pa.array([drawing.event_time(step) for _ in range(many)], column.kind.arrow)
        if column.name == source.time
        else drawn(column.kind, pools.get((source.name, column.name), ()), many, drawing.random)
        for column in source.columns
    ]
    return pa.table(columns, schema=source.schema)
