"""Spark's DDL schemas, read only as far as columns: names, types as text, and what is plainly broken."""

from __future__ import annotations

import re
from collections.abc import Iterable

from streamtopology.contract.errors import InvalidInput

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_COLUMN = re.compile(r"(`(?:[^`]|``)+`|[^\s:`]+)(?:\s*:\s*|\s+)(\S.*)", re.DOTALL)
_OPENING = {"<": ">", "(": ")"}


class SchemaError(InvalidInput):
    """A schema text that does not parse, or data that does not fit its schema; the message is for people."""


def columns_of(ddl: str) -> list[tuple[str, str]]:
    """(name, type) of each top-level column of `a INT, b STRUCT<x: INT, y: STRING>`; types are not interpreted."""
    columns: list[tuple[str, str]] = []
    for part in _split_at_commas(ddl):
        match = _COLUMN.fullmatch(part.strip())
        if match is None:
            raise SchemaError(f"found {part.strip()!r} in the schema, expected `name TYPE`")
        name = match[1][1:-1].replace("``", "`") if match[1].startswith("`") else match[1]
        columns.append((name, match[2].strip()))
    seen: set[str] = set()
    for name, _ in columns:
        if name.lower() in seen:
            raise SchemaError(f"the schema names the column {name!r} twice (Spark ignores case)")
        seen.add(name.lower())
    return columns


def to_ddl(columns: Iterable[tuple[str, str]]) -> str:
    """One canonical DDL text for the columns: `a INT, b STRING`, names quoted where Spark needs it."""
    return ", ".join(f"{quoted(name)} {type_text}" for name, type_text in columns)


def quoted(name: str) -> str:
    """The name of a column or field, in the backticks that Spark needs for any but a plain one."""
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def _split_at_commas(ddl: str) -> list[str]:
    if not ddl.strip():
        raise SchemaError("the schema is empty, expected Spark DDL such as `tailnum STRING, arr_delay DOUBLE`")
    parts = [""]
    awaited: list[str] = []
    quote = ""
    for character in ddl:
        if quote:
            quote = "" if character == quote else quote
        elif character in "`'\"":
            quote = character
        elif character in _OPENING:
            awaited.append(_OPENING[character])
        elif character in _OPENING.values():
            if not awaited or awaited.pop() != character:
                raise SchemaError(f"found {character!r} in the schema without its opening counterpart")
        elif character == "," and not awaited:
            parts.append("")
            continue
        parts[-1] += character
    if quote or awaited:
        raise SchemaError(f"the schema ends before its closing {quote or awaited[-1]!r}")
    return parts
