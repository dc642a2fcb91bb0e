"""State as bytes: an Arrow stream behind a small header that tells a damaged or newer file from a good one.

Header, little-endian: 8 bytes magic, uint16 format version, uint16 zero, uint64 length of the stream, uint32 CRC-32 of
all the rest. Not compressed: counts and hashes hardly shrink, and a delta is on the batch's path.
"""

from __future__ import annotations

import struct
import zlib

import pyarrow as pa

from streamtopology.jobs.arrow_streams import stream_size, write_stream
from streamtopology.jobs.state.schema import StateError

MAGIC = b"STstate\n"
FORMAT_VERSION = 2
"""2: a delta may be marked with an ownership (its schema's metadata), which format 1 did not know."""

_HEAD = struct.Struct("<8sHHQ")
_CHECKSUM = struct.Struct("<I")
_HEADER_BYTES = _HEAD.size + _CHECKSUM.size

_WHAT_TO_DO = (
    "`streamtopology state check` names all such files and the batch to roll back to; else put the file back from a copy of "
    "the checkpoint, or start with an empty one (the sources are read from their start again)"
)


class StateFileError(StateError):
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


def decode(data: bytes | memoryview, name: str) -> pa.RecordBatch:
    """The snapshot or delta that `encode` was given; shares the memory of `data`. Raises StateFileError naming it."""
    if len(data) < _HEADER_BYTES:
        raise _unusable(name, f"is cut short: {len(data)} bytes, less than its header")
    magic, version, _, length = _HEAD.unpack_from(data)
    if magic != MAGIC:
        raise _unusable(name, "is not a state file, or its first bytes are damaged")
    if version > FORMAT_VERSION:
        raise StateFileError(
            f"state file {name} has format {version}; this version reads up to {FORMAT_VERSION}: "
            "use the version of streamtopology that wrote it, or a newer one"
        )
    body = memoryview(data)[_HEADER_BYTES:]
    if len(body) != length:
        raise _unusable(name, f"holds {len(body):,} bytes of state where its header says {length:,}")
    (checksum,) = _CHECKSUM.unpack_from(data, _HEAD.size)
    if zlib.crc32(body, zlib.crc32(data[: _HEAD.size])) != checksum:
        raise _unusable(name, "is damaged: its checksum does not fit its content")
    with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
        return reader.read_next_batch()


def _unusable(name: str, what: str) -> StateFileError:
    return StateFileError(f"state file {name} {what}; {_WHAT_TO_DO}")
