"""The columns that expressions mention, so that no others are read, sent and kept."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pyarrow as pa

_ALL_COLUMNS = re.compile(r"(^|,|\.)\s*\*|\bcolumns\s*\(", re.IGNORECASE)


def mentioned_columns(schema: pa.Schema, expressions: Iterable[str]) -> pa.Schema:
    """The columns of `schema` whose names are among the words of SQL expressions; all, where one may mean all.

    At least one column: a table without columns would forget its number of rows.
    """
    text = " , ".join(expressions)
    if _ALL_COLUMNS.search(text):
        return schema
    words = {word.lower() for word in re.findall(r"\w+", text)}
    # A name with other characters (`arr delay`) is found by its text, in which a quote is written twice.
    unquoted = text.replace('""', '"')
    found = [f for f in schema if f.name.lower() in words or (not f.name.isidentifier() and f.name in unquoted)]
    return pa.schema(found or [schema.field(0)])
