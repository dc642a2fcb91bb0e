"""CSV text as Arrow's reader takes it: quotes doubled within quoted values, no comments, no quotes around what is NULL.

Arrow's own escape character would also be taken out of values without quotes, such as the path `C:\\new`. Arrow gets whole
records in each piece: of a stream it takes a piece that is only an end of line for the end of the file, and of records
longer than its blocks it reads none.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from streamtopology.jobs.connectors.sources.conform import SchemaMismatchError
from streamtopology.jobs.connectors.sources.csv_options import CsvOptions
from streamtopology.jobs.connectors.sources.text_stream import TextStream
from streamtopology.jobs.lazy import LazyModule

if TYPE_CHECKING:
    from streamtopology.jobs.columnar import csv_kernel
else:
    csv_kernel = LazyModule("streamtopology.jobs.columnar.csv_kernel")

_MOST_RECORD_BYTES = 1 << 30
_NO_CHARACTER = 256
_MOST_SHOWN = 60
_ALL = -1
_MARK = "\ufeff".encode()
_ENDS = b"\r\n"
_NEWLINE, _RETURN = _ENDS[1], _ENDS[0]


@dataclass(frozen=True)
class Piece:
    """Whole records as Arrow takes them; `raw` is what the file has of them, from the begin of `line` on."""

    text: bytes
    raw: bytes
    line: int


class CsvText:
    """The text of one csv file from its header on. Raises SchemaMismatchError, which names the line."""

    def __init__(self, stream: TextStream, options: CsvOptions, place: str) -> None:
        self._stream = stream
        self._options = options
        self._place = place
        self._raw = b""  # read, not yet handed out
        self._line = 1
        self._is_ended = False
        self._keeps_empty = np.ones(0, np.bool_)

    def header(self) -> list[str]:
        """The cells of the first row, which is taken; none at the end of the file."""
        piece = self._next(self._first_record)
        return [] if piece is None else self.cells(piece.text)

    def keep_empty(self, columns: Sequence[bool]) -> None:
        """Say of each column of the file whether a quoted empty value is an empty text; else it is NULL.

        The only column keeps it: a line without a value would be no row.
        """
        self._keeps_empty = np.array(columns if len(columns) > 1 else [True], np.bool_)

    def pieces(self) -> Iterator[Piece]:
        """The rest of the file."""
        while piece := self._next(self._whole_records):
            yield piece

    def cells(self, record: bytes) -> list[str]:
        """The values of a record: as Arrow returns them, as names of columns if a row follows."""
        twice = record + b"\n" + record
        read = pa_csv.ReadOptions(use_threads=False, block_size=len(twice) + len(_MARK) + 1)
        return pa_csv.read_csv(arrow_file(twice), read, parse_options(self._options)).schema.names

    def first_of(self, piece: Piece) -> bytes:
        return self._first(piece, 1)[0]

    def first_where(self, piece: Piece, fails: Callable[[bytes], bool]) -> tuple[bytes, int]:
        """The first record of a piece with which the records up to it fail, and its line."""
        most = piece.text.count(b"\n") + piece.text.count(b"\r") + 1
        number = bisect_left(range(most), True, lo=1, key=lambda number: fails(self._first(piece, number)[0]))
        before, consumed = self._first(piece, number - 1)
        upto, _ = self._first(piece, number)
        skipped = piece.raw[:consumed]
        for line in piece.raw[consumed:].splitlines(keepends=True):
            if line.strip(_ENDS) and not self._is_comment(line):
                break
            skipped += line
        return upto[len(before) :], piece.line + _line_ends(skipped)

    def close(self) -> None:
        self._stream.close()

    def _first(self, piece: Piece, number: int) -> tuple[bytes, int]:
        if not number:
            return b"", 0
        text, consumed = self._plain(piece.raw, is_last=True, most=number)
        return _ended(text), consumed

    def _next(self, take: Callable[[], tuple[bytes, int]]) -> Piece | None:
        """The next text that `take` finds, if that is more than empty lines; None at the end of the file."""
        while True:
            text, consumed = take()
            taken, line = self._raw[:consumed], self._line
            self._raw = self._raw[consumed:]
            self._line += _line_ends(taken)
            if text := text.lstrip(_ENDS):
                return Piece(_ended(text), taken, line)
            if not consumed and self._is_ended:
                return None
            if not consumed:
                self._read_more()

    def _read_more(self) -> None:
        """Twice as much text at least, so that a long record is looked through a few times only."""
        if len(self._raw) > _MOST_RECORD_BYTES:
            remedy = "write the file with shorter rows, or set options.quote if it is no csv of quotes"
            sentence = f"a row has more than {_MOST_RECORD_BYTES >> 30} GiB, as may one in which a quoted value has no end"
            raise SchemaMismatchError(f"{self._place}: line {self._line}: {sentence}; {remedy}")
        pieces, wanted = [self._raw], max(len(self._raw), 1)
        while wanted > 0 and not self._is_ended:
            pieces.append(self._stream.next_bytes())
            self._is_ended = not pieces[-1]
            wanted -= len(pieces[-1])
        self._raw = b"".join(pieces)

    def _first_record(self) -> tuple[bytes, int]:
        if empty := len(self._raw) - len(self._raw.lstrip(_ENDS)):
            is_cut = empty == len(self._raw) and self._raw.endswith(b"\r") and not self._is_ended
            return b"", empty - is_cut
        line = self._raw[: _line_end(self._raw, self._is_ended)]
        if line and not self._is_marked(line):
            return line, len(line)
        return self._plain(self._raw, self._is_ended, most=1) if line else (b"", 0)

    def _whole_records(self) -> tuple[bytes, int]:
        data = self._raw
        if self._is_marked(data):
            return self._plain(data, self._is_ended)
        end = len(data) if self._is_ended else max(data.rfind(b"\n"), data.rfind(b"\r", 0, -1)) + 1
        return data[:end], end

    def _is_marked(self, data: bytes) -> bool:
        return any(mark and mark.encode() in data for mark in (self._options.quote, self._options.comment))

    def _is_comment(self, line: bytes) -> bool:
        return bool(self._options.comment) and line.startswith(self._options.comment.encode())

    def _plain(self, data: bytes, is_last: bool, most: int = _ALL) -> tuple[bytes, int]:
        """The whole records of `data`, and how many of its bytes they are."""
        options = self._options
        out = np.empty(len(data), np.uint8)
        consumed, written, fault, at = csv_kernel.plain_records(
            np.frombuffer(data, np.uint8),
            out,
            ord(options.separator),
            _code(options.quote),
            _code(options.escape),
            _code(options.comment),
            self._keeps_empty,
            np.frombuffer(options.null.replace(options.quote, 2 * options.quote).encode(), np.uint8),
            not options.is_plain_null,
            is_last,
            most,
        )
        if fault:
            raise self._refusal(data, fault, at)
        return out[:written].tobytes(), consumed

    def _refusal(self, data: bytes, fault: int, at: int) -> SchemaMismatchError:
        line = self._line + _line_ends(data[:at])
        begin = max(data.rfind(b"\n", 0, at) + 1, data.rfind(b"\r", 0, at) + 1, at - _MOST_SHOWN)
        end = min((data.find(b"\n", at) % (len(data) + 1)), at + _MOST_SHOWN)
        shown = data[begin:end].decode(errors="replace")
        what = "a quoted value has no end" if fault == csv_kernel.NO_END else "text follows the end of a quoted value"
        options = self._options
        now = f"quote is {options.quote!r}, escape is {options.escape or options.quote!r}"
        remedy = f"correct the line, or set options.quote and options.escape as the file was written ({now})"
        return SchemaMismatchError(f"{self._place}: line {line}: {what}: {shown!r}; {remedy}")


def parse_options(options: CsvOptions) -> pa_csv.ParseOptions:
    return pa_csv.ParseOptions(
        delimiter=options.separator, quote_char=options.quote or False, newlines_in_values=bool(options.quote)
    )


def arrow_file(text: bytes) -> pa.BufferReader:
    """`text` as a file to Arrow, which takes a byte order mark out of the begin of each: one that is text is written twice."""
    return pa.BufferReader(_MARK + text if text.startswith(_MARK) else text)


def _ended(text: bytes) -> bytes:
    """`text` with an end of its last line: without one, Arrow takes nothing after a quoted value for a quoted text."""
    return text if text.endswith((b"\n", b"\r")) else text + b"\n"


def _code(character: str) -> int:
    return ord(character) if character else _NO_CHARACTER


def _line_ends(data: bytes) -> int:
    characters = np.frombuffer(data, np.uint8)
    is_newline = characters == _NEWLINE
    count = int(np.count_nonzero(is_newline))
    if b"\r" in data:
        is_return = characters == _RETURN
        count += int(np.count_nonzero(is_return)) - int(np.count_nonzero(is_return[:-1] & is_newline[1:]))
    return count


def _line_end(data: bytes, is_ended: bool) -> int:
    r"""The place after the first line's end (`\n`, `\r\n` or `\r`); 0 if that is not there yet."""
    ends = [place for place in (data.find(b"\n"), data.find(b"\r", 0, None if is_ended else -1)) if place >= 0]
    if not ends:
        return len(data) if is_ended else 0
    first = min(ends)
    return first + 2 if data[first : first + 2] == b"\r\n" else first + 1
