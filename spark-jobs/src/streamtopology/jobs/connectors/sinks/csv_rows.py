"""Record batches as lines of csv, a string per row, as RFC 4180 has them: a quote in a value is doubled."""

# pyarrow.compute makes its functions when it is imported, unseen by the type checker.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from streamtopology.jobs.columnar.dictionaries import decoded
from streamtopology.jobs.columnar.layouts import is_text
from streamtopology.jobs.connectors.sinks.json_rows import json_values

# Texts that readers would cut, take for NULL, or strip, if they had no quotes.
_NEEDS_QUOTES = r'[",\r\n]|^$|^[\s\x{FEFF}]|\s$'


def csv_rows(batch: pa.RecordBatch) -> pa.Array:
    """One line per row, without its end: NULL is empty, an empty text is `""`; numbers and times are as in JSON.

    A row that is one NULL is `""`, too: readers leave empty lines out.
    """
    null = '""' if batch.num_columns == 1 else ""
    columns = [pc.fill_null(_values(column), null) for column in batch.columns]
    return pc.binary_join_element_wise(*columns, pa.scalar(",", pa.large_string()))


def csv_header(names: list[str]) -> str:
    """The line of the columns' names."""
    return ",".join(_quoted(pa.array(names, pa.large_string())).to_pylist())


def _values(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        return _values(decoded(column))
    if is_text(column.type):
        return _quoted(column.cast(pa.large_string()))
    return pc.utf8_trim(json_values(column).cast(pa.large_string()), '"')


def _quoted(texts: pa.Array) -> pa.Array:
    quote = pa.scalar('"', pa.large_string())
    doubled = pc.replace_substring(texts, '"', '""')
    enclosed = pc.binary_join_element_wise(quote, doubled, quote, pa.scalar("", pa.large_string()))
    return pc.if_else(pc.match_substring_regex(texts, _NEEDS_QUOTES), enclosed, texts)
