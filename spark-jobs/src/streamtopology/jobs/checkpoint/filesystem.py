"""The few file operations that a checkpoint is made of; what is durable after each is what `LocalStore` relies on."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from io import FileIO
from pathlib import Path
from typing import Protocol

Content = bytes | memoryview
# The content of a file, piece after piece.
Pieces = Iterable[Content]

# Folders at the root of a volume: one that none but root may list, and old versions of all files.
_OF_THE_FILE_SYSTEM = ("lost+found", ".snapshot")


class Disk(Protocol):
    """Folders and files. All methods raise OSError. A name is only durable once its folder has been synced."""

    def write(self, path: Path, pieces: Pieces) -> None:
        """Make a new file of all `pieces`, which is durable then; its name is not. On an error there is none."""
        ...

    def link(self, existing: Path, name: Path) -> None:
        """Give a file another name, at once and whole. FileExistsError when the name is taken."""
        ...

    def unlink(self, path: Path) -> None: ...

    def make_folder(self, folder: Path) -> None:
        """Make a folder and those above it unless they are there."""
        ...

    def sync_folder(self, folder: Path) -> None:
        """Make the names in a folder durable, removals included."""
        ...

    def read(self, path: Path) -> bytes: ...

    def read_range(self, path: Path, start: int, length: int) -> bytes:
        """Read `length` bytes from `start` on, or all that follow."""
        ...

    def exists(self, path: Path) -> bool: ...

    def files_below(self, folder: Path) -> list[Path]:
        """All files below a folder in any order, but for those of the file system itself; none if it is not there."""
        ...


class PosixDisk:
    """The operating system's."""

    def write(self, path: Path, pieces: Pieces) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            for piece in pieces:
                view = memoryview(piece)
                while view:
                    view = view[os.write(descriptor, view) :]
            os.fdatasync(descriptor)
        except BaseException:
            path.unlink()
            raise
        finally:
            os.close(descriptor)

    def link(self, existing: Path, name: Path) -> None:
        os.link(existing, name)

    def unlink(self, path: Path) -> None:
        path.unlink()

    def make_folder(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)

    def sync_folder(self, folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def read_range(self, path: Path, start: int, length: int) -> bytes:
        with path.open("rb", buffering=0) as file:
            to_read = min(length, max(os.fstat(file.fileno()).st_size - start, 0))
            file.seek(start)
            return _exactly(file, to_read)

    def exists(self, path: Path) -> bool:
        return path.exists()

    def files_below(self, folder: Path) -> list[Path]:
        return list(walked(folder))


def walked(folder: Path) -> Iterator[Path]:
    """All files below a folder, those of the folder itself first; a link to a folder is a file."""
    for where, folders, names in os.walk(folder, onerror=_unless_absent):
        folders[:] = [name for name in folders if name not in _OF_THE_FILE_SYSTEM]
        yield from (path for name in folders if (path := Path(where, name)).is_symlink())
        yield from (Path(where, name) for name in names)


def _exactly(file: FileIO, length: int) -> bytes:
    """The next `length` bytes; one call reads at most 2 GiB."""
    pieces: list[bytes] = []
    while length and (piece := file.read(length)):
        pieces.append(piece)
        length -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _unless_absent(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
