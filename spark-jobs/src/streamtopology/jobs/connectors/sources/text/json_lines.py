"""Rows of files of JSON lines: by Arrow's reader where it can, else by Python's parser, a block at a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing

import numpy as np
import pyarrow as pa
import pyarrow.json as pa_json

from streamtopology.jobs.connectors.sources.descriptors import Descriptor, SourceError, SourceSpec
from streamtopology.jobs.connectors.sources.schema.conform import NullValueError, SchemaMismatchError, conform
from streamtopology.jobs.connectors.sources.schema.required_fields import all_nullable
from streamtopology.jobs.connectors.sources.text.decimals import has_tiny_number
from streamtopology.jobs.connectors.sources.text.json_values import REMEDY, JsonLineError, columns_of_lines
from streamtopology.jobs.connectors.sources.text.text_stream import TextStream
from streamtopology.jobs.connectors.sources.text.text_values import parsed
from streamtopology.jobs.connectors.sources.text.time_patterns import TimePatterns

_BLOCK_BYTES = 8 << 20
# Bytes; Arrow's readers count in 32 bits.
_LONGEST_LINE = 1 << 30
_BEGIN = re.compile(rb"\s*\{")
_NULL_LINE = re.compile(rb"(?m)^[ \t\r]*null")
_ROWS_ALONE = pa.schema([("no name of a file", pa.string())])


def read_json(descriptor: Descriptor, spec: SourceSpec, declared: pa.Schema, place: str) -> Iterator[pa.Table]:
    """The rows of a file; of no declared column, those of one that no object has. Raises SourceError."""
    declared = declared if declared.names else _ROWS_ALONE
    with_texts = pa.schema([pa.field(field.name, _as_text(all_nullable(field.type))) for field in declared])
    times, number = TimePatterns.of(spec), 1
    with closing(TextStream(descriptor.path, spec, place)) as stream:
        for block in _blocks(stream, place):
            yield _rows(block, declared, with_texts, times, place, number)
            number += block.count(b"\n")


def _blocks(stream: TextStream, place: str) -> Iterator[bytes]:
    """Whole lines, with text in them, of about `_BLOCK_BYTES`. Raises SourceError for a line of more than `_LONGEST_LINE`."""
    gathered: list[bytes] = []
    size = lines = 0
    while data := stream.next_bytes():
        gathered.append(data)
        size += len(data)
        if size >= _BLOCK_BYTES and b"\n" in data:
            whole, newline, rest = b"".join(gathered).rpartition(b"\n")
            yield whole + newline
            lines += whole.count(newline) + 1
            gathered, size = [rest], len(rest)
        elif size > _LONGEST_LINE:
            lines += sum(part.count(b"\n") for part in gathered)
            raise SourceError(f"{place}: line {lines + 1} is longer than {_LONGEST_LINE >> 30} GiB; {REMEDY}")
    if last := b"".join(gathered):
        yield last


def _rows(block: bytes, declared: pa.Schema, with_texts: pa.Schema, times: TimePatterns, place: str, number: int) -> pa.Table:
    if not block.strip():
        return declared.empty_table()
    if _is_for_arrow(block, declared):
        try:
            table = _by_arrow(block, with_texts)
            if _is_row_a_line(table, block):
                return conform(parsed(table, declared, place, times), declared, place)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, SchemaMismatchError):
            pass  # such as "NaN" among numbers; or the other parser says what is wrong, and in which line
    try:
        table = pa.table(
            columns_of_lines(block, declared, times, number), schema=pa.schema([f.with_nullable(True) for f in declared])
        )
    except JsonLineError as error:
        raise _mismatch(place, declared, error) from error
    return conform(table, declared, place)


def _is_for_arrow(block: bytes, declared: pa.Schema) -> bool:
    if any(_holds(pa.types.is_map, kind) for kind in declared.types) or not begins_with_object(block):
        return False
    return not (any(_holds(pa.types.is_decimal, kind) for kind in declared.types) and has_tiny_number(block))


def begins_with_object(block: bytes) -> bool:
    """False for what Arrow's reader must not get: a `null` in the first place ends its process."""
    return _BEGIN.match(block) is not None


def _is_row_a_line(table: pa.Table, block: bytes) -> bool:
    """True if each line is one object. Arrow takes several a line, one over several lines, and `null` for a row of NULLs."""
    lines = block.count(b"\n") + (not block.endswith(b"\n"))
    if table.num_rows != lines and table.num_rows != sum(1 for line in block.split(b"\n") if line.strip()):
        return False
    if not _are_lines_whole(block):
        return False
    may_be_null = all(column.null_count for column in table.columns)
    return not may_be_null or _NULL_LINE.search(block) is None


def _are_lines_whole(block: bytes) -> bool:
    """True if no object is over several lines. JSON has no `{` right after a `}` within an object, so none has such an end of
    line in it."""
    data = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    inner = ends[(ends > 0) & (ends + 1 < len(data))]
    if np.all(data[inner - 1] == ord("}")) and np.all(data[inner + 1] == ord("{")):
        return True
    lines = (line.strip() for line in block.split(b"\n"))
    return all(line.startswith(b"{") and line.endswith(b"}") for line in lines if line)


def _by_arrow(block: bytes, schema: pa.Schema) -> pa.Table:
    options = pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    whole = pa_json.ReadOptions(use_threads=False, block_size=len(block) + 1)
    return pa_json.read_json(pa.BufferReader(block), whole, options)


def _mismatch(place: str, declared: pa.Schema, error: JsonLineError) -> SchemaMismatchError:
    where = f"{place}: line {error.line}" if error.line else place
    if error.column is None:
        return SchemaMismatchError(f"{where}: JSON parse error: {error}")
    kind = declared.field(error.column).type
    kind_of_error = NullValueError if error.is_null else SchemaMismatchError
    return kind_of_error(f"{where}: column {error.column!r} is declared {kind}: {error}", error.column, error.fitting)


def _as_text(kind: pa.DataType) -> pa.DataType:
    """The type as which Arrow reads a column: what JSON writes as texts are texts at first."""
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_binary(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_as_text(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([kind.field(index).with_type(_as_text(kind.field(index).type)) for index in range(kind.num_fields)])
    return kind


def _holds(is_of: Callable[[pa.DataType], bool], kind: pa.DataType) -> bool:
    """True if there is such a type in it. A map is one that Arrow reads from an array of pairs only."""
    return is_of(kind) or any(_holds(is_of, kind.field(index).type) for index in range(kind.num_fields))
