"""Sinks that are folders of files: parquet, csv and JSON lines, one file per batch, with a manifest of the newest batches.

A batch is written beside its final name and then moved there, so that readers see all of it or nothing; then it is
entered in `_manifest`, which keeps the newest `KEPT_ENTRIES`: batches are published in order, so all before them are.
With `partitionBy` a batch is a file in each partition's folder. They are moved one by one, after they are noted in `_manifest`.
Names that start with `_` or `.` are no data to Spark, Arrow's datasets and our own sources. They fit DuckDB's `*`, and not
its `*.parquet` and its like: neither drafts nor the manifest's files end so.
"""

from __future__ import annotations

import filecmp
import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from streamtopology.jobs.columnar.dictionaries import decoded_rows, decoded_type
from streamtopology.jobs.connectors.sinks.base import Writer, WrittenOutput, staged_table
from streamtopology.jobs.connectors.sinks.csv_rows import csv_header, csv_rows
from streamtopology.jobs.connectors.sinks.json_rows import json_rows, slices
from streamtopology.jobs.connectors.sinks.manifest import (
    KEPT_ENTRIES,
    MANIFEST,
    OWNER,
    PLACING,
    batch_name,
    entry_name,
    entry_text,
    is_another,
    is_batch,
    is_by,
    is_draft,
    is_in_manifest,
    is_part,
    owner_text,
    partitions_in,
    placing_text,
    refuse_another,
    refuse_other_rows,
    unentered_files,
    unknown_batch,
)
from streamtopology.jobs.connectors.sinks.partitions import divided, folder_patterns
from streamtopology.jobs.connectors.sources.durable_file import sync
from streamtopology.jobs.failpoints import passing


def write_parquet(table: pa.Table, path: Path | pa.NativeFile) -> None:
    """Write rows without their dictionaries: parquet makes its own, and readers trust the size of the indices."""
    pq.write_table(without_dictionaries(table), path)


def without_dictionaries(table: pa.Table) -> pa.Table:
    """The rows of a table as plain values."""
    if all(decoded_type(kind).equals(kind) for kind in table.schema.types):
        return table
    return pa.Table.from_batches([decoded_rows(rows) for rows in table.to_batches()])


def write_json_lines(table: pa.Table, path: Path) -> None:
    with path.open("wb") as out:
        out.writelines(json_lines(table))


def json_lines(table: pa.Table) -> Iterator[bytes]:
    """A line for each row, as `json_rows` writes it."""
    parts = (part for batch in table.to_batches() for part in slices(batch))
    return (row + b"\n" for part in parts for row in json_rows(part).cast(pa.binary()).to_pylist())


def write_csv(table: pa.Table, path: Path, has_header: bool) -> None:
    with path.open("w", encoding="utf-8", newline="") as out:
        if has_header:
            out.write(csv_header(table.column_names) + "\n")
        for batch in table.to_batches():
            out.writelines(f"{row}\n" for part in slices(batch) for row in csv_rows(part).to_pylist())


class FolderSink:
    """Publishes `batch-000000012.parquet`, or a folder `batch-000000012` with a file per task (`parts`).

    With `parts` the batch's folder is moved into place as one, too. `by`: the columns that name the folders of partitions.
    Opening a folder that another run has written raises `SinkError`: batch numbers start again with a new checkpoint and would
    be taken for published ones. So does opening one that holds the output of another sink than `name`, or other folders.
    """

    def __init__(
        self,
        folder: Path,
        suffix: str,
        write: Callable[[pa.Table, Path], None],
        writer: Writer,
        parts: bool = False,
        name: str = "",
        by: Sequence[str] = (),
    ) -> None:
        self._folder = folder
        self._place = f"folder {folder}"
        self._suffix = suffix
        self._write = write
        self._parts = parts
        self._name = name
        self._by = by
        self._manifest = folder / MANIFEST
        self._writer = writer
        self._was_ours = self._take_folder()
        for draft in _drafts(folder):  # of a process that died
            _remove(draft)
        self._newest = max(self._entered(), default=-1)
        self._is_first = True
        self._forget([batch for batch in self._entered() if batch <= self._newest - KEPT_ENTRIES])

    def publish(self, batch: int, files: Sequence[Path], end: str | None = None) -> None:
        entry = self._entry(batch)
        if batch <= self._newest or entry.exists():
            refuse_other_rows(self._place, batch, _content(entry), end, files, self._entered())
            return
        if not self._folder.joinpath(OWNER).exists():
            self._take_folder()  # the folder was deleted meanwhile
        table = staged_table(files)
        rows = 0 if table is None else table.num_rows
        tables = self._tables(batch, table) if table is not None and rows else {}
        if self._is_first:
            self._remove_unentered(batch, but_for=set(tables))
        if tables:
            self._place_parts(batch, files) if self._parts else self._place_files(batch, tables)
        self._is_first = False
        passing("sink.placed")
        _write_whole(entry, entry_text(batch, rows, end))
        self._newest = batch
        self._forget([batch - KEPT_ENTRIES])

    def close(self) -> None:
        pass

    def _take_folder(self) -> bool:
        """Become the owner; True if this sink is it already. Raises SinkError if another is."""
        self._manifest.mkdir(parents=True, exist_ok=True)
        owner = self._folder / OWNER
        was_owned = owner.exists()
        if not was_owned:
            _write_whole(owner, owner_text(self._writer, self._name, self._by))
        refuse_another(self._place, owner.read_bytes(), self._writer, self._name, self._by)
        return was_owned

    def _entry(self, batch: int) -> Path:
        return self._folder / entry_name(batch)

    def _entered(self) -> list[int]:
        return [int(path.stem) for path in self._manifest.glob("*.json") if path.stem.isdecimal()]

    def _forget(self, batches: Iterable[int]) -> None:
        for batch in batches:
            self._entry(batch).unlink(missing_ok=True)

    def _tables(self, batch: int, table: pa.Table) -> dict[Path, pa.Table]:
        """The rows of each file, by its place; those of a folder of parts together."""
        if not self._by:
            return {self._final(batch): table}
        return {self._folder / folder / self._final(batch).name: rows for folder, rows in divided(table, self._by).items()}

    def _remove_unentered(self, batch: int, but_for: Container[Path]) -> None:
        """Delete what a run left that died before a batch's entry: of another format, or of rows that are elsewhere now.

        These are those of the batch before, which was exported then, and of this one if the checkpoint went back since.
        Where somebody has deleted the manifest, the batch before may have had its entry. If this process stood still since the
        sink was opened, another one may have published: the newest entry is asked for once more.
        """
        if not self._was_ours:
            return
        newest = max(self._entered(), default=-1)
        if self._by:
            placing = _content(self._folder / PLACING) if newest < batch else None
            left = [self._folder / name for name in unentered_files(self._place, placing, newest, self._by)]
        else:
            unentered = range(max(newest + 1, batch - self._was_ours), batch + 1)
            found = (path for number in unentered for path in self._folder.glob(f"{batch_name(number)}*"))
            left = [path for path in found if is_batch(path.name)]
        _remove_from(self._folder, [path for path in left if path not in but_for])

    def _place_files(self, batch: int, tables: Mapping[Path, pa.Table]) -> None:
        drafts = {final: self._draft(batch, number) for number, final in enumerate(tables)}
        if self._by:
            names = [str(final.relative_to(self._folder)) for final in tables]
            _write_whole(self._folder / PLACING, placing_text(batch, names))
        for final, table in tables.items():
            self._write(table, drafts[final])
            sync(drafts[final])
        for final, draft in drafts.items():
            self._refuse_unknown(final, lambda there, draft=draft: filecmp.cmp(draft, there, shallow=False))
        for number, (final, draft) in enumerate(drafts.items()):
            if number:
                passing("sink.placing")
            final.parent.mkdir(parents=True, exist_ok=True)
            os.replace(draft, final)

    def _place_parts(self, batch: int, files: Sequence[Path]) -> None:
        final = self._final(batch)
        draft = self._draft(batch)
        draft.mkdir(exist_ok=True)
        parts: list[Path] = []
        for part, file in enumerate(files):
            table = staged_table([file])
            if table is not None and table.num_rows:
                path = draft / f"part-{part:05d}.draft"
                self._write(table, path)
                sync(path)
                parts.append(path)
        for path in parts:
            os.replace(path, path.with_suffix(self._suffix))
        if final.is_dir() and _are_equal(final, draft):
            _remove(draft)  # moved into place by a run that died before the manifest's entry, or while this one stood still
            return
        self._refuse_unknown(final, lambda there: False)
        former = draft.with_suffix(".former")
        if final.exists():  # of a run that died before its entry, and before the checkpoint went back
            os.replace(final, former)
        os.replace(draft, final)
        _remove(former)

    def _refuse_unknown(self, final: Path, is_same: Callable[[Path], bool]) -> None:
        """Raise SinkError for rows of others in a batch's place. A run that died has left those of its last batch alone."""
        if not (self._was_ours and self._is_first) and final.exists() and not is_same(final):
            raise unknown_batch(str(final))

    def _final(self, batch: int) -> Path:
        return self._folder / (batch_name(batch) if self._parts else f"{batch_name(batch)}{self._suffix}")

    def _draft(self, batch: int, number: int = 0) -> Path:
        """The place where a batch is written. Patterns such as *.parquet miss it: its name ends in no suffix of data."""
        return self._folder / f".{batch_name(batch)}{f'-{number:05d}' if number else ''}.draft"


def entry_of(folder: Path, batch: int, end: str | None) -> str | None:
    """The entry of a batch; None if there is none, or it is of another batch of this number."""
    entry = folder / entry_name(batch)
    return str(entry) if entry.exists() and not is_another(f"folder {folder}", batch, _content(entry), end) else None


def written_by(folder: Path, writer: Writer) -> WrittenOutput | None:
    """The output of `writer` in `folder`, and the manifest; None if it is another's."""
    owner = _content(folder / OWNER)
    if owner is None or not is_by(f"folder {folder}", owner, writer):
        return None
    by = partitions_in(f"folder {folder}", owner)
    batches = sorted(path for path in folder.glob("/".join([*folder_patterns(by), "batch-*"])) if is_batch(path.name))

    def delete() -> None:
        _remove_from(folder, [*batches, *_drafts(folder)])
        manifest = folder / MANIFEST
        for path in sorted(manifest.iterdir(), key=lambda path: path == folder / OWNER):
            if is_in_manifest(f"{MANIFEST}/{path.name}"):
                path.unlink()
        _remove_empty(manifest)

    return WrittenOutput(str(folder), len({path.name for path in batches}), delete)


def _content(file: Path) -> bytes | None:
    return file.read_bytes() if file.exists() else None


def _write_whole(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}")
    draft.write_text(text)
    sync(draft)
    os.replace(draft, path)


def _drafts(folder: Path) -> list[Path]:
    return [path for path in folder.glob(".batch-*") if is_draft(path.name)]


def _remove(batch: Path) -> None:
    """Delete a batch's file, or the files of its folder that are ours."""
    if not batch.is_dir():
        batch.unlink(missing_ok=True)
        return
    for part in batch.iterdir():
        if is_part(part.name):
            part.unlink()
    _remove_empty(batch)


def _remove_from(folder: Path, batches: Iterable[Path]) -> None:
    """Delete batches, and the folders of partitions that are empty then."""
    for batch in batches:
        _remove(batch)
        for level in batch.parents:
            if level == folder or not level.exists() or any(level.iterdir()):
                break
            level.rmdir()


def _remove_empty(folder: Path) -> None:
    if not any(folder.iterdir()):
        folder.rmdir()


def _are_equal(one: Path, other: Path) -> bool:
    names = sorted(path.name for path in one.iterdir())
    same, _, _ = filecmp.cmpfiles(one, other, names, shallow=False)
    return len(same) == len(names) == len(list(other.iterdir()))
