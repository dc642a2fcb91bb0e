"""A look at one file of a source before anything starts: whether it holds what the manifest declares."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamtopology.jobs.columnar.corrections import named_expression
from streamtopology.jobs.columnar.empty import empty_table
from streamtopology.jobs.columnar.event_times import event_micros
from streamtopology.jobs.connectors.sources.descriptors import Descriptor, SourceSpec
from streamtopology.jobs.connectors.sources.errors import BadFileError, BucketError, CatalogError, TableError
from streamtopology.jobs.connectors.sources.files.file_kinds import foreign_files, is_parquet, one_of_each_kind
from streamtopology.jobs.connectors.sources.files.listing import files_of
from streamtopology.jobs.connectors.sources.files.partitions import (
    check_partitions,
    outside_partitions,
    partition_texts,
)
from streamtopology.jobs.connectors.sources.files.survey import unread_folders, why_none
from streamtopology.jobs.connectors.sources.files.table_look import columns_of_table
from streamtopology.jobs.connectors.sources.files.tables import place_of_table
from streamtopology.jobs.connectors.sources.formats import parts_of_file, read_all
from streamtopology.jobs.connectors.sources.schema.conform import (
    MissingColumnError,
    NullValueError,
    SchemaMismatchError,
    conform,
)
from streamtopology.jobs.connectors.sources.schema.declared import needed_columns
from streamtopology.jobs.connectors.sources.stored_files import for_arrow
from streamtopology.jobs.connectors.sources.text.csv_options import CsvOptions
from streamtopology.jobs.connectors.sources.text.csv_rows import csv_header
from streamtopology.jobs.connectors.sources.text.text_stream import EncodingError, TextStream, UnreadableFileError
from streamtopology.topology import Doubt, Problem, columns_of
from streamtopology.topology.schema import to_ddl

_UNITS = (
    ("milliseconds", 1e3, "epoch_ms"),
    ("microseconds", 1e6, "make_timestamp"),
    ("nanoseconds", 1e9, "make_timestamp_ns"),
)
_YEAR_1980, _YEAR_2200 = 315_532_800.0, 7_258_118_400.0
_MOST_FILES = 1000
# Rows of a sample that a source's select and where are tried on.
_ROWS = 1000
# Objects of a JSON file whose names are looked at.
_OBJECTS = 100


def check_sample(spec: SourceSpec, declared: pa.Schema, expressions_hold: bool) -> list[Problem]:
    """The findings about one file of a source whose schema and path are valid; paths are below the source."""
    try:
        if spec.is_table:
            return [*_table_problems(spec, declared)]
        kinds = one_of_each_kind((file.path for file in files_of(spec)), spec.format)
        if not kinds:
            return [Doubt("options.path", f"source {spec.name!r}: {why_none(spec)}")]
        path, *others = kinds
        if outside := outside_partitions(spec, declared, [file.path for file in islice(files_of(spec), _MOST_FILES)]):
            return [Problem("options.path", outside)]
        if spec.format != "parquet" and is_parquet(path):
            sentence = f"source {spec.name!r}: {path} is a parquet file, not {spec.format}"
            return [Problem("format", f"{sentence}; did you mean 'parquet'?")]
        findings = [*foreign_files(spec, path, others), *unread_folders(spec, path)]
        if spec.format == "parquet":
            return [*findings, *_parquet_problems(spec, declared, path)]
        if header := _missing_header(spec, declared, path):
            findings.append(header)
            spec = replace(spec, options={**spec.options, "header": "true"})
        return [*findings, *_row_problems(spec, path, expressions_hold)]
    except EncodingError as error:
        return [Problem("options.encoding", str(error))]
    except UnreadableFileError as error:
        return [Problem("options.path", str(error))]
    except TableError as error:
        return [Problem(_place_of(spec), str(error))]
    except CatalogError as error:
        return [Doubt("options.catalog.uri", str(error))]
    except BucketError as error:
        return [Doubt("options.path", f"source {spec.name!r}: {error}")]
    except (OSError, BadFileError) as error:
        return [_unreadable(spec, error)]


def _unreadable(spec: SourceSpec, error: Exception) -> Problem:
    cause, path = error.__cause__ or error, spec.options.get("path") or place_of_table(spec)
    remedy = "correct its rights" if isinstance(cause, PermissionError) else "put a whole file in its place"
    return Problem(_place_of(spec), f"source {spec.name!r}: cannot read {path}: {' '.join(str(cause).split())}; {remedy}")


def _place_of(spec: SourceSpec) -> str:
    return "options.table" if spec.table_format == "iceberg" else "options.path"


def _table_problems(spec: SourceSpec, declared: pa.Schema) -> Iterator[Problem]:
    path = next((file.path for file in files_of(spec)), None)
    if path is None:
        yield Doubt(_place_of(spec), f"source {spec.name!r}: {why_none(spec)}")
    yield from _parquet_problems(spec, declared, path or place_of_table(spec))


def _parquet_problems(spec: SourceSpec, declared: pa.Schema, path: str) -> Iterator[Problem]:
    try:
        found = empty_table(columns_of_table(spec) if spec.is_table else pq.read_schema(for_arrow(path)))
    except pa.ArrowInvalid as error:
        sentence = f"source {spec.name!r}: {path} is no readable parquet file ({error}); correct option path or the format"
        yield Problem("format", sentence)
        return
    used, texts = needed_columns(declared, spec, None), partition_texts(spec, path)
    for field in declared:
        try:
            if field.name.lower() in texts:
                check_partitions(pa.schema([field]), texts, f"source {spec.name!r}, {path}")
                continue
            of = f"table {place_of_table(spec)}" if spec.is_table else path
            conform(found, pa.schema([field]), f"source {spec.name!r}, {of}")
        except SchemaMismatchError as error:
            unused = field.name not in used.names
            yield Doubt("schema", f"{error}; nothing uses it yet") if unused else Problem("schema", str(error))


def _row_problems(spec: SourceSpec, path: str, expressions_hold: bool) -> Iterator[Problem]:
    """Problems of the first rows: of each declared column, then of select and where."""
    plain = replace(spec, select=(), where=None)
    columns = columns_of(spec.schema) if spec.schema is not None else []
    is_by_place = spec.format == "csv" and spec.options.get("header", "false").lower() != "true"
    rows: pa.RecordBatch | None = None
    for _ in range(len(columns) + 1):
        try:
            rows = next(read_all(_first_part(plain, path), plain, _ignore), None)
            break
        except EncodingError:
            raise
        except SchemaMismatchError as error:
            has_remedy = error.column is None or isinstance(error, (MissingColumnError, NullValueError))
            type_ = f", or name a type that it fits, such as {error.fitting}" if error.fitting else ""
            remedy = "" if has_remedy else f"; correct the schema{type_}"
            yield Problem("schema", f"{error}{remedy}")
            columns = _without(error.column, columns, is_by_place)
            if error.column is None or not columns:
                return
            plain = replace(plain, schema=to_ddl(columns))
    if rows is not None and spec.format == "json":
        yield from _names_of_another_case(spec, rows, path)
    if rows is not None and plain.schema == spec.schema and expressions_hold:
        yield from _expression_problems(spec, rows.slice(0, _ROWS), path)


def _without(name: str | None, columns: list[tuple[str, str]], is_by_place: bool) -> list[tuple[str, str]]:
    """The columns but for the one that does not fit; where columns are found by their place it is a text, which fits."""
    if not is_by_place:
        return [column for column in columns if column[0] != name]
    others = [(known, "STRING" if known == name else kind) for known, kind in columns]
    return [] if others == columns else others


def _names_of_another_case(spec: SourceSpec, rows: pa.RecordBatch, path: str) -> Iterator[Problem]:
    """Problems of columns and fields that a JSON file has by a name of another case: they read as NULL, as in Spark."""
    objects: list[Any] = []
    with closing(TextStream(path, spec, path)) as stream:
        for line in stream.next_bytes().split(b"\n")[:_OBJECTS]:
            with suppress(ValueError, RecursionError):
                objects.append(json.loads(line))
    for name, other in _misspelt("", pa.struct(list(rows.schema)), objects):
        is_column = name in rows.schema.names
        if is_column and rows.column(name).null_count < rows.num_rows:
            continue  # a later object has it
        kind, remedy = ("column", ", and rename it in select") if is_column else ("field", "")
        sentence = f"source {spec.name!r}: {path} has no {kind} {name!r} but {other!r}; upper and lower case count"
        yield Problem("schema", f"{sentence}: declare it so{remedy}")


def _misspelt(place: str, kind: pa.DataType, values: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """Fields (`a.b`) that values have by a name that differs in case only, with that name."""
    if pa.types.is_list(kind):
        yield from _misspelt(place, kind.value_type, [item for value in values if isinstance(value, list) for item in value])
    found = [value for value in values if isinstance(value, dict)]
    if pa.types.is_map(kind):
        yield from _misspelt(place, kind.item_type, [item for value in found for item in value.values()])
    for field in kind if pa.types.is_struct(kind) else ():
        alike = sorted({name for value in found for name in value if name.lower() == field.name.lower()})
        if alike and field.name not in alike:
            yield place + field.name, place + alike[0]
        yield from _misspelt(f"{place}{field.name}.", field.type, [value.get(field.name) for value in found])


def _expression_problems(spec: SourceSpec, rows: pa.RecordBatch, path: str) -> Iterator[Problem]:
    from streamtopology.jobs.columnar.expressions import ExpressionError, project  # loads the SQL engine

    try:
        project(rows, spec.select, spec.where)
    except ExpressionError as error:
        sentence = f"source {spec.name!r}: a row of {path} fails: {error}; TRY_CAST and TRY give NULL in place of an error"
        yield Doubt("select" if spec.select else "where", sentence)


def check_event_times(spec: SourceSpec, column: str) -> list[Problem]:
    """The finding about one file of a sound source whose event times are the numbers of `column`: that they are no epoch
    seconds; a doubt if some are. The path is that of the watermark."""
    file = next(files_of(spec), None)
    path = "" if file is None else file.path
    try:
        rows = None if file is None else next(read_all(_first_part(spec, path), spec, _ignore, [column]), None)
    except BadFileError as error:
        return [_unreadable(spec, error)]
    if rows is None:
        return []
    times = rows.column(column).drop_null()
    _, valid = event_micros(times)
    times_inside = len(times) if valid is None else int(valid.sum())
    if valid is None or 2 * times_inside >= len(times):
        return []
    others = times.filter(pa.array(~valid))
    few = f"only {times_inside} of {len(times)}" if times_inside else "none"
    sentence = (
        f"source {spec.name!r}: column {column!r} has numbers such as {others[0]}, and read as epoch seconds {few} in {path} "
        f"is in the years 1 to 9999, so {'the other' if times_inside else 'all'} rows would be late"
        f"{_likely_unit(others, spec, column)}"
    )
    return [(Doubt if times_inside else Problem)("watermark.column", sentence)]


def _likely_unit(times: pa.Array, spec: SourceSpec, column: str) -> str:
    """A clause on the unit in which all numbers are times of our age, and how to convert it; "" if there is none."""
    number = next((body for body, name in map(named_expression, spec.select) if name == column), column)
    if pa.types.is_floating(times.type):
        number = f"CAST({number} AS BIGINT)"
    values = times.to_numpy(zero_copy_only=False).astype(np.float64)
    for name, per_second, function in _UNITS:
        if values.min() / per_second > _YEAR_1980 and values.max() / per_second < _YEAR_2200:
            return f"; they look like {name}: select '{function}({number}) AS {column}'"
    return ""


def _first_part(spec: SourceSpec, path: str) -> Iterator[Descriptor]:
    """The first row group of a file, all of one that is no parquet."""
    return islice(parts_of_file(spec, path), 1)


def _ignore(_rows: pa.RecordBatch, _reason: str) -> None:
    """No row fails where nothing is selected."""


def _missing_header(spec: SourceSpec, declared: pa.Schema, path: str) -> Problem | None:
    """The finding that `path` begins with the names of the declared columns, and the source lacks `header: true`.

    Of texts alone the names can be read as a row: then it is a doubt. Raises OSError and SourceError.
    """
    if spec.format != "csv" or CsvOptions.of(spec).header:
        return None
    try:
        first = csv_header(path, spec)
    except SchemaMismatchError:
        return None  # its rows are read next, with the finding on this one
    cells = {cell.strip().lower() for cell in first}
    own = [field for field in declared if field.name.lower() not in partition_texts(spec, path)]
    if not own or not all(field.name.lower() in cells for field in own):
        return None
    kind = Doubt if all(pa.types.is_string(field.type) for field in own) else Problem
    sentence = f"source {spec.name!r}: the first line of {path} is the names of its columns, and would be read as a row"
    return kind("options.header", f"{sentence}; set options.header: true")
