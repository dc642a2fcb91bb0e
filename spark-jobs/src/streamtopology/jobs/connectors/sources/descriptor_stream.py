"""All sources of a topology that are read by descriptors, as one stream: what there is to read, and the descriptors of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from streamtopology.jobs.connectors.sources.descriptors import Descriptor, SourceSpec
from streamtopology.jobs.connectors.sources.files.file_log import FileLog
from streamtopology.jobs.connectors.sources.files.stream import FileStream

# By source how far it has been read, as JSON values.
Positions = Mapping[str, Any]

# The share of some descriptors that one batch may read; 1 or more: all of them.
ShareOf = Callable[[Sequence[Descriptor]], float]


@dataclass(frozen=True)
class Planned:
    """The rows to read in a batch: descriptors in their JSON form, and the positions after them.

    is_whole: False if they are a part of a range, and further batches read the rest.
    """

    descriptors: list[str]
    end: Positions
    is_whole: bool = True


class DescriptorStream:
    """The sources of `specs`. Any thread may ask.

    `log` is a folder of the checkpoint, in which sources keep what makes the same two positions give the same rows again. A
    source that positions leave out begins at its beginning. All methods raise SourceError.
    """

    def __init__(self, specs: Iterable[SourceSpec], log: Path) -> None:
        self._streams = {spec.name: open_stream(spec, log) for spec in specs}
        self._lock = threading.Lock()

    def close_listing(self) -> None:
        """Fix the end of all sources at what they hold now (trigger availableNow)."""
        with self._lock:
            for stream in self._streams.values():
                stream.close_listing()

    def advance(self, start: Positions) -> Positions | None:
        """Ask the sources for what they hold after `start`. Returns the end of that range; None if there is nothing."""
        with self._lock:
            begin = {name: self._start_of(name, start) for name in self._streams}
            end = {name: stream.advance(begin[name]) for name, stream in self._streams.items()}
            return None if end == begin else {**start, **end}

    def part(self, start: Positions, end: Positions, share_of: ShareOf = lambda descriptors: 1.0) -> Planned:
        """Return what is to be read from `start` towards `end`, the end of a range.

        share_of: how much of that one batch may read; it gets something of every source at least. A source that is further
        than `end` keeps its position, and so does one that is not read any more. Files that were replaced since they were
        handed out are measured again; one that is gone raises SourceError.
        """
        with self._lock:
            planned = self._furthest(start, end)
            found = self._first_part(start, planned, share_of)
            while self._check(start, found.end):
                found = self._first_part(start, planned, share_of)
            return found

    def unread(self, start: Positions) -> dict[str, str]:
        """Amount of input from `start` on, by source with any."""
        with self._lock:
            found = {name: stream.unread(self._start_of(name, start)) for name, stream in self._streams.items()}
            return {name: amount for name, amount in found.items() if amount is not None}

    def changed(self, start: Positions) -> dict[str, list[str]]:
        """What was read before `start` and has other rows by now, by source with any."""
        with self._lock:
            found = {name: stream.changed(start[name]) for name, stream in self._streams.items() if name in start}
            return {name: places for name, places in found.items() if places}

    def _first_part(self, begin: Positions, planned: Positions, share_of: ShareOf) -> Planned:
        descriptors = list(self._between(begin, planned))
        share, end = share_of(descriptors), planned
        if share < 1:
            end = self._cut(begin, planned, share)
            descriptors = list(self._between(begin, end))
        return Planned([descriptor.to_json() for descriptor in descriptors], end, is_whole=end == planned)

    def _furthest(self, start: Positions, end: Positions) -> Positions:
        """The positions at which all is read that is read at `start` or is to be read up to `end`.

        A source that is not read any more stays at `start`: nobody reads what was planned of it before it was removed.
        """

        def of(name: str) -> Any:
            if name in start and name in end and name in self._streams:
                return self._streams[name].furthest(start[name], end[name])
            return start[name] if name in start else end[name]

        return {name: of(name) for name in {**start, **end} if name in start or name in self._streams}

    def _check(self, start: Positions, end: Positions) -> bool:
        """Take in a change between two positions. Returns True if there was one, and maybe more."""
        return any(self._streams[name].check(self._start_of(name, start), end[name]) for name in self._read_to(end))

    def _cut(self, start: Positions, end: Positions, share: float) -> Positions:
        """The positions after about `share` of what is between the two, of each source alike."""
        cuts = {name: self._streams[name].cut(self._start_of(name, start), end[name], share) for name in self._read_to(end)}
        return {**end, **cuts}

    def _between(self, start: Positions, end: Positions) -> Iterator[Descriptor]:
        for name in self._read_to(end):
            yield from self._streams[name].between(self._start_of(name, start), end[name])

    def _read_to(self, end: Positions) -> list[str]:
        return [name for name in self._streams if name in end]

    def _start_of(self, name: str, start: Positions) -> Any:
        return start[name] if name in start else self._streams[name].initial_offset()


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
    if spec.table_format == "iceberg":
        from streamtopology.jobs.connectors.sources.files.iceberg_stream import IcebergStream  # loads pyiceberg

        return IcebergStream(spec, folder)
    if spec.is_table:
        from streamtopology.jobs.connectors.sources.files.delta_stream import DeltaStream

        return DeltaStream(spec, folder)
    return FileStream(spec, FileLog(folder))
