"""Checks of sources before anything starts."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa

from streamtopology.jobs.columnar.corrections import corrected, expression_fault
from streamtopology.jobs.columnar.expressions import ExpressionError, output_schema
from streamtopology.jobs.connectors.file_uri import is_in_bucket
from streamtopology.jobs.connectors.kafka_settings import SET_BY_SOURCES, set_by_us
from streamtopology.jobs.connectors.sources.descriptors import (
    FROM,
    LIMITS,
    SourceError,
    SourceSpec,
    known_options,
    positive_option,
    unwritable,
)
from streamtopology.jobs.connectors.sources.iceberg_catalog import CATALOG, unset_variable
from streamtopology.jobs.connectors.sources.iceberg_catalog import CHECKS as CATALOG_CHECKS
from streamtopology.jobs.connectors.sources.kafka.options import only_in_spark, starting_problems, topic_problems
from streamtopology.jobs.connectors.sources.path_patterns import check_pattern, has_pattern, plain
from streamtopology.jobs.connectors.sources.sample import check_event_times, check_sample
from streamtopology.jobs.connectors.sources.schema.declared import declared_schema, watermark_problems
from streamtopology.jobs.connectors.sources.spark.options import DATAFRAME, load_maker, missing_variables
from streamtopology.jobs.connectors.sources.text.csv_options import csv_problems
from streamtopology.jobs.connectors.sources.text.text_stream import encoding_of
from streamtopology.jobs.connectors.sources.text.text_values import time_problems
from streamtopology.jobs.users_code.modules import LoadError
from streamtopology.topology import DESCRIPTOR_FORMATS, Doubt, Problem, Source, did_you_mean, nearest
from streamtopology.topology.values import ICEBERG_NEEDS

_REQUIRED = {"kafka": ("kafka.bootstrap.servers",), "iceberg": ICEBERG_NEEDS}
_PACKAGES = {"delta": "deltalake", "iceberg": "pyiceberg"}
_SPARK_FORMATS = ("rate", "rate-micro-batch", "socket", "orc", "avro", "xml", "binaryFile")
_BOOLEAN_OPTIONS = (
    "header",
    "failOnDataLoss",
    "includeHeaders",
    "recursiveFileLookup",
    "multiLine",
    "skipChangeCommits",
    "streaming-skip-delete-snapshots",
    "streaming-skip-overwrite-snapshots",
)

# Places of the options without which no file can be looked at.
_READING = {f"options.{name}" for name in ("path", *known_options("csv"), *known_options("iceberg")) if name not in LIMITS}


@dataclass(frozen=True)
class CheckedSource:
    """The findings about a source, with paths below it, and its rows after select; None if these are not certain."""

    findings: tuple[Problem, ...]
    rows: pa.Schema | None


def check(source: Source, base_dir: Path = Path()) -> CheckedSource:
    """Check a source's schema, options, expressions, and one of its files.

    Of a source that Spark reads itself, all but its variables is checked by Spark when it is loaded. A function of the user's
    is in a file relative to `base_dir`, the manifest's folder.
    """
    if source.format == DATAFRAME:
        return CheckedSource(tuple(_maker_problems(source, base_dir)), None)
    if not source.reads_descriptors:
        return CheckedSource((*_format_slip(source), *missing_variables(source)), None)
    try:
        spec = SourceSpec.of(source)
    except SourceError as error:
        return CheckedSource((Problem("options.path", f"source {source.name!r}: {error}"),), _rows_alone(source))
    findings = [*_option_problems(spec), *_folder_problems(spec)]
    declared = _declared(spec, findings)
    if declared is None:
        return CheckedSource(tuple(findings), None)
    rows = _rows(spec, declared, findings)
    if rows is not None and source.watermark is not None:
        findings += watermark_problems(source.name, source.watermark, rows)
    places = {finding.path.partition("[")[0] for finding in findings if not isinstance(finding, Doubt)}
    if spec.format == "kafka":
        if not any(place.startswith("options") for place in places):
            from streamtopology.jobs.connectors.sources.kafka.topic_look import (
                check_topics,
                unused_settings,
            )  # loads librdkafka

            findings += [*check_topics(spec), *unused_settings(spec)]
    elif not any(place in _READING or place.startswith(f"options.{CATALOG}") for place in places):
        findings += check_sample(spec, declared, expressions_hold=not places & {"select", "where"})
        readable = all(isinstance(finding, Doubt) and finding.path == "schema" for finding in findings)
        if readable and rows is not None and source.watermark is not None:
            findings += _unread_times(spec, source.watermark.column, rows)
    return CheckedSource(tuple(findings), rows)


def _format_slip(source: Source) -> Iterator[Problem]:
    near = nearest(source.format, DESCRIPTOR_FORMATS)
    if near is not None and source.format not in _SPARK_FORMATS:
        message = f"unknown format {source.format!r}; allowed: {', '.join(DESCRIPTOR_FORMATS)}, or one that Spark streams"
        yield Problem("format", f"source {source.name!r}: {message}; did you mean {near!r}?")


def _maker_problems(source: Source, base_dir: Path) -> Iterator[Problem]:
    others = [f"options.{name}" for name in source.options if name != "run"]
    for place in [*others, *(["schema"] if source.schema is not None else [])]:
        yield Problem(place, f"source {source.name!r}: format dataframe takes option run alone: its function makes the frame")
    if "run" not in source.options:
        yield Problem("options.run", f"source {source.name!r}: format dataframe needs option run, such as job.py:events")
        return
    try:
        load_maker(source, base_dir)
    except LoadError as error:
        yield Problem("options.run", f"source {source.name!r}: {error}")


def _rows_alone(source: Source) -> pa.Schema | None:
    """The rows of a source whose place cannot be."""
    return check(replace(source, options={})).rows


def _declared(spec: SourceSpec, findings: list[Problem]) -> pa.Schema | None:
    try:
        return declared_schema(spec)
    except SourceError as error:
        findings.append(Problem("schema", str(error)))
        return None


def _rows(spec: SourceSpec, declared: pa.Schema, findings: list[Problem]) -> pa.Schema | None:
    """The rows after select, each expression corrected if its mistake suggests how."""
    select: list[str | None] = [
        _sound(text, f"select[{index}]", spec, declared, findings) for index, text in enumerate(spec.select)
    ]
    if spec.where is not None:
        _sound(spec.where, "where", spec, declared, findings)
    sound = [text for text in select if text is not None]
    if len(sound) < len(select):
        return None
    try:
        return output_schema(declared, sound) if sound else declared
    except ExpressionError as error:
        findings.append(Problem("select", f"source {spec.name!r}: {error}"))
        return None


def _sound(text: str, path: str, spec: SourceSpec, declared: pa.Schema, findings: list[Problem]) -> str | None:
    """The expression as it is or as it is probably meant; None if that is open."""
    fault = expression_fault(text, declared)
    if fault is None:
        return text
    likely = corrected(text, declared)
    findings.append(Problem(path, f"source {spec.name!r}: {fault}{f'; did you mean {likely!r}?' if likely else ''}"))
    return likely


def _unread_times(spec: SourceSpec, column: str, rows: pa.Schema) -> list[Problem]:
    kind = rows.field(column).type
    return check_event_times(spec, column) if pa.types.is_integer(kind) or pa.types.is_floating(kind) else []


def _option_problems(spec: SourceSpec) -> list[Problem]:
    problems: list[Problem] = []

    def add(option: str, sentence: str) -> None:
        problems.append(Problem(f"options.{option}", sentence))

    known = known_options(spec.written_format)
    required = _REQUIRED.get(spec.written_format, ("path",))
    package = _PACKAGES.get(spec.written_format)
    if package is not None and find_spec(package) is None:
        needs = f"format {spec.written_format} needs the package {package}; install streamtopology[{spec.written_format}]"
        add(required[0], f"source {spec.name!r}: {needs}")
    for name in required:
        if name not in spec.options:
            add(name, f"source {spec.name!r}: format {spec.written_format} needs option {name}")
    for name, value in spec.options.items():
        if spec.format == "kafka" and (refusal := only_in_spark(name)):
            add(name, f"source {spec.name!r}: {refusal}")
        elif spec.table_format == "iceberg" and name in CATALOG_CHECKS and (wrong := CATALOG_CHECKS[name](str(value))):
            add(name, f"source {spec.name!r}: option {name} {wrong}, not {value!r}")
        elif spec.table_format == "iceberg" and name.startswith(CATALOG):
            if unset := unset_variable(name, str(value)):
                add(name, f"source {spec.name!r}: {unset}")
        elif name not in known and not (spec.format == "kafka" and name.startswith("kafka.")):
            has = f"format {spec.written_format} has no option {name!r}; it has: {', '.join(known)}{did_you_mean(name, known)}"
            add(name, f"source {spec.name!r}: {has}")
        if spec.format == "kafka" and (refusal := set_by_us(name, SET_BY_SOURCES)):
            add(name, f"source {spec.name!r}: {refusal}")
        if spec.format == "kafka" and (fault := unwritable(str(value))):
            add(name, f"source {spec.name!r}: option {name} {fault}")
        if name in _BOOLEAN_OPTIONS and str(value).lower() not in ("true", "false"):
            add(name, f"source {spec.name!r}: option {name} must be true or false, not {value!r}")
        if name == FROM and not re.fullmatch("[0-9]{1,18}", str(value)):
            add(name, f"source {spec.name!r}: option {name} must be a number of milliseconds since 1970, not {value!r}")
        if name == "startingVersion" and not re.fullmatch("latest|[0-9]{1,18}", str(value)):
            add(name, f"source {spec.name!r}: option {name} must be a version's number or latest, not {value!r}")
    if spec.format == "csv":
        for name, sentence in csv_problems(spec):
            add(name, sentence)
    for name, sentence in time_problems(spec) if spec.format in ("csv", "json") else ():
        add(name, sentence)
    try:
        encoding_of(spec)
    except SourceError as error:
        add("charset" if "charset" in spec.options and "encoding" not in spec.options else "encoding", str(error))
    for name in ("path", "pathGlobFilter") if spec.format != "kafka" else ():
        try:
            check_pattern(spec.options.get(name, ""))
        except SourceError as error:
            add(name, f"source {spec.name!r}: {error}")
    for name in (*LIMITS, "maxOffsetsPerTrigger"):
        try:
            positive_option(spec, name)
        except SourceError as error:
            add(name, str(error))
    if spec.format == "kafka":
        problems += topic_problems(spec)
        problems += starting_problems(spec)
    return problems


def _folder_problems(spec: SourceSpec) -> list[Problem]:
    path = spec.options.get("path")
    if path is None or spec.format == "kafka" or is_in_bucket(path) or has_pattern(path) or os.path.exists(plain(path)):
        return []
    sentence = f"folder {plain(path)} does not exist; create it or correct option path{_nearby(plain(path))}"
    return [Problem("options.path", f"source {spec.name!r}: {sentence}")]


def _nearby(path: str) -> str:
    """A suggestion of a name that is there, in the deepest folder of `path` that exists."""
    folder, name = os.path.split(path.rstrip("/"))
    while name and not os.path.isdir(folder):
        folder, name = os.path.split(folder)
    near = nearest(name, os.listdir(folder)) if name and os.access(folder, os.R_OK) else None
    return "" if near is None else f"; did you mean {os.path.join(folder, near)}?"
