"""Arrow values as Python's, whatever a column holds."""

# pyarrow.compute makes its functions when it is imported, unseen by the type checker.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def python_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a column. A time that Python does not know is its ISO 8601 text.

    Python's dates and times are those of the years 1 to 9999, to the microsecond; Arrow's, Spark's and SQL's go further.

    >>> python_values(pa.array([0, 4_000_000], pa.date32()))
    [datetime.date(1970, 1, 1), '12921-08-18']
    """
    try:
        return column.to_pylist()
    except (OverflowError, ValueError):
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
        return {name: _value(scalar[name]) for name in scalar}
    if isinstance(scalar, pa.ListScalar):
        return python_values(scalar.values)
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        return _iso(scalar)


def _iso(scalar: pa.Scalar) -> str:
    if not pa.types.is_timestamp(scalar.type):
        return str(scalar.cast(pa.string()))
    zone = "" if scalar.type.tz is None else "Z"
    return str(pc.strftime(scalar.cast(pa.timestamp(scalar.type.unit, scalar.type.tz and "UTC")), f"%Y-%m-%dT%H:%M:%S{zone}"))
