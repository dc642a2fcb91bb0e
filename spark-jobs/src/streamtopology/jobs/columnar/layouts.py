"""Which Arrow types are numbers, texts, bytes and lists: Arrow has each in several layouts and sizes."""

from __future__ import annotations

import pyarrow as pa


def is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def is_bytes(kind: pa.DataType) -> bool:
    """True for bytes of any size, and of a fixed one."""
    fixed_or_view = pa.types.is_fixed_size_binary(kind) or pa.types.is_binary_view(kind)
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or fixed_or_view


def is_list(kind: pa.DataType) -> bool:
    """True for lists of any size, and of a fixed one; false for views of lists."""
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
