"""Sums and means of decimals: exact, of Spark's types, out of sums in two words of 64 bits."""

# pyarrow.compute makes its functions when it is imported, unseen by the type checker.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

MOST_DIGITS = 38


def sum_type(kind: pa.Decimal128Type) -> pa.Decimal128Type:
    """The type of a sum: ten digits more, as in Spark."""
    return pa.decimal128(min(kind.precision + 10, MOST_DIGITS), kind.scale)


def mean_type(kind: pa.Decimal128Type) -> pa.Decimal128Type:
    """The type of a mean: four digits more behind the point, as in Spark."""
    return pa.decimal128(min(kind.precision + 4, MOST_DIGITS), min(kind.scale + 4, MOST_DIGITS))


def words_of(values: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """(int64[n] high, int64[n] low) of decimals without NULL: without its point, a value is high * 2**64 + low."""
    buffer = values.buffers()[1]
    words = np.frombuffer(buffer, np.int64) if buffer is not None else np.zeros(0, np.int64)
    pairs = words.reshape(-1, 2)[values.offset : values.offset + len(values)]
    low, high = pairs[:, 0], pairs[:, 1]
    return high + (low < 0), np.ascontiguousarray(low)


def of_words(high: np.ndarray, low: np.ndarray, nothing: np.ndarray, kind: pa.Decimal128Type) -> pa.Array:
    """Sums as decimals, NULL where bool[n] `nothing`. Raises OverflowError for one of more digits than `kind` has."""
    pairs = np.stack([low, high - (low < 0)], axis=1)
    bits = pa.py_buffer(np.packbits(~nothing, bitorder="little"))
    made = pa.Array.from_buffers(kind, len(low), [bits, pa.py_buffer(pairs)])
    try:
        made.validate(full=True)
    except pa.ArrowInvalid as error:
        raise OverflowError(f"a sum of decimals does not fit into {kind}; cast the column to DOUBLE in a map") from error
    return made


def means(sums: pa.Array, counts: np.ndarray, kind: pa.Decimal128Type) -> pa.Array:
    """sums[i] / counts[i], rounded half up; NULL stays. Raises OverflowError for one of more digits than `kind` has."""
    divided = pc.divide(_wide(sums), _wide(pa.array(counts)))  # with more digits than `kind`, the rest cut off
    try:
        return pc.round(divided, ndigits=kind.scale, round_mode="half_towards_infinity").cast(kind)
    except pa.ArrowInvalid as error:
        raise OverflowError(f"a mean of decimals does not fit into {kind}; cast the column to DOUBLE in a map") from error


def _wide(values: pa.Array) -> pa.Array:
    kind = values.type
    is_decimal = pa.types.is_decimal(kind)
    return values.cast(pa.decimal256(kind.precision, kind.scale) if is_decimal else pa.decimal256(19, 0))
