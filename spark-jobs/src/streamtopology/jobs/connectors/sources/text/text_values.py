"""Values that files and folders write as texts: whole numbers, times, dates, bytes."""

# pyarrow.compute makes its functions when it is imported, unseen by the type checker.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamtopology.jobs.connectors.sources.schema.conform import SchemaMismatchError, parse_timestamps
from streamtopology.jobs.connectors.sources.text.decimals import decimals
from streamtopology.jobs.connectors.sources.text.time_patterns import TimePatterns

_INTEGER = "^-?[0-9]+$"
_LOSSY = r"[eE]|\.[0-9]{22}|[0-9]{39}|^\s|\s$"
_PADDING = 64
_SIX_BITS = np.full(256, 255, np.uint8)
_SIX_BITS[np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=", np.uint8)] = np.arange(65)


def parsed(table: pa.Table, declared: pa.Schema, place: str, times: TimePatterns) -> pa.Table:
    """`table` with its texts as the values that `declared` says. Raises SchemaMismatchError."""
    for field in declared:
        index = table.schema.get_field_index(field.name)
        if table.schema.field(index).type == field.type:
            continue
        try:
            values = from_texts(table.column(index).combine_chunks(), field.type, times)
        except pa.ArrowInvalid as error:
            message = f"{place}: column {field.name!r} is declared {field.type}: {error}"
            raise SchemaMismatchError(message, field.name) from error
        table = table.set_column(index, pa.field(field.name, field.type), values)
    return table


def from_texts(values: pa.Array, declared: pa.DataType, times: TimePatterns) -> pa.Array:
    """Whole numbers, times and dates of the patterns, and bytes of base64, at any depth. Raises `pa.ArrowInvalid`."""
    if values.type == declared:
        return values
    pattern = times.of_type(declared)
    if pattern is not None:
        values = pattern.to_iso(values)
    if pa.types.is_timestamp(declared):
        return parse_timestamps(values, declared)
    if pa.types.is_binary(declared):
        return from_base64(values)
    if pa.types.is_integer(declared):
        return integers(values, declared)
    if pa.types.is_decimal(declared):
        return _decimals(values, declared)
    if pa.types.is_list(declared):
        items = from_texts(values.values, declared.value_type, times)
        return pa.ListArray.from_arrays(values.offsets, items, type=declared, mask=values.is_null())
    if pa.types.is_struct(declared):
        fields = [declared.field(index) for index in range(declared.num_fields)]
        parts = [from_texts(values.field(index), field.type, times) for index, field in enumerate(fields)]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=values.is_null())
    return values.cast(declared)


def integers(texts: pa.Array | pa.ChunkedArray, declared: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Whole numbers of decimal digits. Raises `pa.ArrowInvalid`, naming the first text that is none.

    Arrow also reads hexadecimal texts, as the bits of the declared type: 0xFF is -1 in a TINYINT.
    """
    others = pc.invert(pc.match_substring_regex(texts, _INTEGER))
    if pc.any(others).as_py():
        raise pa.ArrowInvalid(f"{pc.filter(texts, others)[0].as_py()[:40]!r} is no whole number of decimal digits")
    return texts.cast(declared)


def _decimals(texts: pa.Array, declared: pa.DataType) -> pa.Array:
    """By Arrow, but for the texts of which it may lose digits without a word."""
    if not pc.any(pc.match_substring_regex(texts, _LOSSY)).as_py():
        return texts.cast(declared)
    try:
        return decimals(texts.to_pylist(), declared)
    except ValueError as error:
        raise pa.ArrowInvalid(str(error)) from error


def from_base64(texts: pa.Array) -> pa.Array:
    """The bytes of base64 texts with padding (RFC 4648, section 4). Raises `pa.ArrowInvalid`, naming the first bad text."""
    filled = pc.fill_null(texts, "")
    offsets = np.frombuffer(filled.buffers()[1], np.int32)[filled.offset : filled.offset + len(filled) + 1]
    start, end = (int(offsets[0]), int(offsets[-1])) if len(filled) else (0, 0)
    if start == end:
        return pc.if_else(texts.is_valid(), pa.scalar(b"", pa.binary()), None)
    bits = _SIX_BITS[np.frombuffer(filled.buffers()[2], np.uint8)[start:end]]
    ends = offsets[1:].astype(np.int64) - start
    lengths = np.diff(ends, prepend=0)
    filled_ends = ends[lengths > 0]
    padded = bits == _PADDING
    last, before = np.zeros(len(bits), np.bool_), np.zeros(len(bits), np.bool_)
    last[filled_ends - 1] = True
    before[np.maximum(filled_ends - 2, 0)] = True
    before[:-1] &= ~before[:-1] | padded[1:]  # '=' before the last character only if that is one, too
    is_bad = (bits == 255) | (padded & ~last & ~before)
    bad = _any_within(is_bad, ends) | (lengths % 4 != 0)
    if bad.any():
        text = filled[int(bad.argmax())].as_py()
        raise pa.ArrowInvalid(f"{text[:40]!r} is no base64, as which JSON holds bytes")
    four = np.where(padded, 0, bits).reshape(-1, 4).astype(np.uint32)
    three = (four[:, 0] << 18) | (four[:, 1] << 12) | (four[:, 2] << 6) | four[:, 3]
    whole = np.stack([three >> 16, (three >> 8) & 255, three & 255], axis=1).astype(np.uint8)
    is_kept = ~padded.reshape(-1, 4)[:, 1:]
    kept_before = np.concatenate([[0], np.cumsum(is_kept.sum(axis=1))])
    data_offsets = np.concatenate([[0], kept_before[ends // 4]]).astype(np.int32)
    data = pa.py_buffer(np.ascontiguousarray(whole[is_kept]))
    decoded = pa.BinaryArray.from_buffers(pa.binary(), len(filled), [None, pa.py_buffer(data_offsets), data])
    return pc.if_else(texts.is_valid(), decoded, None)


def _any_within(marks: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """bool[n]: true if one of the marks between an end and the one before it is set."""
    counted = np.concatenate([[0], np.cumsum(marks)])
    return np.diff(counted[ends], prepend=0) > 0
