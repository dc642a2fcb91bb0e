"""The records of a checkpoint and how they are written: two lines of JSON, what it is and then what it says.

The first line has the kind, the format number and a checksum, so that a damaged record, or one of another version, is
refused with a sentence before anything in it is believed.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from streamtopology.contract.format_number import FORMAT, check_format
from streamtopology.contract.wire_values import SPARSE, AnyFloat, from_wire, to_wire
from streamtopology.jobs.checkpoint.errors import CheckpointError
from streamtopology.routing.epochs.switch_progress import GradualSwitch
from streamtopology.topology import RestoreMode

RECORD_FORMAT = 1
# The field by which a record is known from those of versions before 0.1.0, which had another and counted formats, too.
_KIND = "kind"

_REMEDY = "start over with `streamtopology run MANIFEST --fresh` or an empty `checkpoint`, or stay with that version"

Record = TypeVar("Record")


@dataclass(frozen=True)
class Header:
    """The owner of a checkpoint. run: a unique name of this checkpoint, made when it was first opened."""

    topology: str
    run: str


@dataclass(frozen=True)
class StateRef:
    """The files that are an instance's state: a snapshot, if any, and the deltas after it in order.

    keys and bytes: how large the state is in memory.
    """

    snapshot: str | None
    deltas: tuple[str, ...]
    keys: int
    bytes: int

    @property
    def paths(self) -> tuple[str, ...]:
        return self.deltas if self.snapshot is None else (self.snapshot, *self.deltas)

    def continues(self, earlier: StateRef) -> bool:
        """True if this is `earlier` with any number of deltas after it."""
        return self.snapshot == earlier.snapshot and self.deltas[: len(earlier.deltas)] == earlier.deltas

    def compacted(self, snapshot: str, covered: StateRef) -> StateRef:
        """This state with `snapshot` in place of the files that `covered` named when the compaction began."""
        if not self.continues(covered):
            raise ValueError(f"snapshot {snapshot} covers {covered.paths}, which {self.paths} does not begin with")
        return replace(self, snapshot=snapshot, deltas=self.deltas[len(covered.deltas) :])


@dataclass(frozen=True)
class TableCopy:
    """The rows of a table that an operator looks up in, as a file. version: whose; of: what was read, as which columns."""

    path: str
    version: str
    of: str


@dataclass(frozen=True)
class BatchRecord:
    """An attempt at a batch, recorded before any work; it makes its epoch active.

    spark_batch: as in its commit. sources: what the batch reads, so that a driver that finds it not committed reads the same.
    watermark: epoch seconds. chooser_loads: cumulative rows per instance, by node. tables: as in its commit.
    """

    batch: int
    attempt: int
    epoch: int
    spark_batch: int
    watermark: AnyFloat | None
    sources: Mapping[str, Any]
    chooser_loads: Mapping[str, list[float]]
    tables: Mapping[str, TableCopy] = field(default_factory=dict[str, TableCopy], metadata=SPARSE)

    @property
    def end(self) -> Mapping[str, Any]:
        """The positions after it."""
        return self.sources["end"]

    @property
    def range_end(self) -> Mapping[str, Any] | None:
        """As in its commit."""
        return self.sources.get("range_end")


@dataclass(frozen=True)
class SourceEnd:
    """The end of a batch in its sources: the next one begins there, whatever Spark's own log says.

    positions: by source whose descriptors the driver deals, a JSON value of that source; of sources that the manifest no
    longer has, the last one. spark_offsets: Spark's record of the batch that `CommitRecord.spark_batch` numbers.
    """

    positions: Mapping[str, Any] = field(default_factory=dict[str, Any])
    spark_offsets: str | None = None


@dataclass(frozen=True)
class CommitRecord:
    """The attempt that committed a batch, and all files that exist after it.

    spark_batch: the newest batch of the sources that Spark reads itself; -1: none.
    end: where it ends in the sources. switch: the state of a gradual switch to its epoch; None for a switch as a whole.
    partials: by node, parts of keys' state that the next batch takes in.
    range_end: the end of the range of which this batch and later ones read a part each; None if none of it is left. Until
    then the watermark stays that before the range.
    state: by node and instance. outputs: staged files by sink. watermark_after, max_event_times and silent_since (by
    partition of a source): epoch seconds; the last is of polls that found nothing since the newest event time.
    recorded_at: processing time, which later batches are never behind. due_at: when a timer of it is due. Epoch seconds.
    tables: by operator, the table in which its tuples were looked up.
    """

    batch: int
    attempt: int
    epoch: int
    spark_batch: int
    state: Mapping[str, Mapping[int, StateRef]]
    outputs: Mapping[str, Sequence[str]]
    watermark_after: AnyFloat | None
    max_event_times: Mapping[str, AnyFloat]
    rows_in: int
    switch: GradualSwitch | None = None
    end: SourceEnd = field(default_factory=SourceEnd)
    partials: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    range_end: Mapping[str, Any] | None = field(default=None, metadata=SPARSE)
    silent_since: Mapping[str, AnyFloat] = field(default_factory=dict[str, float], metadata=SPARSE)
    recorded_at: AnyFloat | None = field(default=None, metadata=SPARSE)
    due_at: AnyFloat | None = field(default=None, metadata=SPARSE)
    tables: Mapping[str, TableCopy] = field(default_factory=dict[str, TableCopy], metadata=SPARSE)

    @property
    def epochs(self) -> tuple[int, ...]:
        """The epochs whose tables say who owns what after it."""
        return (self.epoch,) if self.switch is None else (self.switch.follows, self.epoch)

    @property
    def end_digest(self) -> str | None:
        """Letters that say where it ends, in the sources that the driver deals and in event time; None if it does not say.

        Windows close by event time, which idle sources let pass by the clock.
        """
        if not self.end.positions:
            return None
        text = json.dumps([self.end.positions, self.watermark_after], sort_keys=True, separators=(",", ":"))
        return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()

    def paths(self) -> set[str]:
        """Every file of state, outputs and tables that it names."""
        state = {path for references in self.state.values() for ref in references.values() for path in ref.paths}
        return state.union(*self.outputs.values(), (table.path for table in self.tables.values()))


@dataclass(frozen=True)
class Lease:
    """The pre-copy of the state that `epoch` moves, as of the commit of `batch`, in `portions`. follows: the one before."""

    epoch: int
    batch: int
    follows: int
    portions: int = 1


@dataclass(frozen=True)
class CopiedFile:
    """The pre-copied file of one portion for one new owner; bytes: the size of the file."""

    target: int
    portion: int
    path: str
    keys: int
    bytes: int


@dataclass(frozen=True)
class CopiedPart:
    """The pre-copied keys that leave one instance. bytes_read: the size of the state files read for them."""

    node: str
    instance: int
    files: tuple[CopiedFile, ...]
    bytes_read: int

    @property
    def keys(self) -> int:
        return sum(file.keys for file in self.files)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


@dataclass(frozen=True)
class Copied:
    """The finished pre-copy of `epoch` as of `batch`, under the lease of the same numbers."""

    epoch: int
    batch: int
    follows: int
    parts: tuple[CopiedPart, ...]
    portions: int = 1


@dataclass(frozen=True)
class CopyHold:
    """A copy of the whole version of `batch` to the URI `target` is being made: what that version names is kept."""

    target: str
    batch: int


@dataclass(frozen=True)
class Origin:
    """The checkpoint that another one is a copy of: its URI at that time, its `Header.run`, and the kind of the copy."""

    uri: str
    run: str
    mode: RestoreMode


def to_bytes(record: Header | BatchRecord | CommitRecord | Lease | CopiedPart | Copied | CopyHold | Origin) -> bytes:
    """The record as the content of one file."""
    body = json.dumps(to_wire(record))
    what = {FORMAT: RECORD_FORMAT, _KIND: type(record).__name__, "crc32": zlib.crc32(body.encode())}
    return f"{json.dumps(what)}\n{body}\n".encode()


def from_bytes(kind: type[Record], data: bytes, path: str) -> Record:
    """The record in `data`; CheckpointError names `path` when it is damaged, of another kind or of another version."""
    try:
        first, body = _lines(data)
        what = json.loads(first)
        check_format(what if _KIND in what else {}, RECORD_FORMAT, path, _REMEDY, CheckpointError)
        if what[_KIND] != kind.__name__ or what["crc32"] != zlib.crc32(body.encode()):
            raise ValueError(f"not the {kind.__name__} that was written")
        return from_wire(kind, json.loads(body))
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(path, error) from error


def owner_from(data: bytes, path: str) -> Header:
    """The header as every version writes it, before and after this one: by it a checkpoint is deleted."""
    try:
        return from_wire(Header, json.loads(_lines(data)[1]))
    except ValueError as error:
        raise _damaged(path, error) from error


def _lines(data: bytes) -> tuple[str, str]:
    first, body = data.decode().removesuffix("\n").split("\n")
    return first, body


def _damaged(path: str, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"{path} is damaged ({error}); put it back from a copy of the checkpoint, or start with an empty checkpoint"
    )
