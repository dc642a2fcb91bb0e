"""The keys and items of maps, row by row."""

from __future__ import annotations

import pyarrow as pa


def lists_of(column: pa.MapArray, part: pa.Array) -> pa.ListArray:
    """`part`, which has an element for each of `column.keys`, as a list for each row; NULL maps are NULL lists."""
    offsets = pa.array(column.offsets.to_numpy())
    return pa.ListArray.from_arrays(offsets, part, mask=column.is_null())
