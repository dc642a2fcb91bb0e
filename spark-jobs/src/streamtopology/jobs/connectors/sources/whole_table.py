"""A table or some files as they are now, whole and of one version, for who looks rows up in them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple
from typing import Any

import pyarrow as pa

from streamtopology.jobs.connectors.sources.descriptors import SourceSpec, Tally
from streamtopology.jobs.connectors.sources.errors import BadFileError, SourceError
from streamtopology.jobs.connectors.sources.files.listing import list_files
from streamtopology.jobs.connectors.sources.files.tables import place_of_table, refusal
from streamtopology.jobs.connectors.sources.formats import parts_of_file, read_tables
from streamtopology.jobs.connectors.sources.schema.conform import conform
from streamtopology.jobs.connectors.sources.schema.declared import declared_schema
from streamtopology.jobs.connectors.sources.stored_files import each_of, status_of

# Of the declared columns in memory.
MOST_BYTES = 256 << 20
_TRIES = 3


def newest(spec: SourceSpec, known: str | None = None) -> tuple[str, pa.Table] | None:
    """The version and the rows of a table as it is now, with the declared columns; None if its version is the `known` one.

    Raises SourceError for a table that is not there, cannot be read, is too large or has other columns.
    """
    read = {"iceberg": _of_iceberg, "delta": _of_delta}.get(spec.table_format, _of_files)
    try:
        return read(spec, known)
    except BadFileError as error:
        raise SourceError(error.finding) from error
    except (OSError, pa.ArrowException) as error:
        why = " ".join(str(error).split())
        raise SourceError(f"source {spec.name!r}: cannot be read: {why}; put a whole file in its place") from error


def _of_files(spec: SourceSpec, known: str | None) -> tuple[str, pa.Table] | None:
    """Files that are replaced while they are read are read again: their rows are those of one moment."""
    before = _listed(spec)
    for _ in range(_TRIES):
        if before == known:
            return None
        parts = (part for path in list_files(spec) for part in parts_of_file(spec, path))
        rows = _together(spec, (table for _, table in read_tables(parts, spec, declared_schema(spec), Tally())))
        if (after := _listed(spec)) == before:
            return before, rows
        before = after
    raise SourceError(f"source {spec.name!r}: its files change while they are read; write them elsewhere and rename them")


def _listed(spec: SourceSpec) -> str:
    """A digest of names, sizes and times."""
    paths = list_files(spec)
    if not paths:
        raise SourceError(f"source {spec.name!r}: {spec.options['path']} has no file; a table without rows is one without any")
    found = [(path, astuple(status)) for path, status in zip(paths, each_of(paths, status_of, str), strict=True)]
    return hashlib.blake2b(repr(found).encode(), digest_size=8).hexdigest()


def _of_delta(spec: SourceSpec, known: str | None) -> tuple[str, pa.Table] | None:
    from streamtopology.jobs.connectors.sources.files.delta_table import open_table, table_columns  # loads delta-rs

    table = open_table(spec)
    version = f"{table.metadata().id} {table.version()}"
    if version == known:
        return None
    try:
        read = table.to_pyarrow_dataset().to_batches
        return version, _together(spec, _conformed(spec, table_columns(table), lambda names: read(columns=names)))
    except (SourceError, MemoryError):
        raise
    except Exception as error:  # some errors of delta-rs have no class of their own
        raise refusal(spec, f"cannot be read: {str(error).partition(chr(10))[0]}") from error


def _of_iceberg(spec: SourceSpec, known: str | None) -> tuple[str, pa.Table] | None:
    from streamtopology.jobs.connectors.sources.files.iceberg_table import asked  # loads pyiceberg

    def of(table: Any) -> tuple[str, pa.Table] | None:
        snapshot, now = table.current_snapshot(), table.metadata
        version = f"{now.table_uuid} {snapshot and snapshot.snapshot_id} {now.current_schema_id}"
        if version == known:
            return None
        rows = _conformed(
            spec, table.schema().as_arrow(), lambda names: table.scan(selected_fields=tuple(names)).to_arrow_batch_reader()
        )
        return version, _together(spec, rows)

    return asked(spec, of)


def _conformed(
    spec: SourceSpec, columns: pa.Schema, read: Callable[[list[str]], Iterable[pa.RecordBatch]]
) -> Iterator[pa.Table]:
    """The declared columns of the rows that `read` gives of the `columns` that it is told."""
    declared, place = declared_schema(spec), f"source {spec.name!r}, table {place_of_table(spec)}"
    conform(columns.empty_table(), declared, place)  # says which column is missing, or of another type
    for batch in read([name for name in columns.names if name in declared.names]):
        yield conform(pa.Table.from_batches([batch]), declared, place)


def _together(spec: SourceSpec, tables: Iterable[pa.Table]) -> pa.Table:
    found, size = [declared_schema(spec).empty_table()], 0
    for table in tables:
        found.append(table)
        size += table.nbytes
        if size > MOST_BYTES:
            raise SourceError(
                f"source {spec.name!r}: its rows take more than {MOST_BYTES >> 20} MiB, the most of a table that each executor "
                "holds: declare fewer columns, keep fewer rows, or make it a source of its own for a window-join"
            )
    return pa.concat_tables(found)
