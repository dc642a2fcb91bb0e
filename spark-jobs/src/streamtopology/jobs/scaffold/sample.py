"""A sample of a source: some of its rows under plain names, and what a manifest must declare to read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

Option = str | int | bool

# Rows of a sample: enough for the shares of heavy keys, read in about a second.
MOST_ROWS = 200_000


@dataclass(frozen=True)
class Sample:
    """Rows of a source before any operator.

    title: the data in a few words. table: the columns that an operator can use, under plain names. expressions: the SQL of
    those columns of `table` that are not a declared column under its own name. declared: name and Spark type of each column
    of the source, empty where the format fixes them. parts and rows_per_part: files, and rows of each; 0 for a source without
    files. notes: what a user should know, a sentence each. remarks: a sentence on each column of `table` whose expression
    changes its type.
    """

    format: str
    title: str
    table: pa.Table
    options: Mapping[str, Option]
    declared: tuple[tuple[str, str], ...] = ()
    expressions: Mapping[str, str] = field(default_factory=dict)
    where: str | None = None
    parts: int = 0
    rows_per_part: int = 0
    notes: tuple[str, ...] = ()
    remarks: Mapping[str, str] = field(default_factory=dict)


def sql_text(text: str) -> str:
    """`text` as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def joined(items: Iterable[str], most: int = 3) -> str:
    """The first of `items`, and the number of the others."""
    listed = list(items)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more
