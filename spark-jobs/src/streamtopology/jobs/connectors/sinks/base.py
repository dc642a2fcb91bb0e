"""The port of a sink: the driver publishes the outputs that tasks have staged, after the batch's commit.

A restart publishes the last committed batch again, so a sink must recognise a batch that it already holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from streamtopology.contract.errors import StreamTopologyError

_FILE_MAGIC = b"ARROW1"


class SinkError(StreamTopologyError):
    """A sink cannot publish; the message names the sink, the cause and the remedy."""


@dataclass(frozen=True)
class Writer:
    """The publisher: a sink's output belongs to one run of one topology.

    `run` is an id made once with the checkpoint: batch numbers mean something only together with it.
    """

    topology: str
    run: str


@dataclass(frozen=True)
class WrittenOutput:
    """The output of one writer at a sink's place. `delete` deletes it, and the manifest; what else is there stays."""

    place: str
    batches: int
    delete: Callable[[], None]


class BatchSink(Protocol):
    def publish(self, batch: int, files: Sequence[Path], end: str | None = None) -> None:
        """Make the rows of the staged `files` visible, once per `batch`: again is allowed and changes nothing.

        `end`: a digest of where the batch ends in sources and event time, None if that is not known. A sink that has a batch of
        this number with another end, from a checkpoint that has gone back since, refuses it. Batches come in ascending order.
        Raises `SinkError`; then the same batch may be published again.
        """
        ...

    def close(self) -> None:
        """Give back connections; what is published stays."""
        ...


def another_batch(place: str, batch: int) -> SinkError:
    """The refusal of a batch whose number a sink knows of other rows."""
    return SinkError(
        f"{place} has another batch {batch}, with other rows of the sources or at another event time: it was written before "
        "the checkpoint went back, by a rollback or with a restored volume. Rows would be missing there, or be twice"
    )


def staged_table(files: Sequence[Path]) -> pa.Table | None:
    """All rows of the staged files (Arrow IPC, file or stream format) in order, memory-mapped.

    None when there is no file, so not even a schema. Raises `SinkError` when a file is not there or damaged.
    """
    tables: list[pa.Table] = []
    for path in files:
        try:
            tables.append(_staged(path))
        except (OSError, pa.ArrowInvalid) as error:
            raise SinkError(f"staged output {path} cannot be read: {error}; is the checkpoint complete?") from error
    return pa.concat_tables(tables) if tables else None


def _staged(path: Path) -> pa.Table:
    mapped = pa.memory_map(str(path))
    is_file_format = mapped.size() >= len(_FILE_MAGIC) and mapped.read_at(len(_FILE_MAGIC), 0) == _FILE_MAGIC
    with pa.ipc.open_file(mapped) if is_file_format else pa.ipc.open_stream(mapped) as reader:
        return reader.read_all()
