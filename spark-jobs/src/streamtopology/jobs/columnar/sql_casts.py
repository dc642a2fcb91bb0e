"""Casts of SQL as Spark has them, where DuckDB has others: DuckDB escapes bytes, rounds numbers, and drops a time's offset.

A cast's type is known only once DuckDB has bound it. So a cast in the parse tree becomes a call of a macro, and DuckDB
chooses the macro's variant by the type. What then remains of bytes that become text is found in the bound plan.
docs/guide/casts.md has what is equal to Spark and what is not.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from typing import Any

import duckdb
import pyarrow as pa

# In what DuckDB says where it cannot choose a variant.
OF_UNKNOWN_TYPE = "has multiple overloads that match"
NOT_UTF8 = "bytes that are no text in UTF-8: "
_TEXT, _TRIED_TEXT, _WHOLE, _BYTES = "cast as text", "try_cast as text", "cast as integer", "cast as bytes"
# `replace` puts another character where bytes are no UTF-8, so what it gives has the same bytes only if all were.
_DECODED = "CASE WHEN encode(decode(x, 'replace')) = x THEN decode(x, 'replace')"
_SHOWN = "hex(x[1:40])"
# What is no whole number is made a text that no integer is cast from, which then names it.
_IS_WHOLE = "regexp_full_match(trim(x, e' \\t\\n\\r'), '[+-]?[0-9]+')"
_WHOLE_TEXT = f"CASE WHEN {_IS_WHOLE} THEN x ELSE '''' || x || ''' is no whole number' END"
# All times are UTC here, and Spark writes no zone. A date would be taken for a time.
_TIMES_TO_TEXT = "(x TIMESTAMPTZ) AS regexp_replace(CAST(x AS VARCHAR), '[+]00$', ''), (x DATE) AS CAST(x AS VARCHAR)"
MACROS = (
    f"CREATE MACRO \"{_TEXT}\"(x BLOB) AS {_DECODED} WHEN x IS NOT NULL THEN error('{NOT_UTF8}' || {_SHOWN}) END, "
    f"{_TIMES_TO_TEXT}, (x) AS CAST(x AS VARCHAR)",
    f'CREATE MACRO "{_TRIED_TEXT}"(x BLOB) AS {_DECODED} END, {_TIMES_TO_TEXT}, (x) AS TRY_CAST(x AS VARCHAR)',
    f'CREATE MACRO "{_WHOLE}"(x VARCHAR) AS {_WHOLE_TEXT}, (x BOOLEAN) AS x, (x TIMESTAMPTZ) AS x, (x) AS trunc(x)',
    f'CREATE MACRO "{_BYTES}"(x VARCHAR) AS encode(x), (x) AS x',
)
_TEXTS = {"varchar", "string", "text", "char", "bpchar", "nvarchar"}
_INTEGERS = {
    *("tinyint", "int1", "smallint", "int2", "int16", "short", "integer", "int", "int4", "int32", "signed"),
    *("bigint", "int8", "int64", "long", "oid", "hugeint", "int128"),
    *("utinyint", "uint8", "usmallint", "uint16", "uinteger", "uint32", "ubigint", "uint64", "uhugeint", "uint128"),
}
_BINARY = {"blob", "bytea", "binary", "varbinary"}
_TIMES = {"timestamp", "datetime", "timestamp_us", "timestamp_ms", "timestamp_s", "timestamp_ns"}
# Functions that write any value as text, at any depth.
_WRITERS = {"to_json", "json_quote", "json_array", "json_object", "array_to_json", "row_to_json"}


@lru_cache(maxsize=1024)
def with_casts_of_spark(sql: str) -> str:
    """One SELECT whose casts are Spark's; `sql` itself if it has none that differ, or is no SELECT."""
    tree = json.loads(_parsed("SELECT json_serialize_sql(?)", sql))
    if tree["error"] or len(tree["statements"]) != 1:
        return sql
    names = _names(tree["statements"][0]["node"])
    rewritten = [node for node in _nodes(tree) if node.get("class") == "CAST" and _rewrite(node)]
    if not rewritten:
        return sql
    for expression, name in names:
        expression["alias"] = name
    return _parsed("SELECT json_deserialize_sql(?::JSON)", json.dumps(tree))


def _names(select: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    """The expressions with a cast in a SELECT that have no name, and the names that DuckDB gives them."""
    without = [one for one in select.get("select_list", ()) if not one["alias"]]
    return [(one, _text_of(one)) for one in without if any(node.get("class") == "CAST" for node in _nodes(one))]


def _text_of(expression: dict[str, Any]) -> str:
    """The expression as DuckDB writes it."""
    tree = json.loads(_parsed("SELECT json_serialize_sql(?)", "SELECT NULL"))
    tree["statements"][0]["node"]["select_list"] = [expression]
    return _parsed("SELECT json_deserialize_sql(?::JSON)", json.dumps(tree)).removeprefix("SELECT ")


@cache
def _parser(process: int) -> duckdb.DuckDBPyConnection:
    """The process's own database: it does not survive a fork, and a new one for each text takes tens of milliseconds."""
    return duckdb.connect(":memory:", config={"threads": 1})


def _parsed(statement: str, text: str) -> str:
    with _parser(os.getpid()).cursor() as connection:
        row = connection.execute(statement, [text]).fetchone()
    assert row is not None
    return row[0]


def _rewrite(cast: dict[str, Any]) -> bool:
    """Make the cast Spark's, in its place; False if it is one already."""
    name = cast["type_expr"]["type_name"].lower()
    if name in _TEXTS:
        alias = cast["alias"]
        call = _call(_TRIED_TEXT if cast["try_cast"] else _TEXT, cast["child"])
        cast.clear()
        cast.update(call, alias=alias)
    elif name in _INTEGERS:
        cast["child"] = _call(_WHOLE, cast["child"])
    elif name in _BINARY:
        cast["child"] = _call(_BYTES, cast["child"])
    elif name in _TIMES:
        zoned = {**cast["type_expr"], "type_name": "timestamptz", "qualified_name": {"path": ["timestamptz"]}, "children": []}
        cast["child"] = {**cast, "alias": "", "type_expr": zoned}
    else:
        return False
    return True


def _call(macro: str, argument: dict[str, Any]) -> dict[str, Any]:
    tree = json.loads(_parsed("SELECT json_serialize_sql(?)", f'SELECT "{macro}"(NULL)'))
    call = tree["statements"][0]["node"]["select_list"][0]
    call["arguments"][0]["expression"] = argument
    return call


def bytes_as_text(connection: duckdb.DuckDBPyConnection, tables: Mapping[str, pa.Table], sql: str) -> str | None:
    """What in `sql` (with casts of Spark) still takes bytes for text, as a sentence; None if nothing does."""
    with connection.cursor() as own:  # tables of its own, as a plan over Arrow's cannot be written
        for name, table in tables.items():
            own.register("given", table)
            own.execute('CREATE TEMP TABLE "' + name.replace('"', '""') + '" AS SELECT * FROM given')
        row = own.execute("SELECT json_serialize_plan(?)", [sql]).fetchone()
    assert row is not None
    for node in _nodes(json.loads(row[0])):
        if _writes_bytes(node):
            return "it takes bytes for text, which would be escapes such as \\xC3; cast them: CAST(... AS STRING)"
    return None


def _writes_bytes(node: dict[str, Any]) -> bool:
    """True if a node of a bound plan makes text of a BLOB, or of a value that holds one."""
    children = [_type_of(child) for child in node.get("children", ()) if isinstance(child, dict)]
    if not any("BLOB" in child for child in children):
        return False
    if node.get("type") == "OPERATOR_CAST":
        return any(text in _type_of(node) for text in ("VARCHAR", "UUID"))
    return node.get("expression_class") == "BOUND_FUNCTION" and node["qname"]["path"][-1] in _WRITERS


def _type_of(node: dict[str, Any]) -> str:
    """The type of a bound expression with all that it holds, as JSON."""
    return json.dumps(node.get("return_type") or node.get("value", {}).get("type"))


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """The objects in a JSON tree, inner ones first."""
    for part in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from _nodes(part)
    if isinstance(tree, dict):
        yield tree
