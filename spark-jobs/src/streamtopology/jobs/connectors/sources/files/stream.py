"""Files, in folders or in buckets, as streams of descriptors.

The order in which files were handed out is kept in a file log, so that an offset (a number of files) names the same rows
after a restart, whatever has appeared in the folder since.
"""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from streamtopology.jobs.connectors.file_uri import is_in_bucket
from streamtopology.jobs.connectors.sources.descriptors import (
    DIVISIBLE,
    LIMITS,
    Descriptor,
    Names,
    SourceError,
    SourceSpec,
    positive_option,
    skip_remedy,
)
from streamtopology.jobs.connectors.sources.errors import BadFileError
from streamtopology.jobs.connectors.sources.files.file_log import FileLog, LoggedFile
from streamtopology.jobs.connectors.sources.files.listing import list_files, root_of
from streamtopology.jobs.connectors.sources.files.partitions import outside_partitions
from streamtopology.jobs.connectors.sources.schema.declared import declared_schema
from streamtopology.jobs.connectors.sources.stored_files import (
    LITTLE_AHEAD,
    FileStatus,
    each_of,
    exists,
    opened,
    status_in,
    status_of,
)

_SAMPLE_BYTES = 65_536
# Files that were read and are compared with what is there now: a look at each takes a while on a network's volume.
_MOST_COMPARED = 1000
# What a mark is of: each piece is a place to go to on a disk, so they are few.
_PIECES, _PIECE_BYTES = 4, 32_768


# Number of files that are read; or, within the file after them, [files, row group, row].
Position = int | list[int]

_Place = tuple[int, int, int]


def _place(position: Position) -> _Place:
    return (position, 0, 0) if isinstance(position, int) else (position[0], position[1], position[2])


def _position(place: _Place) -> Position:
    return place[0] if place[1:] == (0, 0) else list(place)


class FileStream:
    """One file source: a range ends at a number of files handed out, a part of it may end within a file."""

    def __init__(self, spec: SourceSpec, log: FileLog) -> None:
        self._spec = spec
        self._log = log
        self._limit = next(filter(None, (positive_option(spec, name) for name in LIMITS)), None)
        self._waiting: list[str] = []  # listed, not yet handed out
        self._listing_closed = False

    def initial_offset(self) -> int:
        return 0

    def close_listing(self) -> None:
        """Fix the end of the stream at the files that are there now (trigger availableNow)."""
        self._waiting = self._new_files()
        self._listing_closed = True

    def advance(self, start: Position) -> Position:
        """The position after the next range: files the log holds beyond `start`, else new ones, up to the limit."""
        first = _place(start)[0]
        self._require(first)
        if first == len(self._log):
            self._hand_out()
        end = len(self._log)
        return end if self._limit is None else min(end, first + self._limit)

    def between(self, start: Position, end: Position) -> Iterator[Descriptor]:
        """The descriptors from `start` to `end`, from the log alone."""
        return (descriptor for _, descriptor in self._between(_place(start), _place(end)))

    def check(self, start: Position, end: Position) -> bool:
        """Measure again the files between the two that were replaced since they were logged. Returns True if there were any.

        Raises SourceError for a file that is gone, or was replaced after a part of it was committed.
        """
        first, last = _place(start), _place(end)
        stop, root = last[0] + (last > (last[0], 0, 0)), root_of(self._spec)
        self._require(stop)
        logged = enumerate(self._log.between(first[0], stop), first[0])
        unread = [(number, file) for number, file in logged if _until(file, *_within(number, first)) != file]
        found = each_of(unread, lambda each: _as_it_is(_where_it_is(each[1], root)), lambda each: each[1].path)
        is_changed = False
        for (number, file), (path, is_replaced) in zip(unread, found, strict=True):
            if is_replaced is None:
                raise self._refusal(path, "is gone or out of reach, and its rows are not committed yet; put it back")
            if is_replaced:
                if first > (number, 0, 0):
                    raise self._refusal(path, "was replaced after a part of its rows was committed; put the former one back")
                self._log.correct(number, replace(_measure(self._spec, root, path), version=file.version, names=file.names))
                is_changed = True
        return is_changed

    def changed(self, start: Position) -> list[str]:
        """The files read before `start` that are other files by now, of the newest `_MOST_COMPARED`."""
        end = _place(start)[0]
        files = self._log.between(max(0, end - _MOST_COMPARED), end)
        return [path for path, is_replaced in each_of(files, _as_it_is, lambda file: file.path) if is_replaced]

    def _refusal(self, path: str, finding: str) -> SourceError:
        return SourceError(f"source {self._spec.name!r}: {path} {finding}, {skip_remedy(path)}")

    def skip(self, path: str, start: Position) -> bool:
        """Leave out the rows after `start` of a file that was handed out. Returns False if there is no such file.

        Those before it stay in the log: a checkpoint that goes back reads them again.
        """
        first, root, real = _place(start), root_of(self._spec), os.path.realpath(path)
        for number, file in enumerate(self._log.between(first[0], len(self._log)), first[0]):
            names, read = (file.path, file.below(root)), _until(file, *_within(number, first))
            if read != file and (path in names or real in map(os.path.realpath, names)):
                self._log.correct(number, read)
                return True
        return False

    def cut(self, start: Position, end: Position, share: float) -> Position:
        """A position after about `share` of the bytes between the two, at least one piece after `start`."""
        pieces = list(self._between(_place(start), _place(end)))
        left = share * sum(piece.bytes for _, piece in pieces)
        for index, (number, piece) in enumerate(pieces):
            if piece.bytes <= left:
                left -= piece.bytes
                continue
            rows = int((piece.end - piece.start) * left / piece.bytes) if piece.kind in DIVISIBLE else 0
            if rows or index:
                return _position((number, piece.part, piece.start + rows))
            if piece.kind in DIVISIBLE and piece.end - piece.start > 1:
                return _position((number, piece.part, piece.start + 1))
            return _position(self._after(number, piece))
        return end

    def furthest(self, one: Position, other: Position) -> Position:
        return _position(max(_place(one), _place(other)))

    def _between(self, start: _Place, end: _Place) -> Iterator[tuple[int, Descriptor]]:
        """The descriptors, with the numbers of their files."""
        stop = end[0] + (end > (end[0], 0, 0))
        self._require(stop)
        root = root_of(self._spec)
        for number, logged in enumerate(self._log.between(start[0], stop), start[0]):
            file = _where_it_is(logged, root)
            for piece in _descriptors(self._spec, file):
                first = max(piece.start, start[2]) if (number, piece.part) == start[:2] else piece.start
                last = min(piece.end, end[2]) if (number, piece.part) == end[:2] else piece.end
                if (number, piece.part) < start[:2] or (number, piece.part) > end[:2]:
                    continue
                if first < last or (first, last) == (piece.start, piece.end):
                    yield number, piece.between(first, last)

    def _after(self, number: int, piece: Descriptor) -> _Place:
        (file,) = self._log.between(number, number + 1)
        is_last = piece.part + 1 >= len(file.parts) or piece.kind != "parquet"
        return (number + 1, 0, 0) if is_last else (number, piece.part + 1, 0)

    def unread(self, start: Position) -> str | None:
        """The files of the log from `start` on, and those that the log does not have yet."""
        self._log.refresh()
        count = len(self._log) - _place(start)[0] + len(self._new_files())
        return None if count <= 0 else "1 file" if count == 1 else f"{count:,} files"

    def waiting(self, start: Position) -> int | None:
        """Nothing: the rows of a file are known when it is read."""
        return None

    def _require(self, offset: int) -> None:
        if offset > len(self._log):
            self._log.reopen_at(offset)
        if offset > len(self._log):
            raise SourceError(
                f"source {self._spec.name!r}: the checkpoint stands at file number {offset} but its file log holds "
                f"{len(self._log)}: the log was deleted or belongs to another checkpoint; start with a new one"
            )

    def _hand_out(self) -> None:
        if not self._waiting and not self._listing_closed:
            self._waiting = self._new_files()
        waiting = self._log.unknown(self._waiting)  # without those that another driver has handed out since they were listed
        root, measured, gone = root_of(self._spec), list[LoggedFile](), set[str]()
        while (unmeasured := waiting[len(measured) + len(gone) :]) and len(measured) != self._limit:
            paths = unmeasured if self._limit is None else unmeasured[: self._limit - len(measured)]
            found = list(each_of(paths, lambda path: self._measured(root, path), str))
            measured += filter(None, found)
            gone |= {path for path, file in zip(paths, found, strict=True) if file is None}  # since it was listed
        if measured:
            self._log.append(measured)
        self._waiting = self._log.unknown([path for path in waiting if path not in gone])

    def _new_files(self) -> list[str]:
        listed = self._listed()
        unknown = self._log.unknown(listed)
        if unknown and self._spec.schema is not None:
            outside = outside_partitions(self._spec, declared_schema(self._spec), listed)
            if outside is not None:
                raise SourceError(outside)
        root = root_of(self._spec)
        moved = self._log.read_elsewhere(root, unknown, lambda path: _measure(self._spec, root, path))
        for path in moved:
            self._require_moved(path, root)
        self._log.know(moved)
        return self._log.unknown(unknown)

    def _listed(self) -> list[str]:
        """The files that there are, handed out or not, in the order in which they are read."""
        return list_files(self._spec)

    def _measured(self, root: str, path: str) -> LoggedFile | None:
        """A file that was listed; None if it is gone since then."""
        try:
            return _measure(self._spec, root, path, self._names)
        except FileNotFoundError:
            return None
        except BadFileError:  # an object that has changed since it was opened
            return self._measured(root, path)

    def _names(self, path: str, footer: pq.FileMetaData) -> Names:
        """The names of the columns of a table in a file of it."""
        return ()

    def _require_moved(self, path: str, root: str) -> None:
        """Raises SourceError if a file that was read in another root is still there, and `path` may have new rows."""
        for former in self._log.roots() - {root}:
            twin = former + path[len(root) :]
            if exists(twin) and _may_be_other_rows(path, twin):
                raise SourceError(
                    f"source {self._spec.name!r}: {path} is byte for byte {twin}, which was read before the source's path was "
                    "changed and is still there. If it is a copy, remove the former one (or keep times when you copy: cp -p); "
                    "if its rows are new, rename it"
                )


def _may_be_other_rows(path: str, twin: str) -> bool:
    """True for two files of the same bytes that were written at different times; no copy in a bucket keeps its time."""
    one, other = status_of(path), status_of(twin)
    if not is_in_bucket(path) and (one.size, one.mtime_ns) == (other.size, other.mtime_ns):
        return False
    return one.size == other.size and _mark(path) == _mark(twin)


def _is_replaced(file: LoggedFile) -> bool:
    """True if another file has its name by now. Raises FileNotFoundError."""
    status = status_of(file.path)
    if status.size != file.size:
        return True
    times = (status.mtime_ns, status.ctime_ns)
    return times != (file.mtime_ns, file.ctime_ns) and file.mark != _mark(file.path)


def _as_it_is(file: LoggedFile) -> tuple[str, bool | None]:
    """The path of a file, and whether another one has its name by now; None if it is gone or out of reach."""
    try:
        return file.path, _is_replaced(file)
    except OSError:
        return file.path, None
    except BadFileError:  # an object that has changed since it was opened
        return _as_it_is(file)


def _where_it_is(file: LoggedFile, root: str) -> LoggedFile:
    """The file, in `root` if its own has moved there."""
    moved = file.below(root)
    is_moved = file.root not in ("", root) and not exists(file.path) and exists(moved)
    return replace(file, path=moved, root_length=len(root)) if is_moved else file


def _within(number: int, place: _Place) -> tuple[int, int]:
    """The row group and the row of `place` in this file; of its first row if `place` is in a file before it."""
    return place[1:] if number == place[0] else (0, 0)


def _until(file: LoggedFile, part: int, row: int) -> LoggedFile:
    """The file without the rows from `row` of `part` on. Files of formats that are not divided have one part."""
    parts, sizes = file.parts[:part], file.bytes[:part]
    if row:
        parts += (row,)
        sizes += tuple(round(size * row / file.parts[part]) for size in file.bytes[part : part + 1])
    return replace(file, parts=parts, bytes=sizes)


def _measure(
    spec: SourceSpec, root: str, path: str, names_of: Callable[[str, pq.FileMetaData], Names] = lambda *_: ()
) -> LoggedFile:
    with _looked_at(path) as (file, status):
        mark = _mark_of(file, status.size)
        if spec.format == "parquet":
            footer = _footer(spec, path, file)
            groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
            rows, sizes = tuple(group.num_rows for group in groups), tuple(group.total_byte_size for group in groups)
            names = names_of(path, footer)
        else:
            rows, sizes, names = (_estimated(file, status.size),), (), ()
    root_length = len(root) if path.startswith(root.rstrip("/") + "/") else 0
    return LoggedFile(path, status.size, rows, sizes, root_length, status.mtime_ns, mark, status.ctime_ns, names=names)


@contextmanager
def _looked_at(path: str) -> Iterator[tuple[IO[bytes], FileStatus]]:
    """A file to be read here and there. One that is small is read at once: of an object each part takes a request."""
    with opened(path) as file:
        status = status_in(file)
        yield io.BytesIO(file.read(status.size)) if status.size <= LITTLE_AHEAD else file, status


def _footer(spec: SourceSpec, path: str, file: IO[bytes]) -> pq.FileMetaData:
    try:
        return pq.read_metadata(file)
    except (OSError, pa.ArrowInvalid) as error:
        raise SourceError(
            f"source {spec.name!r}: {path} is no readable parquet file ({' '.join(str(error).split())}); write files "
            "elsewhere and move them into the folder when they are complete"
        ) from error


def _mark(path: str) -> int:
    with _looked_at(path) as (file, status):
        return _mark_of(file, status.size)


def _mark_of(file: IO[bytes], size: int) -> int:
    """A checksum of pieces of the file, from its first to its last bytes; of all of it if it is small."""
    mark = 0
    for number in range(_PIECES):
        file.seek(max(size - _PIECE_BYTES, 0) * number // (_PIECES - 1))
        mark = zlib.crc32(file.read(_PIECE_BYTES), mark)
    return mark


def estimate_rows(path: str) -> int:
    """Lines of the file, by the mean length of the lines in its first bytes."""
    with _looked_at(path) as (file, status):
        return _estimated(file, status.size)


def _estimated(file: IO[bytes], size: int) -> int:
    file.seek(0)
    sample = file.read(_SAMPLE_BYTES)
    return max(1, round(size * max(sample.count(b"\n"), 1) / len(sample))) if sample else 0


def _descriptors(spec: SourceSpec, file: LoggedFile) -> Iterator[Descriptor]:
    if not file.parts:
        return
    if spec.format != "parquet":
        yield Descriptor(spec.name, spec.format, file.path, 0, 0, file.size, file.parts[0], file.size)
        return
    for row_group, (rows, size) in enumerate(zip(file.parts, file.bytes, strict=True)):
        yield Descriptor(spec.name, "parquet", file.path, row_group, 0, rows, rows, size, names=file.names)
