"""Rows of csv files, by Arrow's reader."""

# pyarrow.compute makes its functions when it is imported, unseen by the type checker.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from streamtopology.jobs.connectors.sources.conform import SchemaMismatchError, conform
from streamtopology.jobs.connectors.sources.csv_options import CsvOptions
from streamtopology.jobs.connectors.sources.csv_text import CsvText, Piece, arrow_file, parse_options
from streamtopology.jobs.connectors.sources.decimals import has_tiny_number
from streamtopology.jobs.connectors.sources.descriptors import Descriptor, SourceSpec
from streamtopology.jobs.connectors.sources.json_values import NO_NUMBERS
from streamtopology.jobs.connectors.sources.text_stream import TextStream
from streamtopology.jobs.connectors.sources.text_values import has_hexadecimal, parsed, parsed_as
from streamtopology.jobs.connectors.sources.time_patterns import TimePatterns

_MOST_SHOWN = 60


def read_csv(descriptor: Descriptor, spec: SourceSpec, declared: pa.Schema, names: list[str], place: str) -> Iterator[pa.Table]:
    """The rows of a file; `names` are its columns if it has no header, and without any are numbered. Raises SourceError.

    Of no declared column at all, a column of NULLs has as many rows as the file.
    """
    options, times = CsvOptions.of(spec), TimePatterns.of(spec)
    with closing(_text(descriptor, spec, options, place)) as text:
        if options.header:
            names = text.header()
            if not names:
                return
            nothing = pa.table([pa.nulls(0) for _ in names], names=names)
            conform(nothing, declared, place)  # says which column is missing, or there twice
        texts = [name not in declared.names or _keeps_empty(declared.field(name).type) for name in names]
        text.keep_empty(texts)
        rows: _Rows | None = None
        for piece in text.pieces():
            rows = rows or _Rows(text, options, times, declared, names or _numbers(text.cells(text.first_of(piece))), place)
            yield rows.of(piece)


class _Rows:
    """The rows of pieces of one file."""

    def __init__(
        self, text: CsvText, options: CsvOptions, times: TimePatterns, declared: pa.Schema, names: list[str], place: str
    ) -> None:
        self._text = text
        self._options = options
        self._times = times
        self._declared = declared
        self._names = names
        self._place = place
        self._quoted_is_value = len(names) > 1 or any(map(_keeps_empty, declared.types))

    def of(self, piece: Piece) -> pa.Table:
        """Raises SchemaMismatchError, which names the line."""
        try:
            return self._converted(piece.text, self._declared, self._place)
        except (pa.ArrowInvalid, SchemaMismatchError) as error:
            raise self._refusal(piece, error) from error

    def _converted(self, text: bytes, declared: pa.Schema, place: str) -> pa.Table:
        has_hex = any(map(pa.types.is_integer, declared.types)) and has_hexadecimal(text)
        has_tiny = any(map(pa.types.is_decimal, declared.types)) and has_tiny_number(text)

        def is_misread(kind: pa.DataType) -> bool:
            """True if Arrow may make another number of a text."""
            return (has_hex and pa.types.is_integer(kind)) or (has_tiny and pa.types.is_decimal(kind))

        types = {
            field.name: pa.string() if is_misread(field.type) else parsed_as(field.type, self._times) for field in declared
        }
        table = pa_csv.read_csv(
            arrow_file(text),
            pa_csv.ReadOptions(use_threads=False, block_size=len(text) + 8, column_names=self._names),
            parse_options(self._options),
            pa_csv.ConvertOptions(
                column_types=types or {self._names[0]: pa.string()},
                include_columns=declared.names or self._names[:1],
                null_values=["", self._options.null],
                strings_can_be_null=True,
                quoted_strings_can_be_null=not self._quoted_is_value,
            ),
        )
        if not declared.names:
            return pa.table({"": pa.nulls(table.num_rows)})
        if has_hex or has_tiny:
            table = _trimmed(table, declared)
        return conform(parsed(_with_empty_texts(table, self._options), declared, place, self._times), declared, place)

    def _fails(self, text: bytes) -> bool:
        try:
            self._converted(text, self._declared, self._place)
        except (pa.ArrowInvalid, SchemaMismatchError):
            return True
        return False

    def _refusal(self, piece: Piece, found: Exception) -> SchemaMismatchError:
        """The error of the first row that does not fit: its line, its column and the value."""
        record, line = self._text.first_where(piece, self._fails)
        if not record:
            return SchemaMismatchError(f"{self._place}: {found}")
        where, cells = f"{self._place}: line {line}", self._text.cells(record)
        if len(cells) != len(self._names):
            values = f"{len(cells)} value{'' if len(cells) == 1 else 's'}"
            columns = f"{len(self._names)} column{'' if len(self._names) == 1 else 's'}"
            shown = _shown(record.decode().rstrip("\r\n"))
            remedy = "correct the line, or set options.sep and options.quote as the file was written"
            return SchemaMismatchError(f"{where}: has {values} for {columns}: {shown}; {remedy}")
        for field in self._declared:
            try:
                self._converted(record, pa.schema([field]), where)
            except SchemaMismatchError as error:
                return error
            except pa.ArrowInvalid:
                value = cells[self._names.index(field.name)]
                sentence = f"{where}: column {field.name!r} is declared {field.type} but holds {_shown(value)}"
                return SchemaMismatchError(sentence, field.name, "DOUBLE" if value in NO_NUMBERS else "STRING")
        return SchemaMismatchError(f"{where}: {found}")


def csv_header(path: str, spec: SourceSpec) -> list[str]:
    """The cells of a file's first line. Raises OSError and SourceError."""
    descriptor = Descriptor(spec.name, "csv", path, 0, 0, 0, 0)
    with closing(_text(descriptor, spec, CsvOptions.of(spec), f"source {spec.name!r}, {path}")) as text:
        return text.header()


def _text(descriptor: Descriptor, spec: SourceSpec, options: CsvOptions, place: str) -> CsvText:
    return CsvText(TextStream(descriptor.path, spec, place), options, place)


def _keeps_empty(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_binary(kind)


def _numbers(cells: list[str]) -> list[str]:
    return [str(number) for number in range(len(cells))]


def _shown(value: str) -> str:
    return repr(value if len(value) <= _MOST_SHOWN else value[:_MOST_SHOWN] + "...")


def _trimmed(table: pa.Table, declared: pa.Schema) -> pa.Table:
    """`table` without spaces around numbers that were read as texts: Arrow leaves them out, too."""
    for index, field in enumerate(table.schema):
        kind = declared.field(field.name).type
        if pa.types.is_string(field.type) and (pa.types.is_integer(kind) or pa.types.is_decimal(kind)):
            table = table.set_column(index, field, pc.ascii_trim(table.column(index), " \t"))
    return table


def _with_empty_texts(table: pa.Table, options: CsvOptions) -> pa.Table:
    """`table` with the option emptyValue in place of empty texts, and NULL in that of nullValue: both were quoted."""
    if not options.empty and options.is_plain_null:
        return table
    for index, field in enumerate(table.schema):
        if not options.is_plain_null and _keeps_empty(field.type):
            column = table.column(index)
            is_null = pc.equal(column, pa.scalar(options.null.encode(), pa.binary()).cast(field.type))
            table = table.set_column(index, field, pc.if_else(is_null, None, column))
        if options.empty and pa.types.is_string(field.type):
            column = table.column(index)
            table = table.set_column(index, field, pc.if_else(pc.equal(column, ""), options.empty, column))
    return table
