"""Reading a descriptor's rows inside a pinned task, conformed to the declared schema, then selected and filtered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamtopology.jobs.connectors.file_uri import is_in_bucket
from streamtopology.jobs.connectors.sources.descriptors import (
    Descriptor,
    SourceSpec,
    Tally,
    skip_remedy,
)
from streamtopology.jobs.connectors.sources.errors import BadFileError
from streamtopology.jobs.connectors.sources.files.partitions import columns_in_file, partition_texts, with_partitions
from streamtopology.jobs.connectors.sources.schema.conform import conform
from streamtopology.jobs.connectors.sources.schema.declared import declared_schema, needed_columns
from streamtopology.jobs.connectors.sources.stored_files import FileStatus, for_arrow, status_of
from streamtopology.jobs.connectors.sources.text.csv_rows import read_csv
from streamtopology.jobs.connectors.sources.text.json_lines import read_json
from streamtopology.jobs.connectors.sources.text.text_stream import TextStream, lines

MAX_BATCH_ROWS = 1 << 18
MAX_BATCH_BYTES = 32 << 20
_BLOCK_BYTES = 8 << 20
_WEIGHED_ROWS = 64
_ALL_ROWS = 1 << 62
# Columns that travel with the rows, by names that no file has.
_PLACE, _LAST_PLACE = "place of the row", "last place of the row"


# Is given each row (one at a time) that a source's select or where raises on, and why; it may raise to end the reading.
BadRow = Callable[[pa.RecordBatch, str], None]


@dataclass(frozen=True)
class LeftOut:
    """`take` gets `column` of the rows that a source's where leaves out, and their places if rows are read with places."""

    column: str
    take: Callable[[pa.Array, np.ndarray | None], None]


def parts_of_file(spec: SourceSpec, path: str, most: int = _ALL_ROWS) -> Iterator[Descriptor]:
    """Descriptors of a file, with the first `most` rows of each of its row groups."""
    if spec.format != "parquet":
        yield Descriptor(spec.name, spec.format, path, 0, 0, status_of(path).size, 0)
        return
    footer = pq.read_metadata(for_arrow(path))
    for group in range(footer.num_row_groups):
        rows = min(most, footer.row_group(group).num_rows)
        yield Descriptor(spec.name, spec.format, path, group, 0, rows, rows)


def read_all(
    descriptors: Iterable[Descriptor],
    spec: SourceSpec,
    bad_row: BadRow,
    columns: Sequence[str] | None = None,
    tally: Tally | None = None,
    left_out: LeftOut | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a source's descriptors after its select and where, in order, about `MAX_BATCH_ROWS` read for each batch.

    A batch has about `MAX_BATCH_BYTES` at most, too. Small parts are put together first: an expression costs milliseconds a
    batch, whatever its size. `columns` are the columns wanted of the result (None: all of them); columns that nothing needs
    are not decoded where the format allows it. `tally` counts. Raises `SourceError`, and `SchemaMismatchError` with file,
    column, found and declared type.
    """
    declared = needed_columns(declared_schema(spec), spec, columns)
    tables = read_tables(descriptors, spec, declared, Tally() if tally is None else tally)
    for batch in _together(table for _, table in tables):
        for selected in _finish(batch, spec, bad_row, left_out):
            yield selected if columns is None else selected.select(list(columns))


def read_with_places(
    descriptors: Iterable[Descriptor],
    spec: SourceSpec,
    bad_row: BadRow,
    place_of: Callable[[Descriptor], int],
    tally: Tally,
    left_out: LeftOut | None = None,
    columns: Sequence[str] | None = None,
) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
    """`read_all`, with the place (int32[n]) that `place_of` gives to each row's descriptor.

    The places pass through select and where as one more column, so that the rows of all descriptors still take one query.
    """
    declared = needed_columns(declared_schema(spec), spec, columns)
    tables = (
        table.append_column(_PLACE, pa.repeat(pa.scalar(place_of(descriptor), pa.int32()), table.num_rows))
        for descriptor, table in read_tables(descriptors, spec, declared, tally)
    )
    tagged = replace(spec, select=(*spec.select, f'"{_PLACE}" AS "{_LAST_PLACE}"')) if spec.select else spec
    for batch in _together(tables):
        for selected in _finish(batch, tagged, lambda row, reason: bad_row(row.drop_columns([_PLACE]), reason), left_out):
            all_columns = [name for name in selected.schema.names if name not in (_PLACE, _LAST_PLACE)]
            kept = all_columns if columns is None else list(columns)
            yield selected.select(kept), selected.column(selected.num_columns - 1).to_numpy()


def rehearse(spec: SourceSpec) -> None:
    """Select from no rows: that starts the SQL engine, for which the first rows would wait."""
    none = pa.RecordBatch.from_pylist([], schema=needed_columns(declared_schema(spec), spec, None))
    for _ in _finish(none, spec, lambda row, reason: None):
        pass


def read_tables(
    descriptors: Iterable[Descriptor], spec: SourceSpec, declared: pa.Schema, tally: Tally
) -> Iterator[tuple[Descriptor, pa.Table]]:
    """The rows of each descriptor as its reader gives them, with the columns that its folders give; counted."""
    if spec.format == "kafka":
        from streamtopology.jobs.connectors.sources.kafka.stream import (
            read_ranges,  # keeps librdkafka out of topologies without Kafka
        )

        for descriptor, table in read_ranges(list(descriptors), spec, tally):
            tally.read += table.num_rows
            yield descriptor, table.select(declared.names)
        return
    for descriptor in descriptors:
        texts = partition_texts(spec, descriptor.path)
        own = columns_in_file(declared, declared_schema(spec), texts) if texts else declared
        for table in _read(descriptor, spec, own, tally):
            tally.read += table.num_rows
            yield descriptor, with_partitions(table, declared, texts, _place(descriptor, spec)) if texts else table


def _read(descriptor: Descriptor, spec: SourceSpec, declared: pa.Schema, tally: Tally) -> Iterator[pa.Table]:
    """The rows of a descriptor by its reader. Raises BadFileError for a file that is gone, cut or damaged by now."""
    try:
        yield from _READERS[spec.format](descriptor, spec, declared, tally)
    except FileNotFoundError as error:
        raise BadFileError(f"{_place(descriptor, spec)} is gone; put it back", skip_remedy(descriptor.path)) from error
    except MemoryError:
        raise
    except (OSError, pa.ArrowException) as error:
        finding = f"cannot be read: {' '.join(str(error).split())}; put a whole file in its place"
        raise BadFileError(f"{_place(descriptor, spec)} {finding}", skip_remedy(descriptor.path)) from error


def _together(tables: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
    """The rows of `tables`, about `MAX_BATCH_ROWS` or `MAX_BATCH_BYTES` in each batch."""
    gathered: list[pa.Table] = []
    rows = size = 0
    for table in tables:
        gathered.append(table)
        rows, size = rows + table.num_rows, size + table.nbytes
        if rows >= MAX_BATCH_ROWS or size >= MAX_BATCH_BYTES:
            yield from _batches(gathered)
            gathered, rows, size = [], 0, 0
    if gathered:
        yield from _batches(gathered)


def _batches(tables: Sequence[pa.Table]) -> Iterator[pa.RecordBatch]:
    """The rows of `tables`. They are copied piece by piece, as one batch has at most 2 GiB of texts."""
    together = pa.concat_tables(tables)
    size, step = together.nbytes, MAX_BATCH_ROWS
    if size > 2 * MAX_BATCH_BYTES:
        step = max(1, min(step, together.num_rows * MAX_BATCH_BYTES // size))
    for start in range(0, max(together.num_rows, 1), step):
        yield from together.slice(start, step).combine_chunks().to_batches()


def _finish(
    batch: pa.RecordBatch, spec: SourceSpec, bad_row: BadRow, left_out: LeftOut | None = None
) -> Iterator[pa.RecordBatch]:
    """`batch` selected and filtered; halved until the rows on which that raises are found, and the others pass."""
    if spec.select or spec.where:
        from streamtopology.jobs.columnar.expressions import (  # loads the SQL engine: only where it is used
            ExpressionError,
            project,
        )

        try:
            selected = project(batch, spec.select, spec.where)
        except ExpressionError as error:
            if batch.num_rows <= 1:
                bad_row(batch, str(error))
                return
            half = batch.num_rows // 2
            yield from _finish(batch.slice(0, half), spec, bad_row, left_out)
            yield from _finish(batch.slice(half), spec, bad_row, left_out)
            return
        if left_out is not None and selected.num_rows != batch.num_rows:
            _give(left_out, batch, spec)
        batch = selected
    yield batch


def _give(left_out: LeftOut, batch: pa.RecordBatch, spec: SourceSpec) -> None:
    from streamtopology.jobs.columnar import expressions

    if spec.where is None:
        return
    places = [name for name in (_LAST_PLACE if spec.select else _PLACE,) if _PLACE in batch.schema.names]
    rows = expressions.left_out(batch, spec.select, spec.where, [left_out.column, *places])
    left_out.take(rows.column(0), rows.column(1).to_numpy() if places else None)


def _read_parquet(descriptor: Descriptor, spec: SourceSpec, declared: pa.Schema, _tally: Tally) -> Iterator[pa.Table]:
    place = _place(descriptor, spec)
    if descriptor.start >= descriptor.end:
        return
    file = _parquet_file(descriptor.path, status_of(descriptor.path))
    if descriptor.part >= file.num_row_groups or file.metadata.row_group(descriptor.part).num_rows < descriptor.end:
        raise BadFileError(f"{place} was replaced while it was read; start again: it is read as it is now")
    present, wanted = set(file.schema_arrow.names), declared
    stored = {**dict(zip(declared.names, declared.names, strict=True)), **dict(descriptor.names)}
    if spec.is_table:
        declared = pa.schema([field for field in declared if stored[field.name] in present or not field.nullable])
    if not declared.names:
        yield _with_nulls(pa.table({"": pa.nulls(descriptor.end - descriptor.start)}), wanted)
        return
    names = {stored[name]: name for name in declared.names if stored[name] in present}
    if len(names) < len(declared) or len(present) < len(file.schema_arrow.names):
        conform(file.schema_arrow.empty_table(), declared, place)  # says which column is missing, or there twice
    at = 0
    for rows in _row_group(file, descriptor, [*names]):
        start, end = max(descriptor.start - at, 0), min(descriptor.end - at, rows.num_rows)
        rows = rows.select([*names]).rename_columns([*names.values()])
        if start < end:
            yield _with_nulls(conform(rows.slice(start, end - start), declared, place), wanted)
        at += rows.num_rows
        if at >= descriptor.end:
            return


def _with_nulls(rows: pa.Table, wanted: pa.Schema) -> pa.Table:
    """`rows` with those of the `wanted` columns, too, that their table had not yet when they were written."""
    there = set(rows.schema.names)
    if there.issuperset(wanted.names):
        return rows
    columns = [rows.column(field.name) if field.name in there else pa.nulls(rows.num_rows, field.type) for field in wanted]
    return pa.table(columns, schema=wanted)


def _row_group(file: pq.ParquetFile, descriptor: Descriptor, names: list[str]) -> Iterator[pa.Table]:
    """The rows of a descriptor's row group from its first on, in tables of about `_BLOCK_BYTES` at most."""
    group = file.metadata.row_group(descriptor.part)
    by_figures = group.total_byte_size // max(group.num_rows, 1)
    most = max(1, _BLOCK_BYTES // max(1, by_figures, _row_bytes(file, tuple(names))))
    if group.num_rows <= most:
        yield file.read_row_group(descriptor.part, columns=names, use_threads=False)
        return
    for batch in file.iter_batches(most, row_groups=[descriptor.part], columns=names, use_threads=False):
        yield pa.Table.from_batches([batch])


@lru_cache(maxsize=4)
def _row_bytes(file: pq.ParquetFile, names: tuple[str, ...]) -> int:
    """Bytes of a row in memory, by the file's first rows: of values that repeat, it holds little more than their numbers."""
    types = [file.schema_arrow.field(name).type for name in names]
    if all(pa.types.is_primitive(kind) for kind in types):
        return sum(kind.bit_width for kind in types) // 8
    first = next(file.iter_batches(_WEIGHED_ROWS, columns=list(names), use_threads=False), None)
    return 0 if first is None else first.nbytes // max(first.num_rows, 1)


@lru_cache(maxsize=4)
def _parquet_file(path: str, _status: FileStatus) -> pq.ParquetFile:
    """Kept open for the file's next row group: opening and its footer cost more than a small row group.

    INT96, as Spark writes a TIMESTAMP, is read in microseconds, as Spark does: nanoseconds end in the year 2262. The columns of
    an object's row group are asked for together, not each by itself.
    """
    is_far = is_in_bucket(path)
    return pq.ParquetFile(for_arrow(path), memory_map=True, pre_buffer=is_far, coerce_int96_timestamp_unit="us")


def _read_csv(descriptor: Descriptor, spec: SourceSpec, declared: pa.Schema, _tally: Tally) -> Iterator[pa.Table]:
    texts = partition_texts(spec, descriptor.path)
    names = [name for name in declared_schema(spec).names if name.lower() not in texts]
    return read_csv(descriptor, spec, declared, names, _place(descriptor, spec))


def _read_json(descriptor: Descriptor, spec: SourceSpec, declared: pa.Schema, _tally: Tally) -> Iterator[pa.Table]:
    return read_json(descriptor, spec, declared, _place(descriptor, spec))


def _read_text(descriptor: Descriptor, spec: SourceSpec, declared: pa.Schema, _tally: Tally) -> Iterator[pa.Table]:
    with closing(TextStream(descriptor.path, spec, _place(descriptor, spec))) as stream:
        for values in lines(stream):
            yield pa.table([values], names=declared.names or [""])


def _place(descriptor: Descriptor, spec: SourceSpec) -> str:
    return f"source {spec.name!r}, {descriptor.path}"


_READERS: dict[str, Callable[[Descriptor, SourceSpec, pa.Schema, Tally], Iterator[pa.Table]]] = {
    "parquet": _read_parquet,
    "csv": _read_csv,
    "json": _read_json,
    "text": _read_text,
}
