"""Columns of texts that are JSON objects: their fields as columns, with the SQL that reads each from the text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from streamtopology.jobs.columnar.expressions import project
from streamtopology.jobs.scaffold.json_lines import fields_of, parsed
from streamtopology.jobs.scaffold.sample import sql_text

# Texts of which the fields and their types are found.
_MOST_TEXTS = 5000
_CASTS = {"BIGINT": "BIGINT", "DOUBLE": "DOUBLE", "BOOLEAN": "BOOLEAN", "TIMESTAMP": "TIMESTAMPTZ"}


@dataclass(frozen=True)
class JsonField:
    """A field of the objects. sql: what reads it, NULL where it is missing or of another type; values: those of all texts."""

    name: str
    sql: str
    values: pa.ChunkedArray


@dataclass(frozen=True)
class JsonColumn:
    """A column of JSON objects. share: of the texts that are some. notes: a sentence on each field that is left out."""

    fields: tuple[JsonField, ...]
    share: float
    notes: tuple[str, ...]


def json_column(texts: pa.ChunkedArray, sql: str, is_valid: bool = False) -> JsonColumn | None:
    """The objects in `texts`, which `sql` reads; None if most of them are none, or have no field of a plain type.

    A field that is itself a text of JSON objects gives way to its fields. `is_valid`: the rows are known to hold valid JSON.
    """
    present = texts.drop_null().slice(0, _MOST_TEXTS).to_pylist()
    objects = [found for text in present for found in parsed([text]) or []]
    if len(objects) <= len(present) / 2:
        return None
    columns, notes = fields_of(objects)
    unreadable = [name for name, _ in columns if name == "*" or '"' in name]
    notes += [f"left out: field {name!r}, a name that SQL cannot read from JSON" for name in unreadable]
    readable = [(name, type_) for name, type_ in columns if name not in unreadable]
    fields = [one for name, type_ in readable for one in _fields(texts, sql, name, type_, is_valid)]
    return JsonColumn(tuple(fields), len(objects) / len(present), tuple(notes)) if fields else None


def _fields(texts: pa.ChunkedArray, sql: str, name: str, type_: str, is_valid: bool) -> Iterator[JsonField]:
    """The field `name`, or those of the objects that it is a text of; of a wider type if later values need one."""
    batch = pa.record_batch([texts.combine_chunks()], ["text"])

    def values_as(type_: str) -> pa.ChunkedArray:
        return pa.chunked_array([project(batch, [f"{_reading('text', name, type_, is_valid=False)} AS field"]).column("field")])

    present = len(texts) - values_as("STRING").null_count
    wider = (type_, "DOUBLE", "STRING") if type_ == "BIGINT" else (type_, "STRING")
    read = ((one, values_as(one)) for one in wider)
    type_, values = next((one, values) for one, values in read if len(texts) - values.null_count == present)
    reading = _reading(sql, name, type_, is_valid)
    inner = json_column(values, reading) if type_ == "STRING" else None
    if inner is None:
        yield JsonField(name, reading, values)
        return
    yield from (JsonField(f"{name}_{one.name}", one.sql, one.values) for one in inner.fields)


def _reading(sql: str, name: str, type_: str, is_valid: bool) -> str:
    """The SQL that reads the field `name` from the JSON of `sql`, which fails for texts that are none."""
    path = f'$."{name}"'
    text = f"json_extract_string({sql}, {sql_text(path)})"
    text = text if is_valid else f"TRY({text})"
    return f"TRY_CAST({text} AS {_CASTS[type_]})" if type_ in _CASTS else text
