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
    """The sections a task sends to one place, written straight into one buffer."""

    _stream: pa.BufferOutputStream = field(default_factory=pa.BufferOutputStream)

    def add_batch(self, kind: Kind, target: str, instance: int, order: int, batch: pa.RecordBatch) -> None:
        measure = pa.MockOutputStream()
        with pa.ipc.new_stream(measure, batch.schema) as writer:
            writer.write_batch(batch)
        self._head(kind, target, instance, order, measure.size())
        with pa.ipc.new_stream(self._stream, batch.schema) as writer:
            writer.write_batch(batch)
        self._align(measure.size())

    def add_bytes(self, kind: Kind, target: str, instance: int, order: int, payload: bytes | pa.Buffer) -> None:
        size = memoryview(payload).nbytes
        self._head(kind, target, instance, order, size)
        self._stream.write(payload)
        self._align(size)

    def forward(self, section: Section) -> None:
        """Pass a section on as it came."""
        self.add_bytes(section.kind, section.target, section.instance, section.order, section.payload)

    def seal(self) -> pa.Buffer:
        return self._stream.getvalue()

    def _head(self, kind: Kind, target: str, instance: int, order: int, size: int) -> None:
        name = target.encode()
        self._stream.write(_HEADER.pack(kind, len(name), instance, order, size))
        self._stream.write(name)
        self._align(len(name))

    def _align(self, size: int) -> None:
        padding = -size % _ALIGNMENT
        if padding:
            self._stream.write(b"\0" * padding)


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
