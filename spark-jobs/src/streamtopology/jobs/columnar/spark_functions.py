"""Functions of Spark's SQL that DuckDB's lacks, or has with other arguments, and what to write in their place."""

from __future__ import annotations

import re
from collections.abc import Mapping

import duckdb

# By the function's name in Spark: the same in DuckDB, of a time t, a text s, a list l and other columns.
IN_DUCKDB: Mapping[str, str] = {
    "array": "[a, b]",
    "date_format": "strftime(t, '%Y-%m-%d')",
    "date_sub": "t - INTERVAL 1 DAY",
    "datediff": "date_diff('day', t, t)",
    "element_at": "l[1]",
    "explode": "unnest(l)",
    "from_unixtime": "to_timestamp(seconds)",
    "get_json_object": "json_extract_string(s, '$.a')",
    "named_struct": "{'a': a}",
    "nvl": "coalesce(a, b)",
    "rlike": "regexp_matches(s, 'pattern')",
    "session_window": "an operator with run: session-window",
    "size": "len(l)",
    "substring_index": "split_part(s, ',', 1)",
    "to_date": "CAST(strptime(s, '%Y-%m-%d') AS DATE)",
    "to_timestamp": "strptime(s, '%Y-%m-%d')",
    "transform": "list_transform(l, lambda x: x + 1)",
    "unix_timestamp": "epoch(t)",
    "window": "an operator with run: window-aggregate",
}
_UNKNOWN = re.compile(r"Function with name (\w+) does not exist|No function matches the given name and argument types '(\w+)\(")
# What does not even parse in DuckDB.
_UNPARSED = re.compile(r"\b(array|window|rlike)\b", re.IGNORECASE)


def in_place_of(expression: str, refused: duckdb.Error) -> str | None:
    """What to write in place of the function of Spark for which DuckDB refused an expression; None if that is not the cause."""
    found = _UNPARSED.search(expression) if isinstance(refused, duckdb.ParserException) else _UNKNOWN.search(str(refused))
    name = next(filter(None, found.groups())).lower() if found else ""
    return f"{name} is Spark's: write {IN_DUCKDB[name]}" if name in IN_DUCKDB else None
