"""Notes on batches that did not reach a sink in the usual way: those that could not be published, and those that were exported.

publications/<sink>/<batch>.failed       the sink could not take the batch, which is committed
publications/<sink>/<batch>.exported     `streamtopology state export-batch` has put its rows elsewhere: they count as published

publications/<batch>-<attempt>.complete  all sinks have the batch: the newest one of a run that ended in order

Of most batches there is no note: they are published after their commit, and again at the next start.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from streamtopology.jobs.checkpoint import layout
from streamtopology.jobs.checkpoint.store import PARTIAL, Store

FOLDER = "publications"
_FAILED, _EXPORTED, _COMPLETE = "failed", "exported", ".complete"


@dataclass(frozen=True)
class Exported:
    """A batch whose rows for a sink are in `place` instead."""

    sink: str
    batch: int
    place: str


class Publications:
    """All methods raise CheckpointError when files cannot be read or written."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def known(self) -> set[str]:
        """The paths of all notes."""
        return {path for path in self._store.list(FOLDER) if layout.is_ours(path) and not path.endswith(PARTIAL)}

    def are_noted(self) -> bool:
        """True if there are notes on sinks: any batch could not be published to one of them, or was exported."""
        return any(not path.endswith(_COMPLETE) for path in self.known())

    def has_failed(self, sink: str, batch: int) -> bool:
        return self._store.exists(_path(sink, batch, _FAILED))

    def failed(self, sink: str, batch: int, why: str) -> None:
        """Note that the sink could not take the batch."""
        self._store.create(_path(sink, batch, _FAILED), why.encode("utf-8", "backslashreplace"))

    def published(self, sink: str, batch: int) -> None:
        """Take back the note that the sink could not take the batch."""
        self._store.delete(_path(sink, batch, _FAILED))

    def exported_to(self, sink: str, batch: int) -> str | None:
        """The place to which the batch was exported for the sink; None if it was not."""
        found = self._store.find(_path(sink, batch, _EXPORTED))
        return None if found is None else found.decode()

    def exported(self, sink: str, batch: int, place: str) -> None:
        """Note that the rows of the batch are in `place`, so that the sink does not get them."""
        self._store.create(_path(sink, batch, _EXPORTED), place.encode("utf-8", "surrogateescape"))

    def forget_after(self, batch: int) -> list[Exported]:
        """Delete the notes on all later batches, which are no more; returns those that were exported, in order."""
        found: list[Exported] = []
        for path in sorted(self.known()):
            number = int(PurePosixPath(path).stem.partition("-")[0])
            if number <= batch:
                continue
            if path.endswith(f".{_EXPORTED}"):
                sink = PurePosixPath(path).parent.relative_to(FOLDER).as_posix()
                found.append(Exported(sink, number, self.exported_to(sink, number) or ""))
            self._store.delete(path)
        return sorted(found, key=lambda one: (one.batch, one.sink))

    def is_complete(self, batch: int, attempt: int) -> bool:
        """True if a run has noted that all its sinks have what this attempt at the batch made."""
        return self._store.exists(_complete_path(batch, attempt))

    def complete(self, batch: int, attempt: int) -> None:
        """Note that all sinks have what this attempt at the batch made."""
        self._store.create(_complete_path(batch, attempt), b"")


def _complete_path(batch: int, attempt: int) -> str:
    return f"{FOLDER}/{batch}-{attempt}{_COMPLETE}"


def _path(sink: str, batch: int, note: str) -> str:
    return f"{FOLDER}/{sink}/{batch}.{note}"
