"""Record batches as JSON objects, a string per row, put together column by column by Arrow's kernels."""

# pyarrow.compute makes its functions when it is imported, unseen by the type checker.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from streamtopology.jobs.columnar.dictionaries import decoded
from streamtopology.jobs.columnar.python_values import python_values

SLICE_BYTES = 64 << 20
"""Rows that are written at a time: a column of Arrow's texts holds 2 GiB, and JSON may be six times as long as its row."""

_NEEDS_CARE = r'[\x00-\x1f"\\]'


def json_rows(batch: pa.RecordBatch) -> pa.StringArray:
    """One JSON object per row with every column in order; NULL is null.

    Timestamps are ISO 8601 (with Z when they have a zone), binary is base64, and NaN and infinities, which JSON does
    not have, are the strings "NaN", "Infinity" and "-Infinity", as Spark's to_json writes them.
    """
    if not batch.num_columns:
        return pa.array(["{}"] * batch.num_rows, pa.string())
    parts: list[pa.Array | str] = []
    for index, (name, column) in enumerate(zip(batch.schema.names, batch.columns, strict=True)):
        parts.append(("{" if index == 0 else ",") + json.dumps(name, ensure_ascii=False) + ":")
        parts.append(pc.fill_null(_values(column), "null"))
    parts.append("}")
    return pc.binary_join_element_wise(*parts, "")


def _values(column: pa.Array) -> pa.Array:
    """JSON text of each value; NULL stays NULL."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _values(decoded(column))
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.string())
    if pa.types.is_floating(kind):
        return _floats(column.cast(pa.float32()) if pa.types.is_float16(kind) else column)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _strings(column.cast(pa.string()))
    if pa.types.is_time64(kind) and kind.unit == "ns":  # Python's times have no nanoseconds
        return _quoted(column.cast(pa.string()))
    if pa.types.is_timestamp(kind):
        zone = "" if kind.tz is None else "Z"
        naive = column if kind.tz is None else column.cast(pa.timestamp(kind.unit, "UTC"))
        return _quoted(pc.strftime(naive, f"%Y-%m-%dT%H:%M:%S{zone}"))
    if pa.types.is_date(kind):
        return _quoted(column.cast(pa.date32()).cast(pa.string()))
    return _one_by_one(column, lambda value: json.dumps(_plain(value), ensure_ascii=False))


def slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows in parts of about `SLICE_BYTES`."""
    rows = max(1, batch.num_rows * SLICE_BYTES // max(1, batch.nbytes))
    return (batch.slice(start, rows) for start in range(0, batch.num_rows, rows))


def _floats(column: pa.Array) -> pa.Array:
    texts = column.cast(pa.string())
    unusual = pc.invert(pc.is_finite(column))
    if not pc.any(unusual).as_py():
        return texts
    names = pc.if_else(pc.is_nan(column), '"NaN"', pc.if_else(pc.greater(column, 0), '"Infinity"', '"-Infinity"'))
    return pc.if_else(unusual, names, texts)


def _strings(column: pa.Array) -> pa.Array:
    if pc.any(pc.match_substring_regex(column, _NEEDS_CARE)).as_py():
        return _one_by_one(column, lambda value: json.dumps(value, ensure_ascii=False))
    return _quoted(column)


def _quoted(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', texts, '"', "")


def _one_by_one(column: pa.Array, text_of: Callable[[object], str]) -> pa.Array:
    return pa.array([None if value is None else text_of(value) for value in python_values(column)], pa.string())


def _plain(value: object) -> object:
    """A nested Arrow value as JSON knows it."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, float) and not (abs(value) < float("inf")):
        return "NaN" if value != value else ("Infinity" if value > 0 else "-Infinity")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)  # type: ignore[union-attr]
