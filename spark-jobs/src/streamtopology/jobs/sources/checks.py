"""What can be known to be wrong with a source before anything starts."""

from __future__ import annotations

import glob
import os
from typing import TYPE_CHECKING

from streamtopology.jobs.sources.ddl import SchemaError
from streamtopology.jobs.sources.descriptors import SourceSpec, known_options, positive_option
from streamtopology.jobs.sources.reading import declared_schema

if TYPE_CHECKING:
    from streamtopology.routing.topology import Source

_REQUIRED = {"kafka": ("kafka.bootstrap.servers", "subscribe")}
_BOOLEAN_OPTIONS = ("header", "failOnDataLoss")


def check(source: Source) -> list[str]:
    """What is wrong with a source's schema, options and folder, a sentence each; empty when it can be read.

    A source that Spark reads itself is checked by Spark when it is loaded.
    """
    if not source.reads_descriptors:
        return []
    try:
        spec = SourceSpec.of(source)
    except SchemaError as error:
        return [f"source {source.name!r}: {error}"]
    return [*_schema_problems(spec), *_option_problems(spec), *_folder_problems(spec)]


def _schema_problems(spec: SourceSpec) -> list[str]:
    try:
        declared_schema(spec)
    except SchemaError as error:
        text = str(error)
        return [text if text.startswith("source ") else f"source {spec.name!r}: {text}"]
    return []


def _option_problems(spec: SourceSpec) -> list[str]:
    problems: list[str] = []
    known = known_options(spec.format)
    for name in _REQUIRED.get(spec.format, ("path",)):
        if name not in spec.options:
            problems.append(f"source {spec.name!r}: format {spec.format} needs option {name}")
    for name, value in spec.options.items():
        if name not in known and not (spec.format == "kafka" and name.startswith("kafka.")):
            problems.append(f"source {spec.name!r}: format {spec.format} has no option {name!r}; it has: {', '.join(known)}")
        if name in _BOOLEAN_OPTIONS and str(value).lower() not in ("true", "false"):
            problems.append(f"source {spec.name!r}: option {name} must be true or false, not {value!r}")
    for name in ("maxFilesPerTrigger", "maxOffsetsPerTrigger"):
        try:
            positive_option(spec, name)
        except SchemaError as error:
            problems.append(str(error))
    if spec.format == "kafka":
        from streamtopology.jobs.sources.kafka import starting_offsets  # keeps librdkafka out of other topologies

        try:
            starting_offsets(spec)
        except SchemaError as error:
            problems.append(str(error))
    return problems


def _folder_problems(spec: SourceSpec) -> list[str]:
    path = spec.options.get("path")
    if path is None or spec.format == "kafka" or glob.has_magic(path) or os.path.exists(path):
        return []
    return [f"source {spec.name!r}: folder {path} does not exist; create it or correct option path"]
