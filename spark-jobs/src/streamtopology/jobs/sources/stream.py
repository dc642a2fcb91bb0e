"""One Spark streaming source that hands out the descriptors of all descriptor sources of a topology.

Spark's public Python Data Source API gives offsets, checkpoints and replay; the rows it moves are a few descriptors.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.types import StringType, StructField, StructType

from streamtopology.jobs.sources.descriptors import Descriptor, SourceError, SourceSpec
from streamtopology.jobs.sources.files import FileLog, FileStream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = "streamtopology-descriptors"
SCHEMA = StructType([StructField("source", StringType(), False), StructField("descriptor", StringType(), False)])


def descriptor_stream(spark: SparkSession, specs: Iterable[SourceSpec], log: Path) -> DataFrame:
    """The streaming frame of the descriptors of `specs`: columns source, descriptor (JSON, see `Descriptor`).

    `log` is a folder of the checkpoint, on storage that the driver and the executors share.
    """
    spark.dataSource.register(DescriptorDataSource)
    sources = json.dumps([spec.to_wire() for spec in specs])
    return spark.readStream.format(FORMAT).option("sources", sources).option("log", str(log)).load()


class DescriptorLog:
    """The descriptors of each batch of a streaming query, from the offsets that Spark has logged for it.

    Collecting the frame that Spark hands to `foreachBatch` would give the same rows, by a Spark job whose one task costs
    more than many a batch. `checkpoint` is the query's checkpoint folder; `position` tells which of its sources is the
    descriptor stream.
    """

    _VERSION = "v1"

    def __init__(self, specs: Iterable[SourceSpec], log: Path, checkpoint: Path, position: int) -> None:
        self._reader = DescriptorStreamReader(specs, log)
        self._checkpoint = checkpoint
        self._position = position
        self._lock = threading.Lock()

    def newest_counted(self) -> int:
        """The newest batch that Spark counts as done; -1 before the first."""
        done = self._checkpoint / "commits"
        return max((int(path.name) for path in done.iterdir() if path.name.isdecimal()), default=-1) if done.exists() else -1

    def of_batch(self, number: int) -> list[str]:
        """The descriptors (JSON) that Spark planned for its batch `number`. Raises SourceError. Any thread may ask."""
        with self._lock:
            return self._of_batch(number)

    def _of_batch(self, number: int) -> list[str]:
        end = self.end_of(number)
        start = None if number == 0 else self.end_of(number - 1)
        if end is None:
            return []
        rows = self._reader.readBetweenOffsets(self._reader.initialOffset() if start is None else start, end)
        return [descriptor for _, descriptor in rows]

    def end_of(self, number: int) -> dict | None:
        """The stream's offset at the end of a batch, None before its first rows. Raises SourceError."""
        path = self._checkpoint / "offsets" / str(number)
        lines = path.read_text(encoding="utf-8").splitlines()
        if lines[0] != self._VERSION:
            raise SourceError(f"{path} is an offset log of version {lines[0]!r}; only {self._VERSION} can be read")
        offset = lines[2 + self._position]  # after version and settings
        return None if offset == "-" else json.loads(offset)


class OffsetStream(Protocol):
    """One source behind the stream. Offsets are JSON values; the same two offsets always give the same descriptors."""

    def initial_offset(self) -> Any: ...

    def close_listing(self) -> None:
        """Never advance beyond what is there now (trigger availableNow)."""
        ...

    def advance(self, start: Any) -> Any:
        """The end of the batch that begins at `start`; `start` itself when there is nothing new."""
        ...

    def between(self, start: Any, end: Any) -> Iterator[Descriptor]: ...


def open_stream(spec: SourceSpec, log: Path) -> OffsetStream:
    """The offsets and descriptors of one source; its log is the folder of its name under `log`."""
    folder = log / quote(spec.name, safe="")
    if spec.format == "kafka":
        from streamtopology.jobs.sources.kafka import KafkaStream  # keeps librdkafka out of topologies without Kafka

        return KafkaStream(spec, folder)
    return FileStream(spec, FileLog(folder))


class DescriptorDataSource(DataSource):
    """Options: `sources` (JSON list of `SourceSpec.to_wire()`) and `log` (folder of the checkpoint)."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return SCHEMA

    def simpleStreamReader(self, schema: StructType) -> DescriptorStreamReader:  # noqa: N802 - Spark's name
        specs = [SourceSpec.from_wire(wire) for wire in json.loads(self.options["sources"])]
        return DescriptorStreamReader(specs, Path(self.options["log"]))


class DescriptorStreamReader(SimpleDataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are `{source name: offset of that source}`; the names of its methods are Spark's."""

    def __init__(self, specs: Iterable[SourceSpec], log: Path) -> None:
        self._specs = tuple(specs)
        self._log = log
        self._streams = {spec.name: open_stream(spec, log) for spec in self._specs}

    def __reduce__(self) -> tuple[Any, ...]:
        """Spark sends the reader along with the rows it has read; a broker's clients cannot travel, so it is made anew."""
        return DescriptorStreamReader, (self._specs, self._log)

    def initialOffset(self) -> dict:  # noqa: N802
        return {name: stream.initial_offset() for name, stream in self._streams.items()}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        for stream in self._streams.values():
            stream.close_listing()

    def read(self, start: dict) -> tuple[Iterator[tuple], dict]:
        end = {name: stream.advance(self._start_of(name, start)) for name, stream in self._streams.items()}
        return self.readBetweenOffsets(start, end), end

    def readBetweenOffsets(self, start: dict, end: dict) -> Iterator[tuple]:  # noqa: N802
        rows = [
            (name, descriptor.to_json())
            for name, stream in self._streams.items()
            if name in end
            for descriptor in stream.between(self._start_of(name, start), end[name])
        ]
        return iter(rows)

    def _start_of(self, name: str, start: dict) -> Any:
        """A source that was added since the checkpoint begins at its beginning."""
        return start[name] if name in start else self._streams[name].initial_offset()
