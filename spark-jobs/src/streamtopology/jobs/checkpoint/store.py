"""The port of a checkpoint's storage. A file is complete or absent, and never changes once it exists.

This is the least that commit records need, and a folder and a bucket can both give it. From it follows that readers need
no lock, that a copy may run beside the writer, and that of two drivers only one can create the commit record of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from streamtopology.jobs.checkpoint.filesystem import Content, Pieces

# The ending of a file that is being written; its name begins with a dot and the name that it will have.
PARTIAL = ".partial"


@dataclass(frozen=True)
class Stored:
    """A stored file: its path, its size, and when it was written, in epoch seconds."""

    path: str
    bytes: int
    written_at: float


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

    def create_from(self, path: str, pieces: Callable[[], Pieces]) -> bool:
        """Make a file of all `pieces`, as `create` does, with few of them in memory; they are asked for again for a retry.

        Where several try at once, they must have the same content, and each may get True.
        """
        ...

    def write_new(self, path: str, data: Content) -> None:
        """Write a file, durably, that is only to be read once a record names it. Raises AlreadyWritten if it exists."""
        ...

    def read(self, path: str) -> bytes: ...

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """Read `length` bytes from `start` on, or all that follow."""
        ...

    def find(self, path: str) -> bytes | None:
        """The content of a file that others may delete at any time; None if it is not there."""
        ...

    def exists(self, path: str) -> bool: ...

    def missing(self, paths: Sequence[str]) -> Sequence[str]:
        """Those of `paths` that do not exist."""
        ...

    def list(self, folder: str) -> Sequence[str]:
        """Paths of all files below `folder`, sorted, those being written included; none if it is not there."""
        ...

    def stored(self, folder: str) -> Sequence[Stored]:
        """All files below `folder` with their sizes, those being written included."""
        ...

    def settle(self, folder: str) -> None:
        """Make all names below `folder` durable, also those that a process linked just before it died."""
        ...

    def delete(self, path: str) -> None:
        """Delete a file; it may be gone already."""
        ...

    def where(self, path: str) -> str:
        """The file as people can find it: a path or a URI."""
        ...
