"""Text files as one string column, a value per line, cut by numpy rather than line by line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from streamtopology.jobs.columnar.keys import LARGEST_INT32
from streamtopology.jobs.connectors.sources.schema.conform import SchemaMismatchError

_NEWLINE, _RETURN = 10, 13


def lines(pieces: Iterable[bytes], place: str) -> Iterator[pa.StringArray]:
    r"""The lines of pieces of UTF-8 without their ends (`\n` or `\r\n`); a last line without an end counts.

    Raises SchemaMismatchError, which names `place`, for a line that no column of Arrow's texts holds.
    """
    rest = b""
    for piece in pieces:
        whole, newline, tail = (rest + piece).rpartition(b"\n")
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
    if ends[-1] > LARGEST_INT32:
        raise SchemaMismatchError(f"{place}: column 'value' has a line of more than 2 GiB; write the file with shorter lines")
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    return pa.StringArray.from_buffers(len(ends), pa.py_buffer(offsets), pa.py_buffer(data[~is_end]))
