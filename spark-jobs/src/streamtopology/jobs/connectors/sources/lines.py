"""Text files as one string column, a value per line, cut by numpy rather than line by line."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from streamtopology.jobs.connectors.sources.conform import SchemaMismatchError

_NEWLINE, _RETURN = 10, 13


def lines(stream: io.RawIOBase | pa.NativeFile, block_bytes: int, place: str) -> Iterator[pa.StringArray]:
    r"""The lines of a UTF-8 stream without their ends (`\n` or `\r\n`); a last line without an end counts."""
    rest = b""
    while block := stream.read(block_bytes):
        whole, newline, tail = (rest + block).rpartition(b"\n")
        if newline:
            yield _cut(whole + newline, place)
        rest = tail
    if rest:
        yield _cut(rest + b"\n", place)


def _cut(text: bytes, place: str) -> pa.StringArray:
    data = np.frombuffer(text, dtype=np.uint8)
    is_end = data == _NEWLINE
    is_end[:-1] |= (data[:-1] == _RETURN) & is_end[1:]
    # The offset of each line's end in the data without the line ends.
    ends = np.cumsum(~is_end)[data == _NEWLINE]
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    values = pa.StringArray.from_buffers(len(ends), pa.py_buffer(offsets), pa.py_buffer(data[~is_end]))
    try:
        values.validate(full=True)
    except pa.ArrowInvalid as error:
        raise SchemaMismatchError(f"{place}: column 'value' is text in UTF-8 but the file is not: {error}") from error
    return values
