"""Each operator as a SQL table over the tables of its inputs.

`marks` has the event times, in microseconds since 1970, at which the windows of a batch close (`closes`) and those of the
batch before closed (`closed`). `flushes` has the batches in which the results of a split operator are complete, and the ones
before (`since`). An operator has marks of its own, `NAME marks`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamtopology.topology import groupings
from support.differential import keyed, timed
from support.differential.case import Spec
from support.differential.lives import Era, Life
from support.differential.tables import Tables, quoted

COMBINABLE = ("count", "aggregate", "top-k", "quantiles")


@dataclass(frozen=True)
class Input:
    """An input of an operator: `table` has its rows, `key` its key columns."""

    alias: str
    table: str
    key: tuple[str, ...]


def add_life(tables: Tables, life: Life, behind: int) -> None:
    """Make the table of what an operator emits in each of its eras, `NAME@ERA`, that of its late rows, and, if the columns
    stay, `NAME` of all. behind: the microseconds by which its watermark is earlier than the topology's.
    """
    for number, era in enumerate(life.eras):
        inputs = [_input(tables, life, alias, item["key"]) for alias, item in inputs_of(era.spec).items()]
        _meet(tables, era.spec, inputs)
        timed.add_marks(tables, f"{life.name}@{number}", behind)
        _add_era(tables, era, f"{life.name}@{number}", inputs)
    parts = [f"{life.name}@{number}" for number in range(len(life.eras))]
    if all(tables.types(part) == tables.types(parts[0]) for part in parts):
        tables.make(life.name, " UNION ALL ".join(f"SELECT * FROM {quoted(part)}" for part in parts))


def inputs_of(spec: Spec) -> dict[str, dict[str, Any]]:
    """The inputs by alias, each with `from` and `key`."""
    key = spec.get("grouping", {}).get("key", [])
    items = [item if isinstance(item, Mapping) else {"from": item} for item in spec["inputs"]]
    return {item.get("as", item["from"]): {"key": key, **item} for item in items}


def is_split(spec: Spec) -> bool:
    """True if partial results are gathered and merged."""
    return spec["run"] in COMBINABLE and groupings.get(spec["grouping"]["policy"]).splits_keys


def _input(tables: Tables, life: Life, alias: str, key: list[str]) -> Input:
    """The rows of an input in all eras, wherever they came from."""
    name = f"{life.name} in {alias}"
    parts = [
        f"SELECT * FROM {quoted(table)} WHERE _batch BETWEEN {era.first} AND {era.last}"
        for era in life.eras
        for other, item in inputs_of(era.spec).items()
        if other == alias
        for table in _emitted(tables, item["from"], era.first, era.last)
    ]
    tables.make(name, " UNION ALL ".join(parts))
    return Input(alias, name, tuple(key))


def _emitted(tables: Tables, name: str, first: int, last: int) -> list[str]:
    """The tables that have what a source or operator emits in these batches: of one whose columns change those of its eras."""
    names = tables.names()
    if name in names:
        return [name]
    eras = [table for table in names if table.removeprefix(f"{name}@").isdigit()]
    within = f"_batch BETWEEN {first} AND {last}"
    return [era for era in eras if tables.rows(f"SELECT 1 FROM {quoted(era)} WHERE {within} LIMIT 1")] or eras[:1]


_WIDER = {
    frozenset(("INTEGER", "BIGINT")): "BIGINT",
    frozenset(("SMALLINT", "BIGINT")): "BIGINT",
    frozenset(("TINYINT", "INTEGER")): "INTEGER",
    frozenset(("FLOAT", "DOUBLE")): "DOUBLE",
    frozenset(("INTEGER", "DOUBLE")): "DOUBLE",
    frozenset(("SMALLINT", "FLOAT")): "FLOAT",
    frozenset(("INTEGER", "DECIMAL(6,2)")): "DECIMAL(12,2)",
}


def _meet(tables: Tables, spec: Spec, inputs: list[Input]) -> None:
    """Give the keys of an operator with state one type in all inputs."""
    if spec["run"] not in (*COMBINABLE, "window-aggregate", "window-join"):
        return
    for columns in zip(*(item.key for item in inputs), strict=True):
        kinds = [tables.types(item.table)[column] for item, column in zip(inputs, columns, strict=True)]
        for item, column, kind in zip(inputs, columns, kinds, strict=True):
            wider = _WIDER.get(frozenset(kinds), kind)
            tables.db.execute(f"ALTER TABLE {quoted(item.table)} ALTER COLUMN {quoted(column)} TYPE {wider}")


def _add_era(tables: Tables, era: Era, name: str, inputs: list[Input]) -> None:
    spec = era.spec
    options = dict(spec.get("with", {}))
    during = f"_batch BETWEEN {era.first} AND {era.last}"
    match spec["run"]:
        case _ if options.get("emit") == "tuples":
            rows = _each_row(inputs, ", ".join(options.get("select", ["*"])))
        case "map":
            rows = _each_row(inputs, ", ".join(options["select"]), options.get("where"))
        case "filter":
            rows = _each_row(inputs, "*", options["where"])
        case "enrich":
            rows = _enriched(inputs, options)
        case "window-aggregate":
            rows = timed.windows(tables, name, spec, inputs)
        case "window-join":
            rows = timed.join(tables, name, spec, inputs)
        case _:
            rows = keyed.results(tables, name, spec, inputs, is_split(spec))
    tables.make(name, f"SELECT * FROM ({rows}) WHERE {during}")
    if "late" in spec:
        late = timed.late_rows(name, inputs)
        tables.make(f"{name} late", f"SELECT * FROM ({late}) WHERE {during}")


def _each_row(inputs: list[Input], columns: str, where: str | None = None) -> str:
    wanted = columns if columns.startswith("*") else f"_batch, {columns}"
    condition = f" WHERE {where}" if where else ""
    return " UNION ALL ".join(f"SELECT {wanted} FROM {quoted(item.table)}{condition}" for item in inputs)


def _enriched(inputs: list[Input], options: Spec) -> str:
    added = "".join(f", ({sql}) AS {quoted(name)}" for name, sql in options.get("add", {}).items())
    lookup = options.get("lookup")
    if lookup is None:
        return _each_row(inputs, f"*{added}")
    file, on, key = quoted(lookup["file"]), quoted(lookup["on"]), quoted(lookup["key"])
    how = lookup.get("join", "left")
    joined = [
        f"SELECT i.*, f.* EXCLUDE {key} FROM {quoted(item.table)} i {how} JOIN {file} f ON i.{on} = f.{key}" for item in inputs
    ]
    return f"SELECT *{added} FROM ({' UNION ALL '.join(joined)})"
