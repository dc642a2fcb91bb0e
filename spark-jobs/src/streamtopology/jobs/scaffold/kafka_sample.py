"""Samples of Kafka topics: their first messages, and the fields in them."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from streamtopology.jobs.columnar.expressions import project
from streamtopology.jobs.connectors.sources.descriptors import SourceSpec, Tally
from streamtopology.jobs.connectors.sources.kafka.stream import KafkaStream, read_ranges
from streamtopology.jobs.errors import WrongUse
from streamtopology.jobs.scaffold.column_names import plain_names
from streamtopology.jobs.scaffold.event_time import event_time
from streamtopology.jobs.scaffold.json_text import JsonColumn, json_column
from streamtopology.jobs.scaffold.sample import Sample

_MESSAGES = 5000
_TEXT = "decode(value, 'replace')"


def sample_topic(topic: str, servers: str, settings: Mapping[str, str]) -> Sample:
    """A sample of the first messages of `topic`; `settings` are further `kafka.*` options. Raises SourceError, WrongUse."""
    options = {"kafka.bootstrap.servers": servers, **settings, "subscribe": topic, "startingOffsets": "earliest"}
    messages = _first_messages(options)
    if not messages.num_rows:
        raise WrongUse(f"topic {topic} at {servers} has no messages yet: name one that has, or send some first")
    title = f"{messages.num_rows:,} messages of topic {topic}"
    texts = project(messages.combine_chunks().to_batches()[0], [f"{_TEXT} AS text"]).column("text")
    found = json_column(pa.chunked_array([texts]), _TEXT, is_valid=True)
    if found is not None:
        return _of_fields(title, found, messages, options)
    return _of_messages(title, messages, options)


def _first_messages(options: Mapping[str, str]) -> pa.Table:
    spec = SourceSpec("rows", "kafka", None, {**options, "maxOffsetsPerTrigger": str(_MESSAGES)}, topology="init")
    with tempfile.TemporaryDirectory() as folder:
        stream = KafkaStream(spec, Path(folder))
        start = stream.initial_offset()
        ranges = list(stream.between(start, stream.advance(start)))
        tables = [table for _, table in read_ranges(ranges, spec, Tally())]
    return pa.concat_tables(tables) if tables else pa.table({"value": pa.array([], pa.binary())})


def _of_fields(title: str, found: JsonColumn, messages: pa.Table, options: Mapping[str, str]) -> Sample:
    """A column for each field of the JSON objects, and Kafka's own time where no field is one."""
    plain = plain_names(field.name for field in found.fields)
    table = {plain[field.name]: field.values for field in found.fields}
    expressions = {plain[field.name]: f"{field.sql} AS {plain[field.name]}" for field in found.fields}
    if "timestamp" not in table and event_time(pa.table(table)) is None:
        table["timestamp"] = messages.column("timestamp")
        expressions["timestamp"] = '"timestamp"'
    where = f"json_valid({_TEXT})"
    return Sample("kafka", f"{title} (JSON)", pa.table(table), dict(options), (), expressions, where, notes=found.notes)


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
