"""Schemas of sources: the rows that a source declares, and the columns needed of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import pyarrow as pa

from streamtopology.jobs.columnar.event_time import EVENT_TIMES, is_event_time
from streamtopology.jobs.columnar.mentioned import mentioned_columns
from streamtopology.jobs.connectors.sources.descriptors import SourceError, SourceSpec
from streamtopology.jobs.connectors.sources.schema.ddl import ddl_to_arrow
from streamtopology.topology import Problem, Watermark, did_you_mean
from streamtopology.topology.schema import SchemaError

TEXT_SCHEMA = pa.schema([pa.field("value", pa.string())])
KAFKA_SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    ]
)
# Columns of Spark's frame that a Kafka source has where it asks for them, in Spark's order.
_TIMESTAMP_TYPE = pa.field("timestampType", pa.int32())
_HEADERS = pa.field("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))


def declared_schema(spec: SourceSpec) -> pa.Schema:
    """The rows of a source before select and where. Raises `SourceError`, whose message names the source."""
    fixed = _fixed_schema(spec)
    if fixed is not None and spec.schema is None:
        return fixed
    if spec.schema is None:
        raise SourceError(f"source {spec.name!r}: format {spec.format} needs a schema, e.g. schema: key BIGINT, v DOUBLE")
    try:
        declared = ddl_to_arrow(spec.schema)
    except SchemaError as error:
        raise SourceError(f"source {spec.name!r}: {error}") from error
    if fixed is not None:
        _check_fixed(spec, declared, fixed)
    nested = [field.name for field in declared if pa.types.is_nested(field.type)] if spec.format == "csv" else []
    if nested:
        remedy = "declare it STRING and take it apart in select, as in from_json(tags, '[\"VARCHAR\"]') AS tags"
        raise SourceError(f"source {spec.name!r}: column {nested[0]!r}: csv has no ARRAY, MAP or STRUCT; {remedy}")
    if spec.format == "json":
        for field in declared:
            if key := _other_key(field.type):
                sentence = f"source {spec.name!r}: column {field.name!r}: names of JSON objects, its keys, are no {key}"
                raise SourceError(f"{sentence}; declare the MAP with a key of STRING, and cast it in select")
    return declared


def _fixed_schema(spec: SourceSpec) -> pa.Schema | None:
    """The rows of a format that has no others; None of any other format."""
    if spec.format == "text":
        return TEXT_SCHEMA
    return kafka_schema(spec) if spec.format == "kafka" else None


def kafka_schema(spec: SourceSpec) -> pa.Schema:
    """The rows of a Kafka source: `headers` with option includeHeaders, `timestampType` where select or where name it."""
    names_type = re.search(r"\btimestampType\b", " , ".join([*spec.select, spec.where or ""]), re.IGNORECASE)
    has_headers = spec.options.get("includeHeaders", "").lower() == "true"
    return pa.schema([*KAFKA_SCHEMA, *([_TIMESTAMP_TYPE] if names_type else []), *([_HEADERS] if has_headers else [])])


def watermark_problems(name: str, watermark: Watermark, rows: pa.Schema) -> Iterator[Problem]:
    """Find a watermark on a column that the rows of source `name` do not have, or that is no time."""
    column = watermark.column
    if column not in rows.names:
        sentence = f"source {name!r}: column {column!r} is not among its rows, which have {', '.join(rows.names)}"
        yield Problem("watermark.column", f"{sentence}{did_you_mean(column, rows.names)}")
    elif not is_event_time(rows.field(column).type):
        kind = rows.field(column).type
        sentence = f"source {name!r}: column {column!r} is {kind}; allowed: {EVENT_TIMES}; cast it in the source's select"
        yield Problem("watermark.column", sentence)


def _check_fixed(spec: SourceSpec, declared: pa.Schema, fixed: pa.Schema) -> None:
    """Raises SourceError if a schema is not that of its format; the one column of a text has any name."""
    if spec.format == "text" and declared.types != fixed.types:
        remedy = "leave schema out, or declare one STRING column, and cut the line in select: string_split(value, ' ')[1] AS a"
        raise SourceError(f"source {spec.name!r}: format text has one column of texts, a line each; {remedy}")
    if spec.format == "kafka" and (declared.names, declared.types) != (fixed.names, fixed.types):
        remedy = "leave schema out, and take the value apart in select"
        raise SourceError(f"source {spec.name!r}: format kafka has the columns {', '.join(fixed.names)}; {remedy}")


def _other_key(kind: pa.DataType) -> pa.DataType | None:
    """The first type of a map's keys that is no text."""
    if pa.types.is_map(kind) and not pa.types.is_string(kind.key_type):
        return kind.key_type
    return next(filter(None, (_other_key(kind.field(index).type) for index in range(kind.num_fields))), None)


def needed_columns(declared: pa.Schema, spec: SourceSpec, columns: Sequence[str] | None) -> pa.Schema:
    """The declared columns that the result needs: a column counts as needed when an expression mentions its name."""
    if not spec.select and columns is None:
        return declared
    return mentioned_columns(declared, [*(spec.select or columns or ()), spec.where or ""])
