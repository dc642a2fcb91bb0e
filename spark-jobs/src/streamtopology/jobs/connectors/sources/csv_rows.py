"""Rows of csv files, by Arrow's reader."""

# pyarrow.compute makes its functions when it is imported, unseen by the type checker.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from streamtopology.jobs.connectors.sources.conform import SchemaMismatchError, conform
from streamtopology.jobs.connectors.sources.csv_options import CsvOptions
from streamtopology.jobs.connectors.sources.csv_text import CsvText
from streamtopology.jobs.connectors.sources.descriptors import Descriptor, SourceSpec
from streamtopology.jobs.connectors.sources.text_stream import TextStream
from streamtopology.jobs.connectors.sources.text_values import parsed, parsed_as
from streamtopology.jobs.connectors.sources.time_patterns import TimePatterns

_BLOCK_BYTES = 8 << 20


def read_csv(descriptor: Descriptor, spec: SourceSpec, declared: pa.Schema, names: list[str], place: str) -> Iterator[pa.Table]:
    """The rows of a file; `names` are its columns if it has no header. Raises SourceError."""
    options, times = CsvOptions.of(spec), TimePatterns.of(spec)
    with closing(_text(descriptor, spec, options, place)) as text:
        if options.header:
            names = text.header()
            if not names:
                return
            conform(pa.table({name: pa.nulls(0) for name in names}), declared, place)  # says which column is missing
        texts = [name not in declared.names or _keeps_empty(declared.field(name).type) for name in names]
        text.keep_empty(texts)
        if text.is_at_end():
            return
        try:
            for batch in _reader(text, options, times, declared, names):
                table = pa.Table.from_batches([batch])
                yield conform(parsed(_with_empty_texts(table, options), declared, place, times), declared, place)
        except pa.ArrowInvalid as error:
            if "Empty CSV file" in str(error):  # it has empty lines only
                return
            raise _mismatch(place, declared, names, str(error)) from error


def csv_header(path: str, spec: SourceSpec) -> list[str]:
    """The cells of a file's first line. Raises OSError and SourceError."""
    descriptor = Descriptor(spec.name, "csv", path, 0, 0, 0, 0)
    with closing(_text(descriptor, spec, CsvOptions.of(spec), f"source {spec.name!r}, {path}")) as text:
        return text.header()


def _text(descriptor: Descriptor, spec: SourceSpec, options: CsvOptions, place: str) -> CsvText:
    return CsvText(TextStream(descriptor.path, spec, place), options, place)


def _keeps_empty(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_binary(kind)


def _reader(
    text: CsvText, options: CsvOptions, times: TimePatterns, declared: pa.Schema, names: list[str]
) -> pa_csv.CSVStreamingReader:
    return pa_csv.open_csv(
        text,
        pa_csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES, column_names=names),
        pa_csv.ParseOptions(
            delimiter=options.separator, quote_char=options.quote or False, newlines_in_values=bool(options.quote)
        ),
        pa_csv.ConvertOptions(
            column_types={field.name: parsed_as(field.type, times) for field in declared},
            include_columns=declared.names,
            null_values=["", options.null],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _with_empty_texts(table: pa.Table, options: CsvOptions) -> pa.Table:
    """`table` with the option emptyValue in place of empty texts, which were quoted."""
    if not options.empty:
        return table
    for index, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            column = table.column(index)
            table = table.set_column(index, field, pc.if_else(pc.equal(column, ""), options.empty, column))
    return table


def _mismatch(place: str, declared: pa.Schema, names: list[str], error: str) -> SchemaMismatchError:
    """Arrow names a column by its number; people want its name and what was declared."""
    number = re.search(r"In CSV column #(\d+)", error)
    name = names[int(number[1])] if number and int(number[1]) < len(names) else None
    if name not in declared.names:
        return SchemaMismatchError(f"{place}: {error} (declared: {', '.join(f'{f.name} {f.type}' for f in declared)})")
    found = re.search(r"invalid value '(.*)'", error)
    what = repr(found[1]) if found else error
    return SchemaMismatchError(f"{place}: column {name!r} is declared {declared.field(name).type} but holds {what}", name)
