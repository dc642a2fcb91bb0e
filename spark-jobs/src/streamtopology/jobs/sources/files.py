"""Folders of files as streams of descriptors.

The order in which files were handed out is kept in a file log, written once per index and never changed, so that an
offset (a number of files) names the same rows after a restart, whatever has appeared in the folder since.
"""

from __future__ import annotations

import contextlib
import fnmatch
import glob
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from streamtopology.jobs.sources.descriptors import Descriptor, SourceError, SourceSpec, positive_option

_SAMPLE_BYTES = 65_536


@dataclass(frozen=True)
class LoggedFile:
    """A file at its place in the stream: `parts` are the rows of its row groups (one estimate for other formats)."""

    path: str
    size: int
    parts: tuple[int, ...]


class FileLog:
    """The files handed out so far, in order: `<folder>/<first index>.json` holds those of one batch.

    Records are created with all their content or not at all; a record that exists is never overwritten, so a
    second reader of the same log (a restarted process beside a dying one) takes over what is there.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.files: list[LoggedFile] = []
        self.paths: set[str] = set()
        folder.mkdir(parents=True, exist_ok=True)
        self.refresh()

    def refresh(self) -> None:
        """Take in the records written since the last look."""
        while (record := self._record(len(self.files))).exists():
            for path, size, parts in json.loads(record.read_text(encoding="utf-8")):
                self.files.append(LoggedFile(path, size, tuple(parts)))
                self.paths.add(path)

    def append(self, files: list[LoggedFile]) -> None:
        """Write `files` at the end of the log, unless another reader was first: then its record stands."""
        record = self._record(len(self.files))
        draft = record.with_name(f".{record.name}.{os.getpid()}")
        with draft.open("w", encoding="utf-8") as out:
            json.dump([[file.path, file.size, file.parts] for file in files], out)
            out.flush()
            os.fsync(out.fileno())
        try:
            os.link(draft, record)
        except FileExistsError:
            pass  # the other reader's record is as good as ours; refresh() reads it
        finally:
            draft.unlink()
        self.refresh()

    def _record(self, index: int) -> Path:
        return self._folder / f"{index:012d}.json"


class FileStream:
    """One file source: offsets are numbers of files handed out."""

    def __init__(self, spec: SourceSpec, log: FileLog) -> None:
        self._spec = spec
        self._log = log
        self._limit = positive_option(spec, "maxFilesPerTrigger")
        self._waiting: list[str] = []  # listed, not yet handed out
        self._listing_closed = False

    def initial_offset(self) -> int:
        return 0

    def close_listing(self) -> None:
        """Fix the end of the stream at the files that are there now (trigger availableNow)."""
        self._waiting = self._new_files()
        self._listing_closed = True

    def advance(self, start: int) -> int:
        """The offset after the next batch: files the log holds beyond `start`, else new ones, up to the limit."""
        self._require(start)
        if start == len(self._log.files):
            self._hand_out()
        end = len(self._log.files)
        return end if self._limit is None else min(end, start + self._limit)

    def between(self, start: int, end: int) -> Iterator[Descriptor]:
        """The descriptors of files `start` to `end`, from the log alone."""
        self._require(end)
        for file in self._log.files[start:end]:
            yield from _descriptors(self._spec, file)

    def _require(self, offset: int) -> None:
        if offset > len(self._log.files):
            self._log.refresh()
        if offset > len(self._log.files):
            raise SourceError(
                f"source {self._spec.name!r}: the checkpoint stands at file number {offset} but its file log holds "
                f"{len(self._log.files)}: the log was deleted or belongs to another checkpoint; start with a new one"
            )

    def _hand_out(self) -> None:
        if not self._waiting and not self._listing_closed:
            self._waiting = self._new_files()
        taken = self._waiting if self._limit is None else self._waiting[: self._limit]
        if taken:
            self._log.append([_measure(self._spec, path) for path in taken])
            self._waiting = [path for path in self._waiting if path not in self._log.paths]

    def _new_files(self) -> list[str]:
        return [path for path in list_files(self._spec) if path not in self._log.paths]


def list_files(spec: SourceSpec) -> list[str]:
    """The files of a source by modification time, then name, as Spark's file source orders them.

    `path` is a folder, a file or a glob; hidden names (starting with `.` or `_`) are not data.
    """
    path = spec.options.get("path")
    if path is None:
        raise SourceError(f"source {spec.name!r}: option path is missing; name the folder to read")
    is_glob = glob.has_magic(path)
    if not is_glob and not os.path.exists(path):
        raise SourceError(f"source {spec.name!r}: folder {path} does not exist; create it or correct option path")
    pattern = spec.options.get("pathGlobFilter", "*")
    found: list[tuple[int, str]] = []
    for place in glob.glob(path) if is_glob else [path]:
        found.extend(_files_at(place, pattern))
    return [name for _, name in sorted(found)]


def _files_at(place: str, pattern: str) -> Iterator[tuple[int, str]]:
    if not os.path.isdir(place):
        yield os.stat(place).st_mtime_ns, place
        return
    with os.scandir(place) as entries:
        for entry in entries:
            if entry.name[0] in "._" or not fnmatch.fnmatch(entry.name, pattern):
                continue
            with contextlib.suppress(FileNotFoundError):  # a writer's draft that was just renamed
                if entry.is_file():
                    yield entry.stat().st_mtime_ns, entry.path


def _measure(spec: SourceSpec, path: str) -> LoggedFile:
    if spec.format != "parquet":
        return LoggedFile(path, os.path.getsize(path), (_estimate_rows(path),))
    try:
        footer = pq.read_metadata(path)
    except pa.ArrowInvalid as error:
        raise SourceError(
            f"source {spec.name!r}: {path} is no readable parquet file ({error}); write files elsewhere and move them "
            "into the folder when they are complete"
        ) from error
    return LoggedFile(path, os.path.getsize(path), tuple(footer.row_group(i).num_rows for i in range(footer.num_row_groups)))


def _estimate_rows(path: str) -> int:
    """Lines of the file, by the mean length of the lines in its first bytes."""
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        sample = file.read(_SAMPLE_BYTES)
    return max(1, round(size * max(sample.count(b"\n"), 1) / len(sample))) if sample else 0


def _descriptors(spec: SourceSpec, file: LoggedFile) -> Iterator[Descriptor]:
    if spec.format != "parquet":
        yield Descriptor(spec.name, spec.format, file.path, 0, 0, file.size, file.parts[0])
        return
    for row_group, rows in enumerate(file.parts):
        yield Descriptor(spec.name, "parquet", file.path, row_group, 0, rows, rows)
