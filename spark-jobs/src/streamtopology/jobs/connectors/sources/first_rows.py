"""The first rows of a source before its select and where, for trying a manifest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from streamtopology.jobs.connectors.sources.descriptor_stream import open_stream
from streamtopology.jobs.connectors.sources.descriptors import LIMITS, Descriptor, SourceSpec, Tally
from streamtopology.jobs.connectors.sources.files.listing import list_files
from streamtopology.jobs.connectors.sources.formats import parts_of_file, read_tables
from streamtopology.jobs.connectors.sources.kafka.options import STARTING
from streamtopology.jobs.connectors.sources.schema.declared import declared_schema, needed_columns
from streamtopology.topology import Source


def why_unread(source: Source) -> str:
    """The reason why no rows of a source can be had in this process, as a sentence; "" if they can."""
    if not source.reads_descriptors:
        return f"source {source.name!r}: Spark reads format {source.format}, and there is no Spark here"
    if source.format != "kafka":
        return ""
    from streamtopology.jobs.connectors.sources.kafka.topic_look import check_topics  # loads librdkafka

    return next((problem.message for problem in check_topics(SourceSpec.of(source))), "")


def first_rows(spec: SourceSpec, most: int, folder: Path) -> pa.Table:
    """The first `most` rows of a source, with the columns that it needs. `folder` may be written to.

    Raises SourceError.
    """
    wanted = needed_columns(declared_schema(spec), spec, None)
    tables: list[pa.Table] = []
    for _, table in read_tables(_parts(spec, most, folder), spec, wanted, Tally()):
        tables.append(table.slice(0, most))
        most -= tables[-1].num_rows
        if not most:
            break
    return pa.concat_tables(tables) if tables else wanted.empty_table()


def _parts(spec: SourceSpec, most: int, folder: Path) -> Iterable[Descriptor]:
    if spec.format == "kafka":
        return _of_topics(spec, most, folder)
    if spec.is_table:
        return _of_table(spec, most, folder)
    return (part for path in list_files(spec) for part in parts_of_file(spec, path, most))


def _of_table(spec: SourceSpec, most: int, folder: Path) -> Iterator[Descriptor]:
    options = {name: value for name, value in spec.options.items() if name not in LIMITS}
    stream = open_stream(replace(spec, options={**options, LIMITS[0]: "1"}), folder / "tables")
    start = stream.initial_offset()
    while (end := stream.advance(start)) != start:
        yield from (part.between(0, min(most, part.end)) for part in stream.between(start, end))
        start = end


def _of_topics(spec: SourceSpec, most: int, folder: Path) -> Iterable[Descriptor]:
    """The oldest messages of a topic, also where a run begins with the newest."""
    from streamtopology.jobs.connectors.sources.kafka.stream import KafkaStream  # loads librdkafka

    options = {name: value for name, value in spec.options.items() if name not in STARTING}
    limits = {"maxOffsetsPerTrigger": str(most), "startingOffsets": "earliest"}
    stream = KafkaStream(replace(spec, options={**options, **limits}), folder / "offsets" / spec.name)
    start = stream.initial_offset()
    return stream.between(start, stream.advance(start))
