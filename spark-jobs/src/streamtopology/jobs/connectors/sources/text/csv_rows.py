"""Rows of csv files: Arrow's reader cuts them into texts, of which the values of the declared types are made."""

# pyarrow.compute makes its functions when it is imported, unseen by the type checker.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from streamtopology.jobs.connectors.sources.descriptors import Descriptor, SourceSpec
from streamtopology.jobs.connectors.sources.schema.conform import SchemaMismatchError, conform
from streamtopology.jobs.connectors.sources.text.csv_bytes import CsvBytes
from streamtopology.jobs.connectors.sources.text.csv_options import CsvOptions
from streamtopology.jobs.connectors.sources.text.json_values import NO_NUMBERS
from streamtopology.jobs.connectors.sources.text.text_stream import TextStream
from streamtopology.jobs.connectors.sources.text.text_values import from_texts
from streamtopology.jobs.connectors.sources.text.time_patterns import TimePatterns

# The longest row. Arrow reads up to 32 blocks ahead.
_BLOCK_BYTES = 2 << 20
_MOST_SHOWN, _MOST_SENTENCE = 60, 200


def read_csv(descriptor: Descriptor, spec: SourceSpec, declared: pa.Schema, names: list[str], place: str) -> Iterator[pa.Table]:
    """The rows of a file; `names` are its columns if it has no header. Raises SourceError.

    Of no declared column at all, a column of NULLs has as many rows as the file.
    """
    options, times, row = CsvOptions.of(spec), TimePatterns.of(spec), 1
    with closing(_bytes(descriptor.path, spec, options, place)) as text:
        first = text.first_line()
        if not first:
            return
        if options.header:
            names = text.cells(first)
            nothing = pa.table([pa.nulls(0) for _ in names], names=names)
            conform(nothing, declared, place)  # says which column is missing, or there twice
        width = len(names or text.cells(first))
        text.begin(width, first if options.header else b"")
        for texts in _texts(text, options, [names.index(name) for name in declared.names], width, place):
            yield _values(texts, declared, times, place, row) if declared.names else pa.table({"": pa.nulls(texts.num_rows)})
            row += texts.num_rows


def csv_header(path: str, spec: SourceSpec) -> list[str]:
    """The cells of a file's first line. Raises OSError and SourceError."""
    with closing(_bytes(path, spec, CsvOptions.of(spec), f"source {spec.name!r}, {path}")) as text:
        first = text.first_line()
        return text.cells(first) if first else []


def _bytes(path: str, spec: SourceSpec, options: CsvOptions, place: str) -> CsvBytes:
    return CsvBytes(TextStream(path, spec, place), options, place)


def _texts(text: CsvBytes, options: CsvOptions, columns: list[int], width: int, place: str) -> Iterator[pa.Table]:
    """The texts of columns, by their places, in batches. Raises SchemaMismatchError."""
    names = [str(column) for column in range(width)]
    wanted = [names[column] for column in columns]
    last: pa.RecordBatch | None = None
    rows = 0
    try:
        for batch in _reader(text, options, names, list(dict.fromkeys([*wanted, names[-1]]))):
            if batch.num_rows and last is not None:
                yield pa.Table.from_batches([last]).select(wanted)
            last = batch if batch.num_rows else last
            rows += batch.num_rows
    except pa.ArrowInvalid as error:
        remedy = "correct the row, or set options.sep and options.quote as the file was written"
        raise SchemaMismatchError(f"{place}: {_sentence(error)}; {remedy}") from error
    if last is not None and options.quote:
        if any(column[-1].is_valid for column in last.columns):
            remedy = "correct it, or set options.quote and options.escape as the file was written"
            raise SchemaMismatchError(f"{place}: row {rows}: a quoted value has no end; {remedy}")
        last = last.slice(0, last.num_rows - 1)
    if last is not None:
        yield pa.Table.from_batches([last]).select(wanted)


def _reader(text: CsvBytes, options: CsvOptions, names: list[str], wanted: list[str]) -> pa_csv.CSVStreamingReader:
    """Values are texts, so that the first that does not fit is known by its row; what is empty is NULL, as to Spark."""
    return pa_csv.open_csv(
        text,
        pa_csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES, column_names=names),
        pa_csv.ParseOptions(
            delimiter=options.separator,
            quote_char=options.quote or False,
            escape_char=options.escape or False,
            newlines_in_values=bool(options.quote),
        ),
        pa_csv.ConvertOptions(
            check_utf8=False,  # the stream has
            column_types=dict.fromkeys(wanted, pa.string()),
            include_columns=wanted,
            null_values=["", options.null],
            strings_can_be_null=True,
        ),
    )


def _sentence(error: pa.ArrowInvalid) -> str:
    if "straddling" in str(error):
        return f"a row has more than {_BLOCK_BYTES >> 20} MiB, as may one in which a quoted value has no end"
    sentence = " ".join(str(error).split())
    return sentence if len(sentence) <= _MOST_SENTENCE else sentence[:_MOST_SENTENCE] + "..."


def _values(texts: pa.Table, declared: pa.Schema, times: TimePatterns, place: str, row: int) -> pa.Table:
    """The values of texts of which the first has the number `row`. Raises SchemaMismatchError, which names the row."""
    columns: list[pa.Array] = []
    for column, field in zip(texts.columns, declared, strict=True):
        values = column.combine_chunks()
        if not field.nullable and values.null_count:
            at = values.is_null().index(True).as_py()
            conform(pa.table({field.name: values[at : at + 1]}), pa.schema([field]), f"{place}: row {row + at}")
        try:
            columns.append(_typed(values, field.type, times))
        except pa.ArrowInvalid as error:
            at = _first_misfit(values, field.type, times)
            raise _refusal(values[at].as_py(), field, times, f"{place}: row {row + at}") from error
    return conform(pa.table(columns, names=declared.names), declared, place)


def _typed(texts: pa.Array, kind: pa.DataType, times: TimePatterns) -> pa.Array:
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return texts.cast(kind)
    try:
        return from_texts(texts, kind, times)
    except pa.ArrowInvalid:
        return from_texts(pc.ascii_trim(texts, " \t"), kind, times)


def _first_misfit(texts: pa.Array, kind: pa.DataType, times: TimePatterns) -> int:
    def fails(upto: int) -> bool:
        try:
            _typed(texts[: upto + 1], kind, times)
        except pa.ArrowInvalid:
            return True
        return False

    return bisect_left(range(len(texts)), True, key=fails)


def _refusal(text: str, field: pa.Field, times: TimePatterns, where: str) -> SchemaMismatchError:
    pattern = times.of_type(field.type)
    form = "" if pattern is None else f", which is not of the form {pattern.text!r}"
    sentence = f"{where}: column {field.name!r} is declared {field.type} but holds {_shown(text)}{form}"
    return SchemaMismatchError(sentence, field.name, "DOUBLE" if text in NO_NUMBERS else "STRING")


def _shown(text: str) -> str:
    return repr(text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "...")
