"""Envelopes, all that a task of one stage sends to one partition of the next: rows, state that moves, reports.

One envelope, and not one message for each instance or key, so that a shuffle moves *executors x executors* blobs however
many tuples and instances there are. Spark passes them as opaque bytes.

Pinning zips a stage's shuffled blobs with its anchors, so every task must send the same number of blobs to every partition:
one, or several of an attempt whose envelopes are large. A blob is a list of sections. Their payloads start at multiples of 64
bytes, so that the receiver maps them aligned, without a copy.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

import pyarrow as pa

from streamtopology.jobs.columnar.ipc import stream_size, write_stream

_HEADER = struct.Struct("<BxHIIQI40x")  # kind, name length, instance, order, payload length, sequence; 64 bytes
_ALIGNMENT = 64
# Size of a section's rows: more are divided, so that blobs can be about as large.
SECTION_BYTES = 16 << 20


class EnvelopeKind(IntEnum):
    """ROWS: tuples of an edge. MOVED: state that changes its owner. REPORT: a report to the driver."""

    ROWS = 1
    MOVED = 2
    REPORT = 3


@dataclass(frozen=True)
class Section:
    """`target` names the node (ROWS: `node/alias`). `order` is the sending task, and `sequence` the place of the section among
    those that it sent to the partition, so that receivers can sort.
    """

    kind: EnvelopeKind
    target: str
    instance: int
    order: int
    payload: pa.Buffer
    sequence: int = 0

    @property
    def place(self) -> tuple[int, int]:
        """The place among the sections of all tasks."""
        return self.order, self.sequence

    def batch(self) -> pa.RecordBatch:
        """The payload as a record batch, mapped in place."""
        return pa.ipc.open_stream(self.payload).read_next_batch()


_Content = pa.RecordBatch | pa.Buffer | bytes


class _Written(NamedTuple):
    """A section as it will be written: header with name and padding, content, bytes of the content."""

    head: bytes
    content: _Content
    size: int

    @property
    def total(self) -> int:
        """Bytes with header and padding."""
        return len(self.head) + self.size + -self.size % _ALIGNMENT


@dataclass
class Envelope:
    """The sections that a task sends to one partition, written into buffers at the end. `size`: their bytes."""

    size: int = 0
    _sections: list[_Written] = field(default_factory=list)

    def add_batch(self, kind: EnvelopeKind, target: str, instance: int, order: int, batch: pa.RecordBatch) -> None:
        """Add a batch, halved until its parts are small."""
        size = stream_size(batch)
        if size <= SECTION_BYTES or batch.num_rows < 2:
            self._add(kind, target, instance, order, batch, size, len(self._sections))
            return
        half = batch.num_rows // 2
        for part in (batch.slice(0, half), batch.slice(half)):
            self.add_batch(kind, target, instance, order, part)

    def add_bytes(self, kind: EnvelopeKind, target: str, instance: int, order: int, payload: bytes | pa.Buffer) -> None:
        self._add(kind, target, instance, order, payload, memoryview(payload).nbytes, len(self._sections))

    def forward(self, section: Section) -> None:
        """Pass a section on as it came."""
        size = section.payload.size
        self._add(section.kind, section.target, section.instance, section.order, section.payload, size, section.sequence)

    def seal(self, blobs: int = 1) -> list[pa.Buffer]:
        """Write the sections, in their order, into this number of blobs of about the same size."""
        if blobs == 1:
            return [_buffer(self._sections, self.size)]
        shared: list[list[_Written]] = [[] for _ in range(blobs)]
        at = 0
        for section in self._sections:
            shared[min(at * blobs // self.size, blobs - 1)].append(section)
            at += section.total
        return [_buffer(part, sum(section.total for section in part)) for part in shared]

    def _add(
        self, kind: EnvelopeKind, target: str, instance: int, order: int, content: _Content, size: int, sequence: int
    ) -> None:
        name = target.encode()
        head = _HEADER.pack(kind, len(name), instance, order, size, sequence) + name + _padding(len(name))
        self._sections.append(_Written(head, content, size))
        self.size += self._sections[-1].total


def _buffer(sections: Iterable[_Written], size: int) -> pa.Buffer:
    buffer = pa.allocate_buffer(size)
    with pa.FixedSizeBufferWriter(buffer) as stream:
        for section in sections:
            stream.write(section.head)
            if isinstance(section.content, pa.RecordBatch):
                write_stream(section.content, stream)
            else:
                stream.write(section.content)
            stream.write(_padding(section.size))
    return buffer


def _padding(size: int) -> bytes:
    """Zero bytes from `size` up to the next multiple of the alignment."""
    return b"\0" * (-size % _ALIGNMENT)


def sections(buffer: pa.Buffer) -> Iterator[Section]:
    """The sections of one blob, payloads as views into it."""
    at = 0
    while at < buffer.size:
        kind, name_size, instance, order, size, sequence = _HEADER.unpack_from(buffer, at)
        at += _HEADER.size
        target = buffer.slice(at, name_size).to_pybytes().decode()
        at += name_size + -name_size % _ALIGNMENT
        yield Section(EnvelopeKind(kind), target, instance, order, buffer.slice(at, size), sequence)
        at += size + -size % _ALIGNMENT
