"""Arrow columns as the kernels want them: int64 or float64 values, and which of them count."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from streamtopology.jobs.operators.options import OptionError, require_column
from streamtopology.jobs.state import StateFileError

NUMBERS = "a number (integer or floating point)"
_MAGNITUDE = np.iinfo(np.int64).max
_BEYOND = "an integer does not fit into 63 bits; cast the column in a map, to DOUBLE or VARCHAR"


def require_number(inputs: Mapping[str, pa.Schema], name: str, alias: str) -> pa.DataType:
    """The type of column `name` of input `alias`, which must be an integer or a float. Raises OptionError.

    >>> require_number({"readings": pa.schema([("celsius", pa.float64())])}, "celsius", "readings")
    DataType(double)
    """
    kind = require_column(inputs, name, alias).type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise OptionError(f"column {name!r} of input {alias!r} is {kind}; allowed: {NUMBERS}; a map can cast it", about=name)
    return kind


def countable(column: pa.Array, keeps_nan: bool = False) -> np.ndarray | None:
    """bool[n]: which values are neither NULL nor NaN, or only not NULL; None: all."""
    if pa.types.is_floating(column.type) and not keeps_nan:
        return numbers(column)[1]
    return None if column.null_count == 0 else column.is_valid().to_numpy(zero_copy_only=False)


def numbers(column: pa.Array, keeps_nan: bool = False) -> tuple[np.ndarray, np.ndarray | None]:
    """(int64[n] or float64[n], bool[n] which of them count or None for all): NULL does not count, nor does NaN if not kept.

    Times and dates are their number of units since 1970. What does not count has some finite value. Raises OverflowError for
    integers beyond 63 bits.
    """
    kind = column.type
    if pa.types.is_floating(kind) and keeps_nan:
        values, valid = column.cast(pa.float64()), countable(column, keeps_nan)
        return (values if valid is None else values.fill_null(0.0)).to_numpy(zero_copy_only=False), valid
    if pa.types.is_floating(kind):
        values = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
        real = ~np.isnan(values)
        return (values, None) if real.all() else (np.where(real, values, 0.0), real)
    valid = countable(column)
    whole = _as_int64(column)
    return (whole if valid is None else whole.fill_null(0)).to_numpy(zero_copy_only=False), valid


def ranks(values: np.ndarray) -> np.ndarray:
    """int64[n] in the order of `values`, float64[n]: -0.0 is 0.0, and every NaN is larger than all numbers."""
    bits = np.where(np.isnan(values), np.nan, values + 0.0).view(np.int64)
    return bits ^ ((bits >> 63) & _MAGNITUDE)


def of_ranks(found: np.ndarray) -> np.ndarray:
    """float64[n]: the values that have these ranks, int64[n]."""
    return (found ^ ((found >> 63) & _MAGNITUDE)).view(np.float64)


def _as_int64(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_temporal(kind):
        column = column.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    elif pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid as error:  # only unsigned ones of 64 bits may not fit
        raise OverflowError(f"{_BEYOND}: {error}") from error


@contextmanager
def values_of_state(name: str, kind: pa.DataType) -> Iterator[None]:
    """Raise StateFileError for values that do not fit `kind`: those of this run do, so no tuple is at fault."""
    try:
        yield
    except pa.ArrowInvalid as error:
        raise StateFileError(
            f"the state of {name} is of a former run, in which the column had another type than {kind}: {error}. Give the "
            "column that type again (cast it in a map), or give the operator another name and set spec.onRemove: drop"
        ) from error
