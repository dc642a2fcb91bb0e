"""JSON files of lookups without declared columns: the types are those that hold each value of the file as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.json

from streamtopology.jobs.connectors.sources.descriptors import SourceError, SourceSpec
from streamtopology.jobs.connectors.sources.text.json_lines import REMEDY
from streamtopology.jobs.connectors.sources.text.text_stream import TextStream

_LARGE = re.compile(rb"[0-9]{16}")
_DEEP = 500
_SPACE = re.compile(r"\s*")
_DECODER = json.JSONDecoder(parse_int=Decimal)


def undeclared_json(path: Path, spec: SourceSpec) -> pa.Table:
    """The rows of a file of JSON lines, its whole columns. Raises SourceError and `pa.ArrowException`.

    Arrow takes texts for times if they look so: the file is read again with these columns as texts.
    """
    place = f"lookup file {path}"
    text = _text(path, spec, place)
    _refuse_unreadable(text, place)
    table = _read(text, None)
    schema = pa.schema([field.with_type(_without_times(field.type)) for field in table.schema])
    if schema != table.schema:
        table = _read(text, schema)
    if any(map(_has_doubles, table.schema.types)) and _LARGE.search(text):
        _refuse_large_numbers(text, table.schema, place)
    return table


def _text(path: Path, spec: SourceSpec, place: str) -> bytes:
    with closing(TextStream(str(path), spec, place)) as stream:
        return b"".join(iter(stream.next_bytes, b""))


def _refuse_unreadable(text: bytes, place: str) -> None:
    """Raise SourceError for what ends the process of Arrow's reader: `null` in the first place, and deep nesting."""
    if not text.lstrip().startswith(b"{"):
        raise SourceError(f"{place}: each line is one object; {REMEDY}" if text.strip() else f"{place} has no rows")
    for number, line in enumerate(text.split(b"\n"), 1):
        if line.count(b"[") + line.count(b"{") > _DEEP:
            try:
                _DECODER.decode(line.decode())
            except RecursionError as error:
                raise SourceError(f"{place}: line {number}: its arrays and objects are nested too deeply") from error
            except ValueError:
                continue  # Arrow's reader says what is wrong


def _read(text: bytes, schema: pa.Schema | None) -> pa.Table:
    whole = pyarrow.json.ReadOptions(block_size=len(text) + 1)
    return pyarrow.json.read_json(pa.BufferReader(text), whole, pyarrow.json.ParseOptions(explicit_schema=schema))


def _without_times(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_without_times(kind.value_type))
    if pa.types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return pa.struct([field.with_type(_without_times(field.type)) for field in fields])
    return kind


def _has_doubles(kind: pa.DataType) -> bool:
    return pa.types.is_float64(kind) or any(_has_doubles(kind.field(index).type) for index in range(kind.num_fields))


def _refuse_large_numbers(text: bytes, schema: pa.Schema, place: str) -> None:
    """Raise SourceError for a whole number that its column's DOUBLE does not hold, such as an id of 20 digits."""
    for number, row in _objects(text.decode()):
        for field in schema:
            for found in _wholes(row.get(field.name), field.type):
                if Decimal(float(found)) != found:
                    declared = "DECIMAL(38, 0)" if len(str(found)) <= 38 else "STRING, and write it in quotes"
                    raise SourceError(
                        f"{place}: line {number}: column {field.name!r} has the number {str(found)[:40]}, which DOUBLE does "
                        f"not hold; declare the columns in lookup.schema, {field.name} as {declared}"
                    )


def _objects(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each object with the number of its line. Arrow has read them all, also those over several lines."""
    at, line, counted = 0, 1, 0
    while (at := _SPACE.match(text, at).end()) < len(text):  # type: ignore[union-attr]
        line, counted = line + text.count("\n", counted, at), at
        row, at = _DECODER.raw_decode(text, at)
        yield line, row


def _wholes(value: Any, kind: pa.DataType) -> Iterator[Decimal]:
    """The whole numbers of a value where its type is DOUBLE."""
    if isinstance(value, Decimal) and pa.types.is_float64(kind):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _wholes(item, kind.value_type)
    elif isinstance(value, dict):
        for field in kind:
            yield from _wholes(value.get(field.name), field.type)
