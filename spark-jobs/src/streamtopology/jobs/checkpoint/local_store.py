"""A checkpoint in a folder of a local or shared file system.

A file system has no "create with this content". So a record is written under another name, synced, and linked to its name:
the link fails if the name exists, and nobody sees half a record. The folder is synced, too, or a power loss could take the
name back. Files that only a later record names are written directly: until then nobody reads them.
"""

from __future__ import annotations

import errno
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

from streamtopology.jobs.checkpoint import layout
from streamtopology.jobs.checkpoint.errors import AlreadyWritten, CheckpointError
from streamtopology.jobs.checkpoint.filesystem import Content, Disk, Pieces, PosixDisk, walked
from streamtopology.jobs.checkpoint.store import PARTIAL, Stored
from streamtopology.jobs.failpoints import passing

# Files of others that are looked at before the start: the place may be anything, also a home folder.
_MOST_LOOKED_AT = 1000


class LocalStore:
    """A folder of a local or shared file system that has hard links."""

    def __init__(self, root: Path, disk: Disk | None = None) -> None:
        self._root = root.absolute()
        self._disk = disk or PosixDisk()
        self._folders: set[Path] = set()

    @property
    def uri(self) -> str:
        return str(self._root)

    @property
    def folder(self) -> Path:
        return self._root

    def create(self, path: str, data: Content) -> bool:
        return self.create_from(path, lambda: [data])

    def create_from(self, path: str, pieces: Callable[[], Pieces]) -> bool:
        target = self._root / path
        partial = target.with_name(f".{target.name}.{uuid.uuid4().hex}{PARTIAL}")
        with _advising(partial, "write"):
            self._make_folder(target.parent)
            self._disk.write(partial, pieces())
            passing("file.drafted")
            try:
                self._disk.link(partial, target)
                passing("file.linked")
                created = True
            except FileExistsError:
                created = False
            except FileNotFoundError:  # a driver that runs with the file has swept the drafts of it
                if not self._disk.exists(target):
                    raise
                created = False
            finally:
                with suppress(FileNotFoundError):
                    self._disk.unlink(partial)
            self._disk.sync_folder(target.parent)  # also for another's file: its writer may have died before this
        return created

    def write_new(self, path: str, data: Content) -> None:
        target = self._root / path
        with _advising(target, "write"):
            self._make_folder(target.parent)
            try:
                self._disk.write(target, [data])
            except FileExistsError as error:
                raise AlreadyWritten(f"{target} is already written") from error
            self._disk.sync_folder(target.parent)

    def read(self, path: str) -> bytes:
        with _advising(self._root / path, "read"):
            return self._disk.read(self._root / path)

    def read_range(self, path: str, start: int, length: int) -> bytes:
        with _advising(self._root / path, "read"):
            return self._disk.read_range(self._root / path, start, length)

    def find(self, path: str) -> bytes | None:
        with _advising(self._root / path, "read"), suppress(FileNotFoundError):
            return self._disk.read(self._root / path)
        return None

    def exists(self, path: str) -> bool:
        with _advising(self._root / path, "look for"):
            return self._disk.exists(self._root / path)

    def missing(self, paths: Sequence[str]) -> Sequence[str]:
        return [path for path in paths if not self.exists(path)]

    def list(self, folder: str) -> Sequence[str]:
        with _advising(self._root / folder, "list"):
            found = self._disk.files_below(self._root / folder)
        below = len(f"{self._root}/")
        return sorted(str(path)[below:] for path in found)

    def stored(self, folder: str) -> Sequence[Stored]:
        found: list[Stored] = []
        for path in self.list(folder):
            with suppress(FileNotFoundError):  # deleted meanwhile
                status = (self._root / path).stat()
                found.append(Stored(path, status.st_size, status.st_mtime))
        return found

    def settle(self, folder: str) -> None:
        with _advising(self._root / folder, "write"):
            for parent in sorted({file.parent for file in self._disk.files_below(self._root / folder)}):
                self._make_folder(parent)
                self._disk.sync_folder(parent)

    def delete(self, path: str) -> None:
        with _advising(self._root / path, "delete"), suppress(FileNotFoundError):
            self._disk.unlink(self._root / path)

    def where(self, path: str) -> str:
        return str(self._root / path)

    def _make_folder(self, folder: Path) -> None:
        """Make `folder` durably, also where another process made it and died before its name was durable."""
        if folder in self._folders:
            return
        existing = next(above for above in (folder, *folder.parents) if self._disk.exists(above))
        self._disk.make_folder(folder)
        for above in (folder, *folder.parents):
            if above in self._folders or (above == existing and not above.is_relative_to(self._root)):
                break
            self._disk.sync_folder(above.parent)
            self._folders.add(above)


def foreign_text(folder: Path) -> str:
    """The refusal of a folder in which no checkpoint can begin, by the first files that are found; empty if one can."""
    with _advising(folder, "list"):
        found = (path.relative_to(folder).as_posix() for path in walked(folder))
        blocking = list(islice((path for path in found if not layout.is_hidden(path)), _MOST_LOOKED_AT))
    return layout.not_empty(str(folder), blocking) if blocking else ""


_ADVICE: dict[int, Callable[[Path], str]] = {
    errno.ENOSPC: lambda path: f"free space on the file system of {path.parent} and start again: nothing is lost",
    errno.EDQUOT: lambda path: f"raise the quota of the file system of {path.parent} and start again: nothing is lost",
    errno.EFBIG: lambda path: "raise the limit on the size of files (ulimit -f) and start again: nothing is lost",
    errno.EROFS: lambda path: "the file system is read-only: mount it for writing or name another `checkpoint`",
    errno.EACCES: lambda path: f"give this user the right to write in {path.parent} or name another `checkpoint`",
    errno.ENOENT: lambda path: "put the file back from a copy of the checkpoint, or start with an empty checkpoint",
    errno.EPERM: lambda path: "the file system must have hard links (os.link); name a `checkpoint` on one that has",
}


@contextmanager
def _advising(path: Path, verb: str) -> Iterator[None]:
    """Raise CheckpointError with advice for an OSError."""
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, lambda path: f"check that {path.parent} is there and works")(path)
        raise CheckpointError(f"cannot {verb} {path}: {error.strerror or error}; {advice}") from error
