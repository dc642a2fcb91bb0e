"""Operators at random: each function gives one over some of the streams, and what it emits; None: nothing fits."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pyarrow as pa

from support.differential.case import columns_named
from support.differential.drawing import Drawing, Stream
from support.differential.tables import quoted
from support.differential.values import (
    ANY_DOUBLE,
    BIGINT,
    DOUBLE,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Column,
    Kind,
    meeting,
)

KEEPING = ("fields", "mixed", "mixed", "mintable", "minmig", "simple", "readj", "kip", "dkg", "locality")
SPLITTING = (
    "partial-key", "partial-key", "shuffle", "potc", "local-or-shuffle", "consistent", "porc", "bounded-hash", "d-choices",
    "w-choices", "posg", "posg-merged", "earliest-finish",
)  # fmt: skip
KEYLESS = ("shuffle", "potc", "local-or-shuffle")
Spec = dict[str, Any]
Drawn = tuple[Spec, list[Stream]] | None


def draw_operator(drawing: Drawing, name: str, streams: Sequence[Stream]) -> tuple[Spec, list[Stream]]:
    """An operator over some of `streams`, and what it emits, if anything."""
    draws = [_map, _filter, _enrich, _count, _aggregate, _quantiles, _top] * 2
    if any(stream.time for stream in streams):
        draws += [_windows] * 5 + [_join] * 4
    while True:
        drawn = drawing.some(draws)(drawing, name, streams)
        if drawn is not None:
            return drawn


def draw_policy(drawing: Drawing, may_split: bool) -> str:
    return drawing.some(SPLITTING if may_split and drawing.chance(0.5) else KEEPING)


def settled(operators: Sequence[Spec], streams: Sequence[Stream]) -> tuple[Spec, ...]:
    """The operators, none planned together with one before it that cannot be: by its parallelism, or a key not passed on."""
    passed = {stream.name: {column.name for column in stream.columns} for stream in streams}
    made: dict[str, Spec] = {}
    for spec in operators:
        sources = [item["from"] if isinstance(item, dict) else item for item in spec["inputs"]]
        before = [made[name] for name in sources if name in made and _policy(made[name]) == "locality"]
        fits = all(
            one.get("parallelism") == spec.get("parallelism") and passed[one["name"]].issuperset(one["grouping"]["key"])
            for one in before
        )
        alone = _policy(spec) != "locality" or fits
        made[spec["name"]] = spec if alone else {**spec, "grouping": {**spec["grouping"], "policy": "mixed"}}
    return tuple(made.values())


def _policy(spec: Spec) -> str:
    return spec["grouping"]["policy"]


def draw_calls(drawing: Drawing, name: str, columns: Sequence[Column]) -> tuple[dict[str, str], list[Column]]:
    """`aggregates`, and the columns of their results."""
    calls, made = {f"{name}_n": "count()"}, [Column(f"{name}_n", BIGINT)]
    able = [column for column in columns if column.name.isidentifier()]
    for number in range(drawing.random.randint(0, 3) if able else 0):
        column, result = drawing.some(able), f"{name}_{number}"
        functions = ["count"]
        if column.kind.family != "nested":
            functions += ["min", "max"]
        if column.kind.is_number and column.kind.adds_up:
            functions.append("sum")
        if column.kind.is_number and (column.kind.adds_up or column.kind.family == "integer"):
            functions.append("mean")
        function = drawing.some(functions)
        kinds = {"count": BIGINT, "mean": ANY_DOUBLE, "sum": BIGINT if column.kind.family == "integer" else DOUBLE}
        calls[result] = f"{function}({column.name})"
        made.append(Column(result, kinds.get(function, column.kind)))
    return calls, made


# --- a row at a time ---


def _map(drawing: Drawing, name: str, streams: Sequence[Stream]) -> Drawn:
    stream = drawing.some(streams)
    kept = [column for column in stream.columns if column.name == stream.time or drawing.chance(0.7)]
    select, made = [quoted(column.name) for column in kept], list(kept)
    for number, column in enumerate(drawing.random.sample(stream.columns, min(2, len(stream.columns)))):
        sql, kind = drawing.expression(column)
        made.append(Column(f"{name}_{number}", kind))
        select.append(f"{sql} AS {name}_{number}")
    options: Spec = {"select": select}
    if drawing.chance(0.3):
        options["where"] = drawing.condition(stream.columns)
    return _stateless(drawing, name, streams, stream, "map", options, made)


def _filter(drawing: Drawing, name: str, streams: Sequence[Stream]) -> Drawn:
    stream = drawing.some(streams)
    return _stateless(drawing, name, streams, stream, "filter", {"where": drawing.condition(stream.columns)}, stream.columns)


def _enrich(drawing: Drawing, name: str, streams: Sequence[Stream]) -> Drawn:
    stream = drawing.some(streams)
    options, made = Spec(), list(stream.columns)
    able = stream.of(lambda kind: kind.family in ("integer", "text"))
    if able and drawing.chance(0.5):
        on = drawing.some(able)
        options["lookup"] = {"file": _lookup_file(drawing, name, on.kind), "on": on.name, "key": f"{name}_id"}
        options["lookup"] |= _joined(drawing, name, on.kind)
        made.append(Column(f"{name}_found", STRING))
    if "lookup" not in options or drawing.chance(0.5):
        sql, kind = drawing.expression(drawing.some(stream.columns))
        options["add"] = {f"{name}_added": sql}
        made.append(Column(f"{name}_added", kind))
    if drawing.chance(0.3):
        options["cost"] = "0.5"
    return _stateless(drawing, name, streams, stream, "enrich", options, made)


def _lookup_file(drawing: Drawing, name: str, kind: Kind) -> str:
    """A file of ids, integers as narrow as they fit."""
    ids = list(dict.fromkeys(kind.draw(drawing.random) for _ in range(20)))
    narrow = kind.family == "integer" and all(abs(value) < 128 for value in ids)
    found = [str(number) for number in range(len(ids))]
    drawing.files[f"{name}.parquet"] = pa.table(
        {f"{name}_id": pa.array(ids, pa.int8() if narrow else kind.arrow), f"{name}_found": found}
    )
    return f"{name}.parquet"


def _joined(drawing: Drawing, name: str, kind: Kind) -> Spec:
    """Of half of the lookups: what makes them joins with a table that is looked at again, and has some keys twice, or none."""
    aside = Random()  # the draws of former versions stay those of this one
    aside.setstate(drawing.random.getstate())
    if aside.random() < 0.5:
        return {}
    table = drawing.files[f"{name}.parquet"]
    nameless = pa.table({f"{name}_id": pa.nulls(1, table.schema.field(0).type), f"{name}_found": ["none"]})
    drawing.files[f"{name}.parquet"] = pa.concat_tables([table, table.slice(aside.randrange(len(table))), nameless])
    ddl = "TINYINT" if table.schema.field(0).type == pa.int8() else kind.ddl
    how = {"join": aside.choice(("left", "inner")), "refresh": aside.choice(("0s", "1h"))}
    return {**how, "schema": f"{name}_id {ddl}, {name}_found STRING"}


def _stateless(
    drawing: Drawing, name: str, streams: Sequence[Stream], stream: Stream, run: str, options: Spec, made: Sequence[Column]
) -> Drawn:
    spec: Spec = {"name": name, "inputs": _inputs(drawing, streams, stream), "run": run, "with": options}
    key = _key(drawing, stream)
    if drawing.chance(0.3) or not key:
        spec["grouping"] = {"policy": drawing.some(KEYLESS)}
    else:
        spec |= _grouped(drawing, key, may_split=True)
    return spec, [Stream(name, tuple(made), stream.time)]


# --- by key ---


def _count(drawing: Drawing, name: str, streams: Sequence[Stream]) -> Drawn:
    return _keyed(drawing, name, streams, drawing.some(streams), "count", {}, [Column("count", BIGINT)])


def _aggregate(drawing: Drawing, name: str, streams: Sequence[Stream]) -> Drawn:
    stream = drawing.some(streams)
    calls, made = draw_calls(drawing, name, stream.columns)
    return _keyed(drawing, name, streams, stream, "aggregate", {"aggregates": calls}, made)


def _quantiles(drawing: Drawing, name: str, streams: Sequence[Stream]) -> Drawn:
    stream = drawing.some(streams)
    able = stream.of(lambda kind: kind.is_number)
    if not able:
        return None
    column = drawing.some(able)
    quantiles = drawing.some(([0.5, 0.9, 0.99], [0, 1], [0.333, 0.55]))
    options: Spec = {"column": column.name, "min": -60, "max": 180, "quantiles": quantiles}
    if column.kind.family == "float" or drawing.chance(0.4):
        ranges = drawing.some(({}, {"min": 1, "max": 100}, {"min": -100, "max": -1}, {"min": 0, "max": 1e6}))
        options |= {"accuracy": drawing.some((0.01, 0.2)), "resolution": 0.125, **ranges}
    drawn = _keyed(drawing, name, streams, stream, "quantiles", options, [Column("count", BIGINT)])
    return drawn and (drawn[0], _tuples_only(drawn))


def _top(drawing: Drawing, name: str, streams: Sequence[Stream]) -> Drawn:
    stream = drawing.some(streams)
    values, ids = stream.of(lambda kind: kind.is_number), stream.of(lambda kind: kind.family == "integer" or kind is SHORT)
    if not values or not ids:
        return None
    by, ranked = drawing.some(values), drawing.some(ids)
    options: Spec = {"by": by.name, "id": ranked.name, "k": drawing.random.randint(1, 5), "idBytes": 40}
    drawn = None if by == ranked else _keyed(drawing, name, streams, stream, "top-k", options, [ranked, by])
    return drawn and (drawn[0], _tuples_only(drawn))


def _tuples_only(drawn: tuple[Spec, list[Stream]]) -> list[Stream]:
    """The emitted stream, unless it has columns that no other operator of ours knows how to use."""
    return drawn[1] if drawn[0]["with"]["emit"] == "tuples" else []


def _keyed(
    drawing: Drawing, name: str, streams: Sequence[Stream], stream: Stream, run: str, options: Spec, made: Sequence[Column]
) -> Drawn:
    key = _key(drawing, stream, [column.name for column in made])
    if not key:
        return None
    emit = drawing.some(("updates", "updates", "updates", "tuples", "nothing"))
    inputs, met = (
        (_inputs(drawing, streams, stream), key)
        if emit == "tuples"
        else _meeting_inputs(drawing, streams, stream, key, options)
    )
    spec: Spec = {"name": name, "inputs": inputs, "run": run, "with": options | {"emit": emit}}
    spec |= _grouped(drawing, key, may_split=emit != "tuples")
    if emit != "tuples" and drawing.chance(0.5):
        spec["aggregateEvery"] = drawing.random.randint(1, 3)
    if emit == "nothing":
        return spec, []
    if emit == "updates":
        return spec, [Stream(name, (*met, *made))]
    kept = [column for column in stream.columns if column.name == stream.time or drawing.chance(0.8)] or key
    spec["with"]["select"] = [quoted(column.name) for column in kept]
    return spec, [Stream(name, tuple(kept), stream.time)]


# --- in event time ---


def _windows(drawing: Drawing, name: str, streams: Sequence[Stream]) -> Drawn:
    stream = drawing.some([stream for stream in streams if stream.time])
    calls, made = draw_calls(drawing, name, stream.columns)
    key = _key(drawing, stream, ["window_start", "window_end"])
    if not key:
        return None
    size = drawing.random.randint(1, 20)
    options: Spec = {"time": stream.time, "size": drawing.seconds(size), "aggregates": calls}
    if drawing.chance(0.5):
        options["slide"] = drawing.seconds(drawing.random.randint(max(1, size // 4), size))
    inputs, met = _meeting_inputs(drawing, streams, stream, key, options)
    spec: Spec = {"name": name, "inputs": inputs, "run": "window-aggregate", "with": options}
    bound = TIMESTAMP_NTZ if drawing.time is TIMESTAMP_NTZ else TIMESTAMP
    columns = (*met, Column("window_start", bound), Column("window_end", bound), *made)
    return _lateness(drawing, spec) | _grouped(drawing, key, may_split=True), [Stream(name, columns)]


def _join(drawing: Drawing, name: str, streams: Sequence[Stream]) -> Drawn:
    timed = [stream for stream in streams if stream.time]
    one, other = drawing.some(timed), drawing.some(timed)
    key = _key(drawing, one)
    if not key or len(one.columns) + len(other.columns) > 14:
        return None
    second: Spec = {"from": other.name, "as": "b"}
    if any(column not in other.columns for column in key):
        able = [
            [found.name for found in other.columns if found.kind is column.kind and found.name != other.time] for column in key
        ]
        if not all(able) or {column.name for column in key} & {column.name for column in other.columns}:
            return None
        second["key"] = [drawing.some(names) for names in able]
    options: Spec = {drawing.some(("size", "within")): drawing.seconds(drawing.random.randint(1, 10))}
    options["time"] = one.time if one.time == other.time else {"a": one.time, "b": other.time}
    if drawing.chance(0.3):
        options["where"] = f"a.{quoted(one.time)} <= b.{quoted(other.time)}"
    names = {column.name for column in key}
    kept = [(alias, c) for alias, stream in (("a", one), ("b", other)) for c in stream.columns if c.name not in names]
    columns = [*key, *(Column(f"{alias}_{column.name}", column.kind) for alias, column in kept)]
    time = f"a_{one.time}"
    is_ambiguous = len({column.name for column in columns}) < len(columns)  # a key `b_x`, and a column `x` of `b`
    if drawing.chance(0.3) or is_ambiguous:
        options["select"] = [f"a.{quoted(key[0].name)} AS {name}_k", f"a.{quoted(one.time)} AS {name}_t"]
        columns, time = [Column(f"{name}_k", key[0].kind), Column(f"{name}_t", drawing.time)], f"{name}_t"
    if "within" in options and drawing.chance(0.5):
        kind = drawing.some(("outer", "semi", "anti"))
        if kind == "outer":
            options["outer"] = drawing.some((["a"], ["b"], ["a", "b"]))
            time = time if options["outer"] == ["a"] else ""  # NULL where there is none of `a`
        else:
            options[kind] = drawing.some("ab")
            options.pop("select", None)
            single = one if options[kind] == "a" else other
            columns, time = list(single.columns), single.time
    spec: Spec = {"name": name, "inputs": [{"from": one.name, "as": "a"}, second], "run": "window-join", "with": options}
    spec = _lateness(drawing, spec, may_name_sink=_fit(one, other)) | _grouped(drawing, key, may_split=False)
    return spec, [Stream(name, tuple(columns), time)]


def _fit(one: Stream, other: Stream) -> bool:
    """True if columns of one name are of one type."""
    kinds = {column.name: column.kind for column in other.columns}
    return all(kinds.get(column.name, column.kind) is column.kind for column in one.columns)


def _lateness(drawing: Drawing, spec: Spec, may_name_sink: bool = True) -> Spec:
    if drawing.chance(0.4):
        spec["with"]["allowedLateness"] = drawing.seconds(drawing.random.randint(1, 15))
    if may_name_sink and drawing.chance(0.5):
        spec["late"] = f"{spec['name']}-late"
    return spec


# --- groupings and inputs ---


def _grouped(drawing: Drawing, key: Sequence[Column], may_split: bool) -> Spec:
    """`grouping` and, now and then, `parallelism`."""
    grouped: Spec = {"grouping": {"policy": draw_policy(drawing, may_split), "key": [column.name for column in key]}}
    return grouped | ({"parallelism": drawing.random.randint(1, 6)} if drawing.chance(0.3) else {})


def _key(drawing: Drawing, stream: Stream, names: Sequence[str] = ()) -> list[Column]:
    """One to three columns that can be a key, none of them called as in `names`."""
    able = [column for column in stream.of(lambda kind: kind.can_be_key) if column.name not in (*names, stream.time)]
    return drawing.random.sample(able, min(len(able), drawing.some((1, 1, 1, 2, 3))))


def _inputs(drawing: Drawing, streams: Sequence[Stream], stream: Stream) -> list[Any]:
    """`stream`, and now and then another one with the same columns."""
    alike = [other for other in streams if other.columns == stream.columns and other.time == stream.time and other != stream]
    return [stream.name, alike[0].name] if alike and drawing.chance(0.6) else [stream.name]


def _meeting_inputs(
    drawing: Drawing, streams: Sequence[Stream], stream: Stream, key: list[Column], options: Spec
) -> tuple[list[Any], list[Column]]:
    """`stream`, and now and then another one with the same columns, some of the key perhaps of other types; the key's types.

    A column that the options name has one type.
    """
    named = columns_named(options)
    for other in streams:
        if other != stream and other.time == stream.time and drawing.chance(0.6):
            kinds = {column.name: column.kind for column in other.columns}
            met = [meeting(column.kind, kinds[column.name]) for column in key if column.name in kinds]
            others = [column for column in stream.columns if column not in key or column.name in named]
            if len(met) == len(key) and all(met) and all(column in other.columns for column in others):
                return [stream.name, other.name], [Column(c.name, kind or c.kind) for c, kind in zip(key, met, strict=True)]
    return [stream.name], key
