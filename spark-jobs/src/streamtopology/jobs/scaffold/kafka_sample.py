"""Samples of Kafka topics: their first messages, and the fields in them."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from streamtopology.jobs.connectors.sources.descriptors import SourceSpec, Tally
from streamtopology.jobs.connectors.sources.kafka.stream import KafkaStream, read_range
from streamtopology.jobs.errors import WrongUse
from streamtopology.jobs.scaffold.column_names import plain_names
from streamtopology.jobs.scaffold.event_time import event_time
from streamtopology.jobs.scaffold.json_lines import Object, fields_of, parsed
from streamtopology.jobs.scaffold.sample import Sample, sql_text

_MESSAGES = 5000
_TEXT = "decode(value, 'replace')"
_TYPES = {"BIGINT": pa.int64(), "DOUBLE": pa.float64(), "STRING": pa.string(), "TIMESTAMP": pa.timestamp("us", tz="UTC")}
_CASTS = {"BIGINT": "BIGINT", "DOUBLE": "DOUBLE", "TIMESTAMP": "TIMESTAMPTZ"}


def sample_topic(topic: str, servers: str, settings: Mapping[str, str]) -> Sample:
    """A sample of the first messages of `topic`; `settings` are further `kafka.*` options. Raises SourceError, WrongUse."""
    options = {"kafka.bootstrap.servers": servers, **settings, "subscribe": topic, "startingOffsets": "earliest"}
    messages = _first_messages(options)
    if not messages.num_rows:
        raise WrongUse(f"topic {topic} at {servers} has no messages yet: name one that has, or send some first")
    title = f"{messages.num_rows:,} messages of topic {topic}"
    objects = _objects(messages)
    columns, notes = fields_of(objects) if objects else ([], [])
    if columns:
        return _of_fields(title, columns, objects or [], messages, options, notes)
    return _of_messages(title, messages, options)


def _first_messages(options: Mapping[str, str]) -> pa.Table:
    spec = SourceSpec("rows", "kafka", None, {**options, "maxOffsetsPerTrigger": str(_MESSAGES)}, topology="init")
    with tempfile.TemporaryDirectory() as folder:
        stream = KafkaStream(spec, Path(folder))
        start = stream.initial_offset()
        tables = [table for part in stream.between(start, stream.advance(start)) for table in read_range(part, spec, Tally())]
    return pa.concat_tables(tables) if tables else pa.table({"value": pa.array([], pa.binary())})


def _objects(messages: pa.Table) -> list[Object] | None:
    """The values as JSON objects, those that are none left out; None if most are none."""
    texts = [(value or b"").decode("utf-8", "replace") for value in messages.column("value").to_pylist()]
    found = [row for text in texts for row in parsed([text]) or []]
    return found if len(found) > len(texts) / 2 else None


def _of_fields(
    title: str,
    columns: Sequence[tuple[str, str]],
    objects: Sequence[Object],
    messages: pa.Table,
    options: Mapping[str, str],
    notes: Sequence[str],
) -> Sample:
    """A column for each field of the JSON objects, and Kafka's own time where no field is one."""
    usable = [(name, type_) for name, type_ in columns if type_ in _TYPES and '"' not in name]
    plain = plain_names(name for name, _ in usable)
    table: dict[str, pa.Array] = {}
    expressions: dict[str, str] = {}
    for name, type_ in usable:
        table[plain[name]] = _array([found.get(name) for found in objects], type_)
        expressions[plain[name]] = f"{_field(name, type_)} AS {plain[name]}"
    if "timestamp" not in table and event_time(pa.table(table)) is None:
        table["timestamp"] = messages.column("timestamp").combine_chunks().slice(0, len(objects))
        expressions["timestamp"] = '"timestamp"'
    where = f"json_valid({_TEXT})"
    return Sample("kafka", f"{title} (JSON)", pa.table(table), dict(options), (), expressions, where, notes=tuple(notes))


def _field(name: str, type_: str) -> str:
    path = f'$."{name}"'
    text = f"json_extract_string({_TEXT}, {sql_text(path)})"
    return f"TRY_CAST({text} AS {_CASTS[type_]})" if type_ in _CASTS else text


def _array(values: Sequence[object], type_: str) -> pa.Array:
    if type_ == "TIMESTAMP":
        return pa.array(values, pa.string()).cast(_TYPES[type_], safe=False)
    return pa.array(
        [float(value) if type_ == "DOUBLE" and isinstance(value, int) else value for value in values], _TYPES[type_]
    )


def _of_messages(title: str, messages: pa.Table, options: Mapping[str, str]) -> Sample:
    """The key, the text and the time of messages whose values are no JSON objects."""
    table: dict[str, pa.Array] = {}
    expressions: dict[str, str] = {}
    for name in ("key", "value"):
        texts = [value and value.decode("utf-8", "replace") for value in messages.column(name).to_pylist()]
        if any(texts) and not any("�" in text for text in texts if text):
            table[f"message_{name}"] = pa.array(texts, pa.string())
            expressions[f"message_{name}"] = f"decode({name}, 'replace') AS message_{name}"
    table["partition"] = messages.column("partition").combine_chunks()
    table["timestamp"] = messages.column("timestamp").combine_chunks()
    expressions |= {"partition": '"partition"', "timestamp": '"timestamp"'}
    notes = ("the values are no JSON objects: an operator of your own can read them (streamtopology new-operator NAME)",)
    return Sample("kafka", title, pa.table(table), dict(options), (), expressions, notes=notes)
