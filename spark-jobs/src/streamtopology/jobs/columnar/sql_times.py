"""Times that SQL and Arrow do not both have: found in what an expression gets and gives, before they become others.

DuckDB's intervals have microseconds; its dates and timestamps have infinities, which Arrow takes for days of distant years;
and its intervals of more than 292 years wrap round in Arrow's nanoseconds.
"""

# pyarrow.compute makes its functions when it is imported, unseen by the type checker.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_INTERVAL = pa.month_day_nano_interval()
_PARTS = np.dtype([("months", np.int32), ("days", np.int32), ("nanoseconds", np.int64)])
# Hours whose nanoseconds Arrow holds.
_MOST_HOURS = (2**63 - 1) // (3_600 * 10**9) - 1
# Bits of a time -> how many units DuckDB has for infinity.
_INFINITE = {32: 2**31 - 1, 64: 2**63 - 1}


def finer_columns(schema: pa.Schema) -> Iterator[tuple[str, str]]:
    """Name and finding of the columns whose type has nanoseconds that SQL has not."""
    for field in schema:
        if any(kind == pa.duration("ns") for kind in _held(field.type)):
            yield (
                field.name,
                f"{field.name!r} is {field.type}, and SQL's intervals have microseconds; declare pa.duration('us')",
            )


def finding_of_inputs(rows: pa.RecordBatch | pa.Table) -> str | None:
    """The first interval that SQL would cut off, as a sentence; None if there is none."""
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if field.type == _INTERVAL and any((_nanoseconds(chunk) % 1000).any() for chunk in _chunks(column)):
            return f"an interval in {field.name!r} has nanoseconds, and SQL's intervals have microseconds; round it before"
    return None


def finding_of_results(rows: pa.RecordBatch | pa.Table) -> str | None:
    """The first infinite date or timestamp, as a sentence; None if there is none."""
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        for leaf in _leaves(column):
            if _is_infinite(leaf):
                return f"a {leaf.type} in {name!r} is infinite, which only SQL has; let it be NULL, as by isfinite(...)"
    return None


def check_of_intervals(schema: pa.Schema, sql: str) -> str | None:
    """The query that is true if an interval of `sql` is too long for Arrow; None if it gives none."""
    names = [field.name for field in schema if field.type == _INTERVAL]
    if not names:
        return None
    quoted = ['"' + name.replace('"', '""') + '"' for name in names]
    too_long = " OR ".join(f"coalesce(abs(datepart('hour', {name})) > {_MOST_HOURS}, false)" for name in quoted)
    return f"SELECT coalesce(bool_or({too_long}), false) AS found FROM ({sql}\n)"


def _held(kind: pa.DataType) -> Iterator[pa.DataType]:
    yield kind
    for number in range(kind.num_fields):
        yield from _held(kind.field(number).type)


def _chunks(column: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]


def _nanoseconds(intervals: pa.Array) -> np.ndarray:
    values = intervals.drop_null()
    buffer = values.buffers()[1]
    if buffer is None or not len(values):
        return np.empty(0, np.int64)
    return np.frombuffer(buffer, _PARTS, len(values), values.offset * _PARTS.itemsize)["nanoseconds"]


def _leaves(column: pa.Array | pa.ChunkedArray) -> Iterator[pa.Array]:
    """The dates and timestamps of a column, at any depth."""
    if not any(_may_be_infinite(kind) for kind in _held(column.type)):
        return
    for chunk in _chunks(column):
        if _may_be_infinite(chunk.type):
            yield chunk
        elif pa.types.is_struct(chunk.type):
            for part in chunk.flatten():
                yield from _leaves(part)
        elif pa.types.is_map(chunk.type):
            yield from _leaves(chunk.keys)
            yield from _leaves(chunk.items)
        elif hasattr(chunk, "flatten"):
            yield from _leaves(chunk.flatten())


def _may_be_infinite(kind: pa.DataType) -> bool:
    return pa.types.is_date32(kind) or pa.types.is_timestamp(kind)


def _is_infinite(times: pa.Array) -> bool:
    bits = times.type.bit_width
    ends = pc.min_max(times.view(pa.int32() if bits == 32 else pa.int64()))
    return ends["max"].as_py() == _INFINITE[bits] or ends["min"].as_py() == -_INFINITE[bits]
