"""Files where they are: on this machine, or as objects in a bucket (`s3://BUCKET/KEY`)."""

from __future__ import annotations

import errno
import io
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from streamtopology.jobs.connectors.file_uri import BUCKET_SCHEME, is_in_bucket
from streamtopology.jobs.connectors.sources.descriptors import skip_remedy
from streamtopology.jobs.connectors.sources.errors import BadFileError, BucketError

if TYPE_CHECKING:
    from streamtopology.jobs.bucket import Bucket

# Bytes of an object that are asked for at once where it is read from its begin to its end.
READ_AHEAD = 8 << 20
LITTLE_AHEAD = 128 << 10
_AT_ONCE = 16

Item = TypeVar("Item")
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class FileStatus:
    """What tells a file from another one of its name: the times of its contents and of its entry, its number on its disk.

    An object has the checksum of its ETag in place of its entry's time.
    """

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int = 0


def status_of(path: str) -> FileStatus:
    """Raises OSError, as FileNotFoundError, and BucketError."""
    if is_in_bucket(path):
        return _status(_found(path))
    return _of_stat(os.stat(path))


def status_in(file: io.BufferedReader) -> FileStatus:
    """The status of a file that `opened` gave."""
    return getattr(file.raw, "status", None) or _of_stat(os.fstat(file.fileno()))


def exists(path: str) -> bool:
    """True if there is a file, or a folder of this machine. Raises BucketError."""
    if is_in_bucket(path):
        bucket, key = _place(path)
        return bucket.exists(key)
    return os.path.exists(path)


def opened(path: str, ahead: int = LITTLE_AHEAD) -> io.BufferedReader:
    """The content of a file. An object stays the one that it was: its `read` raises BadFileError if it is replaced or gone.

    Raises OSError, and BucketError, as `read` does.
    """
    return io.BufferedReader(_Object(path), ahead) if is_in_bucket(path) else open(path, "rb")


def for_arrow(path: str) -> str | io.RawIOBase:
    """What Arrow's readers of parquet open for a path. Raises as `opened` does."""
    return _Object(path) if is_in_bucket(path) else path


def server_of(path: str) -> dict[str, str] | None:
    """What delta-rs needs to know of a bucket's server; None for a path of this machine."""
    return _place(path)[0].options if is_in_bucket(path) else None


def each_of(items: Sequence[Item], ask: Callable[[Item], Answer], path_of: Callable[[Item], str]) -> Iterable[Answer]:
    """The answers to questions about files, in order; those to a bucket are asked together, as each takes a while."""
    if not items or not is_in_bucket(path_of(items[0])):
        return map(ask, items)
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        return list(threads.map(ask, items))


def objects_below(place: str) -> Iterator[tuple[str, FileStatus]]:
    """The paths of the objects at `place`, or below it as if it were a folder. Raises BucketError.

    An object without a byte has no rows: programs make them to stand for a folder.
    """
    bucket, prefix = _place(place)
    alone = bucket.status(prefix) if prefix else None
    for found in [*bucket.listed(prefix), *([alone] if alone else [])]:
        if found["size"]:
            yield bucket.where(found["path"]), _status(found)


class _Object(io.RawIOBase):
    """An object to be read from any place."""

    def __init__(self, path: str) -> None:
        self._path = path
        found = _found(path)
        self.status = _status(found)
        self._size, self._e_tag = found["size"], found["e_tag"]
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)
        length = min(len(view), self._size - self._at)
        if length <= 0:
            return 0
        bucket, key = _place(self._path)
        data = bucket.part_of(key, self._e_tag, self._at, length)
        if data is None:
            finding = "was replaced while it was read" if exists(self._path) else "is gone"
            raise BadFileError(f"{self._path} {finding}; put the former one back", skip_remedy(self._path))
        view[: len(data)] = data
        self._at += len(data)
        return len(data)


def _found(path: str) -> Mapping[str, Any]:
    bucket, key = _place(path)
    found = bucket.status(key)
    if found is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    return found


def _status(found: Mapping[str, Any]) -> FileStatus:
    return FileStatus(found["size"], int(found["last_modified"].timestamp()) * 10**9, zlib.crc32(str(found["e_tag"]).encode()))


def _of_stat(status: os.stat_result) -> FileStatus:
    return FileStatus(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


def _place(path: str) -> tuple[Bucket, str]:
    name, _, key = path.removeprefix(BUCKET_SCHEME).partition("/")
    return _bucket(name), key.rstrip("/")


@lru_cache(maxsize=16)
def _bucket(name: str) -> Bucket:
    """Kept for its connections."""
    from streamtopology.jobs.bucket import Bucket, Use  # loads obstore only for buckets

    if_gone = "put it back, or start again without it"
    return Bucket(f"{BUCKET_SCHEME}{name}", Use("driver and executors", "path", if_gone, BucketError))
