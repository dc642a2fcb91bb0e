"""CSV text as Arrow's reader takes it: quotes doubled within quoted values, no comments, no quotes around what is NULL.

Arrow's own escape character would also be taken out of values without quotes, such as the path `C:\\new`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from streamtopology.jobs.connectors.sources.conform import SchemaMismatchError
from streamtopology.jobs.connectors.sources.csv_options import CsvOptions
from streamtopology.jobs.connectors.sources.text_stream import TextStream
from streamtopology.jobs.lazy import LazyModule

if TYPE_CHECKING:
    from streamtopology.jobs.columnar import csv_kernel
else:
    csv_kernel = LazyModule("streamtopology.jobs.columnar.csv_kernel")

_NO_CHARACTER = 256
_MOST_SHOWN = 60


class CsvText(io.RawIOBase):
    """The text of one csv file from its header on, a file to Arrow. Raises SchemaMismatchError, which names the line."""

    def __init__(self, stream: TextStream, options: CsvOptions, place: str) -> None:
        super().__init__()
        self._stream = stream
        self._options = options
        self._place = place
        self._raw = b""  # read, not yet made plain
        self._ready = b""
        self._lines = 0
        self._is_ended = False
        self._keeps_empty = np.ones(0, np.bool_)

    def header(self) -> list[str]:
        """The cells of the first row, which is taken; none at the end of the file."""
        record = b""
        while line := self._line():
            if not record and (not line.strip(b"\r\n") or self._is_comment(line)):
                continue
            record += line
            text, consumed = self._plain(record, is_last=False)
            if consumed == len(record):
                return self._cells(text)
        return self._cells(self._plain(record, is_last=True)[0])

    def keep_empty(self, columns: Sequence[bool]) -> None:
        """Say of each column of the file whether a quoted empty value is an empty text; else it is NULL.

        The only column keeps it: a line without a value would be no row.
        """
        self._keeps_empty = np.array(columns if len(columns) > 1 else [True], np.bool_)

    def is_at_end(self) -> bool:
        while not self._ready and not self._is_ended:
            self._advance()
        return not self._ready

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            return self.readall()
        if self.is_at_end():
            return b""
        text, self._ready = self._ready[:size], self._ready[size:]
        return text

    def close(self) -> None:
        self._stream.close()
        super().close()

    def _advance(self) -> None:
        data = self._stream.next_bytes()
        self._is_ended = not data
        self._raw += data
        text, consumed = self._plain(self._raw, self._is_ended)
        self._ready, self._raw = text, self._raw[consumed:]

    def _line(self) -> bytes:
        while not (end := _line_end(self._raw)):
            data = self._stream.next_bytes()
            if not data:
                end = len(self._raw)
                break
            self._raw += data
        line, self._raw = self._raw[:end], self._raw[end:]
        return line

    def _is_comment(self, line: bytes) -> bool:
        return bool(self._options.comment) and line.startswith(self._options.comment.encode())

    def _cells(self, text: bytes) -> list[str]:
        quote = self._options.quote
        quoting = csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE
        lines = io.StringIO(text.decode(), newline="")
        return next(csv.reader(lines, delimiter=self._options.separator, quotechar=quote or None, quoting=quoting), [])

    def _plain(self, data: bytes, is_last: bool) -> tuple[bytes, int]:
        """The whole records of `data`, and how many of its bytes they are."""
        options = self._options
        needs_care = [mark for mark in (options.quote, options.comment) if mark and mark.encode() in data]
        if not needs_care:
            end = len(data) if is_last else max(data.rfind(b"\n"), data.rfind(b"\r", 0, -1)) + 1
            self._lines += data.count(b"\n", 0, end)
            return data[:end], end
        out = np.empty(len(data), np.uint8)
        consumed, written, fault, at = csv_kernel.plain_records(
            np.frombuffer(data, np.uint8),
            out,
            ord(options.separator),
            _code(options.quote),
            _code(options.escape),
            _code(options.comment),
            self._keeps_empty,
            np.frombuffer(self._quoted_null(), np.uint8),
            is_last,
        )
        if fault:
            raise self._refusal(data, fault, at)
        self._lines += data.count(b"\n", 0, consumed)
        return out[:written].tobytes(), consumed

    def _quoted_null(self) -> bytes:
        null, options = self._options.null, self._options
        is_plain = not set(null) & {options.separator, options.quote, "\n", "\r"}
        return null.encode() if is_plain else b""

    def _refusal(self, data: bytes, fault: int, at: int) -> SchemaMismatchError:
        line = self._lines + data.count(b"\n", 0, at) + 1
        begin = max(data.rfind(b"\n", 0, at) + 1, at - _MOST_SHOWN)
        end = min((data.find(b"\n", at) % (len(data) + 1)), at + _MOST_SHOWN)
        shown = data[begin:end].decode(errors="replace")
        what = "a quoted value has no end" if fault == csv_kernel.NO_END else "text follows the end of a quoted value"
        options = self._options
        now = f"quote is {options.quote!r}, escape is {options.escape or options.quote!r}"
        remedy = f"correct the line, or set options.quote and options.escape as the file was written ({now})"
        return SchemaMismatchError(f"{self._place}: line {line}: {what}: {shown!r}; {remedy}")


def _code(character: str) -> int:
    return ord(character) if character else _NO_CHARACTER


def _line_end(data: bytes) -> int:
    r"""The place after the first line's end (`\n`, `\r\n` or `\r`); 0 if that is not there yet."""
    ends = [place for place in (data.find(b"\n"), data.find(b"\r", 0, -1)) if place >= 0]
    if not ends:
        return 0
    first = min(ends)
    return first + 2 if data[first : first + 2] == b"\r\n" else first + 1
