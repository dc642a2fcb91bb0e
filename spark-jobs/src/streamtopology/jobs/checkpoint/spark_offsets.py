"""Spark's offset log, brought to agree with the newest commit of the checkpoint before Spark reads it.

Spark syncs none of its files: after a power loss, or once somebody deleted or restored its folder, it may know less than
the newest commit, or something else. It would then plan a committed batch again, with other rows under the same number. So
each commit record has Spark's own record of its batch; where the two differ the commit wins.
"""

from __future__ import annotations

import json
from pathlib import Path

from streamtopology.jobs.checkpoint.records import CommitRecord

VERSION = "v1"
_COUNTED = f'{VERSION}\n{{"nextBatchWatermarkMs":0}}'
_LEAST_LINES = 3  # version, settings, and the offset of one source


class SparkOffsets:
    """The logs in the checkpoint folder of Spark's query: the offsets of each batch, and the batches that it counts as done."""

    def __init__(self, query: Path) -> None:
        self._offsets = query / "offsets"
        self._counted = query / "commits"

    def newest(self) -> int:
        """The newest batch that Spark has planned; -1: none."""
        return max(_numbers(self._offsets), default=-1)

    def of_batch(self, number: int) -> str | None:
        """Spark's record of where a batch ends in all sources; None if there is none."""
        return _text(self._offsets / str(number))

    def agree_with(self, commit: CommitRecord | None) -> bool:
        """Make Spark continue after `commit`, and drop records that were cut short. Returns whether anything was changed.

        A commit that has read a part of Spark's first batch does not know Spark's record: then Spark begins at the beginning.
        """
        if commit is None or commit.spark_batch < 0:
            return self._drop_from(_first(self._first_torn(0), self._first_hidden(-1)))
        if commit.end.spark_offsets is None:
            return False
        last, known = commit.spark_batch, commit.end.spark_offsets
        unusable = _first(self._first_torn(last), self._first_hidden(last))
        agrees = unusable != last and self.of_batch(last) == known
        if not agrees:
            self._drop_from(last)
            self._write(self._offsets / str(last), known)
            self._write(self._counted / str(last), _COUNTED)
        elif unusable is not None:
            self._drop_from(unusable)
        if last > 0 and not _is_record(self.of_batch(last - 1)):  # Spark does not start without it
            self._write(self._offsets / str(last - 1), known)
        self._forget_checksums(last - 1)
        return not agrees or unusable is not None

    def _first_torn(self, first: int) -> int | None:
        """The first batch from `first` on whose records were cut short, or whose plan is missing where later ones are known."""
        counted = {number for number in _numbers(self._counted) if number >= first}
        known = counted.union(number for number in _numbers(self._offsets) if number >= first)
        for number in range(first, max(known, default=first - 1) + 1):
            is_whole = number not in counted or _is_counted(_text(self._counted / str(number)))
            if not is_whole or not _is_record(self.of_batch(number)):
                return number
        return None

    def _first_hidden(self, last: int) -> int | None:
        """The first batch that hides one from Spark which was neither counted nor committed, as `last` and those before were.

        Spark begins with the newest batch that it has planned, and takes those before for done. After a power loss it may
        know of several and count none.
        """
        done = max([last, *_numbers(self._counted)])
        return done + 2 if self.newest() > done + 1 else None

    def _drop_from(self, first: int | None) -> bool:
        """Delete all records of batches from `first` on; Spark plans them again."""
        if first is None:
            return False
        for folder in (self._counted, self._offsets):
            for number in sorted(_numbers(folder), reverse=True):
                if number >= first:
                    _delete(folder / str(number))
        return True

    def _forget_checksums(self, first: int) -> None:
        """Delete Hadoop's checksums of records from `first` on: they may have been cut short where the records were not."""
        for folder in (self._offsets, self._counted):
            for number in _numbers(folder):
                if number >= first:
                    _checksum(folder / str(number)).unlink(missing_ok=True)

    def _write(self, file: Path, text: str) -> None:
        _delete(file)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


def _first(*batches: int | None) -> int | None:
    return min((batch for batch in batches if batch is not None), default=None)


def _numbers(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.iterdir() if path.name.isdecimal()] if folder.exists() else []


def _text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:  # cut short, or blocks that never reached the disk
        return ""


def _delete(file: Path) -> None:
    file.unlink(missing_ok=True)
    _checksum(file).unlink(missing_ok=True)


def _checksum(file: Path) -> Path:
    return file.with_name(f".{file.name}.crc")


def _is_record(text: str | None) -> bool:
    """True for a whole record of offsets; `-` stands for a source that has none yet."""
    lines = (text or "").splitlines()
    return len(lines) >= _LEAST_LINES and all(line == "-" or _is_json(line) for line in lines[1:])


def _is_counted(text: str | None) -> bool:
    lines = (text or "").splitlines()
    return len(lines) > 1 and _is_json(lines[1])


def _is_json(text: str | None) -> bool:
    try:
        json.loads(text or "")
    except ValueError:
        return False
    return True
