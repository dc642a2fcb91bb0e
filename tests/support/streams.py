"""Descriptor streams in tests: input files with known times, and a stream driven as the driver drives it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streamtopology.jobs.connectors.sources.descriptor_stream import DescriptorStream, Positions
from streamtopology.jobs.connectors.sources.descriptors import Descriptor, SourceSpec
from streamtopology.topology import Source
from support.connectors import read


def parquet_file(folder: Path, name: str, values: list[int], mtime: int, row_group_size: int = 2) -> None:
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.table({"key": pa.array(values, pa.int64())}), folder / name, row_group_size=row_group_size)
    os.utime(folder / name, (mtime, mtime))


def spec(folder: Path, format_: str = "parquet", schema: str | None = "key BIGINT", **options: str) -> SourceSpec:
    return SourceSpec.of(Source("s", format_, schema, {"path": str(folder)} | options))


def rows_of(descriptors: list[Descriptor], source: SourceSpec) -> list[dict]:
    return [row for d in descriptors for batch in read(d, source) for row in batch.to_pylist()]


class Stream:
    """A stream as the driver drives it, with the positions passed through JSON."""

    def __init__(self, log: Path, *specs: SourceSpec) -> None:
        self.stream = DescriptorStream(specs, log)

    def read(self, start: Positions) -> tuple[list[Descriptor], dict[str, Any]]:
        """What the sources hold after `start`, and the positions after it."""
        end = json.loads(json.dumps(self.stream.advance(start) or start))
        return self.replay(start, end), end

    def replay(self, start: Positions, end: Positions) -> list[Descriptor]:
        return [Descriptor.from_json(text) for text in self.stream.part(start, end).descriptors]


def only_file(folder: Path, source: SourceSpec) -> Descriptor:
    stream = Stream(folder.parent / "log", source)
    (descriptor,), _ = stream.read({})
    return descriptor
