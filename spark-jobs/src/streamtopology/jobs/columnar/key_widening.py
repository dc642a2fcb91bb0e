"""Types in which keys of different types meet: equal values are equal keys only if they have one canonical form.

Canonical forms are those of `keys`: integers of any width share one and floats another; a decimal's depends on its scale.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from streamtopology.jobs.columnar.layouts import is_text

_MOST_DECIMAL_DIGITS = 38
# By the width of a float, the width of the integers that it holds exactly.
_EXACT_BITS = {16: 11, 32: 24, 64: 53}
_INTEGERS = {(True, 8): pa.int8(), (True, 16): pa.int16(), (True, 32): pa.int32(), (True, 64): pa.int64(),
             (False, 8): pa.uint8(), (False, 16): pa.uint16(), (False, 32): pa.uint32(), (False, 64): pa.uint64()}  # fmt: skip
_FLOATS = {16: pa.float16(), 32: pa.float32(), 64: pa.float64()}


def common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The narrowest type that holds every value of both exactly; None if there is none.

    >>> common_type(pa.decimal128(6, 1), pa.int32()), common_type(pa.int64(), pa.float64())
    (Decimal128Type(decimal128(11, 1)), None)
    """
    one, other = _flat(one), _flat(other)
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if _are(one, other, pa.types.is_integer):
        return _common_integer(one, other)
    if _are(one, other, pa.types.is_floating):
        return _FLOATS[max(one.bit_width, other.bit_width)]
    if pa.types.is_floating(one) and pa.types.is_integer(other):
        return _common_float(one, other)
    if pa.types.is_integer(one) and pa.types.is_floating(other):
        return _common_float(other, one)
    if _is_exact(one) and _is_exact(other):
        return _common_decimal(_as_decimal(one), _as_decimal(other))
    if _are(one, other, is_text):
        return pa.large_string()
    if _are(one, other, _is_bytes):
        return pa.large_binary()
    zoned = pa.types.is_timestamp(one) and pa.types.is_timestamp(other) and None not in (one.tz, other.tz)
    return one if zoned and one.unit == other.unit else None


def keeps_keys(before: pa.DataType, after: pa.DataType) -> bool:
    """True if `after` holds every value of `before`, and as the same key: state and routing by the one serve the other."""
    if common_type(before, after) != after:
        return False
    if pa.types.is_decimal(before) and pa.types.is_decimal(after):
        return (before.byte_width, before.scale) == (after.byte_width, after.scale)
    same_form = (pa.types.is_integer, pa.types.is_floating, is_text, _is_bytes, pa.types.is_timestamp)
    return before == after or any(_are(before, after, test) for test in same_form)


def _flat(type_: pa.DataType) -> pa.DataType:
    return type_.value_type if pa.types.is_dictionary(type_) else type_


def _are(one: pa.DataType, other: pa.DataType, test: Callable[[pa.DataType], bool]) -> bool:
    return test(one) and test(other)


def _is_bytes(type_: pa.DataType) -> bool:
    return pa.types.is_binary(type_) or pa.types.is_large_binary(type_) or pa.types.is_binary_view(type_)


def _is_exact(type_: pa.DataType) -> bool:
    return pa.types.is_integer(type_) or pa.types.is_decimal(type_)


def _common_integer(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    signed = {pa.types.is_signed_integer(type_) for type_ in (one, other)}
    if len(signed) == 1:
        return _INTEGERS[signed.pop(), max(one.bit_width, other.bit_width)]
    widths = [type_.bit_width if pa.types.is_signed_integer(type_) else 2 * type_.bit_width for type_ in (one, other)]
    return _INTEGERS.get((True, max(widths)))


def _common_float(floating: pa.DataType, integer: pa.DataType) -> pa.DataType | None:
    needed = integer.bit_width - pa.types.is_signed_integer(integer)
    fitting = [width for width, exact in _EXACT_BITS.items() if width >= floating.bit_width and needed <= exact]
    return _FLOATS[min(fitting)] if fitting else None


def _as_decimal(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_decimal(type_):
        return type_
    return pa.decimal128(len(str(2 ** (type_.bit_width - pa.types.is_signed_integer(type_)))), 0)


def _common_decimal(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    scale = max(one.scale, other.scale)
    digits = max(one.precision - one.scale, other.precision - other.scale) + scale
    return pa.decimal128(digits, scale) if digits <= _MOST_DECIMAL_DIGITS else None
