"""The checkpoint as the driver and its tasks use it.

header.json                                     whose checkpoint it is
epochs/<number>.json                            plans; the one a batch record names is active
batches/<batch>-<attempt>.json                  attempts, recorded before their work
commits/<batch>.json                            one a batch, written last: only files that it names exist
state/<node>/<instance>/<batch>-<attempt>.delta     what a batch changed
state/<node>/<instance>/<batch>-<attempt>.snapshot  the state after that delta
outputs/<node>/<batch>-<attempt>-<instance>.arrow   rows for the sinks
migrations/<epoch>/...                          epochs whose state is copied ahead, see `migrations`
spark/..., files/...                            what Spark and the sources log on their own, see `carried`
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

import pyarrow as pa

from streamtopology.jobs.checkpoint import records, retention
from streamtopology.jobs.checkpoint.carried import CarriedFolder, SparkFolder
from streamtopology.jobs.checkpoint.migrations import Migrations
from streamtopology.jobs.checkpoint.records import BatchRecord, CommitRecord, Header, StateRef
from streamtopology.jobs.checkpoint.store import CheckpointError, Store, open_store
from streamtopology.jobs.crashpoints import passing
from streamtopology.jobs.state import KeyedState, State, StateError, StateFileError, StateSchema, decode, encode, new_state


class Checkpoint:
    """One topology's checkpoint. All methods raise CheckpointError when files cannot be read or written."""

    def __init__(self, store: Store, header: Header) -> None:
        self._store = store
        self._header = header
        self.migrations = Migrations(store)
        self._exist: set[str] = set()

    @staticmethod
    def open(uri: str, topology: str) -> Checkpoint:
        """The topology's checkpoint at `uri`, made if there is none; another topology's is refused."""
        store = open_store(uri)
        header = records.to_bytes(Header(topology, uuid.uuid4().hex))
        is_new = not store.exists(retention.HEADER) and store.create(retention.HEADER, header)
        if is_new and store.create(retention.HEADER, header):
            raise CheckpointError(
                f"checkpoint {uri}: the storage writes over a file although it is told not to (If-None-Match), so two drivers "
                "would not notice each other; name a `checkpoint` on another"
            )
        checkpoint = Checkpoint.attach(uri)
        found = checkpoint._header.topology
        if found != topology:
            raise CheckpointError(
                f"checkpoint {uri} is that of topology {found!r}, not of {topology!r}; name another `checkpoint`, or "
                "delete this one if that topology is no longer wanted"
            )
        return checkpoint

    @staticmethod
    def attach(uri: str) -> Checkpoint:
        """The checkpoint that is at `uri`, whoever's it is."""
        store = open_store(uri)
        if not store.exists(retention.HEADER):
            raise CheckpointError(f"there is no checkpoint at {uri}; it is made by the first `streamtopology run`")
        return Checkpoint(store, records.header_from(store.read(retention.HEADER), f"{uri}/{retention.HEADER}"))

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

    def read(self, path: str) -> bytes:
        return self._store.read(path)

    def where(self, path: str) -> str:
        """A file as people can find it: a path or a URI."""
        return self._store.where(path)

    @contextmanager
    def at_hand(self, paths: Sequence[str]) -> Iterator[list[Path]]:
        """Files that a record names, on this machine while entered."""
        if self._store.folder is not None:
            yield [self._store.folder / path for path in paths]
            return
        with TemporaryDirectory(prefix="streamtopology-") as scratch:
            copies = [Path(scratch, str(index)) for index in range(len(paths))]
            for path, copy in zip(paths, copies, strict=True):
                copy.write_bytes(self._store.read(path))
            yield copies

    def spark_folder(self) -> SparkFolder:
        """The folder for what Spark and the sources log on their own, as it was at the last `save`."""
        return CarriedFolder(self._store) if self._store.folder is None else SparkFolder(self._store.folder)

    def keep(self, path: str, data: bytes) -> None:
        """Keep a file for people, unless it is there: sinks are given a batch again."""
        self._store.create(path, data)

    # --- epochs ---

    def epochs(self) -> list[int]:
        """Numbers of all epochs that are kept, ascending."""
        return sorted(retention.number_of(path) for path in self._complete("epochs"))

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
        paths = [path for path in self._complete("batches") if retention.number_of(path) == batch]
        found = [records.batch_record_from(self._store.read(path), self.where(path)) for path in paths]
        return sorted(found, key=lambda record: record.attempt)

    def commit(self, record: CommitRecord) -> bool:
        """Decide a batch; False when it is decided already. Refused when a file that the record names is not there."""
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
        return made

    def read_commit(self, batch: int) -> CommitRecord:
        path = f"commits/{batch}.json"
        return records.commit_record_from(self._store.read(path), self.where(path))

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

    # --- state and outputs ---

    def write_delta(self, node: str, instance: int, batch: int, attempt: int, delta: pa.RecordBatch) -> str:
        """Write what a batch changed in an instance's state; returns the path for the commit record."""
        path = f"state/{node}/{instance}/{batch}-{attempt}.delta"
        passing("state.writing")
        self._store.write_new(path, encode(delta))
        passing("state.written")
        return path

    def stage_output(self, node: str, instance: int, batch: int, attempt: int, batches: Sequence[pa.RecordBatch]) -> str:
        """Write rows for the sinks, a plain Arrow file; returns the path for the commit record."""
        path = f"outputs/{node}/{batch}-{attempt}-{instance}.arrow"
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, batches[0].schema) as writer:
            for rows in batches:
                writer.write_batch(rows)
        passing("output.staging")
        self._store.write_new(path, sink.getvalue().to_pybytes())
        passing("output.staged")
        return path

    def load_state(self, reference: StateRef, schema: StateSchema) -> State:
        """State of its own, as the files say. Raises StateFileError naming a file that is damaged or does not fit."""
        state = new_state(schema)
        if reference.snapshot is not None:
            self._into(state.restore, reference.snapshot, schema)
        for path in reference.paths:
            if path != reference.snapshot:
                self.apply_deltas(state, [path])
            if isinstance(state, KeyedState):
                state.mark_version(retention.number_of(path))
        return state

    def apply_deltas(self, state: State, paths: Sequence[str]) -> None:
        """Take deltas over into `state`. Raises StateFileError naming a file that is damaged or does not fit."""
        for path in paths:
            self._into(state.apply, path, state.schema)

    def read_rows(self, path: str) -> pa.RecordBatch:
        """A snapshot or delta as it was written. Raises StateFileError naming it when it is damaged."""
        return decode(self._store.read(path), self.where(path))

    def read_fitted(self, path: str, schema: StateSchema) -> pa.RecordBatch:
        """A snapshot or delta as the operator writes it now. Raises StateFileError naming it when that cannot be."""
        fitted: list[pa.RecordBatch] = []
        self._into(fitted.append, path, schema)
        return fitted[0]

    def _into(self, take: Callable[[pa.RecordBatch], None], path: str, schema: StateSchema) -> None:
        rows = self.read_rows(path)
        try:
            take(schema.fitted(rows))
        except StateError as error:
            raise StateFileError(
                f"state file {self.where(path)} is of another operator, or of other options or another version of it: {error}; "
                "go back to the operator that wrote it, have this one upgrade it (docs/upgrade.md), or start with an empty "
                "checkpoint"
            ) from error

    def compact(self, node: str, instance: int, reference: StateRef, schema: StateSchema) -> str:
        """Write one snapshot of the files that `reference` names; `StateRef.compacted` puts it into the next commit.

        Anyone can do it at any time while batches run: it reads files that never change. Done twice, it is one file.
        """
        if not reference.deltas:
            raise ValueError(f"there is nothing to compact in {reference}")
        path = str(PurePosixPath(reference.deltas[-1]).with_suffix(".snapshot"))
        if not self._store.exists(path):
            passing("snapshot.writing")
            self._store.create(path, encode(self.load_state(reference, schema).snapshot()))
            passing("snapshot.written")
        return path

    def collect_garbage(self, keep_commits: int = 3) -> list[str]:
        """Delete what no one can need: files older than the last `keep_commits` commits that none of these names.

        Files of batches that are still to be committed are never older, so an attempt at work loses nothing. Returns
        the paths deleted. Called by the driver, between batches.
        """
        leases = self.migrations.leases()
        commits = self._commits()
        leases += self.migrations.leases()  # one that was taken meanwhile may hold a commit that the last few are not
        oldest = min((lease.batch for lease in leases), default=commits[-1] if commits else 0)
        kept = [self.read_commit(batch) for batch in commits if batch == oldest or batch in commits[-keep_commits:]]
        if not kept:
            return []
        garbage = retention.garbage(self._store.list(""), kept, leases)
        for path in garbage:
            passing("garbage.deleting")
            self._store.delete(path)
        return garbage

    def _commits(self) -> list[int]:
        return sorted(retention.number_of(path) for path in self._complete("commits"))

    def _complete(self, folder: str) -> list[str]:
        return [path for path in self._store.list(folder) if not retention.is_partial(path)]
