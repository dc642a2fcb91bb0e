"""Rows of files of JSON lines: by Arrow's reader, and by Python's where Arrow refuses what Spark and our sink write.

That is a MAP as an object, NaN and infinities as texts, a name twice, and a tiny DECIMAL, which Arrow would change. There
the json module takes lines apart, and numbers stay texts: their values are made as those of csv are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
import pyarrow.json as pa_json

from streamtopology.jobs.connectors.sources.descriptors import Descriptor, SourceSpec
from streamtopology.jobs.connectors.sources.schema.conform import SchemaMismatchError, conform
from streamtopology.jobs.connectors.sources.text.text_stream import TextStream
from streamtopology.jobs.connectors.sources.text.text_values import (
    NO_NUMBERS,
    Times,
    from_texts,
    shown,
    time_patterns,
    values_of,
)

REMEDY = "write an object a line (jq -c '.[]' of an array, jq -c . of objects over several lines)"
_BLOCK_BYTES = 8 << 20
_ROWS_ALONE = pa.schema([("no name of a file", pa.string())])
# Of a number with 39 digits more behind the point than its DECIMAL has Arrow makes 0; such a number has one of these.
_TINY = (re.compile(rb"e-[0-9]*[1-9][0-9]"), re.compile(rb"E-[0-9]*[1-9][0-9]"), re.compile(rb"\.[0-9]{22}"))


class _Number(str):
    """The text of a number."""


_DECODER = json.JSONDecoder(parse_int=_Number, parse_float=_Number, parse_constant=_Number)
_KINDS = {_Number: "number", str: "string", bool: "boolean", list: "array", dict: "object"}


class _MisfitError(ValueError):
    """A value of another type of JSON than the declared one."""


def read_json(descriptor: Descriptor, spec: SourceSpec, declared: pa.Schema, place: str) -> Iterator[pa.Table]:
    """The rows of a file; of no declared column, those of one that no object has. Raises SourceError."""
    declared, times, number = declared if declared.names else _ROWS_ALONE, time_patterns(spec), 1
    with closing(TextStream(descriptor.path, spec, place)) as stream:
        for block in stream.blocks(_BLOCK_BYTES):
            if block.strip():
                rows = _by_arrow(block, declared, times, place)
                yield _by_python(block, declared, times, place, number) if rows is None else rows
            number += block.count(b"\n")


def _by_arrow(block: bytes, declared: pa.Schema, times: Times, place: str) -> pa.Table | None:
    """The rows of a block; None if Arrow does not read it, or not as we do."""
    objects = _count_objects(block)
    if objects == 0 or any(_holds(pa.types.is_map, kind) for kind in declared.types):
        return None
    if any(_holds(pa.types.is_decimal, kind) for kind in declared.types) and any(tiny.search(block) for tiny in _TINY):
        return None
    schema = pa.schema([(field.name, _read_as(field.type, _is_written_as_text)) for field in declared])
    options = pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    whole = pa_json.ReadOptions(use_threads=False, block_size=len(block) + 1)
    try:
        found = pa_json.read_json(pa.BufferReader(block), whole, options)
        if found.num_rows != objects:
            return None  # several objects a line
        columns = [from_texts(found.column(field.name).combine_chunks(), field.type, times) for field in declared]
        return conform(pa.table(columns, names=declared.names), declared, place)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, SchemaMismatchError):
        return None  # Python's reader reads it, or names the line


def _count_objects(block: bytes) -> int:
    """The lines that have text; 0 if one of them begins or ends unlike an object. None such may get to Arrow's reader.

    It ends its process at a `null` in the first place, takes others for rows, and joins an object of several lines. JSON
    has no `{` right after a `}` within an object: a line that ends in one and the next, that begins with one, are two.
    """
    text = block.strip()
    ends = text.count(b"\n")
    if text.count(b"}\n{") == ends:
        return ends + 1 if text.startswith(b"{") and text.endswith(b"}") else 0
    lines = _lines(block).values()
    return len(lines) if all(line.startswith(b"{") and line.endswith(b"}") for line in lines) else 0


def _lines(block: bytes) -> dict[int, bytes]:
    """The lines that have text, by their places from 0 on."""
    return {place: text for place, line in enumerate(block.split(b"\n")) if (text := line.strip())}


def _by_python(block: bytes, declared: pa.Schema, times: Times, place: str, first: int) -> pa.Table:
    """The rows of a block whose first line has the number `first`. Raises SchemaMismatchError, which names the line."""
    lines = _lines(block)
    places = [f"{place}: line {first + at}" for at in lines]
    rows = [_parsed(line, where) for line, where in zip(lines.values(), places, strict=True)]
    columns: list[pa.Array] = []
    for field in declared:
        texts, leaf = list[Any](), _leaf_types(field.type)
        for row, where in zip(rows, places, strict=True):
            value = row.get(field.name)
            try:
                texts.append(value if type(value) in leaf else _as_text(value, field.type))
            except _MisfitError as error:
                sentence = f"{where}: column {field.name!r} is declared {field.type} but holds {error}"
                raise SchemaMismatchError(sentence, field.name, fitting="") from error
        columns.append(pa.array(texts, _read_as(field.type, lambda kind: not pa.types.is_boolean(kind))))
    table = pa.table(columns, names=declared.names)
    return values_of(table, declared, lambda texts, kind: from_texts(texts, kind, times), places.__getitem__, fitting="")


def _parsed(line: bytes, where: str) -> dict[str, Any]:
    try:
        row = _DECODER.decode(line.decode())
        if b"\\u" in line:
            json.dumps(row, ensure_ascii=False).encode()  # fails for half a character
        if type(row) is dict:
            return row
        finding = f"this is {_spelt(row)}"
    except json.JSONDecodeError as error:
        finding = f"{error.msg} at character {error.colno} of {shown(line.decode())}"
    except UnicodeEncodeError:
        finding = f"half a character in {shown(line.decode())}"
    except RecursionError:
        finding = f"its arrays and objects are nested too deeply: {shown(line.decode())}"
    raise SchemaMismatchError(f"{where}: JSON parse error: {finding}; each line is one object; {REMEDY}")


def _as_text(value: Any, kind: pa.DataType) -> Any:
    """The value with the texts of all but booleans. Raises _MisfitError, which spells what is of another type."""
    found = type(value)
    if value is None or found in _leaf_types(kind):
        return value
    if found is list and pa.types.is_list(kind):
        return [_as_text(item, kind.value_type) for item in value]
    if found is dict and pa.types.is_struct(kind):
        return {field.name: _as_text(value.get(field.name), field.type) for field in kind}
    if found is dict and pa.types.is_map(kind):
        return [(name, _as_text(item, kind.item_type)) for name, item in value.items()]
    if found is str and pa.types.is_floating(kind) and value in NO_NUMBERS:
        return value
    raise _MisfitError(_spelt(value))


def _leaf_types(kind: pa.DataType) -> tuple[type, ...]:
    if pa.types.is_boolean(kind):
        return (bool,)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return (_Number,)
    return (_Number, str) if pa.types.is_decimal(kind) else () if pa.types.is_nested(kind) else (str,)


def _spelt(value: Any) -> str:
    return f"the {_KINDS[type(value)]} {shown(str(value))}" if value is not None else "null"


def _read_as(kind: pa.DataType, is_text: Callable[[pa.DataType], bool]) -> pa.DataType:
    """The type as which a column is read at first, with texts in place of all that `is_text`, and without NOT NULL."""
    if pa.types.is_list(kind):
        return pa.list_(_read_as(kind.value_type, is_text))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _read_as(field.type, is_text)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(pa.string(), _read_as(kind.item_type, is_text))
    return pa.string() if is_text(kind) else kind


def _is_written_as_text(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_binary(kind)


def _holds(is_of: Callable[[pa.DataType], bool], kind: pa.DataType) -> bool:
    """True if there is such a type in it."""
    return is_of(kind) or any(_holds(is_of, kind.field(index).type) for index in range(kind.num_fields))
