"""Descriptor streams in tests: input files with known times, and the reader driven as Spark drives it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from streamtopology.jobs.connectors.sources.descriptor_stream import DescriptorStreamReader
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
    """The reader as Spark drives it, with the offsets passed through JSON."""

    def __init__(self, log: Path, *specs: SourceSpec) -> None:
        self.reader = DescriptorStreamReader(specs, log)

    def start(self) -> dict:
        return json.loads(json.dumps(self.reader.initialOffset()))

    def read(self, start: dict) -> tuple[list[Descriptor], dict]:
        rows, end = self.reader.read(start)
        return [Descriptor.from_json(text) for _, text in rows], json.loads(json.dumps(end))

    def replay(self, start: dict, end: dict) -> list[Descriptor]:
        return [Descriptor.from_json(text) for _, text in self.reader.readBetweenOffsets(start, end)]


def only_file(folder: Path, source: SourceSpec) -> Descriptor:
    stream = Stream(folder.parent / "log", source)
    (descriptor,), _ = stream.read(stream.start())
    return descriptor
