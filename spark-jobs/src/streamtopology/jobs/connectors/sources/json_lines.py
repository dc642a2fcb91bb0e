"""Rows of files of JSON lines: by Arrow's reader where it can, else by Python's parser, a block at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa
import pyarrow.json as pa_json

from streamtopology.jobs.connectors.sources.conform import SchemaMismatchError, conform
from streamtopology.jobs.connectors.sources.descriptors import Descriptor, SourceSpec
from streamtopology.jobs.connectors.sources.json_values import JsonLineError, columns_of_lines
from streamtopology.jobs.connectors.sources.text_stream import TextStream
from streamtopology.jobs.connectors.sources.text_values import parsed
from streamtopology.jobs.connectors.sources.time_patterns import TimePatterns

_BLOCK_BYTES = 8 << 20
_ROWS_ALONE = pa.schema([("__rows_alone", pa.string())])


def read_json(descriptor: Descriptor, spec: SourceSpec, declared: pa.Schema, place: str) -> Iterator[pa.Table]:
    """The rows of a file; of no declared column, those of one that no object has. Raises SourceError."""
    declared = declared if declared.names else _ROWS_ALONE
    with_texts = pa.schema([pa.field(field.name, _as_text(field.type)) for field in declared])
    times, number = TimePatterns.of(spec), 1
    with closing(TextStream(descriptor.path, spec, place)) as stream:
        for block in _blocks(stream):
            yield _rows(block, declared, with_texts, times, place, number)
            number += block.count(b"\n")


def _blocks(stream: TextStream) -> Iterator[bytes]:
    """Whole lines, with text in them, of about `_BLOCK_BYTES`."""
    gathered: list[bytes] = []
    size = 0
    while data := stream.next_bytes():
        gathered.append(data)
        size += len(data)
        if size >= _BLOCK_BYTES and b"\n" in data:
            whole, newline, rest = b"".join(gathered).rpartition(b"\n")
            yield whole + newline
            gathered, size = [rest], len(rest)
    if last := b"".join(gathered):
        yield last


def _rows(block: bytes, declared: pa.Schema, with_texts: pa.Schema, times: TimePatterns, place: str, number: int) -> pa.Table:
    if not block.strip():
        return declared.empty_table()
    if not any(map(_holds_map, declared.types)):
        try:
            return conform(parsed(_by_arrow(block, with_texts), declared, place, times), declared, place)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, SchemaMismatchError):
            pass  # such as "NaN" among numbers; or the other parser says what is wrong, and in which line
    try:
        table = pa.table(
            columns_of_lines(block, declared, times, number), schema=pa.schema([f.with_nullable(True) for f in declared])
        )
    except JsonLineError as error:
        raise _mismatch(place, declared, error) from error
    return conform(table, declared, place)


def _by_arrow(block: bytes, schema: pa.Schema) -> pa.Table:
    options = pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    whole = pa_json.ReadOptions(use_threads=False, block_size=len(block) + 1)
    return pa_json.read_json(pa.BufferReader(block), whole, options)


def _mismatch(place: str, declared: pa.Schema, error: JsonLineError) -> SchemaMismatchError:
    where = f"{place}: line {error.line}" if error.line else place
    if error.column is None:
        return SchemaMismatchError(f"{where}: JSON parse error: {error}")
    kind = declared.field(error.column).type
    return SchemaMismatchError(f"{where}: column {error.column!r} is declared {kind}: {error}", error.column)


def _as_text(kind: pa.DataType) -> pa.DataType:
    """The type as which Arrow reads a column: what JSON writes as texts are texts at first."""
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_binary(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_as_text(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([kind.field(index).with_type(_as_text(kind.field(index).type)) for index in range(kind.num_fields)])
    return kind


def _holds_map(kind: pa.DataType) -> bool:
    """True if there is a map in it, which Arrow reads from an array of pairs only."""
    if pa.types.is_map(kind):
        return True
    return any(_holds_map(kind.field(index).type) for index in range(kind.num_fields))
