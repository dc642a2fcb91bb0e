"""Arrow's other layouts of the same values: views, lists of a fixed size, JSON and UUIDs as plain texts, bytes and lists."""

# pyarrow.compute makes its functions when it is imported, unseen by the type checker.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_OTHER_LISTS = (pa.types.is_fixed_size_list, pa.types.is_list_view, pa.types.is_large_list_view)
_UUID_BYTES = 16
_GROUPS = (0, 4, 6, 8, 10, 16)
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)


def plain_type(kind: pa.DataType, wanted: pa.DataType | None = None) -> pa.DataType:
    """The type of `plain` for arrays of `kind`; `kind` itself if it is plain."""
    if isinstance(kind, pa.UuidType):
        return pa.binary() if wanted is not None and pa.types.is_binary(wanted) else pa.string()
    if isinstance(kind, pa.BaseExtensionType):
        return plain_type(kind.storage_type, wanted)
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_run_end_encoded(kind):
        return plain_type(kind.value_type, wanted)
    if pa.types.is_dictionary(kind):
        value = plain_type(kind.value_type, wanted)
        return kind if value == kind.value_type else value
    if not pa.types.is_nested(kind):
        return kind
    return _plain_nested(kind, wanted)


def _plain_nested(kind: pa.DataType, wanted: pa.DataType | None) -> pa.DataType:
    parts = [kind.field(index) for index in range(kind.num_fields)]
    plain_parts = [part.with_type(plain_type(part.type, part_of(wanted, part.name, index))) for index, part in enumerate(parts)]
    if any(is_of(kind) for is_of in _OTHER_LISTS):
        return pa.list_(plain_parts[0])
    if plain_parts == parts:
        return kind
    if pa.types.is_struct(kind):
        return pa.struct(plain_parts)
    if pa.types.is_map(kind):
        return pa.map_(plain_parts[0].type.field(0).type, plain_parts[0].type.field(1))
    return pa.large_list(plain_parts[0]) if pa.types.is_large_list(kind) else pa.list_(plain_parts[0])


def part_of(wanted: pa.DataType | None, name: str, index: int) -> pa.DataType | None:
    """The type of a part of `wanted`: of a struct's field of that name, else of the part at that place."""
    if wanted is None:
        return None
    if pa.types.is_struct(wanted):
        place = wanted.get_field_index(name)
        return wanted.field(place).type if place >= 0 else None
    return wanted.field(index).type if index < wanted.num_fields else None


def plain(values: pa.Array, wanted: pa.DataType | None = None) -> pa.Array:
    """The values in plain layouts, which Arrow's functions take: texts, bytes, lists, at any depth.

    A UUID is its text, or its 16 bytes where `wanted` has BINARY.
    """
    kind = values.type
    target = plain_type(kind, wanted)
    if target == kind:
        return values
    if isinstance(kind, pa.UuidType):
        return values.storage.cast(pa.binary()) if pa.types.is_binary(target) else _uuid_texts(values.storage)
    if isinstance(kind, pa.BaseExtensionType):
        return plain(values.storage, wanted)
    if pa.types.is_run_end_encoded(kind):
        return plain(pc.run_end_decode(values), wanted)
    if pa.types.is_dictionary(kind):
        return plain(values.dictionary, wanted).take(values.indices)
    if pa.types.is_struct(kind):
        parts = [plain(values.field(index), part_of(wanted, field.name, index)) for index, field in enumerate(kind)]
        return pa.StructArray.from_arrays(parts, fields=list(target), mask=values.is_null())
    if pa.types.is_nested(kind):
        return _map(values, target, wanted) if pa.types.is_map(kind) else _list(values, target, wanted)
    return values.cast(target)


def _map(values: pa.MapArray, target: pa.MapType, wanted: pa.DataType | None) -> pa.Array:
    entries = pa.StructArray.from_arrays([values.keys, values.items], fields=list(values.type.field(0).type))
    pairs = plain(entries, part_of(wanted, "", 0))
    offsets = pa.array(values.offsets.to_numpy())
    return pa.MapArray.from_arrays(offsets, pairs.field(0), pairs.field(1), type=target, mask=values.is_null())


def _list(values: pa.Array, target: pa.DataType, wanted: pa.DataType | None) -> pa.Array:
    """By the lengths, as Arrow's cast of a list view loses its NULLs."""
    lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
    is_large = pa.types.is_large_list(target)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int64() if is_large else pa.int32())
    lists = pa.LargeListArray if is_large else pa.ListArray
    return lists.from_arrays(offsets, plain(values.flatten(), part_of(wanted, "", 0)), type=target, mask=values.is_null())


def _uuid_texts(storage: pa.FixedSizeBinaryArray) -> pa.Array:
    """UUIDs as RFC 9562 writes them."""
    valid = storage.drop_null()
    data = np.frombuffer(valid.cast(pa.binary()).buffers()[2] or b"", np.uint8)[: len(valid) * _UUID_BYTES]
    texts = _HEX[np.stack([data >> 4, data & 15], axis=-1)].reshape(len(valid), 2 * _UUID_BYTES)
    dash = np.full((len(valid), 1), ord("-"), np.uint8)
    groups = [texts[:, 2 * start : 2 * end] for start, end in pairwise(_GROUPS)]
    joined = np.concatenate([part for group in groups for part in (dash, group)][1:], axis=1)
    written = pa.FixedSizeBinaryArray.from_buffers(pa.binary(36), len(valid), [None, pa.py_buffer(joined.tobytes())])
    places = pc.subtract(pc.cumulative_sum(storage.is_valid().cast(pa.int32())), 1)
    return written.cast(pa.binary()).cast(pa.string()).take(pc.if_else(storage.is_valid(), places, None))
