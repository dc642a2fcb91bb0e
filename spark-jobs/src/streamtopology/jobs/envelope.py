"""What travels between two stages: one envelope per task and target place.

Pinning zips a stage's shuffled rows with its anchors, so every task must send exactly one row to every place. That row
is an envelope of sections: rows for an instance, state that moves, reports for the driver. Section payloads start at
multiples of 64 bytes, so that what the receiver maps is aligned and copied nowhere.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum

import pyarrow as pa

from streamtopology.jobs.arrow_streams import stream_size, write_stream

_HEADER = struct.Struct("<BxHIIQ44x")  # kind, name length, instance, order, payload length; 64 bytes
_ALIGNMENT = 64


class Kind(IntEnum):
    """ROWS: tuples of an edge. MOVED: state that changes its owner. REPORT: JSON for the driver."""

    ROWS = 1
    MOVED = 2
    REPORT = 3


@dataclass(frozen=True)
class Section:
    """`target` names the node (ROWS: `node/alias`); `order` is the sending task, so that receivers can sort."""

    kind: Kind
    target: str
    instance: int
    order: int
    payload: pa.Buffer

    def batch(self) -> pa.RecordBatch:
        """The payload as a record batch, mapped in place."""
        return pa.ipc.open_stream(self.payload).read_next_batch()


@dataclass
class Envelope:
    """The sections a task sends to one place, written at the end into one buffer."""

    _sections: list[tuple[bytes, pa.RecordBatch | pa.Buffer | bytes, int]] = field(default_factory=list)
    """Header with name and padding, content, bytes of the content."""

    _size: int = 0

    def add_batch(self, kind: Kind, target: str, instance: int, order: int, batch: pa.RecordBatch) -> None:
        self._add(kind, target, instance, order, batch, stream_size(batch))

    def add_bytes(self, kind: Kind, target: str, instance: int, order: int, payload: bytes | pa.Buffer) -> None:
        self._add(kind, target, instance, order, payload, memoryview(payload).nbytes)

    def forward(self, section: Section) -> None:
        """Pass a section on as it came."""
        self.add_bytes(section.kind, section.target, section.instance, section.order, section.payload)

    def seal(self) -> pa.Buffer:
        buffer = pa.allocate_buffer(self._size)
        with pa.FixedSizeBufferWriter(buffer) as stream:
            for head, content, size in self._sections:
                stream.write(head)
                if isinstance(content, pa.RecordBatch):
                    write_stream(content, stream)
                else:
                    stream.write(content)
                stream.write(_padding(size))
        return buffer

    def _add(
        self, kind: Kind, target: str, instance: int, order: int, content: pa.RecordBatch | pa.Buffer | bytes, size: int
    ) -> None:
        name = target.encode()
        head = _HEADER.pack(kind, len(name), instance, order, size) + name + _padding(len(name))
        self._sections.append((head, content, size))
        self._size += len(head) + size + len(_padding(size))


def _padding(size: int) -> bytes:
    """What follows `size` bytes up to the next multiple of the alignment."""
    return b"\0" * (-size % _ALIGNMENT)


def sections(buffer: pa.Buffer) -> Iterator[Section]:
    """The sections of one sealed envelope, payloads as views into it."""
    at = 0
    while at < buffer.size:
        kind, name_size, instance, order, size = _HEADER.unpack_from(buffer, at)
        at += _HEADER.size
        target = buffer.slice(at, name_size).to_pybytes().decode()
        at += name_size + -name_size % _ALIGNMENT
        yield Section(Kind(kind), target, instance, order, buffer.slice(at, size))
        at += size + -size % _ALIGNMENT
