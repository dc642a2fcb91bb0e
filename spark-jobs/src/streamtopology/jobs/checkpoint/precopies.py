"""Pre-copies: the state that an epoch moves, copied before its first batch. A lease, parts, and a mark that all are done.

migrations/<epoch>/lease.json               the version that is copied; while it is there, that version and all
                                            deltas after it are kept
migrations/<epoch>/<node>/<instance>.json   one old owner's part is copied
migrations/<epoch>/copied.json              every part is
state/<node>/<new owner>/<batch>-e<epoch>-<old owner>-<portion>.delta   keys that move between two instances, as of <batch>

A copy is a delta that a commit has yet to name: when the epoch's first batch names it, it is part of its new owner's
state; when the epoch is given up, it is a file that no record names.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import PurePosixPath

import pyarrow as pa

from streamtopology.jobs.checkpoint import layout, records, retention
from streamtopology.jobs.checkpoint.errors import CheckpointError
from streamtopology.jobs.checkpoint.records import Copied, CopiedFile, CopiedPart, Lease
from streamtopology.jobs.checkpoint.store import Store
from streamtopology.jobs.failpoints import passing
from streamtopology.jobs.state import encode

FOLDER = "migrations"


class Precopies:
    """All methods raise CheckpointError when files cannot be read or written."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def lease(self, epoch: int) -> Lease | None:
        """The lease that `epoch` holds, if any."""
        path = _lease(epoch)
        data = self._store.find(path)
        return None if data is None else records.from_bytes(records.Lease, data, self._store.where(path))

    def leases(self) -> list[Lease]:
        """All leases that are held, by epoch."""
        held = [path for path in filter(layout.is_ours, self._store.list(FOLDER)) if path.endswith("/lease.json")]
        epochs = sorted(map(retention.epoch_of, held))
        return [lease for epoch in epochs if (lease := self.lease(epoch)) is not None]

    def take(self, lease: Lease) -> Lease:
        """Take a lease for an epoch; a lease that the epoch holds already stays."""
        passing("lease.writing")
        self._store.create(_lease(lease.epoch), records.to_bytes(lease))
        passing("lease.written")
        held = self.lease(lease.epoch)
        if held is None:
            raise CheckpointError(f"epoch {lease.epoch} was given up by someone else while it was being prepared")
        return held

    def release(self, epoch: int) -> None:
        """Release the lease of an epoch that runs or never will, and delete the notes on its pre-copy."""
        passing("lease.releasing")
        self._store.delete(_lease(epoch))
        passing("lease.released")
        for path in filter(layout.is_ours, self._store.list(f"{FOLDER}/{epoch}")):
            self._store.delete(path)

    def release_up_to(self, epoch: int) -> None:
        """Release the leases of all epochs up to `epoch`, under which a batch has run."""
        for lease in self.leases():
            if lease.epoch <= epoch:
                self.release(lease.epoch)

    def write_copy(self, lease: Lease, node: str, source: int, target: int, portion: int, rows: pa.RecordBatch) -> CopiedFile:
        """Write the rows that move from `source` to `target` in `portion`. An existing copy is the same and stays."""
        path = f"state/{node}/{target}/{lease.batch}-e{lease.epoch}-{source}-{portion}.delta"
        data = encode(rows)
        passing("copy.writing")
        self._store.create(path, data)
        passing("copy.written")
        return CopiedFile(target, portion, path, rows.num_rows, len(data))

    def part(self, epoch: int, node: str, instance: int) -> CopiedPart | None:
        """The pre-copy of an old owner's part, None until it is finished."""
        path = f"{FOLDER}/{epoch}/{node}/{instance}.json"
        data = self._store.find(path)
        return None if data is None else records.from_bytes(records.CopiedPart, data, self._store.where(path))

    def part_done(self, epoch: int, part: CopiedPart) -> None:
        self._store.create(f"{FOLDER}/{epoch}/{part.node}/{part.instance}.json", records.to_bytes(part))
        passing("copy.noted")

    def parts_done(self, epoch: int) -> int:
        """The number of old owners' parts that are copied, for progress."""
        folder = f"{FOLDER}/{epoch}"
        return sum(len(PurePosixPath(path).parts) == 4 and path.endswith(".json") for path in self._store.list(folder))

    def finish(self, lease: Lease, parts: Sequence[CopiedPart]) -> Copied:
        """Note that every part is copied: from now on the epoch's first batch builds on the pre-copy."""
        copied = Copied(lease.epoch, lease.batch, lease.follows, tuple(parts), lease.portions)
        passing("copy.finishing")
        self._store.create(f"{FOLDER}/{lease.epoch}/copied.json", records.to_bytes(copied))
        passing("copy.finished")
        return copied

    def copied(self, epoch: int) -> Copied | None:
        """The finished pre-copy of an epoch that still holds its lease, or None."""
        path = f"{FOLDER}/{epoch}/copied.json"
        data = self._store.find(path)
        if data is None or not self._store.exists(_lease(epoch)):
            return None
        return records.from_bytes(records.Copied, data, self._store.where(path))


def _lease(epoch: int) -> str:
    return f"{FOLDER}/{epoch}/lease.json"


def files_for(copied: Copied, node: str, target: int, portions: Container[int]) -> Iterator[str]:
    """The copies that `target` takes in with these portions."""
    for part in copied.parts:
        if part.node == node:
            yield from (file.path for file in part.files if file.target == target and file.portion in portions)


def is_whole_after(state: Mapping[str, Mapping[int, records.StateRef]], batch: int) -> bool:
    """True if each instance's chain still has every delta after `batch` as a file of its own."""
    snapshots = [ref.snapshot for instances in state.values() for ref in instances.values() if ref.snapshot is not None]
    return all(retention.number_of(snapshot) <= batch for snapshot in snapshots)
