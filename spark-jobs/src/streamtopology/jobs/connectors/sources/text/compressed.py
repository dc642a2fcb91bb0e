"""Compressed files: the codec is that of a file's suffix, as it is to Spark, and must be that of its content.

Snappy, and lz4 as Hadoop writes it, are forms that only Hadoop has; they are refused by name.
"""

from __future__ import annotations

import os
import re
import zlib
from typing import Protocol

import pyarrow as pa

from streamtopology.jobs.connectors.sources.descriptors import SourceError

_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4", ".br": "brotli", ".deflate": "deflate"}
# Those of compressed files, also of such as are refused.
SUFFIXES = (*_CODECS, ".snappy", ".lzo", ".xz", ".zip")
# The first bytes of compressed data, with which no text begins; brotli has none.
_CONTENTS = {
    "gzip": re.compile(rb"\x1f\x8b"),
    "bz2": re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"),
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd"),
    "lz4": re.compile(rb"\x04\x22\x4d\x18"),
    "snappy": re.compile(rb"\xff\x06\x00\x00sNaPpY"),
    "xz": re.compile(rb"\xfd7zXZ\x00"),
    "zip": re.compile(rb"PK\x03\x04"),
    "7z": re.compile(rb"7z\xbc\xaf\x27\x1c"),
}
_REMEDY = "write it with .gz, .bz2 or .zst"
_READ_BYTES = 1 << 16


class UnreadableFileError(SourceError):
    """A compressed file cannot be read to its end, or is compressed by another codec than its name says."""


class Bytes(Protocol):
    """A file that is read from its begin to its end; `read` raises OSError for what cannot be decompressed."""

    def read(self, size: int, /) -> bytes: ...

    def close(self) -> None: ...


def open_decompressed(path: str, place: str) -> Bytes:
    """The content of a file. Raises OSError, and UnreadableFileError, which names `place`, for a codec that is not read."""
    suffix = os.path.splitext(path)[1].lower()
    by_name = _CODECS.get(suffix)
    with open(path, "rb") as file:
        head = file.read(16)
    if not head:
        return pa.input_stream(path, compression=None)
    fault = _fault(suffix, by_name, head)
    if fault is not None:
        raise UnreadableFileError(f"{place}: {fault}")
    return _Deflated(path) if by_name == "deflate" else pa.input_stream(path, compression=by_name)


def _fault(suffix: str, by_name: str | None, head: bytes) -> str | None:
    """A clause on a file of this suffix and these first bytes that is not read, with what to do."""
    found = next((codec for codec, begin in _CONTENTS.items() if begin.match(head)), None)
    if found is not None and found not in _CODECS.values():
        return f"is compressed by {found}, which is not read; {_REMEDY}"
    if found is not None and found != by_name:
        right = next(suffix for suffix, codec in _CODECS.items() if codec == found)
        return (
            f"is compressed by {found}, and its name {f'says {by_name}' if by_name else 'does not say so'}; end it in {right}"
        )
    if by_name is None:
        return f"is of no known kind: {suffix} is not read; {_REMEDY}" if suffix in SUFFIXES else None
    if by_name == found or by_name == "brotli" or (by_name == "deflate" and _begins_deflated(head)):
        return None
    hadoop = ", or in a form that only Hadoop reads" if by_name == "lz4" else ""
    return (
        f"is not compressed by {by_name}, as its name says{hadoop}; take {suffix} from its name if it is a text, or {_REMEDY}"
    )


def _begins_deflated(head: bytes) -> bool:
    """By RFC 1950; a text may begin so, too."""
    return head[0] & 15 == 8 and int.from_bytes(head[:2], "big") % 31 == 0


class _Deflated:
    """A file of zlib's format, as Hadoop writes `.deflate`: one stream after the other."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "rb")  # noqa: SIM115 - `close` closes it
        self._inflater = zlib.decompressobj()

    def read(self, size: int, /) -> bytes:
        while True:
            data = self._inflater.unused_data or self._inflater.unconsumed_tail or self._file.read(_READ_BYTES)
            if self._inflater.eof:
                if not data:
                    return b""
                self._inflater = zlib.decompressobj()
            try:
                found = self._inflater.decompress(data, size)
            except zlib.error as error:
                raise OSError(str(error)) from error
            if found:
                return found
            if not data and not self._inflater.eof:
                raise OSError("it ends too early")

    def close(self) -> None:
        self._file.close()
