"""Results by key over all rows so far, in SQL: count, aggregate, quantiles, top-k."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from support.differential.case import Spec, columns_named
from support.differential.tables import FLOATS, Tables, listed, quoted, same

if TYPE_CHECKING:
    from support.differential.operators import Input


def results(tables: Tables, name: str, spec: Spec, inputs: Sequence[Input], is_split: bool) -> str:
    """One row for each key that had rows since the results before: over all rows until then."""
    key, options = spec["grouping"]["key"], spec.get("with", {})
    rows, touched = f"{name} rows", f"{name} touched"
    tables.make(
        rows, " UNION ALL ".join(f"SELECT _batch, {keyed_columns(spec, item)} FROM {quoted(item.table)}" for item in inputs)
    )
    if is_split:
        until = f"JOIN flushes f ON f.operator = '{spec['name']}' AND r._batch > f.since AND r._batch <= f._batch"
        tables.make(touched, f"SELECT DISTINCT f._batch, {listed(key, 'r')} FROM {quoted(rows)} r {until}")
    else:
        tables.make(touched, f"SELECT DISTINCT _batch, {listed(key)} FROM {quoted(rows)}")
    if spec["run"] == "top-k":
        return _top(tables, rows, touched, key, options)
    columns = ", ".join(f"{sql} AS {quoted(result)}" for result, sql in _calls(tables, spec["run"], rows, options))
    return (
        f"SELECT t._batch, {listed(key, 't')}, {columns} FROM {quoted(touched)} t JOIN {quoted(rows)} r "
        f"ON r._batch <= t._batch AND {same(key, 'r', 't')} GROUP BY t._batch, {listed(key, 't')}"
    )


def keyed_columns(spec: Spec, item: Input) -> str:
    """SQL for the key of an input's rows, under the names of the grouping, and the columns that the options name."""
    key = spec["grouping"]["key"]
    needed = [quoted(column) for column in columns_named(spec.get("with", {})) if column not in key]
    return ", ".join([*(f"{quoted(own)} AS {quoted(name)}" for own, name in zip(item.key, key, strict=True)), *needed])


def aggregates(tables: Tables, rows: str, calls: Mapping[str, str]) -> list[tuple[str, str]]:
    """(result, SQL over the rows `r`) of each call."""
    return [(result, _aggregate(tables, rows, call)) for result, call in calls.items()]


def accuracy(tables: Tables, name: str, spec: Spec) -> float | None:
    """The relative accuracy of the results that an operator emits; None if they are exact."""
    options = spec.get("with", {})
    if spec["run"] != "quantiles" or options.get("emit") == "tuples" or _is_exact(tables, f"{name} rows", options):
        return None
    return options.get("accuracy", 0.02)


def _calls(tables: Tables, run: str, rows: str, options: Spec) -> list[tuple[str, str]]:
    if run == "count":
        return [("count", "count(*)")]
    if run == "quantiles":
        return _quantiles(tables, rows, options)
    return aggregates(tables, rows, options["aggregates"])


def _aggregate(tables: Tables, rows: str, call: str) -> str:
    function, _, column = call.removesuffix(")").partition("(")
    if column in ("", "*"):
        return "count(*)"
    value = tables.value(rows, column)
    is_float = tables.types(rows)[column] in FLOATS
    total = f"sum(({value})::DOUBLE)" if is_float else f"sum({value})"
    if function == "sum":
        return total if is_float else f"{total}::BIGINT"
    if function == "mean":
        exact = total if is_float else f"({total})::VARCHAR"  # DuckDB rounds a HUGEINT twice on its way to a DOUBLE
        return f"({exact})::DOUBLE / nullif(count({value}), 0)"
    return f"{function}({value})"


def _top(tables: Tables, rows: str, touched: str, key: Sequence[str], options: Spec) -> str:
    """The largest value of each id, then the k largest of them; among equals the smaller id."""
    by, name, k = options["by"], options["id"], options.get("k", 10)
    value = tables.value(rows, by)
    best = (
        f"SELECT t._batch, {listed(key, 't')}, r.{quoted(name)} AS _id, max({value}) AS _value FROM {quoted(touched)} t "
        f"JOIN {quoted(rows)} r ON r._batch <= t._batch AND {same(key, 'r', 't')} "
        f"WHERE r.{quoted(name)} IS NOT NULL AND {value} IS NOT NULL GROUP BY ALL"
    )
    ranked = ", ".join(
        f"coalesce(list({column} ORDER BY _value DESC, _id) FILTER (_id IS NOT NULL)[:{k}], []) AS {quoted(result)}"
        for column, result in (("_id", name), ("_value", by))
    )
    return (
        f"SELECT t._batch, {listed(key, 't')}, {ranked} FROM {quoted(touched)} t LEFT JOIN ({best}) b "
        f"ON b._batch = t._batch AND {same(key, 'b', 't')} GROUP BY t._batch, {listed(key, 't')}"
    )


def _quantiles(tables: Tables, rows: str, options: Spec) -> list[tuple[str, str]]:
    """The elements of rank ceil(q * count) of the values, each moved into the range."""
    column, low, high = options["column"], options["min"], options["max"]
    value = tables.value(rows, column)
    kind = "BIGINT" if _is_exact(tables, rows, options) else "DOUBLE"
    inside = f"CASE WHEN {value} IS NOT NULL THEN greatest(least({value}, {high}), {low})::{kind} END"
    found = [("count", f"count({value})")]
    for q in options.get("quantiles", (0.5, 0.9, 0.99)):
        share = Fraction(str(q))
        rank = f"greatest((count({value}) * {share.numerator} + {share.denominator - 1}) // {share.denominator}, 1)"
        name = "q" + f"{float(share * 100):.10g}".replace(".", "_")
        found.append((name, f"(list({inside} ORDER BY {inside}) FILTER ({value} IS NOT NULL))[{rank}]"))
    return found


def _is_exact(tables: Tables, rows: str, options: Spec) -> bool:
    """True for a small range of integers, of which each value is counted."""
    whole = tables.types(rows)[options["column"]] not in FLOATS and options["max"] - options["min"] < 4096
    return whole and "accuracy" not in options and "resolution" not in options
