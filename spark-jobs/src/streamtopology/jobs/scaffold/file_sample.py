"""Samples of files: the schema that a source needs to read all of them, and rows of some."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing

import pyarrow as pa
import pyarrow.parquet as pq

from streamtopology.jobs.connectors.sources.descriptors import Descriptor, SourceError, SourceSpec
from streamtopology.jobs.connectors.sources.formats import read_all
from streamtopology.jobs.connectors.sources.schema.conform import SchemaMismatchError, conform, widens
from streamtopology.jobs.connectors.sources.schema.ddl import ddl_to_arrow
from streamtopology.jobs.connectors.sources.schema.spark_types import spark_type
from streamtopology.jobs.connectors.sources.text.text_stream import open_decompressed
from streamtopology.jobs.errors import WrongUse
from streamtopology.jobs.scaffold.delimited import csv_columns
from streamtopology.jobs.scaffold.files import DataFiles
from streamtopology.jobs.scaffold.json_lines import json_columns
from streamtopology.jobs.scaffold.sample import MOST_ROWS, Option, Sample, joined, sql_text
from streamtopology.jobs.scaffold.usable_columns import sampled
from streamtopology.topology.schema import to_ddl

# Parquet files whose schemas are compared; of more, as many at even distances.
MOST_FOOTERS = 1000
# Rows of a file beyond which it should be cut: a file is the least that a batch takes.
LARGE_FILE_ROWS = 500_000
# Files of which rows are read.
MOST_FILES = 8

_WORDS = r"unnest(regexp_extract_all(lower(value), '\w+'))"

# Name and Spark type of each declared column.
Columns = list[tuple[str, str]]


def sample_files(files: DataFiles) -> Sample:
    """A sample of `files`. Raises WrongUse for data that a run could not read."""
    return _SAMPLERS[files.format](files)


def _sample_parquet(files: DataFiles) -> Sample:
    footers = [_footer(path) for path in spread(files.paths, MOST_FOOTERS)]
    declared, notes = common_columns({footer.path: footer.schema for footer in footers})
    parts, paths = list[pa.Table](), spread(files.paths, MOST_FILES)
    for path in paths:
        rows = _first_rows(path, [name for name, _ in declared], MOST_ROWS // len(paths))
        declared, misfits = _fitting(rows, declared, path)
        notes += misfits
        parts.append(rows)
    if not declared:
        others = " and that every other file has" if len(footers) > 1 else ""
        raise WrongUse(f"{files.paths[0]} has no column that can be read{others}: {'; '.join([*files.notes, *notes])}")
    schema = ddl_to_arrow(to_ddl(declared))
    table = pa.concat_tables([conform(part, schema, "sample") for part in parts])
    mean_rows = round(sum(footer.rows for footer in footers) / len(footers))
    title = f"{files.title}, about {mean_rows * len(files.paths):,} rows"
    return sampled(
        "parquet",
        title,
        table,
        files.options,
        declared,
        len(files.paths),
        mean_rows,
        [*files.notes, *notes, *_too_large(files, mean_rows)],
    )


class _Footer:
    def __init__(self, path: str, schema: pa.Schema, rows: int) -> None:
        self.path, self.schema, self.rows = path, schema, rows


def _footer(path: str) -> _Footer:
    try:
        metadata = pq.read_metadata(path)
        return _Footer(path, metadata.schema.to_arrow_schema(), metadata.num_rows)
    except (OSError, pa.ArrowInvalid) as error:
        raise WrongUse(f"{path} is no readable parquet file ({error}); remove it: a run would stop at it") from error


def common_columns(schemas: dict[str, pa.Schema]) -> tuple[Columns, list[str]]:
    """The columns that every file has, as the widest type among them, and a sentence for each column left out."""
    first = next(iter(schemas.values()))
    everywhere, notes = Columns(), list[str]()
    names = list(dict.fromkeys(name for schema in schemas.values() for name in schema.names))
    for name in names:
        lacking = [path for path, schema in schemas.items() if schema.names.count(name) != 1]
        if lacking:
            notes.append(f"left out: column {name!r}, not once in {joined(lacking)}")
        elif not name or name.lower() in {known.lower() for known, _ in everywhere}:
            notes.append(f"left out: column {name!r}, a name that another column has (upper and lower case are the same)")
        else:
            types = {schema.field(name).type for schema in schemas.values()}
            found = _widest(sorted(types, key=str), first.field(name).type)
            if found is None:
                notes.append(f"left out: column {name!r}, of type {' and '.join(sorted(map(str, types)))}")
            else:
                everywhere.append((name, found))
    return everywhere, notes


def _widest(types: Sequence[pa.DataType], first: pa.DataType) -> str | None:
    for candidate in [first, *types]:
        is_left_out = candidate == pa.uint64() or pa.types.is_struct(candidate) or pa.types.is_map(candidate)
        name = None if is_left_out else spark_type(candidate)  # a decimal would be cast to DOUBLE: ids would meet
        if name is not None and all(widens(type_, ddl_to_arrow(f"c {name}").field(0).type) for type_ in types):
            return name
    return None


def _first_rows(path: str, columns: list[str], most: int) -> pa.Table:
    with pq.ParquetFile(path, memory_map=True, coerce_int96_timestamp_unit="us") as file:
        batches = list[pa.RecordBatch]()
        for batch in file.iter_batches(min(most, 1 << 16), columns=columns, use_threads=False):
            batches.append(batch)
            if sum(part.num_rows for part in batches) >= most:
                break
        schema = batches[0].schema if batches else pa.schema([file.schema_arrow.field(name) for name in columns])
        return pa.Table.from_batches(batches, schema).slice(0, most)


def _fitting(rows: pa.Table, declared: Columns, path: str) -> tuple[Columns, list[str]]:
    """The columns of `declared` whose values convert without loss, and a sentence for each that does not."""
    kept, notes = Columns(), list[str]()
    for name, type_ in declared:
        try:
            conform(rows.select([name]), ddl_to_arrow(to_ddl([(name, type_)])), os.path.basename(path))
            kept.append((name, type_))
        except SchemaMismatchError as error:
            notes.append(f"left out: {error}")
    return kept, notes


def _sample_csv(files: DataFiles) -> Sample:
    found = csv_columns(spread(files.paths, MOST_FILES))
    return _sample_as_read(files, found.columns, {**files.options, **found.options}, found.notes)


def _sample_json(files: DataFiles) -> Sample:
    columns, notes = json_columns(spread(files.paths, MOST_FILES))
    return _sample_as_read(files, columns, files.options, notes)


def _sample_as_read(files: DataFiles, declared: Columns, options: dict[str, Option], notes: Iterable[str]) -> Sample:
    """The sample as the source itself reads it; a column whose later values are of another type gives way."""
    notes = [*files.notes, *notes]
    while declared:
        spec = _spec(files, options, to_ddl(declared))
        try:
            parts = [_first_batch(path, spec) for path in spread(files.paths, MOST_FILES)]
        except SourceError as error:
            name = error.column if isinstance(error, SchemaMismatchError) else None
            if name is None:
                raise WrongUse(f"{error}; a run would stop at it") from error
            declared = _without_type(declared, name, files.format == "csv")
            notes.append(f"column {name!r} has values of several types: {'text' if files.format == 'csv' else 'left out'}")
            continue
        table = pa.Table.from_batches([part for part, _ in parts if part is not None], ddl_to_arrow(to_ddl(declared)))
        rows = round(sum(rows for _, rows in parts) / len(parts))
        title = f"{files.title}, about {rows * len(files.paths):,} rows"
        return sampled(
            files.format, title, table, options, declared, len(files.paths), rows, [*notes, *_too_large(files, rows)]
        )
    raise WrongUse(f"{files.paths[0]} has no column that can be read: {'; '.join([*files.notes, *notes])}")


def _without_type(declared: Columns, name: str, as_text: bool) -> Columns:
    """`declared` with column `name` as text, or without it where it cannot be one."""
    if as_text and dict(declared)[name] != "STRING":
        return [(known, "STRING" if known == name else type_) for known, type_ in declared]
    return [column for column in declared if column[0] != name]


def _first_batch(path: str, spec: SourceSpec) -> tuple[pa.RecordBatch | None, int]:
    """Some rows of a file, and about how many it has."""
    size = os.path.getsize(path)
    descriptor = Descriptor(spec.name, spec.format, path, 0, 0, size, 0)
    batch = next(read_all([descriptor], spec, _ignore), None)
    if batch is None:
        return None, 0
    return batch.slice(0, MOST_ROWS // MOST_FILES), max(batch.num_rows, _rows_by_size(path, spec, batch))


def _rows_by_size(path: str, spec: SourceSpec, batch: pa.RecordBatch) -> int:
    """Rows of a file of which `batch` was read, if all its rows are about as long as the first."""
    headers = int(spec.options.get("header") == "true")
    with closing(open_decompressed(path, path)) as stream:
        head = stream.read(1 << 20)
    ends = head.count(b"\n")
    compressed = not path.endswith((".csv", ".json", ".jsonl", ".ndjson", ".txt", ".tsv", ".log"))
    return batch.num_rows if compressed or not ends else round(os.path.getsize(path) * ends / len(head)) - headers


def _ignore(_batch: pa.RecordBatch, _reason: str) -> None:
    pass


def _sample_text(files: DataFiles) -> Sample:
    spec = _spec(files, files.options, None)
    words = SourceSpec(spec.name, "text", None, spec.options, (f"{_WORDS} AS word",))
    try:
        lines = [_first_batch(path, spec) for path in spread(files.paths, MOST_FILES)]
        parts = [_first_batch(path, words)[0] for path in spread(files.paths, MOST_FILES)]
    except SourceError as error:
        raise WrongUse(str(error)) from error
    rows = round(sum(rows for _, rows in lines) / len(lines))
    table = pa.Table.from_batches([part for part in parts if part is not None], pa.schema([("word", pa.string())]))
    title = f"{files.title}, about {rows * len(files.paths):,} lines"
    expressions = {"word": f"{_WORDS} AS word"}
    return Sample(
        "text",
        title,
        table,
        files.options,
        expressions=expressions,
        parts=len(files.paths),
        rows_per_part=rows,
        notes=files.notes,
    )


def _too_large(files: DataFiles, rows: int) -> list[str]:
    """A sentence with the command that cuts files of `rows` rows, if they are too large for small batches."""
    if rows <= LARGE_FILE_ROWS:
        return []
    source, target = files.paths[0] if len(files.paths) == 1 else files.options["path"], f"build/{files.format}-parts"
    source = os.path.join(str(source), "*") if os.path.isdir(str(source)) else str(source)
    sql = f"COPY (FROM {sql_text(source)}) TO {sql_text(target)} (FORMAT parquet, ROW_GROUP_SIZE 100000, ROW_GROUPS_PER_FILE 1)"
    command = f"mkdir -p build && python -c {shlex.quote(f'import duckdb; duckdb.sql({sql!r})')}"
    cut = f"cut them with {command}, then: streamtopology init {target}"
    return [f"a batch takes whole files, here of about {rows:,} rows: large; {cut}"]


def _spec(files: DataFiles, options: dict[str, Option], schema: str | None) -> SourceSpec:
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
    return SourceSpec("data", files.format, schema, texts)


def spread(paths: Sequence[str], most: int) -> list[str]:
    """At most `most` of `paths`, at even distances."""
    step = max(1, len(paths) / most)
    return [paths[int(place * step)] for place in range(min(most, len(paths)))]


_SAMPLERS: dict[str, Callable[[DataFiles], Sample]] = {
    "parquet": _sample_parquet,
    "csv": _sample_csv,
    "json": _sample_json,
    "text": _sample_text,
}
