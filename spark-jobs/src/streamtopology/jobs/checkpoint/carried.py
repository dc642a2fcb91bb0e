"""What is logged in a folder by others: Spark's offsets and commits, and the order in which sources handed their files out.

Where the checkpoint is a folder, it is a part of it. Where it is not, Spark's classes for such storage would come with
hundreds of megabytes of jars; so they log to a folder of the driver's machine, and what is new there is carried into the
checkpoint before the batch that it is about is recorded.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from streamtopology.jobs.checkpoint.store import CheckpointError, Store

CARRIED = ("files", "spark")


class SparkFolder:
    """A folder of the checkpoint itself: all that is written there is kept."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def save(self) -> None:
        """Keep what was written, before a batch that relies on it is recorded. Raises CheckpointError."""

    def close(self) -> None:
        """Nothing is written there any more."""


class CarriedFolder(SparkFolder):
    """A folder that begins as it was at the last `save`, whoever saved it."""

    def __init__(self, store: Store) -> None:
        self._scratch = TemporaryDirectory(prefix="streamtopology-")
        super().__init__(Path(self._scratch.name))
        self._store = store
        self._saved: set[str] = set()
        for name in (name for folder in CARRIED for name in store.list(folder)):
            (self.path / name).parent.mkdir(parents=True, exist_ok=True)
            (self.path / name).write_bytes(store.read(name))
            self._saved.add(name)

    def save(self) -> None:
        """Files never change once they have their names; those that Spark has thrown away are deleted, too."""
        there = self._complete()
        for name in [name for name in there if name not in self._saved]:
            self._carry(name)
        for name in sorted(self._saved.difference(there)):
            self._store.delete(name)
            self._saved.remove(name)

    def close(self) -> None:
        self._scratch.cleanup()

    def _carry(self, name: str) -> None:
        data = (self.path / name).read_bytes()
        if not self._store.create(name, data) and self._store.read(name) != data:
            raise CheckpointError(
                f"{self._store.where(name)} was written by another driver meanwhile; only one may run on a checkpoint: "
                "stop the other one, and start again"
            )
        self._saved.add(name)

    def _complete(self) -> list[str]:
        """What is there under its name, sources' logs first, then batch by batch; drafts and checksums are hidden."""
        found = [path for folder in CARRIED for path in (self.path / folder).rglob("*") if path.is_file()]
        files = [path.relative_to(self.path) for path in found]
        shown = [file for file in files if not any(part.startswith(".") for part in file.parts)]
        return [file.as_posix() for file in sorted(shown, key=_order)]


def _order(file: Path) -> tuple[int, int, bool, str]:
    """Offsets rely on the sources' logs and on the commit of the batch before, a commit on the offsets of its own."""
    if file.parts[0] == "spark" and file.parts[1] in ("offsets", "commits") and file.name.isdecimal():
        return 2, int(file.name), file.parts[1] == "commits", ""
    return int(file.parts[0] == "spark"), 0, False, str(file)
