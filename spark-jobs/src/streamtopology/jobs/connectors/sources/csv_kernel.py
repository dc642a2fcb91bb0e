"""A loop over the bytes of csv text, compiled; loaded only for files with quotes or comments."""

from __future__ import annotations

import numba as nb
import numpy as np

NO_END, TEXT_AFTER_END = 1, 2
_NEWLINE, _RETURN, _SPACE, _TAB = 10, 13, 32, 9


@nb.njit(cache=True, nogil=True)
def plain_records(
    data: np.ndarray,
    out: np.ndarray,
    separator: int,
    quote: int,
    escape: int,
    comment: int,
    keeps_empty: np.ndarray,
    null: np.ndarray,
    is_last: bool,
) -> tuple[int, int, int, int]:
    """Write the whole records of `data` (uint8[n], it begins with a record) to `out`, as long at least.

    Characters above 255 are none. Within quotes `escape` before a quote or itself goes, and a quote is written twice. The
    quotes around `null` go, and those around nothing in columns that do not keep empty texts. Returns the bytes of `data`
    read, those written, the fault (0: none) and its place.
    """
    size = data.shape[0]
    at = written = column = 0
    read = kept = 0  # up to the end of the last whole record
    while at < size:
        if column == 0 and data[at] == comment:
            while at < size and data[at] != _NEWLINE and data[at] != _RETURN:
                at += 1
            if at == size:
                break
            at += 1
            read, kept = at, written
            continue
        start = written
        if data[at] == quote:
            opened = at
            out[written] = quote
            written += 1
            at += 1
            is_closed = False
            while at < size:
                following = data[at + 1] if at + 1 < size else -1
                if data[at] == escape and following in (quote, escape):
                    out[written] = following
                    written += 1
                    if following == quote:
                        out[written] = quote
                        written += 1
                    at += 2
                elif data[at] == quote and following == quote:
                    out[written] = quote
                    out[written + 1] = quote
                    written += 2
                    at += 2
                elif data[at] == quote and (following != -1 or is_last):
                    is_closed = True
                    at += 1
                    break
                elif following == -1 and not is_last:
                    break
                else:
                    out[written] = data[at]
                    written += 1
                    at += 1
            if not is_closed:
                return read, kept, NO_END if is_last else 0, opened
            length = written - start - 1
            is_null = length == null.shape[0]
            for place in range(null.shape[0] if is_null else 0):
                if out[start + 1 + place] != null[place]:
                    is_null = False
            if length == 0:
                is_null = column < keeps_empty.shape[0] and not keeps_empty[column]
            if is_null:
                for place in range(length):
                    out[start + place] = out[start + 1 + place]
                written = start + length
            else:
                out[written] = quote
                written += 1
            while at < size and (data[at] == _SPACE or data[at] == _TAB) and data[at] != separator:
                at += 1
            if at < size and data[at] != separator and data[at] != _NEWLINE and data[at] != _RETURN:
                return read, kept, TEXT_AFTER_END, at
        else:
            while at < size and data[at] != separator and data[at] != _NEWLINE and data[at] != _RETURN:
                out[written] = data[at]
                written += 1
                at += 1
        if at == size:
            break
        out[written] = data[at]
        written += 1
        if data[at] == separator:
            column += 1
        else:
            column = 0
            read, kept = at + 1, written
        at += 1
    return (size, written, 0, 0) if is_last else (read, kept, 0, 0)
