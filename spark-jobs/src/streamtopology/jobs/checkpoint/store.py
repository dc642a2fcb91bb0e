"""Where a checkpoint's files are. A file is complete or absent, and never changes once it is there."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlparse

from streamtopology.jobs.crashpoints import passing

PARTIAL = ".partial"
"""How the names of files end that are being written; their names begin with a dot and the name they will have."""


class CheckpointError(Exception):
    """The checkpoint cannot be read or written; the message names the file, says why and what can be done."""


class Store(Protocol):
    """Files under one URI, named by relative paths with forward slashes. All methods raise CheckpointError."""

    @property
    def uri(self) -> str: ...

    def create(self, path: str, data: bytes) -> bool:
        """Make a file with all of `data`, durably, unless there is one: of many who try, one gets True."""
        ...

    def write_new(self, path: str, data: bytes) -> None:
        """Write a file, durably, whose name no one else uses. It is only to be read once a record names it."""
        ...

    def read(self, path: str) -> bytes: ...

    def exists(self, path: str) -> bool: ...

    def list(self, folder: str) -> list[str]:
        """Paths of all files below `folder`, sorted, those being written included; none if it is not there."""
        ...

    def delete(self, path: str) -> None:
        """Delete a file; it may be gone already."""
        ...

    def local_path(self, path: str) -> Path:
        """Where other libraries on this machine can read the file."""
        ...


def open_store(uri: str) -> Store:
    """The store for a local path or a file:// URI."""
    parsed = urlparse(uri)
    if parsed.scheme not in ("", "file"):
        raise CheckpointError(
            f"checkpoint {uri}: {parsed.scheme}:// is not supported; use a local path or file:// on storage that all "
            "executors share"
        )
    return LocalStore(Path(unquote(parsed.path) if parsed.scheme else uri))


class LocalStore:
    """A folder of a local or shared file system that has hard links."""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()
        self._folders: set[Path] = set()

    @property
    def uri(self) -> str:
        return str(self._root)

    def create(self, path: str, data: bytes) -> bool:
        target = self.local_path(path)
        partial = target.with_name(f".{target.name}.{uuid.uuid4().hex}{PARTIAL}")
        with _told(partial, "write"):
            self._make_folder(target.parent)
            _write(partial, data)
            passing("file.drafted")
            try:
                os.link(partial, target)
                passing("file.linked")
            except FileExistsError:
                return False
            finally:
                partial.unlink()
            _sync_folder(target.parent)
        return True

    def write_new(self, path: str, data: bytes) -> None:
        target = self.local_path(path)
        with _told(target, "write"):
            self._make_folder(target.parent)
            _write(target, data)
            _sync_folder(target.parent)

    def read(self, path: str) -> bytes:
        with _told(self.local_path(path), "read"):
            return self.local_path(path).read_bytes()

    def exists(self, path: str) -> bool:
        with _told(self.local_path(path), "look for"):
            return self.local_path(path).exists()

    def list(self, folder: str) -> list[str]:
        with _told(self.local_path(folder), "list"):
            found = [
                (Path(where) / name).relative_to(self._root).as_posix()
                for where, _, names in os.walk(self.local_path(folder), onerror=_unless_absent)
                for name in names
            ]
        return sorted(found)

    def delete(self, path: str) -> None:
        with _told(self.local_path(path), "delete"):
            self.local_path(path).unlink(missing_ok=True)

    def local_path(self, path: str) -> Path:
        return self._root / path

    def _make_folder(self, folder: Path) -> None:
        if folder in self._folders:
            return
        missing = [folder, *folder.parents]
        missing = missing[: next(i for i, parent in enumerate(missing) if parent.exists())]
        folder.mkdir(parents=True, exist_ok=True)
        for made in missing:
            _sync_folder(made.parent)
        self._folders.add(folder)


def _write(path: Path, data: bytes) -> None:
    """A new file with all of `data` on the disk, or none."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fdatasync(descriptor)
    except BaseException:
        path.unlink()
        raise
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """Make the folder's entries durable: a file that is synced can still lack its name after a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unless_absent(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


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
def _told(path: Path, verb: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, lambda path: f"check that {path.parent} is there and works")(path)
        raise CheckpointError(f"cannot {verb} {path}: {error.strerror or error}; {advice}") from error
