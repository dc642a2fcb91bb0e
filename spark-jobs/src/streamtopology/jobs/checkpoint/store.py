"""Where a checkpoint's files are. A file is complete or absent, and never changes once it is there."""

from __future__ import annotations

import errno
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlparse

from streamtopology.jobs.checkpoint.disk import Content, Disk, PosixDisk
from streamtopology.jobs.crashpoints import passing

PARTIAL = ".partial"
"""How the names of files end that are being written; their names begin with a dot and the name they will have."""


class CheckpointError(Exception):
    """The checkpoint cannot be read or written; the message names the file, says why and what can be done."""


class Store(Protocol):
    """Files under one URI, named by relative paths with forward slashes. All methods raise CheckpointError."""

    @property
    def uri(self) -> str: ...

    @property
    def folder(self) -> Path | None:
        """The folder that the files are in, for other libraries to read and write there; None where there is none."""
        ...

    def create(self, path: str, data: Content) -> bool:
        """Make a file with all of `data`, durably, unless there is one: of many who try, one gets True."""
        ...

    def write_new(self, path: str, data: Content) -> None:
        """Write a file, durably, whose name no one else uses. It is only to be read once a record names it."""
        ...

    def read(self, path: str) -> bytes: ...

    def exists(self, path: str) -> bool: ...

    def missing(self, paths: Sequence[str]) -> Sequence[str]:
        """Those of `paths` that do not exist."""
        ...

    def list(self, folder: str) -> Sequence[str]:
        """Paths of all files below `folder`, sorted, those being written included; none if it is not there."""
        ...

    def delete(self, path: str) -> None:
        """Delete a file; it may be gone already."""
        ...

    def where(self, path: str) -> str:
        """The file as people can find it: a path or a URI."""
        ...


def open_store(uri: str) -> Store:
    """The store for a local path, a file:// URI or s3://bucket/prefix."""
    parsed = urlparse(uri)
    if parsed.scheme == "s3":
        from streamtopology.jobs.checkpoint.s3 import S3Store  # keeps its library out of who has no bucket

        return S3Store(uri)
    if parsed.scheme not in ("", "file"):
        raise CheckpointError(
            f"checkpoint {uri}: {parsed.scheme}:// is not supported; use a local path or file:// on storage that all "
            "executors share, or s3://bucket/prefix"
        )
    return LocalStore(Path(unquote(parsed.path) if parsed.scheme else uri))


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
        target = self._root / path
        partial = target.with_name(f".{target.name}.{uuid.uuid4().hex}{PARTIAL}")
        with _told(partial, "write"):
            self._make_folder(target.parent)
            self._disk.write(partial, data)
            passing("file.drafted")
            try:
                self._disk.link(partial, target)
                passing("file.linked")
            except FileExistsError:
                return False
            finally:
                self._disk.unlink(partial)
            self._disk.sync_folder(target.parent)
        return True

    def write_new(self, path: str, data: Content) -> None:
        target = self._root / path
        with _told(target, "write"):
            self._make_folder(target.parent)
            self._disk.write(target, data)
            self._disk.sync_folder(target.parent)

    def read(self, path: str) -> bytes:
        with _told(self._root / path, "read"):
            return self._disk.read(self._root / path)

    def exists(self, path: str) -> bool:
        with _told(self._root / path, "look for"):
            return self._disk.exists(self._root / path)

    def missing(self, paths: Sequence[str]) -> Sequence[str]:
        return [path for path in paths if not self.exists(path)]

    def list(self, folder: str) -> Sequence[str]:
        with _told(self._root / folder, "list"):
            found = self._disk.files_below(self._root / folder)
        below = len(f"{self._root}/")
        return sorted(str(path)[below:] for path in found)

    def delete(self, path: str) -> None:
        with _told(self._root / path, "delete"), suppress(FileNotFoundError):
            self._disk.unlink(self._root / path)

    def where(self, path: str) -> str:
        return str(self._root / path)

    def _make_folder(self, folder: Path) -> None:
        """There, and durably so: whoever made it may have died before its name was."""
        if folder in self._folders:
            return
        existing = next(above for above in (folder, *folder.parents) if self._disk.exists(above))
        self._disk.make_folder(folder)
        for above in (folder, *folder.parents):
            if above in self._folders or (above == existing and not above.is_relative_to(self._root)):
                break
            self._disk.sync_folder(above.parent)
            self._folders.add(above)


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
