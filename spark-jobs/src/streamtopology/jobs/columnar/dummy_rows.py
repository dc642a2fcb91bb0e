"""Rows that fit a schema and mean nothing: what a warm-up sends through a topology before there are real ones."""

from __future__ import annotations

import pyarrow as pa

_ROWS = 16


def dummy_rows(schema: pa.Schema) -> pa.RecordBatch:
    """A few rows of `schema`: small numbers, short texts, NULL where a type knows neither."""
    return pa.RecordBatch.from_arrays([_dummy_column(field.type) for field in schema], schema=schema)


def _dummy_column(kind: pa.DataType) -> pa.Array:
    numbers = pa.array(range(_ROWS), pa.int64())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind):
        return pa.array([f"dummy {number}" for number in range(_ROWS)]).cast(kind)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_timestamp(kind):
        return numbers.cast(kind)
    return pa.nulls(_ROWS, kind)
