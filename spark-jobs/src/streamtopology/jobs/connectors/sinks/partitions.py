"""Columns whose values are in the names of folders, as Spark lays out `partitionBy`: `day=2024-01-31/city=Paris/`.

Sources read such folders by `sources/files/partitions.py`.
"""

# pyarrow.compute makes its functions when it is imported, unseen by the type checker.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamtopology.jobs.columnar.dictionaries import decoded
from streamtopology.jobs.columnar.layouts import is_text
from streamtopology.jobs.connectors.sinks.takes import UnwritableValue
from streamtopology.jobs.connectors.sources.files.partitions import NULL

if TYPE_CHECKING:
    from streamtopology import topology

_OTHER_TYPES: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_date,
    pa.types.is_timestamp,
)  # fmt: skip
# Characters that Spark does not put into the name of a folder.
_ESCAPED = re.compile(r"[\x01-\x1f\"#%'*/:=?\\\x7f{\[\]^]")
# Bytes of a name in a file system, and of a whole key in a bucket but for its prefix and the file's own name.
_MOST_BYTES = 255
_MOST_KEY_BYTES = 700
_SHOWN = 60
_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def partition_columns(sink: topology.Sink) -> list[str]:
    """The columns of the option `partitionBy`."""
    return [name.strip() for name in sink.options.get("partitionBy", "").split(",") if name.strip()]


def refused_partitions(schema: pa.Schema, by: Sequence[str]) -> Iterator[str]:
    """Sentences on partitions that rows of `schema` cannot have."""
    for name in by:
        if name not in schema.names:
            yield f"cannot partition by {name!r}, which is no column; partitionBy can name {', '.join(schema.names)}"
        elif not _has_folders(schema.field(schema.names.index(name)).type):
            kind = schema.field(schema.names.index(name)).type
            yield f"cannot partition by column {name!r} of type {kind}; name one of numbers, texts or times"
    if len(schema) and {*schema.names} <= {*by}:
        yield "cannot partition by all columns: the files would have none; leave one out of partitionBy"


def check_folders(rows: pa.RecordBatch, by: Sequence[str], where: str) -> None:
    """Raise UnwritableValue for values that no folder can be named by."""
    for folder in pc.unique(_folders(rows, by, where)).to_pylist():
        path = folder.encode()
        if b"\0" in path:
            raise UnwritableValue(f"{where} cannot partition by a text with a NUL, which no folder's name has: {folder!r}")
        size = max(map(len, path.split(b"/")))
        if size > _MOST_BYTES or len(path) > _MOST_KEY_BYTES:
            shown = folder if len(folder) <= _SHOWN else f"{folder[:_SHOWN]}..."
            raise UnwritableValue(
                f"{where} cannot partition by values of {len(path):,} bytes, {shown!r}: the name of a folder has at most "
                f"{_MOST_BYTES}, and all together {_MOST_KEY_BYTES}; partition by a shorter column"
            )


def divided(rows: pa.Table, by: Sequence[str]) -> dict[str, pa.Table]:
    """Folder -> its rows, without the columns of the folder's name, in the order that they have in `rows`."""
    encoded = pa.chunked_array([_folders(batch, by, "") for batch in rows.to_batches()], pa.large_string()).dictionary_encode()
    codes = np.concatenate([chunk.indices.to_numpy() for chunk in encoded.chunks])
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes))
    kept = rows.drop_columns(list(by))
    folders = encoded.chunk(0).dictionary.to_pylist()
    return {folder: kept.take(order[start:end]) for folder, start, end in zip(folders, [0, *ends], ends, strict=False)}


def is_folder_of(path: str, by: Sequence[str]) -> bool:
    """True for the path of a folder that rows by these columns have."""
    names = PurePosixPath(path).parts
    return len(names) == len(by) and all(name.startswith(_before_value(column)) for name, column in zip(names, by, strict=True))


def folder_patterns(by: Sequence[str]) -> list[str]:
    """The patterns of the folders, one in the other, that rows by these columns have."""
    return [f"{_before_value(column)}*" for column in by]


def _has_folders(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _has_folders(kind.value_type)
    return is_text(kind) or any(is_of(kind) for is_of in _OTHER_TYPES)


def _folders(rows: pa.RecordBatch, by: Sequence[str], where: str) -> pa.Array:
    """The folder of each row."""
    levels = [_names(rows.column(rows.schema.names.index(column)), column, where) for column in by]
    return pc.binary_join_element_wise(*levels, pa.scalar("/", pa.large_string()))


def _names(column: pa.Array, name: str, where: str) -> pa.Array:
    try:
        encoded = _plain(column).dictionary_encode(null_encoding="encode")
        texts = _texts(encoded.dictionary)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise UnwritableValue(f"{where} cannot partition by column {name!r}: {error}") from error
    folders = [_before_value(name) + (_escaped(text) if text else NULL) for text in texts]
    return pa.array(folders, pa.large_string()).take(encoded.indices)


def _plain(column: pa.Array) -> pa.Array:
    """The column in a type that has a dictionary in Arrow, with the same texts."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _plain(decoded(column))
    if is_text(kind):
        return column.cast(pa.large_string())
    if pa.types.is_date64(kind):
        return column.cast(pa.date32())
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return column.cast(pa.timestamp(kind.unit, "UTC")).cast(pa.timestamp(kind.unit))
    return column.cast(pa.float32()) if pa.types.is_float16(kind) else column


def _texts(values: pa.Array) -> list[str | None]:
    """Plain values as Spark casts them to texts, times in UTC."""
    if pa.types.is_decimal(values.type):
        return [None if value is None else f"{value:f}" for value in values.to_pylist()]
    texts = values.cast(pa.large_string()).to_pylist()
    if pa.types.is_timestamp(values.type):
        return [text and (text.rstrip("0").rstrip(".") if "." in text else text) for text in texts]
    if pa.types.is_floating(values.type):
        return [_NOT_FINITE.get(text, text) for text in texts]
    return texts


def _before_value(column: str) -> str:
    return f"{_escaped(column)}="


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)
