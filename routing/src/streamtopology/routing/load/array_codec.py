"""Arrays as compressed little-endian bytes: one in base64 for JSON, or several as a block."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, TypeVar

import numpy as np
import numpy.typing as npt

from streamtopology.contract.wire_values import Form, WireError

_Scalar = TypeVar("_Scalar", bound=np.generic)

# Bytes of a block when it is decompressed: eight columns of the most keys, or of the most key pairs, of a report.
LARGEST_BLOCK = 4 << 20


def pack(array: npt.NDArray[Any]) -> str:
    """The text that `unpack` reads back, given the same dtype; shapes are the caller's to know."""
    little_endian = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return base64.b64encode(zlib.compress(little_endian.tobytes(), level=1)).decode("ascii")


def unpack(text: str, dtype: type[_Scalar]) -> npt.NDArray[_Scalar]:
    """The flat array. WireError when it is damaged."""
    try:
        raw = _decompressed(base64.b64decode(text, validate=True))
        return np.frombuffer(raw, np.dtype(dtype).newbyteorder("<")).astype(dtype)
    except (binascii.Error, zlib.error, ValueError) as damage:
        raise WireError(f"is damaged: {damage}") from damage


# Fields of records that are flat arrays.
Hashes = Annotated[npt.NDArray[np.uint64], Form(pack, partial(unpack, dtype=np.uint64), str)]
Counts = Annotated[npt.NDArray[np.int64], Form(pack, partial(unpack, dtype=np.int64), str)]
Floats = Annotated[npt.NDArray[np.float64], Form(pack, partial(unpack, dtype=np.float64), str)]


def _bytes_of(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


# A field that is bytes.
Block = Annotated[bytes, Form(lambda block: base64.b64encode(block).decode("ascii"), _bytes_of, str)]


def pack_columns(columns: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Named flat arrays as one compressed block, integers as narrow as they fit; `unpack_columns` reads it back."""
    narrowed = {name: narrow(column) for name, column in columns.items()}
    header = json.dumps([[name, column.dtype.str, len(column)] for name, column in narrowed.items()]).encode()
    body = b"".join(column.tobytes() for column in narrowed.values())
    return zlib.compress(b"%d\n" % len(header) + header + body, level=1)


def unpack_columns(block: bytes) -> dict[str, npt.NDArray[Any]]:
    """The arrays of `pack_columns`: int64, uint64 or float64. ValueError: the block is damaged, or of no use to anyone."""
    try:
        length, _, rest = _decompressed(block).partition(b"\n")
        at, columns = int(length), dict[str, npt.NDArray[Any]]()
        for name, dtype, count in json.loads(rest[:at]):
            found = np.frombuffer(rest, np.dtype(_known(dtype)), int(count), at)
            at += found.nbytes
            columns[str(name)] = found.astype(_WIDE[found.dtype.kind], copy=False)
    except (zlib.error, TypeError, AttributeError, OverflowError) as damage:
        raise ValueError(f"a block of columns is damaged: {damage}") from damage
    return columns


_WIDE = {"i": np.int64, "u": np.uint64, "f": np.float64}
_KNOWN = ("<f4", "<f8", "<u8", "|i1", "<i2", "<i4", "<i8")


def _known(dtype: object) -> str:
    if dtype not in _KNOWN:
        raise ValueError(f"a block of columns has one of type {dtype!r}; expected one of {', '.join(_KNOWN)}")
    return str(dtype)


def narrow(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Little-endian; signed integers in the fewest bytes that hold them all."""
    if column.dtype.kind == "i":
        lowest = min(int(column.min()), ~int(column.max())) if len(column) else -1
        column = column.astype(np.min_scalar_type(lowest))
    return column.astype(column.dtype.newbyteorder("<"), copy=False)


def _decompressed(block: bytes) -> bytes:
    """ValueError: more than anybody would send, which is no mistake but an attack on the reader's memory."""
    reader = zlib.decompressobj()
    content = reader.decompress(block, LARGEST_BLOCK)
    if not reader.eof:
        raise ValueError(f"a block is cut short, or holds more than {LARGEST_BLOCK >> 20} MiB")
    return content
