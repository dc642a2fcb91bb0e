"""Record batches as JSON objects, a string per row, put together column by column by Arrow's kernels."""

# pyarrow.compute makes its functions when it is imported, unseen by the type checker.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamtopology.jobs.columnar.dictionaries import decoded
from streamtopology.jobs.columnar.layouts import is_bytes, is_text
from streamtopology.jobs.columnar.python_values import python_values

# Rows that are written at a time: a column of Arrow's texts holds 2 GiB, and JSON may be six times as long as its row.
SLICE_BYTES = 64 << 20

_AS_NUMBERS = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_decimal, pa.types.is_duration)
_OTHER_LISTS = (pa.types.is_fixed_size_list, pa.types.is_list_view, pa.types.is_large_list_view)
_NEEDS_CARE = r'[\x00-\x1f"\\]'


def json_rows(batch: pa.RecordBatch) -> pa.StringArray:
    """One JSON object per row with every column in order; NULL is null.

    Timestamps are ISO 8601 (with Z when they have a zone), times of day HH:MM:SS with the digits of their unit, durations
    are the number of their units, binary is base64, and NaN and infinities, which JSON does not have, are the strings "NaN",
    "Infinity" and "-Infinity", as Spark's to_json writes them. A list of any layout is an array. A map is an object, its keys
    are texts. UUIDs are texts, other extension types their storage.
    """
    if not batch.num_columns:
        return pa.array(["{}"] * batch.num_rows, pa.string())
    return _object(pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema)))


def json_values(column: pa.Array) -> pa.Array:
    """JSON of each value, a text; NULL stays NULL."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return json_values(decoded(column))
    if isinstance(kind, pa.UuidType):
        return _one_by_one(column, lambda value: f'"{value}"')
    if isinstance(kind, pa.BaseExtensionType):
        return json_values(column.storage)
    if pa.types.is_null(kind):
        return column.cast(pa.string())
    if pa.types.is_nested(kind):
        return _nested(column)
    if pa.types.is_floating(kind):
        return _floats(column.cast(pa.float32()) if pa.types.is_float16(kind) else column)
    if is_text(kind):
        return _strings(column.cast(pa.string()))
    if is_bytes(kind):
        return _one_by_one(column.cast(pa.large_binary()), _base64)
    if pa.types.is_timestamp(kind):
        zone = "" if kind.tz is None else "Z"
        naive = column if kind.tz is None else column.cast(pa.timestamp(kind.unit, "UTC"))
        return _quoted(pc.strftime(naive, f"%Y-%m-%dT%H:%M:%S{zone}"))
    if pa.types.is_date(kind):
        return _quoted(column.cast(pa.date32()).cast(pa.string()))
    if pa.types.is_time(kind):
        return _quoted(column.cast(pa.string()))
    if any(is_of(kind) for is_of in _AS_NUMBERS):
        return column.cast(pa.string())
    raise pa.ArrowNotImplementedError(f"there is no JSON for {kind}")


def map_names(column: pa.MapArray) -> pa.Array:
    """The names that the keys of a map have in its object, all of those in `column.keys`."""
    return _names(column.keys)


def _nested(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_map(kind):
        pairs = pc.binary_join_element_wise(_names(column.keys), _or_null(column.items), ":")
        return _enclosed("{", column, column.offsets, pairs, "}")
    if pa.types.is_struct(kind):
        return _object(column)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _enclosed("[", column, column.offsets, _or_null(column.values), "]")
    if not any(is_of(kind) for is_of in _OTHER_LISTS):
        raise pa.ArrowNotImplementedError(f"there is no JSON for {kind}")
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    return _enclosed("[", column, pa.array(offsets), _or_null(column.flatten()), "]")


def slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows in parts of about `SLICE_BYTES`."""
    rows = max(1, batch.num_rows * SLICE_BYTES // max(1, batch.nbytes))
    return (batch.slice(start, rows) for start in range(0, batch.num_rows, rows))


def _or_null(column: pa.Array) -> pa.Array:
    return pc.fill_null(json_values(column), "null")


def _names(keys: pa.Array) -> pa.Array:
    """The JSON of each key of a map, a text whatever its type."""
    texts = json_values(keys)
    return pc.if_else(pc.starts_with(texts, '"'), texts, _quoted(texts))


def _enclosed(before: str, column: pa.Array, offsets: pa.Array, parts: pa.Array, after: str) -> pa.Array:
    """The parts of each list or map, all of them between two marks; NULL stays NULL."""
    lists = pa.LargeListArray if offsets.type == pa.int64() else pa.ListArray
    joined = pc.binary_join(lists.from_arrays(offsets, parts), ",")
    texts = pc.binary_join_element_wise(before, joined, after, "")
    return pc.if_else(column.is_valid(), texts, None)


def _object(column: pa.Array) -> pa.Array:
    parts: list[pa.Array | str] = []
    for index, values in enumerate(column.flatten()):
        name = json.dumps(column.type.field(index).name, ensure_ascii=False)
        parts += [("," if parts else "{") + name + ":", _or_null(values)]
    texts = pc.binary_join_element_wise(*parts, "}", "") if parts else pa.repeat("{}", len(column))
    return pc.if_else(column.is_valid(), texts, None)


def _floats(column: pa.Array) -> pa.Array:
    texts = column.cast(pa.string())
    texts = pc.if_else(pc.equal(texts, "-0"), "-0.0", texts)  # -0 is an integer to readers, which has no sign
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


def _base64(value: object) -> str:
    assert isinstance(value, bytes)
    return f'"{base64.b64encode(value).decode("ascii")}"'
