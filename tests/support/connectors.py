"""Rows of a descriptor, and staged outputs of a task, as tests need them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from streamtopology.jobs.connectors.sources.descriptors import Descriptor, SourceError, SourceSpec
from streamtopology.jobs.connectors.sources.formats import read_all


def read(descriptor: Descriptor, spec: SourceSpec, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of one descriptor. Raises SourceError for a row on which select or where raises."""

    def refuse(row: pa.RecordBatch, reason: str) -> None:
        raise SourceError(f"source {spec.name!r}, {descriptor.path}: {reason}, in the row {row.to_pylist()[0]}")

    return read_all([descriptor], spec, refuse, columns)


def stage(path: Path, schema: pa.Schema, batches: Sequence[pa.RecordBatch]) -> None:
    """Write a task's output as an Arrow IPC file, to be published from `path`."""
    with pa.OSFile(str(path), "wb") as out, pa.ipc.new_file(out, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
