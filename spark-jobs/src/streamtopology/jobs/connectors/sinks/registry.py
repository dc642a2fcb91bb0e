"""The sink formats of a manifest, their options, and how they are opened."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import pyarrow as pa

from streamtopology.jobs.connectors.file_uri import BUCKET_SCHEME
from streamtopology.jobs.connectors.kafka_settings import PREFIX as KAFKA_PREFIX
from streamtopology.jobs.connectors.kafka_settings import SET_BY_SINKS, kafka_settings, set_by_us
from streamtopology.jobs.connectors.sinks.base import BatchSink, SinkError, Writer, WrittenOutput
from streamtopology.jobs.connectors.sinks.console import ConsoleSink
from streamtopology.jobs.connectors.sinks.delta import DeltaPlace
from streamtopology.jobs.connectors.sinks.folder import (
    FolderSink,
    entry_of,
    write_csv,
    write_json_lines,
    write_parquet,
    written_by,
)
from streamtopology.jobs.connectors.sinks.formats import TAKES
from streamtopology.jobs.connectors.sinks.function import FRAMES, Function, FunctionSink
from streamtopology.jobs.connectors.sinks.iceberg import IcebergPlace
from streamtopology.jobs.connectors.sinks.memory import MemorySink
from streamtopology.jobs.connectors.sinks.partitions import partition_columns
from streamtopology.jobs.connectors.sinks.spark_writer import WRITER as SPARK_WRITER
from streamtopology.jobs.connectors.sinks.spark_writer import SparkSink
from streamtopology.jobs.connectors.sinks.tables import TablePlace, TableSink
from streamtopology.jobs.connectors.sinks.takes import Proof, Takes
from streamtopology.jobs.connectors.sources.descriptors import SourceError, local_path
from streamtopology.jobs.connectors.sources.iceberg_catalog import CATALOG, unset_variable
from streamtopology.jobs.connectors.sources.iceberg_catalog import CHECKS as CATALOG_CHECKS
from streamtopology.jobs.users_code.functions import load_function
from streamtopology.jobs.users_code.modules import LoadError
from streamtopology.topology import Problem, did_you_mean
from streamtopology.topology.parsing import BUCKET_PATTERN

if TYPE_CHECKING:
    from streamtopology import topology

_DELTA, _ICEBERG, _SPARK = "delta", "iceberg", "spark"
_TABLES: Mapping[str, type[TablePlace[Any]]] = {_DELTA: DeltaPlace, _ICEBERG: IcebergPlace}
_PACKAGES = {_DELTA: "deltalake", _ICEBERG: "pyiceberg"}
# Formats whose rows at a `path` are not files and entries of ours.
_OF_OTHERS = (*_TABLES, _SPARK)


@dataclass(frozen=True)
class _Opening:
    """Who opens a sink, and where: what `console` prints to, the manifest's folder, and the rows to come, if they are known."""

    writer: Writer
    out: TextIO
    base_dir: Path
    rows: pa.Schema | None


@dataclass(frozen=True)
class _Format:
    """`options`: name -> None or a sentence about a value that is wrong. `runs`: its option `run` names a function.

    passes: options that begin so are not ours; variables in them have values in the environment.
    """

    options: Mapping[str, Callable[[str], str | None]]
    required: tuple[str, ...]
    open: Callable[[topology.Sink, _Opening], BatchSink]
    passes_kafka_settings: bool = False
    runs: bool = False
    passes: str | None = None


def check(sink: topology.Sink, base_dir: Path) -> list[Problem]:
    """The problems of a sink's format and options, with paths below it; none when it can be opened.

    A function of the user's is in a file relative to `base_dir`, the manifest's folder.
    """
    format_ = _FORMATS.get(sink.format)
    if format_ is None:
        return [Problem("format", f"sink {sink.name!r}: unknown format {sink.format!r}; known are {', '.join(_FORMATS)}")]
    problems: list[Problem] = []

    def add(option: str, sentence: str) -> None:
        problems.append(Problem(f"options.{option}", f"sink {sink.name!r}: {sentence}"))

    for name in format_.required:
        if name not in sink.options:
            add(name, f"format {sink.format} needs option {name}")
    for name, value in sink.options.items():
        if name in format_.options:
            wrong = format_.options[name](str(value))
            if wrong:
                add(name, f"option {name} {wrong}, not {value!r}")
        elif format_.passes is not None and name.startswith(format_.passes):
            if unset := unset_variable(name, str(value)):
                add(name, unset)
        elif format_.passes_kafka_settings and name.startswith(KAFKA_PREFIX):
            if refusal := set_by_us(name, SET_BY_SINKS):
                add(name, refusal)
        else:
            known = ", ".join(format_.options) or "none"
            has = f"format {sink.format} has no option {name!r}; it has: {known}{did_you_mean(name, format_.options)}"
            add(name, has)
    package = _PACKAGES.get(sink.format)
    if package is not None and find_spec(package) is None:
        add(format_.required[0], f"format {sink.format} needs the package {package}; install streamtopology[{sink.format}]")
    if sink.format == _ICEBERG and sink.options.get("catalog.type") == "sql" and "catalog.warehouse" not in sink.options:
        add("catalog.warehouse", "a sql catalogue needs option catalog.warehouse, a folder or s3://BUCKET/PREFIX")
    if is_in_bucket(sink) and _is_true(sink, "filePerTask"):
        add("filePerTask", "in a bucket nothing makes several files appear as one; leave it out: a batch is one file")
    elif "partitionBy" in sink.options and _is_true(sink, "filePerTask"):
        add("filePerTask", "with partitionBy a batch is a file for each partition, whatever task has its rows; leave it out")
    if format_.runs and not problems:
        try:
            _function_of(sink, base_dir)
        except LoadError as error:
            add("run", str(error))
    return problems


def open_sink(
    sink: topology.Sink, writer: Writer, out: TextIO = sys.stdout, base_dir: Path = Path(), rows: pa.Schema | None = None
) -> BatchSink:
    """The sink of a manifest in `base_dir`, ready to publish for `writer`. Call `check` first. Raises SinkError, LoadError.

    rows: the columns of the rows to come, where they are known.
    """
    return _FORMATS[sink.format].open(sink, _Opening(writer, out, base_dir, rows))


def gets_frames(sink: topology.Sink) -> bool:
    """True if the sink gets each batch as a DataFrame of Spark."""
    return sink.format == _SPARK or (sink.format == "function" and sink.options.get("frame", "spark") == "spark")


def takes(sink: topology.Sink, schema: pa.Schema) -> Takes:
    """The rows that the sink takes, given the columns of its rows. Call `check` first."""
    return TAKES[sink.format](sink, schema)


def in_messages(sink: topology.Sink) -> str:
    """The sink as errors about its rows name it."""
    return f"sink {sink.name!r} ({sink.format}), rows of operator {sink.input!r}:"


def proof(sinks: Iterable[topology.Sink], schema: pa.Schema | None) -> Proof:
    """The proof that each of `sinks` can write the rows of an operator's `schema`; None: it emits none."""
    return Proof({} if schema is None else {in_messages(sink): takes(sink, schema) for sink in sinks})


def destination(sink: topology.Sink) -> str:
    """The place that has a sink's rows, as a user looks for it."""
    if is_in_bucket(sink):
        return sink.options["path"]
    if sink.format == _SPARK:
        return f"writer {sink.options[SPARK_WRITER]} of Spark"
    if "table" in sink.options:
        return f"table {sink.options['table']}"
    if "path" in sink.options:
        return local_path(sink.options["path"])
    if "topic" in sink.options:
        return f"topic {sink.options['topic']} at {sink.options['kafka.bootstrap.servers']}"
    if "run" in sink.options:
        return f"function {sink.options['run']}"
    return {"console": "printed above"}.get(sink.format, sink.format)


def written(sink: topology.Sink, writer: Writer) -> WrittenOutput | None:
    """The output of `writer` at a sink of files; None for other sinks, and if it is another's. Raises SinkError."""
    if sink.format in _OF_OTHERS:
        return None
    if is_in_bucket(sink):
        from streamtopology.jobs.connectors.sinks.bucket import open_bucket, written_to

        return written_to(open_bucket(sink.options["path"], sink.name), writer)
    return written_by(Path(local_path(sink.options["path"])), writer) if "path" in sink.options else None


def written_batch(sink: topology.Sink, writer: Writer, batch: int, end: str | None) -> str | None:
    """The place of a batch that a sink of files or a table has; None if it has not, has another one, or is neither."""
    if sink.format in _TABLES:
        place = _TABLES[sink.format](sink)
        return destination(sink) if TableSink(place, writer).has(batch, end) else None
    if sink.format in _OF_OTHERS:
        return None
    if is_in_bucket(sink):
        from streamtopology.jobs.connectors.sinks.bucket import entry_in, open_bucket

        return entry_in(open_bucket(sink.options["path"], sink.name), batch, end)
    return entry_of(Path(local_path(sink.options["path"])), batch, end) if "path" in sink.options else None


def is_in_bucket(sink: topology.Sink) -> bool:
    """True for a sink of files in a bucket."""
    return sink.format != _SPARK and sink.options.get("path", "").startswith(BUCKET_SCHEME)


def _true_or_false(value: str) -> str | None:
    return None if value.lower() in ("true", "false") else "must be true or false"


def _whole_number(value: str) -> str | None:
    return None if value.isdigit() and int(value) > 0 else "must be a whole number above 0"


def _text(value: str) -> str | None:
    return None if value.strip() else "must not be empty"


def _names(value: str) -> str | None:
    names = [name.strip() for name in value.split(",")]
    return None if all(names) and len({*names}) == len(names) else "must be names of columns, each once, such as day, city"


def _frame(value: str) -> str | None:
    return None if value in FRAMES else f"must be {' or '.join(FRAMES)}"


def _writable_place(value: str) -> str | None:
    if value.startswith(BUCKET_SCHEME):
        expected = "must be s3://BUCKET/PREFIX, of letters, digits and ._=- alone"
        return None if re.fullmatch(BUCKET_PATTERN, value) else expected
    try:
        folder = Path(local_path(value))
    except SourceError:
        return "must be a local path, a file: URI or s3://BUCKET/PREFIX"
    return "must be a folder, but a file is there" if folder.is_file() else None


def _is_true(sink: topology.Sink, option: str) -> bool:
    return sink.options.get(option, "false").lower() == "true"


def _open_files(suffix: str, write: Callable[..., None]) -> Callable[[topology.Sink, _Opening], BatchSink]:
    def open_(sink: topology.Sink, by: _Opening) -> BatchSink:
        if is_in_bucket(sink):
            from streamtopology.jobs.connectors.sinks.bucket import BucketSink, open_bucket  # loads obstore only for buckets

            bucket = open_bucket(sink.options["path"], sink.name)
            return BucketSink(bucket, suffix, write, by.writer, sink.name, partition_columns(sink))
        folder = Path(local_path(sink.options["path"]))
        return FolderSink(folder, suffix, write, by.writer, _is_true(sink, "filePerTask"), sink.name, partition_columns(sink))

    return open_


def _open_csv(sink: topology.Sink, by: _Opening) -> BatchSink:
    return _open_files(".csv", partial(write_csv, has_header=_is_true(sink, "header")))(sink, by)


def _open_console(sink: topology.Sink, by: _Opening) -> BatchSink:
    truncate = sink.options.get("truncate", "true").lower() == "true"
    return ConsoleSink(sink.name, by.out, int(sink.options.get("numRows", "20")), truncate)


def _open_memory(sink: topology.Sink, by: _Opening) -> BatchSink:
    return MemorySink(sink.name)


def _open_kafka(sink: topology.Sink, by: _Opening) -> BatchSink:
    from streamtopology.jobs.connectors.sinks.kafka import KafkaSink  # keeps librdkafka out of topologies without Kafka

    settings = kafka_settings(sink.options, lambda why: SinkError(f"sink {sink.name!r}: {why}"))
    return KafkaSink(sink.name, sink.options["topic"], settings, by.writer)


def _open_function(sink: topology.Sink, by: _Opening) -> BatchSink:
    frame = FRAMES[sink.options.get("frame", "spark")]
    empty = by.rows.empty_table() if _is_true(sink, "empty") and by.rows is not None else None
    return FunctionSink(sink.name, _function_of(sink, by.base_dir), frame, empty)


def _function_of(sink: topology.Sink, base_dir: Path) -> Function:
    return load_function(sink.options["run"], base_dir, rows="the rows", batch="the batch's number")


def _open_delta(sink: topology.Sink, by: _Opening) -> BatchSink:
    return TableSink(DeltaPlace(sink), by.writer)


def _open_iceberg(sink: topology.Sink, by: _Opening) -> BatchSink:
    return TableSink(IcebergPlace(sink), by.writer, by.rows)


def _open_spark(sink: topology.Sink, by: _Opening) -> BatchSink:
    return SparkSink(sink, by.rows)


_FILE_OPTIONS = {"path": _writable_place, "filePerTask": _true_or_false, "partitionBy": _names}
_FORMATS: Mapping[str, _Format] = {
    "parquet": _Format(_FILE_OPTIONS, ("path",), _open_files(".parquet", write_parquet)),
    "json": _Format(_FILE_OPTIONS, ("path",), _open_files(".jsonl", write_json_lines)),
    "csv": _Format({**_FILE_OPTIONS, "header": _true_or_false}, ("path",), _open_csv),
    _DELTA: _Format({"path": _writable_place, "partitionBy": _names}, ("path",), _open_delta),
    _ICEBERG: _Format(
        {**CATALOG_CHECKS, "partitionBy": _names},
        ("table", "catalog.type", "catalog.uri"), _open_iceberg, passes=CATALOG,
    ),
    "console": _Format({"numRows": _whole_number, "truncate": _true_or_false}, (), _open_console),
    "memory": _Format({}, (), _open_memory),
    "function": _Format({"run": _text, "frame": _frame, "empty": _true_or_false}, ("run",), _open_function, runs=True),
    _SPARK: _Format({SPARK_WRITER: _text, "partitionBy": _names}, (SPARK_WRITER,), _open_spark, passes=""),
    "kafka": _Format(
        {"kafka.bootstrap.servers": _text, "topic": _text}, ("kafka.bootstrap.servers", "topic"), _open_kafka,
        passes_kafka_settings=True,
    ),
}  # fmt: skip
