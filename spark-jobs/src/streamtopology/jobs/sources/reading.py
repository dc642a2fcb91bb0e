"""Reading a descriptor's rows inside a pinned task, conformed to the declared schema, then selected and filtered."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq

from streamtopology.jobs.sources.conform import SchemaMismatchError, conform, parse_timestamps
from streamtopology.jobs.sources.ddl import ddl_to_arrow
from streamtopology.jobs.sources.descriptors import Descriptor, SourceError, SourceSpec

MAX_BATCH_ROWS = 1 << 18
_BLOCK_BYTES = 8 << 20

TEXT_SCHEMA = pa.schema([pa.field("value", pa.string())])
KAFKA_SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    ]
)


def declared_schema(spec: SourceSpec) -> pa.Schema:
    """The rows of a source before select and where. Raises `SchemaError`."""
    if spec.format == "kafka":
        return KAFKA_SCHEMA
    if spec.format == "text":
        return TEXT_SCHEMA
    if spec.schema is None:
        raise SourceError(f"source {spec.name!r}: format {spec.format} needs a schema, e.g. schema: key BIGINT, v DOUBLE")
    return ddl_to_arrow(spec.schema)


BadRow = Callable[[pa.RecordBatch, str], None]
"""Is given each row (one at a time) that a source's select or where raises on, and why; it may raise to end the reading."""


def read(descriptor: Descriptor, spec: SourceSpec, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of one descriptor; see `read_all`."""

    def refuse(row: pa.RecordBatch, reason: str) -> None:
        raise SourceError(f"{_place(descriptor, spec)}: {reason}, in the row {row.to_pylist()[0]}")

    return read_all([descriptor], spec, refuse, columns)


def read_all(
    descriptors: Iterable[Descriptor], spec: SourceSpec, bad_row: BadRow, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a source's descriptors after its select and where, in order, about `MAX_BATCH_ROWS` read for each batch.

    Small parts are put together first: an expression costs milliseconds a batch, whatever its size. `columns` are the
    columns wanted of the result (None: all of them); columns that nothing needs are not decoded where the format allows
    it. Raises `SourceError`, and `SchemaMismatchError` with file, column, found and declared type.
    """
    declared = needed_columns(declared_schema(spec), spec, columns)
    gathered: list[pa.Table] = []
    for descriptor in descriptors:
        for table in _READERS[spec.format](descriptor, spec, declared):
            gathered.append(table)
            if sum(part.num_rows for part in gathered) >= MAX_BATCH_ROWS:
                yield from _together(gathered, spec, bad_row, columns)
                gathered = []
    yield from _together(gathered, spec, bad_row, columns)


def _together(
    tables: Sequence[pa.Table], spec: SourceSpec, bad_row: BadRow, columns: Sequence[str] | None
) -> Iterator[pa.RecordBatch]:
    if tables:
        for batch in pa.concat_tables(tables).combine_chunks().to_batches(max_chunksize=MAX_BATCH_ROWS):
            yield from _finish(batch, spec, bad_row, columns)


def needed_columns(declared: pa.Schema, spec: SourceSpec, columns: Sequence[str] | None) -> pa.Schema:
    """The declared columns that the result needs: a column counts as needed when an expression mentions its name."""
    if not spec.select and columns is None:
        return declared
    wanted = list(spec.select) if spec.select else list(columns or ())
    text = " , ".join([*wanted, spec.where or ""])
    if re.search(r"(^|,|\.)\s*\*", text):
        return declared
    mentioned = {word.lower() for word in re.findall(r"\w+", text)}
    # A name with other characters (`arr delay`) is found by its text.
    needed = [f for f in declared if f.name.lower() in mentioned or (not f.name.isidentifier() and f.name in text)]
    return pa.schema(needed or [declared.field(0)])  # a table without columns would forget its number of rows


def _finish(
    batch: pa.RecordBatch, spec: SourceSpec, bad_row: BadRow, columns: Sequence[str] | None
) -> Iterator[pa.RecordBatch]:
    """`batch` selected and filtered; halved until the rows on which that raises are found, and the others pass."""
    if spec.select or spec.where:
        from streamtopology.jobs.expressions import ExpressionError, project  # loads the SQL engine: only where it is used

        try:
            selected = project(batch, spec.select, spec.where)
        except ExpressionError as error:
            if batch.num_rows <= 1:
                bad_row(batch, str(error))
                return
            half = batch.num_rows // 2
            yield from _finish(batch.slice(0, half), spec, bad_row, columns)
            yield from _finish(batch.slice(half), spec, bad_row, columns)
            return
        batch = selected
    yield batch if columns is None else batch.select(list(columns))


def _read_parquet(descriptor: Descriptor, spec: SourceSpec, declared: pa.Schema) -> Iterator[pa.Table]:
    place = _place(descriptor, spec)
    file = _parquet_file(descriptor.path, os.stat(descriptor.path).st_mtime_ns)
    present = set(file.schema_arrow.names)
    names = [name for name in declared.names if name in present]
    if len(names) < len(declared):
        conform(file.schema_arrow.empty_table(), declared, place)  # says which column is missing
    table = file.read_row_group(descriptor.part, columns=names, use_threads=False)
    yield conform(table.slice(descriptor.start, descriptor.end - descriptor.start), declared, place)


@lru_cache(maxsize=4)
def _parquet_file(path: str, _mtime: int) -> pq.ParquetFile:
    """Kept open for the file's next row group: opening and its footer cost more than a small row group."""
    return pq.ParquetFile(path, memory_map=True)


def _read_csv(descriptor: Descriptor, spec: SourceSpec, declared: pa.Schema) -> Iterator[pa.Table]:
    place = _place(descriptor, spec)
    separator = spec.options.get("sep", spec.options.get("delimiter", ","))
    names = declared_schema(spec).names  # a file without a header has the declared columns in the declared order
    has_header = spec.options.get("header", "false").lower() == "true"
    if not descriptor.end:
        return
    if has_header:
        names = _csv_header(descriptor, separator)
        empty = pa.table({name: pa.nulls(0) for name in names})
        conform(empty, declared, place)  # says which column is missing
    try:
        with _open(descriptor) as stream:
            reader = pa_csv.open_csv(
                stream,
                pa_csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES, column_names=names, skip_rows=int(has_header)),
                pa_csv.ParseOptions(delimiter=separator, quote_char=spec.options.get("quote", '"')),
                pa_csv.ConvertOptions(
                    column_types={field.name: _parsed_as(field.type) for field in declared},
                    include_columns=declared.names,
                    null_values=[spec.options.get("nullValue", "")],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
            for batch in reader:
                yield _parse_and_conform(pa.Table.from_batches([batch]), declared, place)
    except pa.ArrowInvalid as error:
        raise SchemaMismatchError(_csv_complaint(place, declared, names, str(error))) from error


def _csv_header(descriptor: Descriptor, separator: str) -> list[str]:
    with io.TextIOWrapper(_open(descriptor), encoding="utf-8-sig", newline="") as text:
        return next(csv.reader(text, delimiter=separator), [])


def _csv_complaint(place: str, declared: pa.Schema, names: list[str], error: str) -> str:
    """Arrow names a column by its number; people want its name and what was declared."""
    number = re.search(r"In CSV column #(\d+)", error)
    name = names[int(number[1])] if number and int(number[1]) < len(names) else None
    if name not in declared.names:
        return f"{place}: {error} (declared: {', '.join(f'{f.name} {f.type}' for f in declared)})"
    found = re.search(r"invalid value '(.*)'", error)
    what = repr(found[1]) if found else error
    return f"{place}: column {name!r} is declared {declared.field(name).type} but holds {what}"


def _read_json(descriptor: Descriptor, spec: SourceSpec, declared: pa.Schema) -> Iterator[pa.Table]:
    place = _place(descriptor, spec)
    if not descriptor.end:
        return
    parsed = pa.schema([pa.field(field.name, _parsed_as(field.type)) for field in declared])
    options = pa_json.ParseOptions(explicit_schema=parsed, unexpected_field_behavior="ignore")
    try:
        with _open(descriptor) as stream:
            reader = pa_json.open_json(stream, pa_json.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES), options)
            for batch in reader:
                yield _parse_and_conform(pa.Table.from_batches([batch]), declared, place)
    except pa.ArrowInvalid as error:
        column = re.search(r"Column\(/([^/)]*)", str(error))
        if column is None or column[1] not in declared.names:
            raise SchemaMismatchError(f"{place}: {error}") from error
        declared_type = declared.field(column[1]).type
        raise SchemaMismatchError(f"{place}: column {column[1]!r} is declared {declared_type}: {error}") from error


def _read_text(descriptor: Descriptor, spec: SourceSpec, declared: pa.Schema) -> Iterator[pa.Table]:
    from streamtopology.jobs.sources.lines import lines

    with _open(descriptor) as stream:
        for values in lines(stream, _BLOCK_BYTES, _place(descriptor, spec)):
            yield pa.table([values], schema=declared)


def _read_kafka(descriptor: Descriptor, spec: SourceSpec, declared: pa.Schema) -> Iterator[pa.Table]:
    from streamtopology.jobs.sources.kafka import read_range  # keeps librdkafka out of topologies without Kafka

    for table in read_range(descriptor, spec):
        yield table.select(declared.names)


def _parsed_as(declared: pa.DataType) -> pa.DataType:
    """Timestamps come as texts with or without a zone: see `parse_timestamps`."""
    return pa.string() if pa.types.is_timestamp(declared) else declared


def _parse_and_conform(table: pa.Table, declared: pa.Schema, place: str) -> pa.Table:
    for index, field in enumerate(declared):
        if not pa.types.is_timestamp(field.type):
            continue
        try:
            parsed = parse_timestamps(table.column(field.name), field.type)
        except pa.ArrowInvalid as error:
            raise SchemaMismatchError(f"{place}: column {field.name!r} is declared {field.type}: {error}") from error
        table = table.set_column(table.schema.get_field_index(field.name), declared.field(index), parsed)
    return conform(table, declared, place)


def _open(descriptor: Descriptor) -> pa.NativeFile:
    return pa.input_stream(descriptor.path, compression="detect")


def _place(descriptor: Descriptor, spec: SourceSpec) -> str:
    return f"source {spec.name!r}, {descriptor.path}"


_READERS: dict[str, Callable[[Descriptor, SourceSpec, pa.Schema], Iterator[pa.Table]]] = {
    "parquet": _read_parquet,
    "csv": _read_csv,
    "json": _read_json,
    "text": _read_text,
    "kafka": _read_kafka,
}
