"""Kernels that turn key columns into one run of bytes a row and back.

A composite key is the concatenation of its columns, each a tag byte (0 NULL, 1 value) and, for a value, 8 bytes
little-endian or a 4-byte little-endian length and that many bytes. The tag and the length make it prefix-free, so that
("a", "b") and ("ab", "") are different keys.

`valid` of length 0 means that no row is NULL. `cursors` are int64 positions, one a row, moved on by each column.
Signatures are written out so that Arrow's read-only buffers and numpy's own arrays share one compiled kernel.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types

Int64s = types.Array(types.int64, 1, "C", readonly=True)
Bytes = types.Array(types.uint8, 1, "C", readonly=True)
Flags = types.Array(types.boolean, 1, "C", readonly=True)
Int64sOut = types.Array(types.int64, 1, "C")
BytesOut = types.Array(types.uint8, 1, "C")
FlagsOut = types.Array(types.boolean, 1, "C")

TAG_BYTES = 1
FIXED_BYTES = 8
LENGTH_BYTES = 4


@njit(types.void(Int64s, Flags, Int64sOut, BytesOut), cache=True, nogil=True)
def put_fixed(values, valid, cursors, out):
    """Write one int64 column at each row's cursor."""
    has_nulls = valid.size > 0
    for row in range(values.size):
        position = cursors[row]
        if has_nulls and not valid[row]:
            out[position] = 0
            cursors[row] = position + 1
            continue
        out[position] = 1
        value = np.uint64(values[row])
        for byte in range(8):
            out[position + 1 + byte] = np.uint8((value >> np.uint64(8 * byte)) & np.uint64(255))
        cursors[row] = position + 9


@njit(types.void(Int64s, Bytes, Flags, Int64sOut, BytesOut), cache=True, nogil=True)
def put_variable(offsets, data, valid, cursors, out):
    """Write one column of bytes at each row's cursor."""
    has_nulls = valid.size > 0
    for row in range(offsets.size - 1):
        position = cursors[row]
        if has_nulls and not valid[row]:
            out[position] = 0
            cursors[row] = position + 1
            continue
        start = offsets[row]
        length = offsets[row + 1] - start
        out[position] = 1
        for byte in range(4):
            out[position + 1 + byte] = np.uint8((length >> (8 * byte)) & 255)
        for byte in range(length):
            out[position + 5 + byte] = data[start + byte]
        cursors[row] = position + 5 + length


@njit(types.void(Bytes, Int64sOut, Int64sOut, FlagsOut), cache=True, nogil=True)
def get_fixed(data, cursors, values, valid):
    """Read one int64 column at each row's cursor into `values` and `valid`."""
    for row in range(cursors.size):
        position = cursors[row]
        if data[position] == 0:
            valid[row] = False
            values[row] = 0
            cursors[row] = position + 1
            continue
        valid[row] = True
        value = np.uint64(0)
        for byte in range(8):
            value |= np.uint64(data[position + 1 + byte]) << np.uint64(8 * byte)
        values[row] = np.int64(value)
        cursors[row] = position + 9


@njit(types.void(Bytes, Int64sOut, Int64sOut, Int64sOut, FlagsOut), cache=True, nogil=True)
def get_variable_starts(data, cursors, starts, lengths, valid):
    """Find where one column's bytes lie in each row; NULL has length 0."""
    for row in range(cursors.size):
        position = cursors[row]
        if data[position] == 0:
            valid[row] = False
            starts[row] = position
            lengths[row] = 0
            cursors[row] = position + 1
            continue
        valid[row] = True
        length = np.int64(0)
        for byte in range(4):
            length |= np.int64(data[position + 1 + byte]) << (8 * byte)
        starts[row] = position + 5
        lengths[row] = length
        cursors[row] = position + 5 + length


@njit(types.void(Int64s, Int64s, Bytes, BytesOut), cache=True, nogil=True)
def gather_bytes(starts, offsets, data, out):
    """Copy the bytes from starts[row] to out[offsets[row]:offsets[row + 1]]."""
    for row in range(starts.size):
        source = starts[row]
        target = offsets[row]
        for byte in range(offsets[row + 1] - target):
            out[target + byte] = data[source + byte]


@njit(types.void(Int64s, Bytes, types.int64, BytesOut), cache=True, nogil=True)
def spread_bytes(offsets, data, width, out):
    """Lay every row that has `width` bytes at row * width; the other (NULL) rows are left as they are."""
    for row in range(offsets.size - 1):
        start = offsets[row]
        if offsets[row + 1] - start == width:
            for byte in range(width):
                out[row * width + byte] = data[start + byte]
