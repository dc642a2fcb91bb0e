"""The logs of Spark and of the sources: offsets, commits, and the order in which files were handed out.

Where the checkpoint is a folder, it is a part of it. Where it is not, Spark's classes for such storage would come with
hundreds of megabytes of jars; so they log to a folder of the driver's machine, and new files are copied into the
checkpoint before their batch is recorded.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from streamtopology.jobs.checkpoint import layout
from streamtopology.jobs.checkpoint.errors import CheckpointError
from streamtopology.jobs.checkpoint.store import Store

SPARK_FOLDERS = ("files", "spark")
_AT_ONCE = 16


class SparkFolder:
    """A folder of the checkpoint itself, where every file is kept as written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.has_been_mended = False
        """True if Spark's log did not agree with the newest commit."""

    def save(self) -> None:
        """Keep the files written so far, before a batch that relies on them is recorded. Raises CheckpointError."""

    def close(self) -> None:
        """Nothing is written there any more."""


class UploadedSparkFolder(SparkFolder):
    """A local folder that begins with the files of the last `save`, by any driver."""

    def __init__(self, store: Store) -> None:
        self._scratch = TemporaryDirectory(prefix="streamtopology-")
        super().__init__(Path(self._scratch.name))
        self._store = store
        self._saved: set[str] = set()
        names = [name for folder in SPARK_FOLDERS for name in store.list(folder) if not layout.is_hidden(name)]
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            for name, data in zip(names, threads.map(store.read, names), strict=True):
                (self.path / name).parent.mkdir(parents=True, exist_ok=True)
                (self.path / name).write_bytes(data)
                self._saved.add(name)

    def save(self) -> None:
        """Files never change once they have their names; those that Spark or a source has thrown away are deleted, too.

        A source deletes records once they are part of a longer one. So what is gone is looked up first: the longer one exists
        by then, and is uploaded before anything is deleted.
        """
        gone = self._saved.difference(self._complete())
        while any(not self._upload(name) for name in self._complete() if name not in self._saved):
            """A file was deleted meanwhile: a longer one has its content."""
        for name in sorted(gone):
            self._store.delete(name)
            self._saved.remove(name)

    def close(self) -> None:
        self._scratch.cleanup()

    def _upload(self, name: str) -> bool:
        """Copy a file into the checkpoint. Returns False if it has been deleted."""
        try:
            data = (self.path / name).read_bytes()
        except FileNotFoundError:
            return False
        if not self._store.create(name, data) and self._store.read(name) != data:
            raise CheckpointError(
                f"{self._store.where(name)} was written by another driver meanwhile; only one may run on a checkpoint: "
                "stop the other one, and start again"
            )
        self._saved.add(name)
        return True

    def _complete(self) -> list[str]:
        """The complete files, sources' logs first, then batch by batch; drafts and checksums are left out."""
        found = [path for folder in SPARK_FOLDERS for path in (self.path / folder).rglob("*") if path.is_file()]
        files = [path.relative_to(self.path) for path in found]
        shown = [file for file in files if not any(part.startswith(".") for part in file.parts)]
        return [file.as_posix() for file in sorted(shown, key=_order)]


def _order(file: Path) -> tuple[int, int, bool, str]:
    """Offsets rely on the sources' logs and on the commit of the batch before, a commit on the offsets of its own."""
    if file.parts[0] == "spark" and file.parts[1] in ("offsets", "commits") and file.name.isdecimal():
        return 2, int(file.name), file.parts[1] == "commits", ""
    return int(file.parts[0] == "spark"), 0, False, str(file)
