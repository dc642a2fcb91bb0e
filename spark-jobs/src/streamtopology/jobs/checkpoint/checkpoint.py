"""The checkpoint as the driver and its tasks use it.

header.json                                     whose checkpoint it is
epochs/<number>.json                            plans; the one a batch record names is active
batches/<batch>-<attempt>.json                  attempts, recorded before their work
commits/<batch>.json                            one a batch, written last: only files that it names exist
state/<node>/<instance>/<batch>-<attempt>.delta     what a batch changed
state/<node>/<instance>/<batch>-<attempt>.snapshot  the state after that delta
outputs/<node>/<batch>-<attempt>-<instance>.arrow   rows for the sinks
tables/<operator>/<batch>-<digest>.arrow        a table to look up in, as of a version
drivers/<generation>.json                       drivers that have had workers of their own, the newest one
migrations/<epoch>/...                          epochs whose state is pre-copied, see `precopies`
publications/<sink>/<batch>.<note>              batches that a sink could not take, see `publications`
copies/..., origin.json                         versions that are being copied; whose copy this is, see `copying`
spark/..., files/...                            logs of Spark and of the sources, see `spark_log`
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

import pyarrow as pa

from streamtopology.jobs.checkpoint import layout, records, retention
from streamtopology.jobs.checkpoint.errors import CheckpointError
from streamtopology.jobs.checkpoint.holds import Holds
from streamtopology.jobs.checkpoint.open_store import open_store
from streamtopology.jobs.checkpoint.precopies import FOLDER as PRECOPIES
from streamtopology.jobs.checkpoint.precopies import Precopies
from streamtopology.jobs.checkpoint.publications import Publications
from streamtopology.jobs.checkpoint.records import BatchRecord, CommitRecord, Header, StateRef, TableCopy
from streamtopology.jobs.checkpoint.spark_log import SparkFolder, UploadedSparkFolder
from streamtopology.jobs.checkpoint.spark_offsets import SparkOffsets
from streamtopology.jobs.checkpoint.store import Store, Stored
from streamtopology.jobs.columnar.dictionaries import has_dictionary
from streamtopology.jobs.failpoints import passing
from streamtopology.jobs.state import (
    KeyedState,
    State,
    StateError,
    StateFileError,
    StateSchema,
    decode_read,
    encode,
    encode_parts,
    merged,
    new_state,
)

# Newest commits that stay readable, with all that they name.
KEPT_COMMITS = 3

DRIVERS = "drivers"

# Files of a batch that are fetched from a bucket at a time.
_AT_ONCE = 16

# Bytes of state above which a snapshot is written, and read, in parts of about as many.
PART_BYTES = 32 << 20


def of_another(uri: str, found: str, topology: str) -> str:
    """The refusal of a checkpoint that another topology made."""
    return (
        f"checkpoint {uri} is that of topology {found!r}, not of {topology!r}; name another `checkpoint`, or delete this one "
        "if that topology is no longer wanted"
    )


def _refuse_taken(store: Store) -> None:
    """Raise CheckpointError if a checkpoint that has not begun would begin among files of others."""
    if store.exists(retention.HEADER):
        return
    found = layout.in_the_way(store.list(""))
    if found and not store.exists(retention.HEADER):  # another driver may have begun it meanwhile
        raise CheckpointError(layout.not_empty(store.uri, found))


class Checkpoint:
    """One topology's checkpoint. All methods raise CheckpointError when files cannot be read or written."""

    def __init__(self, store: Store, header: Header) -> None:
        self._store = store
        self._header = header
        self.precopies = Precopies(store)
        self.holds = Holds(store)
        self.publications = Publications(store)
        self._exist: set[str] = set()

    @staticmethod
    def open(uri: str, topology: str) -> Checkpoint:
        """Open the topology's checkpoint at `uri`, or make one. Refuses that of another topology."""
        return Checkpoint.of(open_store(uri), topology)

    @staticmethod
    def of(store: Store, topology: str) -> Checkpoint:
        """Open the topology's checkpoint in `store`, or make one where nothing is.

        Refuses that of another topology, half of a copy, and a place that holds files of others.
        """
        if not store.exists(retention.HEADER) and store.exists(retention.ORIGIN):
            raise CheckpointError(
                f"{store.uri} is a copy of a checkpoint that was cut short: make the same copy again, which continues it, or "
                "delete it"
            )
        _refuse_taken(store)
        header = records.to_bytes(Header(topology, uuid.uuid4().hex))
        is_new = not store.exists(retention.HEADER) and store.create(retention.HEADER, header)
        if is_new and store.create(retention.HEADER, header):
            raise CheckpointError(
                f"checkpoint {store.uri}: the storage overwrites a file in spite of `If-None-Match: *`, so two drivers "
                "would not notice each other; name a `checkpoint` on another"
            )
        checkpoint = Checkpoint.attached(store)
        found = checkpoint._header.topology
        if found != topology:
            raise CheckpointError(of_another(store.uri, found, topology))
        return checkpoint

    @staticmethod
    def attach(uri: str) -> Checkpoint:
        """Open the checkpoint at `uri`, of any topology."""
        return Checkpoint.attached(open_store(uri))

    @staticmethod
    def attached(store: Store) -> Checkpoint:
        """Open the checkpoint in `store`, of any topology."""
        if not store.exists(retention.HEADER):
            raise CheckpointError(
                f"there is no checkpoint at {store.uri}; it is made by the first `streamtopology run MANIFEST`"
            )
        return Checkpoint(
            store, records.from_bytes(records.Header, store.read(retention.HEADER), f"{store.uri}/{retention.HEADER}")
        )

    @staticmethod
    def to_delete(uri: str) -> Checkpoint:
        """Open the checkpoint at `uri`, which any version may have written, to measure and delete it."""
        store = open_store(uri)
        return Checkpoint(store, records.owner_from(store.read(retention.HEADER), store.where(retention.HEADER)))

    @property
    def uri(self) -> str:
        return self._store.uri

    @property
    def run(self) -> str:
        """A name that no other checkpoint has."""
        return self._header.run

    @property
    def topology(self) -> str:
        """The topology's name."""
        return self._header.topology

    def files(self, folder: str = "") -> list[str]:
        """The complete files below `folder`, sorted."""
        return self._complete(folder)

    def stored(self, folder: str = "") -> Sequence[Stored]:
        """All files below `folder` with their sizes, those being written included."""
        return self._store.stored(folder)

    def read(self, path: str) -> bytes:
        return self._store.read(path)

    def find(self, path: str) -> bytes | None:
        """The content of a file that others may delete at any time; None if it is not there."""
        return self._store.find(path)

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """Read `length` bytes of a file from `start` on, or all that follow."""
        return self._store.read_range(path, start, length)

    def where(self, path: str) -> str:
        """The path or URI of a file, for messages."""
        return self._store.where(path)

    @contextmanager
    def at_hand(self, paths: Sequence[str]) -> Iterator[list[Path]]:
        """Files that a record names, on this machine while entered."""
        if self._store.folder is not None:
            yield [self._store.folder / path for path in paths]
            return
        with TemporaryDirectory(prefix="streamtopology-") as scratch:
            copies = [Path(scratch, str(index)) for index in range(len(paths))]
            with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="fetch") as threads:
                for _ in threads.map(lambda path, copy: copy.write_bytes(self._store.read(path)), paths, copies):
                    """Raise the error of the first file that could not be read."""
            yield copies

    def spark_folder(self) -> SparkFolder:
        """The folder for the logs of Spark and the sources, as of the last `save`; Spark's agree with the newest commit."""
        folder = UploadedSparkFolder(self._store) if self._store.folder is None else SparkFolder(self._store.folder)
        folder.has_been_mended = SparkOffsets(folder.path / "spark").agree_with(self.last_commit())
        return folder

    def keep(self, path: str, data: bytes) -> None:
        """Keep a file for people unless it exists: a sink may get the same batch again."""
        self._store.create(path, data)

    def discard(self, path: str) -> None:
        """Delete a file that was kept for people; it may be gone already."""
        self._store.delete(path)

    def next_driver(self, served: int = 0) -> int:
        """Return the generation of a new driver: higher than any before, and no other driver's while it is the highest.

        served: what its workers have seen, which may be more if the checkpoint is an older copy of itself. Files of earlier
        drivers go. One that has stood still may take the number of one that has gone; a higher one is there then.
        """
        while True:
            there = sorted(retention.number_of(path) for path in self._numbered(DRIVERS))
            generation = max([served, *there]) + 1
            if self._store.create(f"{DRIVERS}/{generation}.json", b"{}\n"):
                for earlier in there:
                    self._store.delete(f"{DRIVERS}/{earlier}.json")
                return generation

    # --- epochs ---

    def epochs(self) -> list[int]:
        """Numbers of all epochs that are kept, ascending."""
        return sorted(retention.number_of(path) for path in self._numbered("epochs"))

    def write_epoch(self, number: int, text: str) -> bool:
        """Keep an epoch (JSON); False when it is there. An epoch never changes: another text is refused."""
        path = f"epochs/{number}.json"
        passing("epoch.writing")
        if self._store.create(path, text.encode()):
            passing("epoch.written")
            return True
        if json.loads(self.read_epoch(number)) != json.loads(text):
            raise CheckpointError(
                f"{self.where(path)} holds another epoch {number}: a new one needs the number after the highest, "
                f"{max(self.epochs())}"
            )
        return False

    def read_epoch(self, number: int) -> str:
        return self._store.read(f"epochs/{number}.json").decode()

    # --- batches ---

    def record(self, record: BatchRecord) -> bool:
        """Record an attempt before its work; False when that attempt is recorded already."""
        passing("batch.recording")
        made = self._store.create(f"batches/{record.batch}-{record.attempt}.json", records.to_bytes(record))
        passing("batch.recorded")
        return made

    def batch_records(self, batch: int) -> list[BatchRecord]:
        """All attempts at a batch, in order."""
        paths = [path for path in self._numbered("batches") if retention.number_of(path) == batch]
        found = [records.from_bytes(records.BatchRecord, self._store.read(path), self.where(path)) for path in paths]
        return sorted(found, key=lambda record: record.attempt)

    def commit(self, record: CommitRecord) -> bool:
        """Commit a batch. Returns False when it is committed already; refuses a record that names a missing file.

        A driver that stood still for long may find the name free, as a later one has committed the batch and its record has
        been swept since. The record before it has gone, too, then, and there are newer ones.
        """
        paths = record.paths()
        if missing := self._store.missing(sorted(paths - self._exist)):
            raise CheckpointError(
                f"batch {record.batch} cannot be committed: {self.where(missing[0])} is not there; do driver and "
                f"executors share the storage of {self.uri}?"
            )
        self._exist = paths
        passing("commit.writing")
        made = self._store.create(f"commits/{record.batch}.json", records.to_bytes(record))
        passing("commit.written")
        if made and not self._store.exists(f"commits/{record.batch - 1}.json") and self._commits()[-1] > record.batch:
            self._store.delete(f"commits/{record.batch}.json")
            return False
        return made

    def read_commit(self, batch: int) -> CommitRecord:
        path = f"commits/{batch}.json"
        return records.from_bytes(records.CommitRecord, self._store.read(path), self.where(path))

    def commits(self) -> list[int]:
        """The batches whose commit records are kept, ascending."""
        return self._commits()

    def forget_commit(self, batch: int) -> None:
        """Undo the newest commit: the one before it is the newest, then."""
        if batch != self._commits()[-1]:
            raise ValueError(f"batch {batch} is not the newest commit")
        self._store.delete(f"commits/{batch}.json")

    def last_commit(self) -> CommitRecord | None:
        batches = self._commits()
        return self.read_commit(batches[-1]) if batches else None

    def resume(self) -> CommitRecord | None:
        """Return the newest commit for a driver that builds on it; None if there is none.

        Its predecessor may have died between linking a record and syncing the folder. A record that is visible and not
        durable would be lost in a power cut, and with it the base of all later commits: so records are synced first.
        """
        for folder in ("batches", "commits", "epochs", PRECOPIES):
            self._store.settle(folder)
        return self.last_commit()

    # --- state and outputs ---

    def write_delta(self, node: str, instance: int, batch: int, attempt: int, delta: pa.RecordBatch) -> str:
        """Write what a batch changed in an instance's state; returns the path for the commit record."""
        path = f"state/{node}/{instance}/{batch}-{attempt}.delta"
        passing("state.writing")
        self._store.write_new(path, encode(delta))
        passing("state.written")
        return path

    def stage_output(self, node: str, instance: int, batch: int, attempt: int, batches: Sequence[pa.RecordBatch]) -> str:
        """Write rows for the sinks, a plain Arrow file; returns the path for the commit record.

        Those with dictionaries are a stream: in a file every batch would have the same dictionary.
        """
        path = f"outputs/{node}/{batch}-{attempt}-{instance}.arrow"
        sink = pa.BufferOutputStream()
        schema = batches[0].schema
        new = pa.ipc.new_stream if any(map(has_dictionary, schema.types)) else pa.ipc.new_file
        with new(sink, schema) as writer:
            for rows in batches:
                writer.write_batch(rows)
        passing("output.staging")
        self._store.write_new(path, sink.getvalue().to_pybytes())
        passing("output.staged")
        return path

    def keep_table(self, operator: str, batch: int, version: str, of: str, rows: bytes) -> TableCopy:
        """Keep a version of a table, a file of Arrow, from this batch on.

        Its name has no attempt: the same version has the same rows.
        """
        digest = hashlib.blake2b(f"{of} {version}".encode(), digest_size=8).hexdigest()
        path = f"tables/{operator}/{batch}-{digest}.arrow"
        passing("table.writing")
        self._store.create(path, rows)
        passing("table.written")
        return TableCopy(path, version, of)

    def read_table(self, path: str) -> pa.Table:
        """The rows of a table that a record names."""
        return pa.ipc.open_file(self._store.read(path)).read_all()

    def load_state(self, reference: StateRef, schema: StateSchema, memory_bytes: int | None = None) -> State:
        """Load a new state from its files. Raises StateFileError naming a file that is damaged or does not fit.

        memory_bytes: as of `new_state`.
        """
        state = new_state(schema, memory_bytes)
        if reference.snapshot is not None:
            with self._fitting(reference.snapshot):
                for number, part in enumerate(self.read_fitted(reference.snapshot, schema)):
                    state.extend(part) if number else state.restore(part)
        for path in reference.paths:
            if path != reference.snapshot:
                self.apply_deltas(state, [path])
            if isinstance(state, KeyedState):
                state.mark_version(retention.number_of(path))
        return state

    def apply_deltas(self, state: State, paths: Sequence[str]) -> None:
        """Apply deltas to `state`. Raises StateFileError naming a file that is damaged or does not fit."""
        for path in paths:
            with self._fitting(path):
                for rows in self.read_fitted(path, state.schema):
                    state.apply(rows)

    def read_parts(self, path: str) -> Iterator[pa.RecordBatch]:
        """Read a snapshot or delta as it was written, part by part. Raises StateFileError naming it when it is damaged."""
        return decode_read(lambda start, length: self._store.read_range(path, start, length), self.where(path))

    def read_fitted(self, path: str, schema: StateSchema) -> Iterator[pa.RecordBatch]:
        """Read a snapshot or delta in the form of the operator's current version. Raises StateFileError naming it."""
        for rows in self.read_parts(path):
            with self._fitting(path):
                fitted = schema.fitted(rows)
            yield fitted

    @contextmanager
    def _fitting(self, path: str) -> Iterator[None]:
        """Raise StateFileError naming the file for a StateError of its rows."""
        try:
            yield
        except StateFileError:
            raise
        except StateError as error:
            raise StateFileError(
                f"state file {self.where(path)} is of another operator, or of other options or another version of it: {error}; "
                "go back to the operator that wrote it, have this one upgrade it (docs/run/upgrade.md), or start with an empty "
                "checkpoint"
            ) from error

    def compact(self, reference: StateRef, schema: StateSchema, part_bytes: int = PART_BYTES) -> str:
        """Write one snapshot of the files that `reference` names; `StateRef.compacted` puts it into the next commit.

        In memory are the keys that the deltas name and two or three parts of the snapshot, which has parts of `part_bytes`.

        Safe at any time while batches run, since it reads files that never change. Repeating it gives the same file.
        """
        if not reference.deltas:
            raise ValueError(f"there is nothing to compact in {reference}")
        path = str(PurePosixPath(reference.deltas[-1]).with_suffix(".snapshot"))
        if not self._store.exists(path):
            passing("snapshot.writing")
            parts = self._merged(reference, schema, part_bytes)
            first, second = next(parts), next(parts, None)
            if second is None:
                self._store.create(path, encode(first))
            else:
                begun = iter([chain((first, second), parts)])
                self._store.create_from(
                    path, lambda: encode_parts(next(begun, None) or self._merged(reference, schema, part_bytes))
                )
            passing("snapshot.written")
        return path

    def _merged(self, reference: StateRef, schema: StateSchema, part_bytes: int) -> Iterator[pa.RecordBatch]:
        """The state of `reference` as a new snapshot in parts. Raises StateFileError naming a file that does not fit."""
        deltas = chain.from_iterable(self._fitted_rows(path, schema) for path in reference.deltas)
        snapshot = () if reference.snapshot is None else self._fitted_rows(reference.snapshot, schema)
        return merged(snapshot, deltas, schema, part_bytes)

    def _fitted_rows(self, path: str, schema: StateSchema) -> Iterator[pa.RecordBatch]:
        """As `read_fitted`, and an error in what becomes of the rows names the file, too."""
        for rows in self.read_fitted(path, schema):
            with self._fitting(path):
                yield rows

    def collect_garbage(self, keep_commits: int = KEPT_COMMITS) -> list[str]:
        """Delete files that are older than the last `keep_commits` commits and named by none of them.

        Files of batches that are still to be committed are never older, so a running attempt loses nothing. Returns
        the paths deleted. Called by the driver, between batches.
        """
        leases, held = self.precopies.leases(), self.holds.batches()
        commits = self._commits()
        leases += self.precopies.leases()  # what was taken meanwhile may hold a commit that the last few are not
        held |= {lease.batch for lease in leases} | self.holds.batches()
        kept = [self.read_commit(batch) for batch in commits if batch in held or batch in commits[-keep_commits:]]
        if not kept:
            return []
        garbage = retention.garbage(filter(layout.is_ours, self._store.list("")), kept, leases)
        for path in garbage:
            passing("garbage.deleting")
            self._store.delete(path)
        return garbage

    def _commits(self) -> list[int]:
        return sorted(retention.number_of(path) for path in self._numbered("commits"))

    def _numbered(self, folder: str) -> list[str]:
        return [path for path in self._complete(folder) if layout.is_ours(path)]

    def _complete(self, folder: str) -> list[str]:
        return [path for path in self._store.list(folder) if not retention.is_partial(path)]
