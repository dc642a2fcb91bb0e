"""Arrow values as Python's, whatever a column holds."""

# pyarrow.compute makes its functions when it is imported, unseen by the type checker.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_UNKNOWN_TO_PYTHON = (OverflowError, ValueError, KeyError)
"""Raised for times out of range, texts that are no UTF-8, and (KeyError) unknown zones and names that are there twice."""


def python_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a column. What Python does not know is a text: a time in ISO 8601, bytes that are no UTF-8 with escapes.

    Python's dates and times are those of the years 1 to 9999, to the microsecond; Arrow's, Spark's and SQL's go further.
    Texts of files and of operators may be no UTF-8, and their time zones ones that this machine does not know.

    >>> python_values(pa.array([0, 4_000_000], pa.date32()))
    [datetime.date(1970, 1, 1), '12921-08-18']
    """
    try:
        return column.to_pylist()
    except _UNKNOWN_TO_PYTHON:
        return [_value(scalar) for scalar in column]


def python_rows(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows, each as column -> value, as `python_values` gives them."""
    columns = [python_values(column) for column in rows.columns]
    return [dict(zip(rows.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def _value(scalar: pa.Scalar) -> Any:
    if not scalar.is_valid:
        return None
    if isinstance(scalar, pa.MapScalar):
        return [(pair["key"], pair["value"]) for pair in python_values(scalar.values)]
    if isinstance(scalar, pa.StructScalar):
        return {field.name: _value(scalar[place]) for place, field in enumerate(scalar.type)}
    if isinstance(scalar, pa.ListScalar):
        return python_values(scalar.values)
    if isinstance(scalar, pa.DictionaryScalar):
        return _value(scalar.value)
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        return scalar.as_buffer().to_pybytes().decode("utf-8", "backslashreplace")
    except _UNKNOWN_TO_PYTHON:
        return _iso(scalar)


def _iso(scalar: pa.Scalar) -> str:
    if not pa.types.is_timestamp(scalar.type):
        return str(scalar.cast(pa.string()))
    zone = "" if scalar.type.tz is None else "Z"
    return str(pc.strftime(scalar.cast(pa.timestamp(scalar.type.unit, scalar.type.tz and "UTC")), f"%Y-%m-%dT%H:%M:%S{zone}"))
