"""Rows of csv files: Arrow's reader cuts them into texts, of which the values of the declared types are made."""

# pyarrow.compute makes its functions when it is imported, unseen by the type checker.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from streamtopology.jobs.connectors.sources.descriptors import Descriptor, SourceSpec
from streamtopology.jobs.connectors.sources.schema.conform import SchemaMismatchError, conform
from streamtopology.jobs.connectors.sources.text.csv_options import CsvOptions
from streamtopology.jobs.connectors.sources.text.text_stream import TextStream
from streamtopology.jobs.connectors.sources.text.text_values import Times, from_texts, shown, time_patterns, values_of

# The longest row. Arrow reads up to 32 blocks ahead.
_BLOCK_BYTES = 2 << 20
_MOST_SENTENCE = 200
_MARK = "\ufeff".encode()
_ENDS = b"\r\n"
_LINE = re.compile(rb"[^\r\n]+")
_WHOLE_LINE = re.compile(rb"[^\r\n]+[\r\n]")


def read_csv(descriptor: Descriptor, spec: SourceSpec, declared: pa.Schema, names: list[str], place: str) -> Iterator[pa.Table]:
    """The rows of a file; `names` are its columns if it has no header. Raises SourceError.

    Of no declared column at all, a column of NULLs has as many rows as the file.
    """
    options, times, row = CsvOptions.of(spec), time_patterns(spec), 1
    with closing(_CsvBytes(descriptor.path, spec, options, place)) as text:
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
    with closing(_CsvBytes(path, spec, CsvOptions.of(spec), f"source {spec.name!r}, {path}")) as text:
        first = text.first_line()
        return text.cells(first) if first else []


class _CsvBytes:
    """A file to Arrow, which reads it in a thread of its own: without the header, and with a row of nothing after the last row.

    That row shows whether a quoted value is still open at the end of the file: Arrow would take all that follows for its text.
    Raises SourceError for a text that Arrow would change.
    """

    def __init__(self, path: str, spec: SourceSpec, options: CsvOptions, place: str) -> None:
        self._stream = TextStream(path, spec, place)
        self._options = options
        self._place = place
        self._rest = self._tail = self._end = b""
        self._line = 1
        self._is_ended = False
        self._lock = threading.Lock()
        self.closed = False

    def first_line(self) -> bytes:
        """The first line that is not empty, which stays to be read; none in a file without rows."""
        while not self._is_ended and not _WHOLE_LINE.match(self._rest):
            self._read_more()
            self._rest = self._rest.lstrip(_ENDS)
        found = _LINE.match(self._rest)
        return found[0] if found else b""

    def cells(self, line: bytes) -> list[str]:
        """Raises SchemaMismatchError for a quoted value that continues in the next line."""
        try:
            return pa_csv.read_csv(pa.BufferReader(line + b"\n"), parse_options=self._options.parsing()).column_names
        except pa.ArrowInvalid as error:
            sentence = f"{self._place}: the first line is no row: {shown(line.decode())}"
            raise SchemaMismatchError(
                f"{sentence}; write it in one line, or set options.quote as the file was written"
            ) from error

    def begin(self, columns: int, skipped: bytes) -> None:
        """From here on Arrow reads: rows of `columns` columns, after `skipped`. It takes a byte order mark out of the begin."""
        quote = self._options.quote.encode()
        row = self._options.separator.encode() * (columns - 1) or 2 * quote
        self._end = b"\n" + row + b"\n" if quote else b""
        self._rest = _MARK + self._rest.removeprefix(skipped) + (self._end if self._is_ended else b"")

    def read(self, size: int) -> bytes:
        with self._lock:
            while len(self._rest) < size and not self._is_ended and not self.closed:
                self._read_more()
            found, self._rest = self._rest[:size], self._rest[size:]
            return found

    def close(self) -> None:
        with self._lock:
            if not self.closed:
                self._stream.close()
            self.closed, self._rest = True, b""

    def _read_more(self) -> None:
        piece = self._stream.next_bytes()
        self._check(piece)
        self._is_ended = not piece
        self._rest += piece or self._end

    def _check(self, piece: bytes) -> None:
        whole, refused = self._tail + piece, self._options.refused
        if refused is not None and (found := refused.search(whole)):
            line = self._line + whole.count(b"\n", 0, found.start())
            begin = whole.rfind(b"\n", 0, found.start()) + 1
            text = shown(whole[max(begin, found.start() - 20) :].split(b"\n")[0].decode(errors="replace"))
            raise SchemaMismatchError(f"{self._place}: line {line}: {self._options.finding_of_escape}: {text}")
        escape = (self._options.escape or "\\").encode()
        self._tail = whole[len(whole.rstrip(escape)) :]
        self._line += piece.count(b"\n")


def _texts(text: _CsvBytes, options: CsvOptions, columns: list[int], width: int, place: str) -> Iterator[pa.Table]:
    """The texts of columns, by their places, in batches; what is empty is NULL, as to Spark. Raises SchemaMismatchError."""
    names = [str(column) for column in range(width)]
    wanted = [names[column] for column in columns]
    read = list(dict.fromkeys([*wanted, names[-1]]))
    last: pa.RecordBatch | None = None
    rows = 0
    reading = pa_csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES, column_names=names)
    converting = pa_csv.ConvertOptions(
        check_utf8=False,  # the stream has
        column_types=dict.fromkeys(read, pa.string()),
        include_columns=read,
        null_values=["", options.null],
        strings_can_be_null=True,
    )
    try:
        for batch in pa_csv.open_csv(text, reading, options.parsing(), converting):
            if batch.num_rows and last is not None:
                yield pa.Table.from_batches([last]).select(wanted)
            last = batch if batch.num_rows else last
            rows += batch.num_rows
    except pa.ArrowInvalid as error:
        found = " ".join(str(error).split())[:_MOST_SENTENCE]
        if "straddling" in found:
            found = f"a row has more than {_BLOCK_BYTES >> 20} MiB, as may one in which a quoted value has no end"
        remedy = "correct the row, or set options.sep and options.quote as the file was written"
        raise SchemaMismatchError(f"{place}: {found}; {remedy}") from error
    if last is not None and options.quote:
        if any(column[-1].is_valid for column in last.columns):
            remedy = "correct it, or set options.quote and options.escape as the file was written"
            raise SchemaMismatchError(f"{place}: row {rows}: a quoted value has no end; {remedy}")
        last = last.slice(0, last.num_rows - 1)
    if last is not None:
        yield pa.Table.from_batches([last]).select(wanted)


def _values(texts: pa.Table, declared: pa.Schema, times: Times, place: str, row: int) -> pa.Table:
    """The values of texts of which the first has the number `row`. Raises SchemaMismatchError, which names the row."""

    def typed(values: pa.Array, kind: pa.DataType) -> pa.Array:
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            return values.cast(kind)
        try:
            return from_texts(values, kind, times)
        except pa.ArrowInvalid:
            return from_texts(pc.ascii_trim(values, " \t"), kind, times)

    return values_of(texts, declared, typed, lambda at: f"{place}: row {row + at}", fitting="STRING")
