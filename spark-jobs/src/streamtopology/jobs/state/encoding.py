"""State as bytes: Arrow streams behind a small header that distinguishes a damaged file, or another version's, from a good one.

Little-endian: 8 bytes magic, uint16 format, uint16 and uint32 zero; then each part as uint64 length, uint64 CRC-32, Arrow
stream; at last a part of length 0. Each CRC-32 covers all streams and lengths before it, so no part can be missing. A delta,
and a small snapshot, have one part. Not compressed: counts and hashes hardly shrink, and a delta is on the batch's path.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from streamtopology.contract.errors import UnreadableData
from streamtopology.contract.format_number import FORMAT, check_format
from streamtopology.jobs.columnar.ipc import stream_size, write_stream
from streamtopology.jobs.state.schema import StateError

# Versions before 0.1.0 had another.
MAGIC = b"STstate1"

STATE_FORMAT = 1

_HEAD = struct.Struct("<8sHHI")
_PART = struct.Struct("<QQ")
_START = _HEAD.pack(MAGIC, STATE_FORMAT, 0, 0)

AT_ONCE = 1 << 20
# A number of bytes beyond the end of any file.
_MOST = 1 << 50

# Reads a file from a byte on: as many bytes as are asked for, or all that follow.
Read = Callable[[int, int], bytes | memoryview]

_WHAT_TO_DO = (
    "`streamtopology state check MANIFEST` names all such files and the batch to roll back to; else put the file back "
    "from a copy of the checkpoint, or start with an empty one (the sources are read from their start again)"
)


class StateFileError(UnreadableData, StateError):
    """A state file cannot be used; the message names it, says why and what can be done."""


def encode(rows: pa.RecordBatch) -> memoryview:
    """A delta, or a snapshot in one part, as the content of one file."""
    length = stream_size(rows)
    start, end = len(_START) + _PART.size, len(_START) + _PART.size + length
    buffer = pa.allocate_buffer(end + _PART.size)
    file = memoryview(buffer).cast("B")
    with pa.FixedSizeBufferWriter(buffer) as stream:
        stream.write(_START + bytes(_PART.size))
        write_stream(rows, stream)
    checksum = _after(file[start:end], length, zlib.crc32(_START))
    _PART.pack_into(file, len(_START), length, checksum)
    _PART.pack_into(file, end, 0, _after(b"", 0, checksum))
    return file


def encode_parts(parts: Iterable[pa.RecordBatch]) -> Iterator[memoryview]:
    """A snapshot, given in parts, as the content of one file, piece by piece: no more than a part of it is in memory."""
    yield memoryview(_START)
    checksum = zlib.crc32(_START)
    for rows in parts:
        length = stream_size(rows)
        buffer = pa.allocate_buffer(_PART.size + length)
        part = memoryview(buffer).cast("B")
        with pa.FixedSizeBufferWriter(buffer) as stream:
            stream.write(bytes(_PART.size))
            write_stream(rows, stream)
        checksum = _after(part[_PART.size :], length, checksum)
        _PART.pack_into(part, 0, length, checksum)
        yield part
    yield memoryview(_PART.pack(0, _after(b"", 0, checksum)))


def _after(stream: bytes | memoryview, length: int, before: int) -> int:
    """The checksum up to the end of a part."""
    return zlib.crc32(stream, zlib.crc32(length.to_bytes(8, "little"), before))


def decode(data: bytes | memoryview, name: str) -> pa.RecordBatch:
    """The snapshot or delta that `encode` was given; shares the memory of `data`. Raises StateFileError naming it."""
    (rows,) = decode_parts(data, name)
    return rows


def decode_parts(data: bytes | memoryview, name: str) -> Iterator[pa.RecordBatch]:
    """The parts of a snapshot, or the one of a delta; they share the memory of `data`. Raises StateFileError naming it.

    What has come before an error is good, but not all.
    """
    view = memoryview(data)
    return _decode_read(lambda start, length: view[start : start + length], view, name)


def decode_read(read: Read, name: str) -> Iterator[pa.RecordBatch]:
    """As `decode_parts`, of a file that is read part by part; a small one at once."""
    start = memoryview(read(0, AT_ONCE))
    if len(start) < AT_ONCE:
        return decode_parts(start, name)
    return _decode_read(read, start, name)


def _decode_read(read: Read, start: memoryview, name: str) -> Iterator[pa.RecordBatch]:
    _check_start(start, name)
    at, checksum = len(_START), zlib.crc32(_START)
    part = start[at : at + _PART.size]
    while True:
        if len(part) < _PART.size:
            raise _unusable(name, f"is cut short: its parts end after {at + len(part):,} bytes without a last one")
        length, written = _PART.unpack(part)
        body = memoryview(read(at + _PART.size, min(length + _PART.size, _MOST)))
        checksum = _after(body[:length], length, checksum)
        if len(body) < length or written != checksum:
            raise _unusable(name, f"is damaged or cut short: the checksum of the part at byte {at:,} does not fit")
        at += _PART.size + length
        if not length:
            break
        part = body[length:]
        yield _rows(body[:length])
    if len(body):
        raise _unusable(name, "holds more bytes after its last part")


def _check_start(start: memoryview, name: str) -> None:
    if len(start) < len(_START):
        raise _unusable(name, f"is cut short: {len(start)} bytes, less than its header")
    magic, version, _, _ = _HEAD.unpack_from(start)
    if magic != MAGIC:
        raise _unusable(name, "is not a state file, or its first bytes are damaged")
    check_format({FORMAT: version}, STATE_FORMAT, f"state file {name}", "use that version", StateFileError)
    if start[: len(_START)] != _START:
        raise _unusable(name, "is damaged: its header says what no version writes")


def _rows(body: memoryview) -> pa.RecordBatch:
    with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
        return reader.read_next_batch()


def _unusable(name: str, what: str) -> StateFileError:
    return StateFileError(f"state file {name} {what}; {_WHAT_TO_DO}")
