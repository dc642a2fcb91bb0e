"""One Spark streaming source that hands out the descriptors of all descriptor sources of a topology.

Spark's public Python Data Source API gives offsets, checkpoints and replay; the rows it moves are a few descriptors.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.types import StringType, StructField, StructType

from streamtopology.contract.wire_values import from_wire, to_wire
from streamtopology.jobs.connectors.sources.descriptors import Descriptor, SourceError, SourceSpec
from streamtopology.jobs.connectors.sources.files.file_log import FileLog
from streamtopology.jobs.connectors.sources.files.stream import FileStream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# By source how far it has been read, as JSON values.
Positions = Mapping[str, Any]

FORMAT = "streamtopology-descriptors"
SCHEMA = StructType([StructField("source", StringType(), False), StructField("descriptor", StringType(), False)])


def descriptor_stream(spark: SparkSession, specs: Iterable[SourceSpec], log: Path, positions: Positions) -> DataFrame:
    """The streaming frame of the descriptors of `specs`: columns source, descriptor (JSON, see `Descriptor`).

    `log` is a folder of the checkpoint, on storage that the driver and the executors share. Sources that Spark's own log does
    not have begin at their `positions`, or else at their beginning.
    """
    spark.dataSource.register(DescriptorDataSource)
    sources = json.dumps([to_wire(spec) for spec in specs])
    reader = spark.readStream.format(FORMAT).option("sources", sources).option("log", str(log))
    return reader.option("positions", json.dumps(dict(positions))).load()


@dataclass(frozen=True)
class Planned:
    """The rows to read in a batch: descriptors in their JSON form, and the positions after them.

    is_whole: False if they are a part of what Spark planned, and further batches read the rest.
    """

    descriptors: list[str]
    end: Positions
    is_whole: bool = True


# The share of some descriptors that one batch may read; 1 or more: all of them.
ShareOf = Callable[[Sequence[Descriptor]], float]


class DescriptorLog:
    """The descriptors of each batch of a streaming query, from the offsets that Spark has logged for it.

    Collecting the frame that Spark hands to `foreachBatch` would give the same rows, by a Spark job whose one task costs
    more than many a batch. `checkpoint` is the query's checkpoint folder; `position` is the number of the descriptor
    stream among its sources.
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

    def of_batch(self, number: int, start: Positions | None = None, share_of: ShareOf = lambda descriptors: 1.0) -> Planned:
        """Return what is to be read from `start` to the end that Spark planned for its batch `number`. Any thread may ask.

        start: None for where Spark's batch before ended. A source that is further than Spark's end keeps its position.
        share_of: how much of that one batch may read; it gets something of every source at least. Files that were replaced
        since they were handed out are measured again. Raises SourceError, also for files that are gone.
        """
        with self._lock:
            begin = self._after(number - 1) if start is None else start
            planned = self._reader.furthest(begin, self.end_of(number) or {})
            found = self._first_part(begin, planned, share_of)
            while self._reader.check(begin, found.end):
                found = self._first_part(begin, planned, share_of)
            return found

    def _first_part(self, begin: Positions, planned: Positions, share_of: ShareOf) -> Planned:
        descriptors = list(self._reader.between(begin, planned))
        share, end = share_of(descriptors), planned
        if share < 1:
            end = self._reader.cut(begin, planned, share)
            descriptors = list(self._reader.between(begin, end))
        return Planned([descriptor.to_json() for descriptor in descriptors], end, is_whole=end == planned)

    def unread(self, number: int, start: Positions | None = None) -> dict[str, str]:
        """Amount of input after `start`, or after batch `number` (-1: before the first) if None, by source with any."""
        with self._lock:
            return self._reader.unread(self._after(number) if start is None else start)

    def changed(self, start: Positions) -> dict[str, list[str]]:
        """What was read before `start` and has other rows by now, by source with any."""
        with self._lock:
            return self._reader.changed(start)

    def _after(self, number: int) -> Positions:
        end = None if number < 0 else self.end_of(number)
        return self._reader.initialOffset() if end is None else end

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
        """Fix the end of the stream at the current input (trigger availableNow)."""
        ...

    def advance(self, start: Any) -> Any:
        """The end of the batch that begins at `start`; `start` itself when there is nothing new."""
        ...

    def between(self, start: Any, end: Any) -> Iterator[Descriptor]: ...

    def check(self, start: Any, end: Any) -> bool:
        """Take in what was changed between the two since it was handed out. Returns True if anything was. SourceError."""
        ...

    def changed(self, start: Any) -> list[str]:
        """What was read before `start` and has other rows by now, which are not read."""
        ...

    def cut(self, start: Any, end: Any, share: float) -> Any:
        """An offset after about `share` of the bytes between the two, one row after `start` at least."""
        ...

    def furthest(self, one: Any, other: Any) -> Any:
        """The offset at which all is read that is read at either."""
        ...

    def unread(self, start: Any) -> str | None:
        """Amount of input from `start` on: "8 files" or "1,200 messages"; None if there is none."""
        ...

    def waiting(self, start: Any) -> int | None:
        """The rows from `start` on; None where only reading them would count them. SourceError."""
        ...


def open_stream(spec: SourceSpec, log: Path) -> OffsetStream:
    """The offsets and descriptors of one source; its log is the folder of its name under `log`."""
    folder = log / quote(spec.name, safe="")
    if spec.format == "kafka":
        from streamtopology.jobs.connectors.sources.kafka.stream import (
            KafkaStream,  # keeps librdkafka out of topologies without Kafka
        )

        return KafkaStream(spec, folder)
    return FileStream(spec, FileLog(folder))


class DescriptorDataSource(DataSource):
    """Options: `sources` (JSON list of `SourceSpec`), `log` (folder of the checkpoint) and `positions` (JSON)."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return SCHEMA

    def simpleStreamReader(self, schema: StructType) -> DescriptorStreamReader:  # noqa: N802 - Spark's name
        specs = [from_wire(SourceSpec, wire) for wire in json.loads(self.options["sources"])]
        return DescriptorStreamReader(specs, Path(self.options["log"]), json.loads(self.options["positions"]))


class DescriptorStreamReader(SimpleDataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are `{source name: offset of that source}`; the names of its methods are Spark's.

    positions: where sources begin that are in no offset of Spark's; those without one begin at their beginning.
    """

    def __init__(self, specs: Iterable[SourceSpec], log: Path, positions: Positions | None = None) -> None:
        self._specs = tuple(specs)
        self._log = log
        self._positions = dict(positions or {})
        self._streams = {spec.name: open_stream(spec, log) for spec in self._specs}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the specs alone: Spark sends the reader along with its rows, and a broker's clients cannot be pickled."""
        return DescriptorStreamReader, (self._specs, self._log, self._positions)

    def initialOffset(self) -> dict:  # noqa: N802
        return {name: self._start_of(name, {}) for name in self._streams}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        for stream in self._streams.values():
            stream.close_listing()

    def read(self, start: dict) -> tuple[Iterator[tuple], dict]:
        end = {name: stream.advance(self._start_of(name, start)) for name, stream in self._streams.items()}
        return self.readBetweenOffsets(start, end), end

    def furthest(self, one: Positions, planned: Positions) -> Positions:
        """The positions at which all is read that is read at `one` or is to be read up to `planned`.

        A source that is not read any more stays at `one`: nobody reads what Spark planned of it before it was removed.
        """

        def of(name: str) -> Any:
            if name in one and name in planned and name in self._streams:
                return self._streams[name].furthest(one[name], planned[name])
            return one[name] if name in one else planned[name]

        return {name: of(name) for name in {**one, **planned} if name in one or name in self._streams}

    def check(self, start: Positions, end: Positions) -> bool:
        """Take in a change between two positions. Returns True if there was one, and maybe more. Raises SourceError."""
        return any(self._streams[name].check(self._start_of(name, start), end[name]) for name in self._read_to(end))

    def cut(self, start: Positions, end: Positions, share: float) -> Positions:
        """The positions after about `share` of what is between the two, of each source alike."""
        cuts = {name: self._streams[name].cut(self._start_of(name, start), end[name], share) for name in self._read_to(end)}
        return {**end, **cuts}

    def between(self, start: Positions, end: Positions) -> Iterator[Descriptor]:
        """The descriptors of all sources between two positions."""
        for name in self._read_to(end):
            yield from self._streams[name].between(self._start_of(name, start), end[name])

    def readBetweenOffsets(self, start: Positions, end: Positions) -> Iterator[tuple]:  # noqa: N802
        return iter([(descriptor.source, descriptor.to_json()) for descriptor in self.between(start, end)])

    def unread(self, start: Positions) -> dict[str, str]:
        """Amount of input from `start` on, by source."""
        found = {name: stream.unread(self._start_of(name, start)) for name, stream in self._streams.items()}
        return {name: amount for name, amount in found.items() if amount is not None}

    def changed(self, start: Positions) -> dict[str, list[str]]:
        """What was read before `start` and has other rows by now, by source with any."""
        found = {name: stream.changed(start[name]) for name, stream in self._streams.items() if name in start}
        return {name: places for name, places in found.items() if places}

    def _read_to(self, end: Positions) -> list[str]:
        return [name for name in self._streams if name in end]

    def _start_of(self, name: str, start: Positions) -> Any:
        known = {**self._positions, **start}
        return known[name] if name in known else self._streams[name].initial_offset()
