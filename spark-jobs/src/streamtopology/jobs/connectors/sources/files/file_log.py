"""The order in which the files of a source were handed out: written once per index, merged in the background of the stream.

An offset, a number of files, names the same files after a restart, whatever has appeared in their folder since.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streamtopology.jobs.connectors.sources import durable_file
from streamtopology.jobs.connectors.sources.descriptors import Names, names_of_wire

# Newest records that stay as they are, for a second reader of the log; as many older ones are merged at once.
RECORDS_APART = 64

# Files from which on a segment is not merged again: some megabytes, and a fraction of a second to write.
LARGEST_SEGMENT = 20_000

_TRIES = 3
_CORRECTION = re.compile(r"corrected-(\d{12})-(\d{4})\.json")
_NAME = re.compile(r"(\d{12})(?:-(\d{12}))?\.json")
_DRAFT = re.compile(r"\.(\d{12})(?:-\d{12})?\.json\.\d+")


@dataclass(frozen=True)
class LoggedFile:
    """A file at its place in the stream: `parts` are the rows of its row groups (one estimate for other formats).

    Without parts none of its rows are read: it has no row groups, or is skipped.
    `bytes`: of each part's rows, uncompressed. `root_length`: characters
    of the folder in which its source looked for files. `mtime_ns` and `ctime_ns` are the times of its contents and of its
    entry, which nobody can set back; `mark` is a checksum of some of its bytes, by which it is known again when its root has
    moved. `version`: that of the table with which the file came, -1 for a file of a folder; `names`: of the table's columns.
    """

    path: str
    size: int
    parts: tuple[int, ...]
    bytes: tuple[int, ...] = ()
    root_length: int = 0
    mtime_ns: int = 0
    mark: int = 0
    ctime_ns: int = 0
    version: int = -1
    names: Names = ()

    @property
    def root(self) -> str:
        """The folder in which its source looked for files; "" if the file is not below it."""
        return self.path[: self.root_length]

    def below(self, root: str) -> str:
        """Its path if its root has moved to `root`."""
        return root + self.path[self.root_length :]

    @property
    def identity(self) -> str:
        """A text that is the same for the file in a root that has moved."""
        return f"{self.path[self.root_length :]}\0{self.size}\0{self.mark}"

    def to_wire(self) -> list[object]:
        of_table = [] if self.version < 0 else [self.version, *([self.names] if self.names else [])]
        later = [self.root_length, self.mtime_ns, self.mark, self.ctime_ns, *of_table]
        return [self.path, self.size, self.parts, self.bytes, later]

    @staticmethod
    def from_wire(wire: Sequence[Any]) -> LoggedFile:
        path, size, parts, sizes, later = wire
        return LoggedFile(path, size, tuple(parts), tuple(sizes), *later[:5], names=names_of_wire(later[5:]))


@dataclass(frozen=True)
class _Piece:
    """The files `first` to `end` of the log, in one file on disk: the record of a batch, or a merged segment."""

    first: int
    end: int
    name: str
    is_segment: bool

    @property
    def size(self) -> int:
        return self.end - self.first


class KnownPaths:
    """Paths, as their hashes: 8 bytes each, so that a stream of a million files fits into memory.

    Python's hashes differ from process to process: of two paths with the same hash a restarted process sees both.
    """

    _UNSORTED = 4096

    def __init__(self) -> None:
        self._sorted = np.empty(0, np.int64)
        self._newest: set[int] = set()

    def add(self, paths: Iterable[str]) -> None:
        self._newest.update(map(hash, paths))
        if len(self._newest) > self._UNSORTED:
            self._sorted = np.union1d(self._sorted, np.fromiter(self._newest, np.int64, len(self._newest)))
            self._newest.clear()

    def unknown(self, paths: Sequence[str]) -> list[str]:
        """Those of `paths` that were not added, in their order."""
        hashes = np.fromiter(map(hash, paths), np.int64, len(paths))
        known = self._are_sorted(hashes)
        return [
            path
            for path, value, is_known in zip(paths, hashes.tolist(), known.tolist(), strict=True)
            if not is_known and value not in self._newest
        ]

    def _are_sorted(self, hashes: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        if not self._sorted.size:
            return np.zeros(len(hashes), np.bool_)
        places = np.minimum(np.searchsorted(self._sorted, hashes), self._sorted.size - 1)
        return self._sorted[places] == hashes


class FileLog:
    """The files handed out so far, in order.

    `<folder>/<first index>.json` holds those of one batch, `<folder>/<first index>-<end>.json` those of many, and
    `<folder>/corrected-<index>-<count>.json` replaces the entry of one file. Files of the log are created with all their
    content or not at all, and never overwritten, so a second reader of the same log (a restarted process next to a dying one)
    takes over what exists. Old records are merged by who appends; a merged record is deleted once its segment is durable.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        durable_file.make_folder(folder)
        self._open()

    def __len__(self) -> int:
        """The number of files handed out."""
        return self._pieces[-1].end if self._pieces else 0

    def unknown(self, paths: Sequence[str]) -> list[str]:
        """Those of `paths` that were not handed out yet, in their order."""
        return self._known.unknown(paths)

    def roots(self) -> set[str]:
        """The folders in which the source looked for the files that were handed out."""
        return set(self._roots)

    def read_elsewhere(self, root: str, paths: Sequence[str], measured: Callable[[str], LoggedFile]) -> list[str]:
        """Those of the unknown `paths` whose content was handed out from another root than `root`, at the same place below."""
        if not self._roots - {root}:
            return []
        former = self._elsewhere(root)
        return [path for path in paths if not former.unknown([measured(path).identity])]

    def know(self, paths: Iterable[str]) -> None:
        """Count `paths` as handed out."""
        self._known.add(paths)

    def between(self, start: int, end: int) -> list[LoggedFile]:
        """The files `start` to `end`; the newest from memory, older ones from the disk."""
        try:
            return self._between(start, end)
        except FileNotFoundError:  # another reader has merged them meanwhile
            self._open()
            return self._between(start, end)

    def refresh(self) -> None:
        """Take in the records written since the last look."""
        while (record := self._folder / _record_name(len(self))).exists():
            self._take(record.name, is_segment=False)

    def reopen_at(self, offset: int) -> None:
        """Take in all up to `offset`, also if another reader has merged records that this one has not seen."""
        self.refresh()
        if offset > len(self):
            self._open()

    def correct(self, number: int, file: LoggedFile) -> None:
        """Replace the entry of the file at `number`, from which nothing has been committed that a batch would read again."""
        count = sum(_CORRECTION.fullmatch(entry.name) is not None for entry in self._folder.iterdir())
        durable_file.create(self._folder / f"corrected-{number:012d}-{count:04d}.json", json.dumps(file.to_wire()))
        self._read_corrections()

    def append(self, files: list[LoggedFile]) -> None:
        """Write `files` at the end of the log, unless another reader was first: then its record stands."""
        record = json.dumps([file.to_wire() for file in files])
        durable_file.create(self._folder / _record_name(len(self)), record)
        self.refresh()
        try:
            self._merge_old()
        except FileNotFoundError:  # another process has merged them meanwhile
            self._open()

    # --- how ---

    def _elsewhere(self, root: str) -> KnownPaths:
        """The identities of the files that have another root."""
        if self._former is None:
            self._former = KnownPaths()
            for piece in self._pieces:
                self._former.add(file.identity for file in self._read(piece.name) if file.root not in ("", root))
        return self._former

    def _read_corrections(self) -> None:
        names = sorted(entry.name for entry in self._folder.iterdir() if _CORRECTION.fullmatch(entry.name))
        for name in names:  # of one file the newest counts
            wire = json.loads((self._folder / name).read_text(encoding="utf-8"))
            self._corrected[int(name.split("-")[1])] = LoggedFile.from_wire(wire)

    def _between(self, start: int, end: int) -> list[LoggedFile]:
        found: list[LoggedFile] = []
        for piece in self._pieces:
            if piece.first < end and start < piece.end:
                files = self._newest.get(piece.name) or self._read(piece.name)
                found += files[max(start - piece.first, 0) : end - piece.first]
        return [self._corrected.get(number, file) for number, file in enumerate(found, start)]

    def _open(self) -> None:
        """Read the whole log, again if another reader merges its records meanwhile."""
        for tries_left in reversed(range(_TRIES)):
            try:
                self._read_all()
            except FileNotFoundError:
                if not tries_left:
                    raise
            else:
                return

    def _read_all(self) -> None:
        """Read the whole log. Where a dying process left a segment and its records, the segment counts."""
        self._pieces: list[_Piece] = []
        self._corrected: dict[int, LoggedFile] = {}
        self._read_corrections()
        self._known = KnownPaths()
        self._roots: set[str] = set()
        self._former: KnownPaths | None = None
        self._newest: dict[str, list[LoggedFile]] = {}
        for name in _longest(entry.name for entry in self._folder.iterdir()):
            self._take(name, is_segment="-" in name)
        self.refresh()

    def _take(self, name: str, is_segment: bool) -> None:
        files = self._read(name)
        piece = _Piece(len(self), len(self) + len(files), name, is_segment)
        self._pieces.append(piece)
        self._known.add(file.path for file in files)
        self._roots.update(file.root for file in files if file.root)
        if not is_segment:
            self._newest[name] = files
            while len(self._newest) > RECORDS_APART:
                del self._newest[next(iter(self._newest))]

    def _read(self, name: str) -> list[LoggedFile]:
        return [LoggedFile.from_wire(wire) for wire in json.loads((self._folder / name).read_text(encoding="utf-8"))]

    def _merge_old(self) -> None:
        """Merge the oldest records into a segment, with the segments before it that are not larger.

        So there are few segments, and no file of the log is written again often.
        """
        records = [piece for piece in self._pieces if not piece.is_segment]
        if len(records) < 2 * RECORDS_APART:
            return
        segments = self._pieces[: len(self._pieces) - len(records)]
        merged = deque(records[:RECORDS_APART])
        while segments and segments[-1].size <= min(merged[-1].end - merged[0].first, LARGEST_SEGMENT):
            merged.appendleft(segments.pop())
        self._replace(segments, list(merged), records[RECORDS_APART:])

    def _replace(self, before: list[_Piece], merged: Sequence[_Piece], after: list[_Piece]) -> None:
        files = [record for piece in merged for record in json.loads((self._folder / piece.name).read_text(encoding="utf-8"))]
        segment = _Piece(merged[0].first, merged[-1].end, f"{merged[0].first:012d}-{merged[-1].end:012d}.json", True)
        durable_file.create(self._folder / segment.name, json.dumps(files))
        self._pieces = [*before, segment, *after]
        kept = {piece.name for piece in self._pieces}
        for entry in list(self._folder.iterdir()):
            match = _NAME.fullmatch(entry.name) or _DRAFT.fullmatch(entry.name)
            if match is not None and int(match[1]) < segment.end and entry.name not in kept:
                entry.unlink(missing_ok=True)


def _record_name(index: int) -> str:
    return f"{index:012d}.json"


def _longest(names: Iterable[str]) -> list[str]:
    """The segments that the log consists of, in order; of two that begin at the same file the longer one."""
    spans = [(int(match[1]), int(match[2]), name) for name in names if (match := _NAME.fullmatch(name)) and match[2]]
    chosen: list[str] = []
    at = 0
    for first, end, name in sorted(spans, key=lambda span: (span[0], -span[1])):
        if first == at:
            chosen.append(name)
            at = end
    return chosen
