"""Bytes of a csv file as Arrow's reader gets them: without the header, and with a row of nothing after the last row.

That row shows whether a quoted value is still open at the end of the file: Arrow would take all that follows for its text.
"""

from __future__ import annotations

import csv
import re
import threading

from streamtopology.jobs.connectors.sources.schema.conform import SchemaMismatchError
from streamtopology.jobs.connectors.sources.text.csv_options import CsvOptions
from streamtopology.jobs.connectors.sources.text.text_stream import TextStream

_MARK = "\ufeff".encode()
_ENDS = b"\r\n"
_LINE = re.compile(rb"[^\r\n]+")
_WHOLE_LINE = re.compile(rb"[^\r\n]+[\r\n]")
_MOST_SHOWN = 60


class CsvBytes:
    """A file to Arrow, which reads it in a thread of its own. Raises SourceError for a text that Arrow would change."""

    def __init__(self, stream: TextStream, options: CsvOptions, place: str) -> None:
        self._stream = stream
        self._options = options
        self._place = place
        self._refused = _refused(options)
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
        options = self._options
        quoting = csv.QUOTE_MINIMAL if options.quote else csv.QUOTE_NONE
        try:
            return next(
                csv.reader(
                    [line.decode()],
                    delimiter=options.separator,
                    quotechar=options.quote or None,
                    escapechar=options.escape or None,
                    quoting=quoting,
                    strict=True,
                )
            )
        except csv.Error as error:
            sentence = f"{self._place}: the first line is no row: {error}: {_shown(line.decode())}"
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
        if self._refused is not None:
            self._check(piece, self._refused)
        self._is_ended = not piece
        self._rest += piece or self._end

    def _check(self, piece: bytes, refused: re.Pattern[bytes]) -> None:
        whole = self._tail + piece
        if found := refused.search(whole):
            line = self._line + whole.count(b"\n", 0, found.start())
            begin = whole.rfind(b"\n", 0, found.start()) + 1
            shown = _LINE.match(whole, max(begin, found.start() - _MOST_SHOWN))
            text = _shown((shown[0] if shown else whole).decode(errors="replace"))
            raise SchemaMismatchError(f"{self._place}: line {line}: {self._options.finding_of_escape}: {text}")
        escape = (self._options.escape or "\\").encode()
        self._tail = whole[len(whole.rstrip(escape)) :]
        self._line += piece.count(b"\n")


def _refused(options: CsvOptions) -> re.Pattern[bytes] | None:
    r"""A text that would lose a character: `\"` if nothing says what it is, an escape of other characters if something does."""
    quote, escape = re.escape(options.quote.encode()), re.escape(options.escape.encode())
    if not quote or (options.is_escape_given and not escape):
        return None
    if not escape:
        return re.compile(rb"\\" + quote)
    return re.compile(rb"(?<!%s)(?:%s%s)*%s[^%s%s]" % (escape, escape, escape, escape, escape, quote))


def _shown(text: str) -> str:
    return repr(text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "...")
