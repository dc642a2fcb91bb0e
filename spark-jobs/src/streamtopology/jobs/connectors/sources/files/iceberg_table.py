"""The files of an Iceberg table by pyiceberg: of a snapshot, and those that a snapshot appends.

Their rows are read as those of other parquet files, by names. So files are refused that do not say all: with rows that others
delete, with a column whose value is in the table's metadata alone, or in another format.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, TypeVar

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, RESTError, ServerError, ServiceUnavailableError
from pyiceberg.io.pyarrow import PYARROW_PARQUET_FIELD_ID_KEY, pyarrow_to_schema
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestEntry, ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.delete_file_index import DeleteFileIndex
from pyiceberg.table.snapshots import Operation, Snapshot, ancestors_of

from streamtopology.jobs.connectors.sources.descriptors import Names, SourceSpec
from streamtopology.jobs.connectors.sources.errors import CatalogError, SourceError
from streamtopology.jobs.connectors.sources.files.tables import place_of_table, refusal
from streamtopology.jobs.connectors.sources.iceberg_catalog import open_catalog
from streamtopology.jobs.connectors.sources.schema.declared import declared_schema
from streamtopology.jobs.connectors.sources.stored_files import FileStatus, each_of
from streamtopology.jobs.variables import first_line

_PAUSE_SECONDS = 0.5
_REWRITE = "write its data files again (CALL system.rewrite_data_files)"
_MERGE_ON_READ = (
    "has files of deleted rows (merge-on-read), which are not read; rewrite its data files with delete-file-threshold 1, or "
    "begin after them with options.stream-from-timestamp"
)

_LONGER = "keep snapshots for longer than the source can be behind (history.expire.max-snapshot-age-ms)"

Answer = TypeVar("Answer")


def open_table(spec: SourceSpec) -> Table:
    """The table as it is now. Raises TableError if it is not there or is not read, and CatalogError."""
    return asked(spec, lambda table: table)


def asked(spec: SourceSpec, ask: Callable[[Table], Answer], patience: float = 0.0) -> Answer:
    """An answer about the table as it is now. A catalogue or bucket that is away is asked again for `patience` seconds.

    Raises TableError, CatalogError, and what `ask` raises of SourceError.
    """
    until = time.monotonic() + patience
    while True:
        try:
            return ask(_catalog(tuple(spec.options.items())).load_table(tuple(spec.options["table"].split("."))))
        except SourceError:
            raise
        except Exception as error:  # of pyiceberg, of Arrow, and of the catalogue's own client
            is_away = isinstance(error, (OSError, ServerError, ServiceUnavailableError)) or _is_of_sql(error)
            if not is_away or time.monotonic() >= until:
                raise _said(spec, error) from error
        time.sleep(_PAUSE_SECONDS)


@lru_cache(maxsize=16)
def _catalog(options: tuple[tuple[str, str], ...]) -> Catalog:
    """Kept for its connections."""
    return open_catalog(dict(options))


def _is_of_sql(error: Exception) -> bool:
    return type(error).__module__.startswith("sqlalchemy.")


def _said(spec: SourceSpec, error: Exception) -> SourceError:
    if isinstance(error, (NoSuchTableError, NoSuchNamespaceError)):
        return refusal(spec, "is not in its catalogue; make it first, or correct option table")
    text = " ".join(str(error).split()).partition(" [type=")[0]  # of pydantic
    why = first_line(error, spec.options.values(), os.environ, text)
    if isinstance(error, (OSError, RESTError)) or _is_of_sql(error):
        remedy = "wait until its catalogue and its bucket answer, or correct the options catalog.*"
        return CatalogError(f"source {spec.name!r}: table {place_of_table(spec)}: {why}; {remedy}")
    return refusal(spec, f"cannot be read: {why}")


def files_of_table(spec: SourceSpec) -> Iterator[tuple[str, FileStatus]]:
    """The files that the table consists of now, in the order of their snapshots, which takes the place of their times.

    Also those of which rows are deleted: a source that has begun before may have left the deletes out.
    """

    def of(table: Table) -> list[tuple[str, FileStatus]]:
        snapshot = table.current_snapshot()
        entries = _entries(table, [] if snapshot is None else snapshot.manifests(table.io))
        files = _in_order(spec, table, (entry for entry in entries if entry.data_file.content == DataFileContent.DATA))
        return [(path, FileStatus(file.file_size_in_bytes, place, 0)) for place, (path, file) in enumerate(files.items())]

    yield from asked(spec, of)


def files_of_snapshot(spec: SourceSpec, table: Table, snapshot: Snapshot) -> dict[str, DataFile]:
    """The files whose rows a snapshot has. Raises TableError if others delete some of them."""
    deletes, data = DeleteFileIndex(), list[ManifestEntry]()
    for entry in _entries(table, snapshot.manifests(table.io)):
        if entry.data_file.content == DataFileContent.EQUALITY_DELETES:
            raise refusal(spec, _MERGE_ON_READ)
        if entry.data_file.content == DataFileContent.DATA:
            data.append(entry)
        else:
            deletes.add_delete_file(entry, entry.data_file.partition)
    if any(deletes.for_data_file(e.sequence_number or 0, e.data_file, e.data_file.partition) for e in data):
        raise refusal(spec, _MERGE_ON_READ)
    return _in_order(spec, table, data)


def snapshots_after(spec: SourceSpec, table: Table, read: int | None, remedy: str) -> list[Snapshot]:
    """The snapshots after `read`, which may have expired itself, the oldest first; None: all there ever were.

    Raises TableError if one of them has expired, or the table no longer goes back to `read`. `remedy`: what else can be done.
    """
    found: list[Snapshot] = []
    for snapshot in ancestors_of(table.current_snapshot(), table.metadata):
        if snapshot.snapshot_id == read:
            return found[::-1]
        found.append(snapshot)
    oldest = found[-1] if found else None
    if (oldest is None or is_first(oldest)) if read is None else (oldest is not None and oldest.parent_snapshot_id == read):
        return found[::-1]
    if read is None:
        raise refusal(spec, f"no longer has its first snapshot, which expired before it was read; {_LONGER}, and {remedy}")
    snapshot_of(spec, table, read, remedy)
    raise refusal(spec, f"was read up to snapshot {read}, and was rolled back or replaced since then; put it back, or {remedy}")


def is_first(snapshot: Snapshot) -> bool:
    """True if no snapshot was before it: pyiceberg takes the parent from those whose parent it expires."""
    return snapshot.parent_snapshot_id is None and (snapshot.sequence_number or 0) <= 1


def snapshot_of(spec: SourceSpec, table: Table, number: int, remedy: str) -> Snapshot:
    """Raises TableError if it has expired."""
    found = table.snapshot_by_id(number)
    if found is None:
        raise refusal(spec, f"no longer has snapshot {number}, up to which it was read: it expired; {_LONGER}, and {remedy}")
    return found


def appended(spec: SourceSpec, table: Table, snapshot: Snapshot) -> dict[str, DataFile]:
    """The files that a snapshot adds to the rows of a table; none of one that only arranges them anew.

    Raises TableError for one that takes rows away, unless the options leave it out: then none of its files count.
    """
    operation = Operation.OVERWRITE if snapshot.summary is None else snapshot.summary.operation
    option = f"streaming-skip-{operation.value}-snapshots"
    if operation == Operation.REPLACE or spec.options.get(option, "false").lower() == "true":
        return {}
    if operation != Operation.APPEND:
        raise refusal(
            spec,
            f"has snapshot {snapshot.snapshot_id} ({operation.value}), which deletes or changes rows: what was read of them "
            f"cannot be taken back. Set options.{option}: true to leave such snapshots out, with all rows that they add",
        )
    own = [each for each in snapshot.manifests(table.io) if each.added_snapshot_id == snapshot.snapshot_id]
    if any(manifest.content == ManifestContent.DELETES for manifest in own):
        raise refusal(spec, _MERGE_ON_READ)
    added = (entry for entry in _entries(table, own) if entry.status == ManifestEntryStatus.ADDED)
    return _in_order(spec, table, (entry for entry in added if entry.snapshot_id == snapshot.snapshot_id))


def names_in(spec: SourceSpec, table: Table, path: str, partition_spec: int, stored: pa.Schema) -> Names:
    """The names of the source's columns in a file with the columns `stored`, by their ids.

    Raises TableError for a file that says less than the table does.
    """
    if any(_id(field) is None for field in stored):
        try:
            stored = pyarrow_to_schema(stored, table.name_mapping(), downcast_ns_timestamp_to_us=True).as_arrow()
        except (ValueError, TypeError) as error:
            raise refusal(spec, f"has {path}, whose columns have no ids, nor does the table name them: {error}") from error
    own, names, columns = {_id(field): field for field in stored}, list[tuple[str, str | None]](), table.schema().as_arrow()
    given = {field.source_id for field in table.specs()[partition_spec].fields if str(field.transform) == "identity"}
    for name in declared_schema(spec).names:
        wanted = columns.field(name)
        found = own.get(_id(wanted))
        if found is not None and not _are_alike(wanted.type, found.type):
            raise refusal(spec, f"has {path}, from before a field in column {name!r} was renamed or replaced; {_REWRITE}")
        has_value = _id(wanted) in given or table.schema().find_field(name).initial_default is not None
        if found is None and has_value:
            raise refusal(spec, f"has {path} without column {name!r}, whose value only the table's metadata has; {_REWRITE}")
        if found is None and name in stored.names:
            names.append((name, None))
        elif found is not None and found.name != name:
            names.append((name, found.name))
    return tuple(names)


def _entries(table: Table, manifests: Sequence[Any]) -> Iterable[ManifestEntry]:
    """The live entries of manifests."""
    read = each_of(manifests, lambda manifest: manifest.fetch_manifest_entry(table.io), lambda each: each.manifest_path)
    return chain.from_iterable(read)


def _in_order(spec: SourceSpec, table: Table, entries: Iterable[ManifestEntry]) -> dict[str, DataFile]:
    """The files by their paths, in the order of the snapshots that they came with."""
    times = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in table.snapshots()}
    files = [(e.sequence_number or 0, times.get(e.snapshot_id or 0, 0), _path(spec, e.data_file), e.data_file) for e in entries]
    return {path: file for _, _, path, file in sorted(files, key=lambda each: each[:3])}


def _path(spec: SourceSpec, file: DataFile) -> str:
    """The path of a data file, which is written as it is, not as a URI."""
    path = re.sub(r"^file:(//)?(?=/)", "", re.sub("^s3[an]://", "s3://", file.file_path))
    if not path.startswith(("/", "s3://")):
        raise refusal(spec, f"has its files elsewhere ({path}); only those of local folders and of s3:// are read")
    if file.file_format != FileFormat.PARQUET or file.key_metadata is not None:
        kind = "encrypted" if file.key_metadata is not None else file.file_format.value
        raise refusal(spec, f"has {path}, which is {kind}, and only parquet is read; {_REWRITE}")
    return path


def _id(field: pa.Field) -> int | None:
    text = (field.metadata or {}).get(PYARROW_PARQUET_FIELD_ID_KEY)
    return None if text is None else int(text)


def _are_alike(wanted: pa.DataType, found: pa.DataType) -> bool:
    """True if the fields of structs, at any depth, that have the same name have the same id."""
    inside, stored = dict(_fields_in(wanted)), dict(_fields_in(found))
    gone = {stored[number] for number in stored.keys() - inside.keys()}
    new = {inside[number] for number in inside.keys() - stored.keys()}
    return not gone & new and all(stored[number] == inside[number] for number in stored.keys() & inside.keys())


def _fields_in(kind: pa.DataType) -> Iterator[tuple[int | None, str]]:
    for index in range(kind.num_fields):
        field = kind.field(index)
        if pa.types.is_struct(kind):
            yield _id(field), field.name
        yield from _fields_in(field.type)
