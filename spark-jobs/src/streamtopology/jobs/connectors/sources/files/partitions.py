"""Columns whose values are in the names of folders, as Spark and Hive lay out their tables: `dt=2024-01-01/a.parquet`."""

# pyarrow.compute makes its functions when it is imported, unseen by the type checker.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from streamtopology.jobs.connectors.sources.descriptors import SourceSpec, place_of
from streamtopology.jobs.connectors.sources.path_patterns import fixed_part
from streamtopology.jobs.connectors.sources.schema.conform import (
    NULL_REMEDY,
    NullValueError,
    SchemaMismatchError,
    parse_timestamps,
)
from streamtopology.jobs.connectors.sources.stored_files import for_arrow
from streamtopology.jobs.connectors.sources.text.text_values import decimals, integers

NULL = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = re.compile(r"%([0-9A-Fa-f]{2})")


def is_partition(name: str) -> bool:
    """True for a folder's name such as `dt=2024-01-01`, the value of a column."""
    column, equals, value = name.partition("=")
    return bool(column and equals and value)


def looks_everywhere(spec: SourceSpec) -> bool:
    """True if all folders in the source's are read, and none as the value of a column."""
    return spec.options.get("recursiveFileLookup", "false").lower() == "true"


def partition_texts(spec: SourceSpec, path: str) -> dict[str, str | None]:
    """The columns that the folders of a file give, in lower case, and their texts. A folder nearer to the file counts more."""
    if spec.format == "kafka" or "path" not in spec.options or looks_everywhere(spec):
        return {}
    base = place_of(spec.options["basePath"]) if "basePath" in spec.options else fixed_part(spec.options["path"])
    below = os.path.relpath(path, base).split("/")[:-1]  # none if the file itself is the source's path
    pairs = [name.partition("=") for name in below if is_partition(name) or (spec.is_table and name.endswith("="))]
    read = unquote if spec.is_table else _unescaped
    return {read(name).lower(): None if text in (NULL, "") else read(text) for name, _, text in pairs}  # delta-rs writes ""


def outside_partitions(spec: SourceSpec, declared: pa.Schema, paths: Sequence[str]) -> str | None:
    """A sentence on the first file whose folders do not give a declared column that those of others give; None without one.

    A parquet file may have such a column itself.
    """
    files = {os.path.dirname(path): path for path in reversed(paths)}  # the first of each folder
    if len(files) < 2:
        return None
    columns = {path: partition_texts(spec, path).keys() for path in files.values()}
    for field in declared:
        inside = next((path for path, names in columns.items() if field.name.lower() in names), None)
        for path, names in columns.items() if inside is not None else ():
            if field.name.lower() not in names and not (spec.format == "parquet" and field.name in _names_in(path)):
                return (
                    f"source {spec.name!r}: {path} is in no folder that gives column {field.name!r}, as that of {inside} does; "
                    f"move it into one such as {field.name}=VALUE, or out of the source's folder (Spark reads no such files)"
                )
    return None


def _names_in(path: str) -> list[str]:
    return pq.read_schema(for_arrow(path)).names


def columns_in_file(wanted: pa.Schema, declared: pa.Schema, texts: dict[str, str | None]) -> pa.Schema:
    """Those of the `wanted` columns that the folders do not give; if they give all, another one, as rows have to be counted.

    It has no column if the folders give all declared ones: a reader then has a column of any name, as long as the file.
    """
    own = [field for field in wanted if field.name.lower() not in texts]
    return pa.schema(own or [field for field in declared if field.name.lower() not in texts][:1])


def with_partitions(table: pa.Table, declared: pa.Schema, texts: dict[str, str | None], place: str) -> pa.Table:
    """`table` with the columns of `declared`, those of `texts` in every row. Raises SchemaMismatchError for other types."""
    if not any(field.name.lower() in texts for field in declared):
        return table
    columns = [
        _repeated(texts[field.name.lower()], field, table.num_rows, place)
        if field.name.lower() in texts else table.column(field.name)
        for field in declared
    ]  # fmt: skip
    return pa.table(columns, schema=declared)


def check_partitions(declared: pa.Schema, texts: dict[str, str | None], place: str) -> None:
    """Raises SchemaMismatchError if a text is no value of its declared column."""
    with_partitions(pa.table({field.name: pa.nulls(0, field.type) for field in declared}), declared, texts, place)


def _repeated(text: str | None, field: pa.Field, rows: int, place: str) -> pa.Array:
    if text is None and not field.nullable:
        raise NullValueError(
            f"{place}: column {field.name!r} is declared NOT NULL but its folder says NULL; {NULL_REMEDY}", field.name
        )
    try:
        value = pa.nulls(1, field.type) if text is None else _parsed(pa.chunked_array([[text]], pa.string()), field.type)
    except (ValueError, pa.ArrowNotImplementedError) as error:
        sentence = f"{place}: column {field.name!r} is declared {field.type} but its folder says {text!r}; declare it STRING"
        raise SchemaMismatchError(sentence, field.name) from error
    return pa.repeat(value[0], rows)


def _parsed(text: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_timestamp(kind):
        return parse_timestamps(text, kind)
    if pa.types.is_decimal(kind):
        return pa.chunked_array([decimals(text.combine_chunks(), kind)])
    return integers(text, kind) if pa.types.is_integer(kind) else text.cast(kind)


def _unescaped(text: str) -> str:
    """The text that Spark and Hive write as `text` in a folder's name: `%3A` is a colon. Delta-rs writes bytes of UTF-8 so."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)
