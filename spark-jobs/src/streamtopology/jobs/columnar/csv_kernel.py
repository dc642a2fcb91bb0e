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
    drops_null: bool,
    is_last: bool,
    most: int,
) -> tuple[int, int, int, int]:
    """Write the whole records of `data` (uint8[n], it begins with a record), `most` at most, to `out`, as long at least.

    Characters above 255 are none. Within quotes `escape` before a quote or itself goes, a quote is written twice. Quotes go
    around `null` (its own are written twice; with `drops_null` it goes, too) and around nothing in columns that keep no
    empty texts, unless it is the whole line. Comments, empty lines are no records. Returns bytes read, written, fault, place.
    """
    size = data.shape[0]
    at = written = column = records = read = kept = 0  # read, kept: up to the end of the last whole record
    while at < size:
        if column == 0 and data[at] == comment:
            at = _end_of_value(data, at, _NEWLINE)
            if at == size or _is_cut(data, at, is_last):
                break
            at = _after_line_end(data, at)
            read, kept = at, written
            continue
        if data[at] == quote:
            start, opened = written, at
            at, written, is_closed = _copy_quoted(data, out, at, written, quote, escape, is_last)
            if not is_closed:
                return read, kept, NO_END if is_last else 0, opened
            at = _after_blanks(data, at, separator)
            is_alone = column == 0 and (at == size or data[at] != separator)
            is_empty_null = not is_alone and column < keeps_empty.shape[0] and not keeps_empty[column]
            known = null[: 0 if drops_null and is_alone else null.shape[0]]
            written = _close(out, start, written, quote, known, is_empty_null, drops_null)
            if at < size and data[at] != separator and data[at] != _NEWLINE and data[at] != _RETURN:
                return read, kept, TEXT_AFTER_END, at
        else:
            end = _end_of_value(data, at, separator)
            out[written : written + end - at] = data[at:end]
            at, written = end, written + end - at
        if at < size and data[at] == separator:
            out[written] = separator
            at, written, column = at + 1, written + 1, column + 1
        elif at < size:
            if _is_cut(data, at, is_last):
                break
            if column or written > kept:
                out[written] = _NEWLINE
                written += 1
                records += 1
            at, column = _after_line_end(data, at), 0
            read, kept = at, written
            if records == most:
                return read, kept, 0, 0
    return (size, written, 0, 0) if is_last else (read, kept, 0, 0)


@nb.njit(cache=True, nogil=True)
def _is_cut(data: np.ndarray, at: int, is_last: bool) -> bool:
    """True if the end of a line at `at` may have a second character, which is not there yet."""
    return data[at] == _RETURN and at + 1 == data.shape[0] and not is_last


@nb.njit(cache=True, nogil=True)
def _after_line_end(data: np.ndarray, at: int) -> int:
    is_pair = data[at] == _RETURN and at + 1 < data.shape[0] and data[at + 1] == _NEWLINE
    return at + 2 if is_pair else at + 1


@nb.njit(cache=True, nogil=True)
def _end_of_value(data: np.ndarray, at: int, separator: int) -> int:
    while at < data.shape[0] and data[at] != separator and data[at] != _NEWLINE and data[at] != _RETURN:
        at += 1
    return at


@nb.njit(cache=True, nogil=True)
def _copy_quoted(
    data: np.ndarray, out: np.ndarray, at: int, written: int, quote: int, escape: int, is_last: bool
) -> tuple[int, int, bool]:
    """Copy a quoted value but for its last quote. Returns the places after it, and False if its end is not there."""
    size = data.shape[0]
    out[written] = quote
    at, written = at + 1, written + 1
    while at < size:
        following = data[at + 1] if at + 1 < size else -1
        is_pair = (data[at] == escape and following in (quote, escape)) or (data[at] == quote and following == quote)
        if is_pair:
            out[written] = following
            written += 1
            if following == quote:
                out[written] = quote
                written += 1
            at += 2
        elif following == -1 and not is_last:
            return at, written, False
        elif data[at] == quote:
            return at + 1, written, True
        else:
            out[written] = data[at]
            at, written = at + 1, written + 1
    return at, written, False


@nb.njit(cache=True, nogil=True)
def _after_blanks(data: np.ndarray, at: int, separator: int) -> int:
    while at < data.shape[0] and data[at] in (_SPACE, _TAB) and data[at] != separator:
        at += 1
    return at


@nb.njit(cache=True, nogil=True)
def _close(
    out: np.ndarray, start: int, written: int, quote: int, null: np.ndarray, is_empty_null: bool, drops_null: bool
) -> int:
    """Write the last quote of a value that begins at `start`, or take its first one (or all of it) away if it is NULL.

    Returns the end.
    """
    if drops_null and null.shape[0] > 0 and _is_null(out[start + 1 : written], null, False):
        return start
    if _is_null(out[start + 1 : written], null, is_empty_null):
        return _move_back(out, start, written)
    out[written] = quote
    return written + 1


@nb.njit(cache=True, nogil=True)
def _is_null(value: np.ndarray, null: np.ndarray, is_empty_null: bool) -> bool:
    if value.shape[0] == 0:
        return is_empty_null
    return value.shape[0] == null.shape[0] and bool(np.all(value == null))


@nb.njit(cache=True, nogil=True)
def _move_back(out: np.ndarray, start: int, written: int) -> int:
    """Take the quote at `start` away. Returns the end of what was written after it."""
    for place in range(start, written - 1):
        out[place] = out[place + 1]
    return written - 1
