"""Kafka messages of rows: their columns `key` and `value`, else each row as JSON."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from streamtopology.jobs.columnar.dictionaries import decoded
from streamtopology.jobs.columnar.layouts import is_bytes
from streamtopology.jobs.connectors.sinks.json_rows import json_rows

KEY, VALUE = "key", "value"


def messages(rows: pa.RecordBatch) -> tuple[Sequence[bytes | None], Sequence[bytes | None]]:
    """Keys and values of the messages of `rows`."""
    keys, values = message_columns(rows)
    return keys.to_pylist(), values.to_pylist()


def message_columns(rows: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
    """Keys and values of the messages of `rows`, as columns of bytes."""
    names = rows.schema.names
    if VALUE not in names:
        return pa.nulls(rows.num_rows, pa.large_binary()), json_rows(rows).cast(pa.large_binary())
    keys = rows.column(KEY) if KEY in names else pa.nulls(rows.num_rows)
    return _as_bytes(keys), _as_bytes(rows.column(VALUE))


def _as_bytes(column: pa.Array) -> pa.Array:
    """Binary and text as they are, numbers and the like as text."""
    if pa.types.is_dictionary(column.type):
        return _as_bytes(decoded(column))
    if isinstance(column, pa.ExtensionArray):
        return _as_bytes(column.storage)
    if pa.types.is_fixed_size_binary(column.type):
        column = column.cast(pa.binary())
    if not is_bytes(column.type):
        column = column.cast(pa.large_string())
    return column.cast(pa.large_binary())
