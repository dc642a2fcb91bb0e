"""State as bytes: an Arrow stream behind a small header that distinguishes a damaged or newer file from a good one.

Header, little-endian: 8 bytes magic, uint16 format version, uint16 zero, uint64 length of the stream, uint32 CRC-32 of
all the rest. Not compressed: counts and hashes hardly shrink, and a delta is on the batch's path.

A large snapshot is written in parts, as format 3: the magic, version, uint16 and uint32 zero; then each part as uint64
length, uint64 CRC-32, Arrow stream; at last a part of length 0. Each CRC-32 covers all streams and lengths before it, so no
part can be missing.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

import pyarrow as pa

from streamtopology.contract.errors import UnreadableData
from streamtopology.jobs.columnar.ipc import stream_size, write_stream
from streamtopology.jobs.state.schema import StateError

MAGIC = b"STstate\n"
FORMAT_VERSION = 2
"""2: a delta may be marked with an ownership (its schema's metadata), which format 1 did not know."""

PARTS_VERSION = 3
"""The format of snapshots in several parts; one part alone is of format 2, which the version before this one reads."""

_HEAD = struct.Struct("<8sHHQ")
_PARTS_HEAD = struct.Struct("<8sHHI")
_PART = struct.Struct("<QQ")
_CHECKSUM = struct.Struct("<I")
_HEADER_BYTES = _HEAD.size + _CHECKSUM.size

AT_ONCE = 1 << 20
ALL = 1 << 50
"""A number of bytes beyond the end of any file."""

Read = Callable[[int, int], bytes | memoryview]
"""Reads a file from a byte on: as many bytes as are asked for, or all that follow."""

_WHAT_TO_DO = (
    "`streamtopology state check` names all such files and the batch to roll back to; else put the file back from a copy of "
    "the checkpoint, or start with an empty one (the sources are read from their start again)"
)


class StateFileError(UnreadableData, StateError):
    """A state file cannot be used; the message names it, says why and what can be done."""


def encode(rows: pa.RecordBatch) -> memoryview:
    """A snapshot or delta as the content of one file."""
    length = stream_size(rows)
    buffer = pa.allocate_buffer(_HEADER_BYTES + length)
    file = memoryview(buffer).cast("B")
    head = _HEAD.pack(MAGIC, FORMAT_VERSION, 0, length)
    with pa.FixedSizeBufferWriter(buffer) as stream:
        stream.write(head + bytes(_CHECKSUM.size))
        write_stream(rows, stream)
    _CHECKSUM.pack_into(file, _HEAD.size, zlib.crc32(file[_HEADER_BYTES:], zlib.crc32(head)))
    return file


def encode_parts(parts: Iterable[pa.RecordBatch]) -> Iterator[memoryview]:
    """A snapshot, given in parts, as the content of one file, piece by piece: no more than a part of it is in memory."""
    coming = iter(parts)
    first, second = next(coming), next(coming, None)
    if second is None:
        yield encode(first)
        return
    head = _PARTS_HEAD.pack(MAGIC, PARTS_VERSION, 0, 0)
    yield memoryview(head)
    checksum = zlib.crc32(head)
    for rows in chain((first, second), coming):
        part, checksum = _part(rows, checksum)
        yield part
    yield memoryview(_end(checksum))


def _part(rows: pa.RecordBatch, before: int) -> tuple[memoryview, int]:
    """One part with its header, and the checksum up to its end."""
    length = stream_size(rows)
    buffer = pa.allocate_buffer(_PART.size + length)
    part = memoryview(buffer).cast("B")
    with pa.FixedSizeBufferWriter(buffer) as stream:
        stream.write(bytes(_PART.size))
        write_stream(rows, stream)
    checksum = zlib.crc32(part[_PART.size :], zlib.crc32(length.to_bytes(8, "little"), before))
    _PART.pack_into(part, 0, length, checksum)
    return part, checksum


def _end(before: int) -> bytes:
    return _PART.pack(0, zlib.crc32(bytes(8), before))


def decode(data: bytes | memoryview, name: str) -> pa.RecordBatch:
    """The snapshot or delta that `encode` was given; shares the memory of `data`. Raises StateFileError naming it."""
    (rows,) = decode_parts(data, name)
    return rows


def decode_parts(data: bytes | memoryview, name: str) -> Iterator[pa.RecordBatch]:
    """The parts of a snapshot, or the one of a delta; they share the memory of `data`. Raises StateFileError naming it.

    What has come before an error is good, but not all.
    """
    view = memoryview(data)
    return _decode_read(lambda start, length: view[start : start + length], view[: _PARTS_HEAD.size + _PART.size], name)


def decode_read(read: Read, name: str) -> Iterator[pa.RecordBatch]:
    """As `decode_parts`, of a file that is read part by part; a small one at once."""
    start = memoryview(read(0, AT_ONCE))
    if len(start) < AT_ONCE:
        return decode_parts(start, name)
    return _decode_read(read, start, name)


def _decode_read(read: Read, start: memoryview, name: str) -> Iterator[pa.RecordBatch]:
    if start[: _PARTS_HEAD.size] != _PARTS_HEAD.pack(MAGIC, PARTS_VERSION, 0, 0):
        yield _decode_whole(read(0, ALL), name)
        return
    at, before = _PARTS_HEAD.size, zlib.crc32(start[: _PARTS_HEAD.size])
    part = start[at : at + _PART.size]
    while True:
        if len(part) < _PART.size:
            raise _unusable(name, f"is cut short: its parts end after {at + len(part):,} bytes without a last one")
        length, checksum = _PART.unpack(part)
        body = memoryview(read(at + _PART.size, min(length + _PART.size, ALL)))
        before = zlib.crc32(body[:length], zlib.crc32(part[:8], before))
        if len(body) < length or checksum != before:
            raise _unusable(name, f"is damaged or cut short: the checksum of the part at byte {at:,} does not fit")
        at += _PART.size + length
        if not length:
            break
        part = body[length:]
        yield _rows(body[:length])
    if len(body):
        raise _unusable(name, "holds more bytes after its last part")


def _decode_whole(data: bytes | memoryview, name: str) -> pa.RecordBatch:
    if len(data) < _HEADER_BYTES:
        raise _unusable(name, f"is cut short: {len(data)} bytes, less than its header")
    magic, version, _, length = _HEAD.unpack_from(data)
    if magic != MAGIC:
        raise _unusable(name, "is not a state file, or its first bytes are damaged")
    if version > PARTS_VERSION:
        raise StateFileError(
            f"state file {name} has format {version}; this version reads up to {PARTS_VERSION}: "
            "use the version of streamtopology that wrote it, or a newer one"
        )
    body = memoryview(data)[_HEADER_BYTES:]
    if len(body) != length:
        raise _unusable(name, f"holds {len(body):,} bytes of state where its header says {length:,}")
    (checksum,) = _CHECKSUM.unpack_from(data, _HEAD.size)
    if zlib.crc32(body, zlib.crc32(data[: _HEAD.size])) != checksum:
        raise _unusable(name, "is damaged: its checksum does not fit its content")
    return _rows(body)


def _rows(body: memoryview) -> pa.RecordBatch:
    with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
        return reader.read_next_batch()


def _unusable(name: str, what: str) -> StateFileError:
    return StateFileError(f"state file {name} {what}; {_WHAT_TO_DO}")
