"""Key columns as the kernels want them: Arrow columns in, canonical int64 values or canonical bytes out, and back.

One numeric-like column becomes int64 values; a string, binary or decimal column its bytes; several columns the tagged
bytes of `key_kernels`. Equal canonical keys are equal keys: int32 5 is int64 5, every NaN is one key, -0.0 is 0.0, NULL
is a key of its own and not the empty string.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamtopology.contract.errors import InvalidInput
from streamtopology.jobs.lazy import LazyModule

if TYPE_CHECKING:
    from streamtopology.jobs.columnar import key_kernels
    from streamtopology.routing.table import hashing
else:
    key_kernels = LazyModule("streamtopology.jobs.columnar.key_kernels")
    hashing = LazyModule("streamtopology.routing.table.hashing")

NO_NULLS = np.empty(0, dtype=np.bool_)
NO_VALUES = np.empty(0, dtype=np.int64)
NO_OFFSETS = np.zeros(1, dtype=np.int64)
NO_DATA = np.empty(0, dtype=np.uint8)
LARGEST_INT32 = np.iinfo(np.int32).max


class KeyTypeError(InvalidInput):
    """A key names a column that is not there, or of a type that cannot be a key."""


@dataclass(frozen=True, eq=False)
class KeyColumns:
    """The keys of n rows. `kind` says which of the two forms is filled; the other has length 0.

    types: the key columns' names and Arrow types (dictionaries as their value type).
    values: int64[n], kind "int64".
    offsets: int64[n + 1] and data: uint8[], kind "bytes"; offsets need not start at 0.
    valid: bool[n], or None when no key is NULL; always None for composite keys, whose NULLs are in the bytes.

    >>> keys = KeyColumns.from_arrow(pa.record_batch({"sensor": [7, 8], "celsius": [20.5, 3.0]}), ("sensor",))
    >>> len(keys), keys.values, keys.decode()[0].to_pylist()
    (2, array([7, 8]), [7, 8])
    """

    types: pa.Schema
    values: np.ndarray
    offsets: np.ndarray
    data: np.ndarray
    valid: np.ndarray | None

    @staticmethod
    def from_arrow(batch: pa.RecordBatch, key: Sequence[str]) -> KeyColumns:
        """The keys of `batch` made of the columns named by `key`; no column: every row has the same, empty key."""
        missing = [name for name in key if name not in batch.schema.names]
        if missing:
            raise KeyTypeError(f"key column {missing[0]!r} is not among the columns {', '.join(batch.schema.names)}")
        return KeyColumns.from_arrays([batch.column(name) for name in key], key, batch.num_rows)

    @staticmethod
    def from_arrays(arrays: Sequence[pa.Array], names: Sequence[str], rows: int) -> KeyColumns:
        """The keys made of `arrays`, each of length `rows`. Raises KeyTypeError for a type that cannot be a key."""
        flat = [_flat(array, name) for array, name in zip(arrays, names, strict=True)]
        types = pa.schema([pa.field(name, array.type) for name, array in zip(names, flat, strict=True)])
        columns = [_canonical(array) for array in flat]
        if len(columns) == 1:
            column = columns[0]
            return KeyColumns(types, column.values, column.offsets, column.data, column.valid)
        offsets, data = _tagged(columns, rows)
        return KeyColumns(types, NO_VALUES, offsets, data, None)

    @staticmethod
    def of_values(types: pa.Schema, values: np.ndarray, valid: np.ndarray | None) -> KeyColumns:
        """Keys of kind "int64" that are canonical already."""
        return KeyColumns(types, values, NO_OFFSETS, NO_DATA, valid)

    @staticmethod
    def of_bytes(types: pa.Schema, offsets: np.ndarray, data: np.ndarray, valid: np.ndarray | None) -> KeyColumns:
        """Keys of kind "bytes" that are canonical already."""
        return KeyColumns(types, NO_VALUES, offsets, data, valid)

    @cached_property
    def kind(self) -> Literal["int64", "bytes"]:
        return key_kind(self.types)

    def __len__(self) -> int:
        return self.values.size if self.kind == "int64" else self.offsets.size - 1

    @cached_property
    def hashes(self) -> np.ndarray:
        """uint64[n]: the hash that routes each key."""
        if self.kind == "int64":
            return hashing.hash_int64(self.values, self.valid)
        return hashing.hash_bytes(self.offsets, self.data, self.valid)

    def with_hashes(self, hashes: np.ndarray) -> KeyColumns:
        """The same keys with their hashes (uint64[n]) known already, as when they came through the exchange."""
        keys = KeyColumns(self.types, self.values, self.offsets, self.data, self.valid)
        keys.__dict__["hashes"] = hashes
        return keys

    def take(self, indices: np.ndarray) -> KeyColumns:
        """The keys at `indices` (int64[m]), in that order; the bytes are copied."""
        valid = None if self.valid is None else self.valid[indices]
        if self.kind == "int64":
            return KeyColumns.of_values(self.types, self.values[indices], valid)
        starts = self.offsets[indices]
        offsets = _offsets_of(self.offsets[1:][indices] - starts)
        return KeyColumns.of_bytes(self.types, offsets, _gathered(starts, offsets, self.data), valid)

    def decode(self, may_widen: bool = False) -> list[pa.Array]:
        """One array a key column, of the type in `types`. Floats come back canonical (one NaN, no -0.0).

        may_widen: a string or binary column of 2 GiB and more comes back as its large type; else that raises KeyTypeError.
        """
        if len(self.types) == 1:
            column = _Column(self.values, self.offsets, self.data, self.valid)
            return [_to_arrow(column, self.types.field(0).type, may_widen)]
        cursors = self.offsets[:-1].copy()
        return [_to_arrow(_untagged(self.data, cursors, field.type), field.type, may_widen) for field in self.types]


def key_kind(types: pa.Schema) -> Literal["int64", "bytes"]:
    """The canonical form of keys of these types."""
    return "int64" if len(types) == 1 and _is_fixed(types.field(0).type) else "bytes"


def key_types(schema: pa.Schema, key: Sequence[str]) -> pa.Schema:
    """The names and types that keys of `key` over `schema` decode to. Raises KeyTypeError."""
    empty = pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in schema], schema=schema)
    return KeyColumns.from_arrow(empty, key).types


def widened(type_: pa.DataType) -> pa.DataType:
    """The large type of strings or binaries, which holds more than 2 GiB; any other type is its own."""
    if pa.types.is_string(type_):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary(type_) else type_


@dataclass(frozen=True, eq=False)
class _Column:
    """One canonical column: `values`, or `offsets` and `data`; `valid` None when no row is NULL."""

    values: np.ndarray
    offsets: np.ndarray
    data: np.ndarray
    valid: np.ndarray | None

    @property
    def fixed(self) -> bool:
        return self.offsets is NO_OFFSETS


def _is_fixed(type_: pa.DataType) -> bool:
    t = pa.types
    tests = (t.is_integer, t.is_floating, t.is_boolean, t.is_temporal, t.is_null)
    return any(test(type_) for test in tests) and not pa.types.is_interval(type_)


def _is_variable(type_: pa.DataType) -> bool:
    t = pa.types
    return any(test(type_) for test in (t.is_string, t.is_binary, t.is_large_string, t.is_large_binary))


def _is_view(type_: pa.DataType) -> bool:
    return pa.types.is_string_view(type_) or pa.types.is_binary_view(type_)


def _is_blocks(type_: pa.DataType) -> bool:
    return pa.types.is_fixed_size_binary(type_) or pa.types.is_decimal(type_)


def _flat(array: pa.Array, name: str) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    type_ = array.type
    if not any(test(type_) for test in (_is_fixed, _is_variable, _is_view, _is_blocks)):
        raise KeyTypeError(
            f"column {name!r} of type {type_} cannot be a key; "
            "numbers, booleans, dates, times, strings, binary and decimals can: name the fields you mean"
        )
    return array


def _canonical(array: pa.Array) -> _Column:
    type_ = array.type
    if _is_view(type_):
        wide = pa.large_string() if pa.types.is_string_view(type_) else pa.large_binary()
        return _canonical(array.cast(wide))
    valid = _validity(array)
    if _is_fixed(type_):
        return _Column(_int64_values(array), NO_OFFSETS, NO_DATA, valid)
    if _is_blocks(type_):
        width = type_.byte_width
        data = _buffer(array, 1, np.dtype(np.uint8), width)
        return _Column(NO_VALUES, np.arange(len(array) + 1, dtype=np.int64) * width, data, valid)
    narrow = pa.types.is_string(type_) or pa.types.is_binary(type_)
    return _Column(NO_VALUES, _offsets(array, np.dtype(np.int32 if narrow else np.int64)), _bytes(array), valid)


def _validity(array: pa.Array) -> np.ndarray | None:
    if array.null_count == 0:
        return None
    return array.is_valid().to_numpy(zero_copy_only=False)


def _buffer(array: pa.Array, index: int, dtype: np.dtype, per_row: int = 1) -> np.ndarray:
    """The array's own part of one of its buffers."""
    buffer = array.buffers()[index]
    if buffer is None or len(array) == 0:
        return np.zeros(len(array) * per_row, dtype=dtype)
    first = array.offset * per_row
    return np.frombuffer(buffer, dtype=dtype)[first : first + len(array) * per_row]


def _offsets(array: pa.Array, dtype: np.dtype) -> np.ndarray:
    if len(array) == 0:
        return np.zeros(1, dtype=np.int64)
    offsets = np.frombuffer(array.buffers()[1], dtype=dtype)[array.offset : array.offset + len(array) + 1]
    return offsets.astype(np.int64)


def _bytes(array: pa.Array) -> np.ndarray:
    buffer = array.buffers()[2]
    return NO_DATA if buffer is None else np.frombuffer(buffer, dtype=np.uint8)


def _int64_values(array: pa.Array) -> np.ndarray:
    type_ = array.type
    if pa.types.is_null(type_):
        return np.zeros(len(array), dtype=np.int64)
    if pa.types.is_boolean(type_):
        return pc.fill_null(array, False).to_numpy(zero_copy_only=False).astype(np.int64)
    values = _buffer(array, 1, _numpy_type(type_))
    if pa.types.is_floating(type_):
        return hashing.canonical_float(values.astype(np.float64))
    return values.view(np.int64) if values.dtype.itemsize == 8 else values.astype(np.int64)


def _numpy_type(type_: pa.DataType) -> np.dtype:
    width = type_.bit_width // 8
    if pa.types.is_floating(type_):
        return np.dtype(f"f{width}")
    return np.dtype(f"{'u' if pa.types.is_unsigned_integer(type_) else 'i'}{width}")


def _offsets_of(lengths: np.ndarray) -> np.ndarray:
    offsets = np.zeros(lengths.size + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _gathered(starts: np.ndarray, offsets: np.ndarray, data: np.ndarray) -> np.ndarray:
    out = np.empty(int(offsets[-1]), dtype=np.uint8)
    key_kernels.gather_bytes(starts, offsets, data, out)
    return out


def _tagged(columns: Iterable[_Column], rows: int) -> tuple[np.ndarray, np.ndarray]:
    columns = list(columns)
    lengths = np.zeros(rows, dtype=np.int64)
    for column in columns:
        body = key_kernels.FIXED_BYTES if column.fixed else key_kernels.LENGTH_BYTES + np.diff(column.offsets)
        lengths += key_kernels.TAG_BYTES
        lengths += body if column.valid is None else np.where(column.valid, body, 0)
    offsets = _offsets_of(lengths)
    data = np.empty(int(offsets[-1]), dtype=np.uint8)
    cursors = offsets[:-1].copy()
    for column in columns:
        valid = NO_NULLS if column.valid is None else column.valid
        if column.fixed:
            key_kernels.put_fixed(column.values, valid, cursors, data)
        else:
            key_kernels.put_variable(column.offsets, column.data, valid, cursors, data)
    return offsets, data


def _untagged(data: np.ndarray, cursors: np.ndarray, type_: pa.DataType) -> _Column:
    rows = cursors.size
    valid = np.empty(rows, dtype=np.bool_)
    if _is_fixed(type_):
        values = np.empty(rows, dtype=np.int64)
        key_kernels.get_fixed(data, cursors, values, valid)
        return _Column(values, NO_OFFSETS, NO_DATA, valid)
    starts, lengths = np.empty(rows, dtype=np.int64), np.empty(rows, dtype=np.int64)
    key_kernels.get_variable_starts(data, cursors, starts, lengths, valid)
    offsets = _offsets_of(lengths)
    return _Column(NO_VALUES, offsets, _gathered(starts, offsets, data), valid)


def _to_arrow(column: _Column, type_: pa.DataType, may_widen: bool = False) -> pa.Array:
    if pa.types.is_null(type_):
        return pa.nulls(column.values.size)
    bitmap, nulls = _bitmap(column.valid)
    if _is_fixed(type_):
        body = [pa.py_buffer(_from_int64(column.values, type_))]
        return pa.Array.from_buffers(type_, column.values.size, [bitmap, *body], null_count=nulls)
    rows = column.offsets.size - 1
    if _is_view(type_):
        wide = pa.large_string() if pa.types.is_string_view(type_) else pa.large_binary()
        return _to_arrow(column, wide).cast(type_)
    if _is_blocks(type_):
        blocks = np.zeros(rows * type_.byte_width, dtype=np.uint8)
        key_kernels.spread_bytes(column.offsets, column.data, type_.byte_width, blocks)
        return pa.Array.from_buffers(type_, rows, [bitmap, pa.py_buffer(blocks)], null_count=nulls)
    first, last = column.offsets[0], column.offsets[-1]
    offsets = column.offsets - first
    if last - first > LARGEST_INT32 and may_widen:
        type_ = widened(type_)
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        if last - first > LARGEST_INT32:
            raise KeyTypeError(f"{last - first:,} bytes of keys do not fit one {type_} column: use large_{type_}")
        offsets = offsets.astype(np.int32)
    buffers = [bitmap, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(column.data[first:last]))]
    return pa.Array.from_buffers(type_, rows, buffers, null_count=nulls)


def _from_int64(values: np.ndarray, type_: pa.DataType) -> np.ndarray:
    if pa.types.is_boolean(type_):
        return np.packbits(values.astype(np.bool_), bitorder="little")
    target = _numpy_type(type_)
    source = values.view(np.float64) if pa.types.is_floating(type_) else values
    return np.ascontiguousarray(source).astype(target, copy=False)


def _bitmap(valid: np.ndarray | None) -> tuple[pa.Buffer | None, int]:
    if valid is None or valid.all():
        return None, 0
    return pa.py_buffer(np.packbits(valid, bitorder="little")), int(valid.size - np.count_nonzero(valid))
