"""Sinks in a bucket: what a folder has (`folder.py`), as objects.

A batch is one object, so that readers see all of it or nothing; with `partitionBy` it is one for each partition.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

import pyarrow as pa

from streamtopology.jobs.bucket import PATIENCE_SECONDS, Bucket, Use
from streamtopology.jobs.connectors.sinks.base import SinkError, Writer, WrittenOutput, staged_table
from streamtopology.jobs.connectors.sinks.manifest import (
    KEPT_ENTRIES,
    MANIFEST,
    OWNER,
    PLACING,
    batch_name,
    entry_name,
    entry_text,
    is_another,
    is_by,
    is_data,
    is_in_manifest,
    owner_text,
    partitions_in,
    placing_text,
    refuse_another,
    refuse_other_rows,
    unentered_files,
    unknown_batch,
)
from streamtopology.jobs.connectors.sinks.partitions import divided
from streamtopology.jobs.failpoints import passing

_SUFFIXES = (".parquet", ".jsonl", ".csv")
# Entries that are deleted with one request, each time after as many batches.
_FORGOTTEN_AT_ONCE = 100


def open_bucket(uri: str, sink: str, patience: float = PATIENCE_SECONDS) -> Bucket:
    """The bucket of a sink. Raises SinkError, as all that is asked of it does."""
    if_gone = "it was deleted meanwhile: start again"
    return Bucket(uri, Use("the driver", "path", if_gone, lambda sentence: SinkError(f"sink {sink!r}: {sentence}")), patience)


class BucketSink:
    """Publishes `batch-000000012.parquet` below `s3://bucket/prefix`, then the batch's entry in `_manifest`.

    Opening a place that another run, or another sink, has written raises `SinkError`, as with a folder. A batch that was put
    there by a run that died before its entry is put there again.
    """

    def __init__(
        self,
        bucket: Bucket,
        suffix: str,
        write: Callable[[pa.Table, Path], None],
        writer: Writer,
        name: str = "",
        by: Sequence[str] = (),
    ) -> None:
        self._bucket = bucket
        self._suffix = suffix
        self._write = write
        self._writer = writer
        self._name = name
        self._by = by
        self._was_ours = self._take_place()
        self._unknown = set() if self._was_ours else {path for path in bucket.list("") if is_data(path, by)}
        self._entered = set(_entered(bucket.list(MANIFEST)))
        self._newest = max(self._entered, default=-1)
        self._is_first = True
        self._forget(self._newest - KEPT_ENTRIES)

    def publish(self, batch: int, files: Sequence[Path], end: str | None = None) -> None:
        if batch <= self._newest:
            entry = self._bucket.find(entry_name(batch))
            refuse_other_rows(self._bucket.uri, batch, entry, end, files, self._entered)
            return
        self._take_place()  # it may have been deleted meanwhile
        table = staged_table(files)
        rows = 0 if table is None else table.num_rows
        tables = self._tables(batch, table) if table is not None and rows else {}
        if self._is_first:
            self._remove_unentered(batch, but_for=tables)
            self._is_first = False
        if tables:
            self._place(batch, tables)
        passing("sink.placed")
        self._bucket.put(entry_name(batch), entry_text(batch, rows, end).encode())
        self._newest = batch
        self._entered.add(batch)
        if batch % _FORGOTTEN_AT_ONCE == 0:
            self._forget(batch - KEPT_ENTRIES)

    def close(self) -> None:
        pass

    def _take_place(self) -> bool:
        """Become the owner; True if this sink is it already. Raises SinkError if another is."""
        owner = self._bucket.find(OWNER)
        if owner is None and not self._bucket.create(OWNER, owner_text(self._writer, self._name, self._by).encode()):
            owner = self._bucket.read(OWNER)
        if owner is not None:
            refuse_another(self._bucket.uri, owner, self._writer, self._name, self._by)
        return owner is not None

    def _tables(self, batch: int, table: pa.Table) -> dict[str, pa.Table]:
        """The rows of each object, by its name."""
        name = f"{batch_name(batch)}{self._suffix}"
        return {f"{folder}/{name}": rows for folder, rows in divided(table, self._by).items()} if self._by else {name: table}

    def _remove_unentered(self, batch: int, but_for: Container[str]) -> None:
        """Delete what a run left that died before a batch's entry: of another format, or of rows that are elsewhere now.

        These are those of the batch before, which was exported then, and of this one if the checkpoint went back since.
        Where somebody has deleted the manifest, the batch before may have had its entry. If this process stood still since the
        sink was opened, another one may have published: the newest entry is asked for once more.
        They are looked up first: a request to delete takes a right that is not needed else.
        """
        if not self._was_ours:
            return
        newest = max(_entered(self._bucket.list(MANIFEST)), default=-1)
        if self._by:
            placing = self._bucket.find(PLACING) if newest < batch else None
            left = unentered_files(self._bucket.uri, placing, newest, self._by)
        else:
            unentered = range(max(newest + 1, batch - self._was_ours), batch + 1)
            left = [f"{batch_name(number)}{suffix}" for number in unentered for suffix in _SUFFIXES]
        self._bucket.delete_all([path for path in left if path not in but_for and self._bucket.exists(path)])

    def _place(self, batch: int, tables: Mapping[str, pa.Table]) -> None:
        if self._by:
            self._bucket.put(PLACING, placing_text(batch, list(tables)).encode())
        for number, (name, table) in enumerate(tables.items()):
            if number:
                passing("sink.placing")
            self._put(name, table)

    def _put(self, name: str, table: pa.Table) -> None:
        with (
            self._draft(table) as draft,
            mmap.mmap(draft.fileno(), 0, access=mmap.ACCESS_READ) as content,
            memoryview(content) as data,
        ):
            if name in self._unknown and self._bucket.find(name) != bytes(data):
                raise unknown_batch(self._bucket.where(name))
            self._bucket.put(name, data)

    @contextmanager
    def _draft(self, table: pa.Table) -> Iterator[IO[bytes]]:
        """The rows in a file without a name, which goes with the process, however that ends."""
        with ExitStack() as opened:
            try:
                draft = opened.enter_context(tempfile.TemporaryFile())
                self._write(table, Path(f"/dev/fd/{draft.fileno()}"))
            except OSError as error:
                raise SinkError(
                    f"sink {self._name!r}: {error.strerror or error}, in the folder for temporary files, where the driver "
                    "writes a batch before it puts it into the bucket: make room there, or name another folder in the variable "
                    "TMPDIR"
                ) from error
            yield draft

    def _forget(self, newest: int) -> None:
        old = sorted(batch for batch in self._entered if batch <= newest)
        self._bucket.delete_all([entry_name(batch) for batch in old])
        self._entered.difference_update(old)


def entry_in(bucket: Bucket, batch: int, end: str | None) -> str | None:
    """The place of the entry of a batch; None if there is none, or it is of another batch of this number."""
    entry = bucket.find(entry_name(batch))
    return None if entry is None or is_another(bucket.uri, batch, entry, end) else bucket.where(entry_name(batch))


def written_to(bucket: Bucket, writer: Writer) -> WrittenOutput | None:
    """The output of `writer` in a bucket, and the manifest; None if it is another's."""
    owner = bucket.find(OWNER)
    if owner is None or not is_by(bucket.uri, owner, writer):
        return None
    paths, by = bucket.list(""), partitions_in(bucket.uri, owner)
    batches = [path for path in paths if is_data(path, by) and path.endswith(_SUFFIXES)]
    entries = [path for path in paths if is_in_manifest(path) and path != OWNER]

    def delete() -> None:
        bucket.delete_all([*batches, *entries])
        bucket.delete(OWNER)  # last, in a request of its own: what is cut short is still its writer's, and can be repeated

    return WrittenOutput(bucket.uri, len({PurePosixPath(path).name for path in batches}), delete)


def _entered(paths: Iterable[str]) -> Iterable[int]:
    """The numbers of the batches whose entries these are."""
    return (int(PurePosixPath(path).stem) for path in paths if PurePosixPath(path).stem.isdecimal())
