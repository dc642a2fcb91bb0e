"""The Arrow types that state can hold, and which of them another version of an operator may go on with."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from streamtopology.jobs.columnar.layouts import is_list

_TEXTS = (pa.types.is_string, pa.types.is_large_string)
_BYTES = (pa.types.is_binary, pa.types.is_large_binary)
_LEAVES: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_temporal,
    pa.types.is_fixed_size_binary, *_TEXTS, *_BYTES,
)  # fmt: skip


def parts_of(kind: pa.DataType) -> list[pa.Field]:
    """The fields of a struct, the item of a list, key and value of a map; none of any other type."""
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    return [kind.field(place) for place in range(kind.num_fields)] if pa.types.is_struct(kind) or is_list(kind) else []


def refused_part(kind: pa.DataType) -> str | None:
    """Why state cannot hold values of this type; None if it can."""
    for each in _all_types(kind):
        if pa.types.is_struct(each):
            names = [part.name for part in parts_of(each)]
            if len(set(names)) < len(names):
                return f"a struct has the field {max(names, key=names.count)!r} twice"
        elif not parts_of(each) and not any(is_leaf(each) for is_leaf in _LEAVES):
            return f"{each} is not among them"
    return None


def _all_types(kind: pa.DataType) -> Iterator[pa.DataType]:
    yield kind
    for part in parts_of(kind):
        yield from _all_types(part.type)


def holds_all_of(now: pa.DataType, before: pa.DataType) -> bool:
    """True if every value of type `before` stays what it is as one of `now`: wider numbers, structs with more fields.

    A field that a struct no longer has is a loss, and so is one with another name: Arrow would make it NULL.
    """
    if now.equals(before):
        return True
    if pa.types.is_struct(now) and pa.types.is_struct(before):
        return _holds_struct(now, before)
    if pa.types.is_map(now) and pa.types.is_map(before):
        # A wider key could make one key of two.
        return now.key_type.equals(before.key_type) and holds_all_of(now.item_type, before.item_type)
    if is_list(now) and is_list(before):
        same_form = pa.types.is_fixed_size_list(now) == pa.types.is_fixed_size_list(before)
        same_size = not pa.types.is_fixed_size_list(now) or now.list_size == getattr(before, "list_size", None)
        return same_form and same_size and holds_all_of(now.value_type, before.value_type)
    for kinds in (_TEXTS, _BYTES):
        if any(is_kind(now) for is_kind in kinds) and any(is_kind(before) for is_kind in kinds):
            return True
    return _holds_number(now, before)


def _holds_struct(now: pa.StructType, before: pa.StructType) -> bool:
    types = {part.name: part.type for part in parts_of(now)}
    return all(part.name in types and holds_all_of(types[part.name], part.type) for part in parts_of(before))


def _holds_number(now: pa.DataType, before: pa.DataType) -> bool:
    if pa.types.is_decimal(now) and pa.types.is_decimal(before):
        return now.scale >= before.scale and now.precision - now.scale >= before.precision - before.scale
    if not all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in (now, before)):
        return False
    narrow, wide = np.dtype(before.to_pandas_dtype()), np.dtype(now.to_pandas_dtype())
    loses = narrow.kind in "iu" and wide.kind == "f" and narrow.itemsize >= wide.itemsize
    return not loses and np.can_cast(narrow, wide, "safe")


def row_bytes(values: pa.Array) -> np.ndarray:
    """float64[n]: how many bytes each value takes, beside the bits for NULL."""
    return np.diff(_ends(values)).astype(np.float64)


def _ends(values: pa.Array) -> np.ndarray:
    """[n + 1]: the bytes up to the start of each value, and up to the end of the last."""
    kind, count = values.type, len(values)
    if pa.types.is_struct(kind):
        # `field` does not know the slice that `values` may be.
        parts = [values.field(place).slice(values.offset, count) for place in range(kind.num_fields)]
        return sum(map(_ends, parts), np.zeros(count + 1))
    if pa.types.is_fixed_size_list(kind):
        inner = values.values.slice(values.offset * kind.list_size, count * kind.list_size)
        return _ends(inner)[:: kind.list_size] if kind.list_size else np.zeros(count + 1)
    if pa.types.is_map(kind):
        keys, items = _ends(values.keys), _ends(values.items)
        offsets = _offsets(values, kind)
        return keys[offsets] + items[offsets] + 4 * np.arange(count + 1)
    if is_list(kind):
        return _ends(values.values)[_offsets(values, kind)] + 4 * np.arange(count + 1)
    if any(is_kind(kind) for is_kind in (*_TEXTS, *_BYTES)):
        return _offsets(values, kind) + 4 * np.arange(count + 1)
    return np.arange(count + 1) * kind.bit_width / 8


def _offsets(values: pa.Array, kind: pa.DataType) -> np.ndarray:
    """int64[n + 1]: where each value starts in what all of them hold."""
    is_large = pa.types.is_large_list(kind) or pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    buffer = values.buffers()[1]
    if buffer is None or not buffer.size:
        return np.zeros(len(values) + 1, np.int64)
    offsets = np.frombuffer(buffer, np.int64 if is_large else np.int32)
    return offsets[values.offset : values.offset + len(values) + 1].astype(np.int64)
