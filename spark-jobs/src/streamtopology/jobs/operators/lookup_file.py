"""Files of lookups as tables: columns of declared types, or such that nothing in them changes."""

# pyarrow.compute makes its functions when it is imported, unseen by the type checker.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from streamtopology.jobs.columnar.plain_types import plain, plain_type
from streamtopology.jobs.connectors.sources.descriptors import Descriptor, Kind, SourceError, SourceSpec, format_options
from streamtopology.jobs.connectors.sources.schema.conform import check_texts, conform
from streamtopology.jobs.connectors.sources.schema.declared import declared_schema
from streamtopology.jobs.connectors.sources.text.csv_options import csv_problems
from streamtopology.jobs.connectors.sources.text.csv_rows import csv_header, read_csv
from streamtopology.jobs.connectors.sources.text.json_lines import read_json
from streamtopology.jobs.connectors.sources.text.text_stream import encoding_of
from streamtopology.jobs.connectors.sources.text.text_values import time_problems
from streamtopology.jobs.operators.lookup_json import undeclared_json
from streamtopology.jobs.operators.lookup_table import texts_of
from streamtopology.jobs.operators.options import OptionError

_KINDS: Mapping[str, Kind] = {".csv": "csv", ".json": "json", ".parquet": "parquet"}
_PLAIN_NUMBER = r"^(0|-?[1-9][0-9]*|-?[0-9]+\.[0-9]*[1-9])$"
_NUMBER = r"^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$"


def read_lookup(path: Path, schema: Any, options: Any) -> pa.Table:
    """The rows of the file, of the columns that `schema` (Spark DDL) declares, or all of them. Raises OptionError."""
    kind = _KINDS.get(path.suffix)
    if kind is None:
        raise OptionError(f"lookup file {path} is of no known kind; allowed: {', '.join(_KINDS)}", about="lookup")
    if schema is not None and not isinstance(schema, str):
        raise OptionError(f"option lookup.schema is {schema!r}; allowed: Spark DDL such as 'faa STRING, lat DOUBLE'", "lookup")
    spec = SourceSpec(f"lookup {path.name}", kind, schema, texts_of(options, format_options(kind), kind))
    try:
        _check(spec)
        return _declared(path, spec) if schema is not None else _undeclared(path, spec)
    except (OSError, pa.ArrowException) as error:
        raise OptionError(f"lookup file {path.resolve()} cannot be read: {error}", about="lookup") from error
    except SourceError as error:
        raise OptionError(str(error), about="lookup") from error


def number_texts(table: pa.Table) -> list[str]:
    """The columns of texts that are all numbers, such as 02108 and 1.10."""
    return [field.name for field in table.schema if pa.types.is_string(field.type) and _all(table.column(field.name), _NUMBER)]


def _check(spec: SourceSpec) -> None:
    problems = csv_problems(spec) if spec.format == "csv" else ()
    for _, sentence in (*problems, *time_problems(spec)):
        raise SourceError(sentence)
    encoding_of(spec)


def _declared(path: Path, spec: SourceSpec) -> pa.Table:
    declared = declared_schema(spec)
    if spec.format == "parquet":
        return conform(_parquet(path), declared, str(path))
    return _rows(path, spec, declared)


def _rows(path: Path, spec: SourceSpec, declared: pa.Schema) -> pa.Table:
    file, place = _file(path, spec), f"lookup file {path}"
    if spec.format == "json":
        return pa.concat_tables([declared.empty_table(), *read_json(file, spec, declared, place)])
    return pa.concat_tables([declared.empty_table(), *read_csv(file, spec, declared, declared.names, place)])


def _file(path: Path, spec: SourceSpec) -> Descriptor:
    return Descriptor(spec.name, spec.format, str(path), 0, 0, path.stat().st_size, 0)


def _undeclared(path: Path, spec: SourceSpec) -> pa.Table:
    if spec.format == "parquet":
        table = _parquet(path)
        check_texts(table, f"lookup file {path}")
        return pa.table({field.name: _plain(table.column(field.name)) for field in table.schema})
    return undeclared_json(path, spec) if spec.format == "json" else _csv(path, spec)


def _parquet(path: Path) -> pa.Table:
    _check_names(pyarrow.parquet.read_schema(path).names, path, "")
    return pyarrow.parquet.read_table(path, coerce_int96_timestamp_unit="us")


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values of a column in a layout that Arrow's functions take, and texts by which a text can be looked up."""
    kind = plain_type(column.type)
    plain_column = pa.chunked_array([plain(chunk) for chunk in column.chunks], kind)
    return plain_column.cast(kind.value_type) if pa.types.is_dictionary(kind) else plain_column


def _csv(path: Path, spec: SourceSpec) -> pa.Table:
    names = csv_header(str(path), spec)
    if not names:
        raise SourceError(f"lookup file {path} has no row with the names of its columns")
    if spec.options["header"].lower() != "true":
        raise SourceError(f"lookup file {path} has no header by its options; name its columns in lookup.schema")
    _check_names(names, path, ", or declare others in lookup.schema")
    texts = _rows(path, spec, pa.schema([(name, pa.string()) for name in names]))
    return pa.table({name: unchanged(texts.column(name)) for name in names})


def _check_names(names: Sequence[str], path: Path, other_remedy: str) -> None:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise SourceError(f"lookup file {path} has several columns {twice!r}; write it with a name for each{other_remedy}")


def unchanged(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values as integers, numbers, booleans or dates if each of them, written as text, is what it was; else the texts."""
    if texts.null_count == len(texts):
        return texts
    for kind in (pa.int64(), pa.float64(), pa.bool_(), pa.date32()):
        if pa.types.is_floating(kind) and not _all(texts, _PLAIN_NUMBER):
            continue
        try:
            values = texts.cast(kind)
        except pa.ArrowInvalid:
            continue
        if pc.all(pc.equal(values.cast(pa.string()), texts)).as_py():
            return cast(pa.ChunkedArray, values)
    return texts


def _all(texts: pa.ChunkedArray, shape: str) -> bool:
    return texts.null_count < len(texts) and bool(pc.all(pc.match_substring_regex(texts, shape)).as_py())
