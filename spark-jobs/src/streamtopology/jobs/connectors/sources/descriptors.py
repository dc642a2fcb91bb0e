"""Descriptors: small values that say which rows to read, so that a pinned task can read them itself.

The plan places descriptors on executors; that way reading the source is load the plan can move, too.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, cast
from urllib.parse import unquote

from streamtopology.jobs.connectors.file_uri import ENCODED, encoded_path, is_in_bucket
from streamtopology.jobs.connectors.sources.errors import SourceError
from streamtopology.jobs.connectors.sources.path_patterns import literal, normal

if TYPE_CHECKING:
    from streamtopology.topology import Source

Kind = Literal["parquet", "csv", "json", "text", "kafka"]

# The names that columns of a table have in a file of it, where they differ; None for a column that the file lacks.
Names = tuple[tuple[str, str | None], ...]

_FILE_OPTIONS = ("path", "maxFilesPerTrigger", "pathGlobFilter", "recursiveFileLookup", "basePath")
_DELTA_OPTIONS = ("path", "maxFilesPerTrigger", "startingVersion", "skipChangeCommits")
# The limit of files has Spark's name for each format.
LIMITS = ("maxFilesPerTrigger", "streaming-max-files-per-micro-batch")
# Where the source begins, in milliseconds since 1970.
FROM = "stream-from-timestamp"
_ICEBERG_OPTIONS = (
    "table",
    "catalog.type",
    "catalog.uri",
    LIMITS[1],
    FROM,
    "streaming-skip-delete-snapshots",
    "streaming-skip-overwrite-snapshots",
)
_TEXT_OPTIONS = ("encoding", "charset")
TIME_OPTIONS = ("dateFormat", "timestampFormat", "timestampNTZFormat")
_CSV_OPTIONS = ("header", "sep", "delimiter", "quote", "escape", "nullValue", "multiLine", "mode")
_KAFKA_OPTIONS = (
    "kafka.bootstrap.servers",
    "subscribe",
    "subscribePattern",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingOffsets",
    "maxOffsetsPerTrigger",
    "failOnDataLoss",
    "includeHeaders",
)


# Kinds whose descriptors can be cut, at any of their rows.
DIVISIBLE = ("parquet", "kafka")


_OTHER_URI = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_BUCKET = re.compile(r"s3://[a-z0-9][a-z0-9.-]*(/.*)?", re.DOTALL)


@dataclass(frozen=True)
class Descriptor:
    """Rows `start` to `end` of one part of a source.

    parquet: `path` is the file, `part` the row group, `start`/`end` rows within the row group.
    kafka:   `path` is the topic, `topic_id` its id ("" if the broker has none), `part` the partition, `start`/`end` offsets
             (end excluded).
    csv, json, text: the whole file; `part` and `start` are 0 and `end` its size in bytes.
    `rows` is exact for parquet and an estimate for all others; so is `bytes`, the size of the rows in memory. `names`: of
    columns in a table's file.
    """

    source: str
    kind: Kind
    path: str
    part: int
    start: int
    end: int
    rows: int
    bytes: int = 0
    topic_id: str = ""
    names: Names = ()

    @property
    def partition(self) -> str:
        """The partition that has a watermark of its own: `topic/partition` of Kafka; "" for files, whose stream is one."""
        return f"{self.path}/{self.part}" if self.kind == "kafka" else ""

    def to_json(self) -> str:
        place = [self.source, self.kind, self.path, self.part, self.start, self.end]
        return json.dumps([*place, self.rows, self.bytes, self.topic_id, *([self.names] if self.names else [])])

    def between(self, start: int, end: int) -> Descriptor:
        """The part from `start` to `end`, with its share of rows and bytes."""
        if (start, end) == (self.start, self.end):
            return self
        share = (end - start) / max(self.end - self.start, 1)
        rows = end - start if self.kind in DIVISIBLE else round(self.rows * share)
        return replace(self, start=start, end=end, rows=rows, bytes=round(self.bytes * share))

    @staticmethod
    def from_json(text: str) -> Descriptor:
        wire = json.loads(text)
        return Descriptor(*wire[:9], names=names_of_wire(wire[9:]))


@dataclass(frozen=True)
class SourceSpec:
    """The part of a source's manifest that a task needs to read its descriptors; file paths are absolute and may be patterns.

    `topology` is the name of the one that reads it, "" where none does yet. `table_format`: of a table, whose parquet files its
    own log lists.
    """

    name: str
    format: Kind
    schema: str | None
    options: Mapping[str, str]
    select: tuple[str, ...] = ()
    where: str | None = None
    topology: str = ""
    table_format: Literal["", "delta", "iceberg"] = ""

    @property
    def is_table(self) -> bool:
        return self.table_format != ""

    @property
    def written_format(self) -> str:
        """The format as the manifest has it."""
        return self.table_format or self.format

    @staticmethod
    def of(source: Source, topology: str = "") -> SourceSpec:
        """The spec of a manifest's source. It must be one that reads descriptors."""
        options = dict(source.options)
        table_format = source.format if source.format in ("delta", "iceberg") else ""
        if "path" in options:
            path = options["path"]
            options["path"] = literal(normal(place_of(path))) if table_format else pattern_of_place(path)
        format_ = cast(Kind, "parquet" if table_format else source.format)
        select = tuple(source.select)
        return SourceSpec(source.name, format_, source.schema, options, select, source.where, topology, table_format)


@dataclass
class Tally:
    """Counts of one task's reading of one source. `read`: rows read so far, before its where. `skipped`: rows that were deleted
    before they could be read."""

    read: int = 0
    skipped: int = 0


def names_of_wire(wire: Sequence[Names]) -> Names:
    """The names that JSON has as one value; () if it has none."""
    return tuple((name, stored) for names in wire for name, stored in names)


def local_path(path: str) -> str:
    """A manifest's path or `file:` URI as an absolute path: tasks run in other working directories. Raises SourceError."""
    encoded = _in_uri(path)
    return os.path.abspath(_checked(path if encoded is None else unquote(encoded)))


def place_of(path: str) -> str:
    """`local_path` of a path that is in no bucket. Raises SourceError."""
    return _checked_bucket(path) if is_in_bucket(path) else local_path(path)


def pattern_of_place(path: str) -> str:
    """`place_of` a path that may be a pattern: names of the current folder and decoded characters are none.

    The alternatives in braces may have `.` and `..` of their own: `paths_of` has each without.
    """
    absolute = _checked_bucket(path) if is_in_bucket(path) else _absolute_pattern(path)
    braces = absolute.find("{")
    end = len(absolute) if braces < 0 else absolute.rfind("/", 0, braces)
    return normal(absolute[:end] or "/").rstrip("/") + absolute[end:] or "/"


def _absolute_pattern(path: str) -> str:
    encoded = _in_uri(path)
    decoded = path if encoded is None else ENCODED.sub(lambda found: literal(unquote(found[0])), encoded)
    return os.path.join(literal(os.getcwd()), _checked(decoded, "local paths, file: URIs and s3://BUCKET/PREFIX"))


def _checked_bucket(path: str) -> str:
    if not _BUCKET.fullmatch(path):
        raise SourceError(f"path {path!r}: write s3://BUCKET/PREFIX, with the bucket's name in small letters, digits, - and .")
    return path


def _in_uri(path: str) -> str | None:
    try:
        return encoded_path(path)
    except ValueError as error:
        raise SourceError(f"path {error}") from error


def _checked(path: str, readable: str = "local paths and file: URIs") -> str:
    if _OTHER_URI.match(path):
        raise SourceError(f"path {path!r}: only {readable} can be read; mount the data or copy it")
    if "\0" in path:
        raise SourceError(f"path {path!r} has a NUL character, which no path can have; correct it")
    return path


def skip_remedy(path: str) -> str:
    """A clause on the way out of a file that is bad for good."""
    return f"or continue without its rows: streamtopology state skip-file MANIFEST {shlex.quote(path)}"


def known_options(format_: str) -> tuple[str, ...]:
    """Option names of a descriptor source, without the `kafka.*` settings that go to the client as they are."""
    if format_ == "kafka":
        return _KAFKA_OPTIONS
    of_table = {"delta": _DELTA_OPTIONS, "iceberg": _ICEBERG_OPTIONS}.get(format_)
    return of_table or (*_FILE_OPTIONS, *format_options(format_))


def format_options(kind: str) -> tuple[str, ...]:
    """Option names of the contents of a file."""
    if kind == "parquet":
        return ()
    return (*(_CSV_OPTIONS if kind == "csv" else ()), *_TEXT_OPTIONS, *(() if kind == "text" else TIME_OPTIONS))


def positive_option(spec: SourceSpec, name: str) -> int | None:
    """An option that is a whole number above 0, or None when it is not given."""
    text = spec.options.get(name)
    if text is None:
        return None
    if not re.fullmatch(r"\s*[0-9]{1,18}\s*", str(text)) or int(text) == 0:
        raise SourceError(f"source {spec.name!r}: option {name} must be a whole number above 0, not {text!r}")
    return int(text)


def unwritable(text: str) -> str | None:
    """A clause on the first half of a character in `text`, which no file and no name of Spark can have."""
    half = re.search("[\ud800-\udfff]", text)
    return None if half is None else f"has {half[0]!r}, half a character; write the whole one, or leave it out"
