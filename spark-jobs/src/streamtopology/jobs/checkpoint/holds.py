"""Holds: the versions of a checkpoint that are being copied as a whole. What they name is kept until they are released.

copies/<digest of the target>.json   the version that is being copied to that target
"""

from __future__ import annotations

import hashlib

from streamtopology.jobs.checkpoint import layout, records
from streamtopology.jobs.checkpoint.records import CopyHold
from streamtopology.jobs.checkpoint.store import PARTIAL, Store

FOLDER = "copies"

# The time that a hold lasts, by the clock of the storage: a copy that died and is never made must not keep files for ever.
LONGEST_SECONDS = 86_400.0


class Holds:
    """All methods raise CheckpointError when files cannot be read or written."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def of(self, target: str) -> CopyHold | None:
        """The hold of a copy to `target`, if any."""
        return self._read(_path(target))

    def take(self, hold: CopyHold) -> None:
        """Hold a version for a copy that holds none."""
        self._store.create(_path(hold.target), records.to_bytes(hold))

    def release(self, target: str) -> None:
        """Release the hold of a copy that is made or given up, if there is one."""
        self._store.delete(_path(target))

    def batches(self) -> set[int]:
        """The batches whose versions are held. A hold that lasts for too long is deleted."""
        paths = [path for path in self._store.list(FOLDER) if layout.is_ours(path) and not path.endswith(PARTIAL)]
        if not paths:
            return set()
        newest = max((file.written_at for file in self._store.stored("commits")), default=0.0)
        for file in self._store.stored(FOLDER):
            if layout.is_ours(file.path) and newest - file.written_at > LONGEST_SECONDS:
                self._store.delete(file.path)
        return {hold.batch for path in paths if (hold := self._read(path)) is not None}

    def _read(self, path: str) -> CopyHold | None:
        data = self._store.find(path)
        return None if data is None else records.from_bytes(records.CopyHold, data, self._store.where(path))


def _path(target: str) -> str:
    return f"{FOLDER}/{hashlib.sha256(target.encode()).hexdigest()[:16]}.json"
