"""The formats of sinks: the types that they write, and the values of them that they can hold."""

# pyarrow.compute makes its functions when it is imported, unseen by the type checker.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from streamtopology.jobs.columnar.layouts import is_bytes, is_text
from streamtopology.jobs.columnar.map_entries import lists_of
from streamtopology.jobs.connectors.sinks.csv_rows import csv_rows
from streamtopology.jobs.connectors.sinks.delta import DeltaPlace
from streamtopology.jobs.connectors.sinks.folder import write_parquet
from streamtopology.jobs.connectors.sinks.iceberg import IcebergPlace
from streamtopology.jobs.connectors.sinks.json_rows import json_rows, map_names, slices
from streamtopology.jobs.connectors.sinks.messages import KEY, VALUE, message_columns
from streamtopology.jobs.connectors.sinks.partitions import check_folders, partition_columns, refused_partitions
from streamtopology.jobs.connectors.sinks.tables import TablePlace, refusals
from streamtopology.jobs.connectors.sinks.takes import (
    LISTS,
    PLAIN,
    Takes,
    UnwritableValue,
    check_range,
    check_times,
    names_twice,
    twice_in_structs,
)

if TYPE_CHECKING:
    from streamtopology import topology

# `message.max.bytes` of librdkafka when the sink does not set it; brokers take a little more.
MOST_MESSAGE_BYTES = 1_000_000
# Characters of a number or time as JSON, at most.
_LONGEST_NUMBER = 100

# Types that a DataFrame can be made of.
_SPARKS: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_null, pa.types.is_boolean, pa.types.is_signed_integer, pa.types.is_float32, pa.types.is_float64,
    pa.types.is_decimal, pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary,
    pa.types.is_fixed_size_binary, pa.types.is_date32, pa.types.is_time64, pa.types.is_timestamp, pa.types.is_duration,
    pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list, pa.types.is_map, pa.types.is_struct,
)  # fmt: skip
_SPARKS_DIGITS = 38
_WITH_LENGTH = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
_CAST = "cast it in a map, or write it to another format"


def _is_plain(kind: pa.DataType) -> bool:
    return any(is_of(kind) for is_of in PLAIN)


def _is_list(kind: pa.DataType) -> bool:
    return any(is_of(kind) for is_of in LISTS)


def _is_made_of_parts(kind: pa.DataType) -> bool:
    """True for types that can be written if what they are made of can."""
    return _is_list(kind) or pa.types.is_struct(kind) or pa.types.is_map(kind) or isinstance(kind, pa.BaseExtensionType)


def _parquet_refuses(kind: pa.DataType) -> str | None:
    if pa.types.is_decimal(kind) and not 0 <= kind.scale <= kind.precision:
        return f"parquet has decimals with scales from 0 to their precision; {_CAST}"
    if pa.types.is_struct(kind) and kind.num_fields == 0:
        return "parquet has no struct without fields; leave it out, or give it one"
    if pa.types.is_fixed_size_list(kind) and kind.list_size == 0:
        return "parquet has no lists of the fixed size 0; leave it out"
    if pa.types.is_fixed_size_binary(kind) and kind.byte_width == 0:
        return "parquet has no bytes of the fixed size 0; leave it out"
    if pa.types.is_dictionary(kind):
        return None
    if twice := twice_in_structs(kind):
        return f"{twice}; rename one"
    return None if _is_plain(kind) or _is_made_of_parts(kind) else f"parquet has no such type; {_CAST}"


def _parquet_columns(schema: pa.Schema) -> Iterator[str]:
    if not len(schema):
        yield "cannot write rows without any column: a parquet file would lose their number; emit a column"
    yield from _twice(schema)


def _check_parquet(column: pa.Array, where: str) -> None:
    """Seconds become milliseconds in parquet, and date64 becomes date32."""
    if pa.types.is_timestamp(column.type) and column.type.unit == "s":
        check_range(column, (2**63 - 1) // 1000, where)
    elif pa.types.is_date64(column.type):
        check_range(column, (2**31 - 1) * 86_400_000, where)


def _encode_parquet(rows: pa.RecordBatch) -> None:
    write_parquet(pa.Table.from_batches([rows]), pa.BufferOutputStream())


def _encode_json(rows: pa.RecordBatch) -> None:
    for part in slices(rows):
        json_rows(part)


def _json_refuses(kind: pa.DataType) -> str | None:
    if pa.types.is_dictionary(kind):
        return None
    if twice := twice_in_structs(kind):
        return f"{twice}, of which a JSON object would keep one; rename one"
    if pa.types.is_map(kind) and not _is_name(kind.key_type):
        return f"names of a JSON object are no {kind.key_type}; {_CAST}"
    return None if _is_plain(kind) or _is_made_of_parts(kind) else f"there is no JSON for it; {_CAST}"


def _csv_refuses(kind: pa.DataType) -> str | None:
    if is_bytes(kind) or _is_made_of_parts(kind) or not (_is_plain(kind) or pa.types.is_dictionary(kind)):
        return f"there is no csv for it; {_CAST}"
    return None


def _encode_csv(rows: pa.RecordBatch) -> None:
    for part in slices(rows):
        csv_rows(part)


def _csv_columns(schema: pa.Schema) -> Iterator[str]:
    if not len(schema):
        yield "cannot write rows without any column: a csv file would lose their number; emit a column"
    yield from _twice(schema)


def _is_name(kind: pa.DataType) -> bool:
    """True for the types of keys that names of an object can stand for."""
    if pa.types.is_dictionary(kind):
        return _is_name(kind.value_type)
    return _is_name(kind.storage_type) if isinstance(kind, pa.BaseExtensionType) else _is_plain(kind)


def _check_json(column: pa.Array, where: str) -> None:
    check_times(column, where)
    if pa.types.is_map(column.type):
        check_times(column.keys, where)
        _refuse_name_twice(column, where)


def _refuse_name_twice(column: pa.MapArray, where: str) -> None:
    """Raise UnwritableValue for a map with a key twice: readers keep one of its values."""
    lists = lists_of(column, map_names(column))
    pairs = pa.table({"row": pc.list_parent_indices(lists), "name": lists.flatten()})
    counted = pairs.group_by(["row", "name"]).aggregate([([], "count_all")])
    if counted.num_rows < pairs.num_rows:
        name = counted.filter(pc.greater(counted.column("count_all"), 1)).column("name")[0]
        raise UnwritableValue(f"{where}: a map has the key {name} twice, and a JSON object one value for it; emit it once")


def _twice(schema: pa.Schema) -> Iterator[str]:
    for name in names_twice(schema.names):
        yield f"cannot write two columns of the name {name!r}: readers find one of them, or none; rename one"


def _message_refuses(kind: pa.DataType) -> str | None:
    if pa.types.is_dictionary(kind) or isinstance(kind, pa.BaseExtensionType):
        return None
    return None if _is_plain(kind) else "a message's key and value are bytes, text, or one number or time; make text of it"


def _message_columns(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field for field in schema if field.name in (KEY, VALUE)])


def _encode_messages(rows: pa.RecordBatch) -> None:
    for part in slices(rows):
        message_columns(part)


def _check_size(rows: pa.RecordBatch, most: int, where: str) -> None:
    """Raise UnwritableValue for a message of more than `most` bytes."""
    if _longest_possible(rows) < most:
        return
    for part in slices(rows):
        lengths = [pc.fill_null(pc.binary_length(column), 0) for column in message_columns(part)]
        largest = pc.max(pc.add(*lengths)).as_py() or 0
        if largest > most:
            raise UnwritableValue(
                f"{where} cannot send a message of {largest:,} bytes, as at most {most:,} are allowed: emit shorter rows, or "
                "raise kafka.message.max.bytes of the sink and max.message.bytes of the topic"
            )


def _longest_possible(rows: pa.RecordBatch) -> float:
    """Bytes that no message of `rows` exceeds, found without writing any: JSON has six for a character at most."""
    longest = 0.0
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        values = column.dictionary if isinstance(column, pa.DictionaryArray) else column
        if pa.types.is_decimal(values.type) or pa.types.is_primitive(values.type):
            longest += 6 * len(name) + _LONGEST_NUMBER
        elif any(has_length(values.type) for has_length in _WITH_LENGTH):
            longest += 6 * len(name) + 6 * (pc.max(pc.binary_length(values)).as_py() or 0)
        else:
            return math.inf
    return longest


PARQUET = Takes(_parquet_refuses, _encode_parquet, _parquet_columns, _check_parquet)
JSON = Takes(_json_refuses, _encode_json, _twice, _check_json)
CSV = Takes(_csv_refuses, _encode_csv, _csv_columns, check_times)
# Of the console, which prints what it cannot spell as its type, and of memory.
ANYTHING = Takes(lambda kind: None, lambda rows: None, is_checked=lambda kind: False)


def _in_folders(takes: Takes, sink: topology.Sink) -> Takes:
    """What files of a format take, if the option `partitionBy` divides them."""
    by = partition_columns(sink)
    if not by:
        return takes

    def columns(schema: pa.Schema) -> Iterator[str]:
        yield from takes.columns(schema)
        yield from refused_partitions(schema, by)

    return replace(takes, columns=columns, prove=lambda rows, where: check_folders(rows, by, where))


def kafka(sink: topology.Sink, schema: pa.Schema) -> Takes:
    """The rows that a Kafka sink takes: those with a `value` are messages, all others become JSON."""
    most = _message_max_bytes(sink.options)

    def prove(rows: pa.RecordBatch, where: str) -> None:
        _check_size(rows, most, where)

    if VALUE not in schema.names:
        return Takes(_json_refuses, _encode_json, _twice, _check_json, prove)
    return Takes(
        _message_refuses,
        _encode_messages,
        _columns_of_messages,
        check_times,
        prove,
        _message_columns,
        _is_no_text,
    )


def _is_no_text(kind: pa.DataType) -> bool:
    """False for text, which is sent as it is, in whatever encoding."""
    return not is_text(kind)


def _columns_of_messages(schema: pa.Schema) -> Iterator[str]:
    for name in names_twice(schema.names):
        if name in (KEY, VALUE):
            yield f"cannot write two columns of the name {name!r}: a message has one; rename one"


def _message_max_bytes(options: Mapping[str, str]) -> int:
    given = str(options.get("kafka.message.max.bytes", MOST_MESSAGE_BYTES))
    return int(given) if given.isdecimal() else MOST_MESSAGE_BYTES  # librdkafka refuses anything else


def _function(sink: topology.Sink, schema: pa.Schema) -> Takes:
    """The rows that a function takes: all as Arrow, those of Spark's types as a DataFrame."""
    return ANYTHING if sink.options.get("frame") == "arrow" else Takes(_function_refuses, lambda rows: None, _twice)


def _spark(sink: topology.Sink, schema: pa.Schema) -> Takes:
    """The rows that a writer of Spark gets, as a DataFrame. What the writer does not have, it refuses at the first batch."""
    by = partition_columns(sink)

    def columns(schema: pa.Schema) -> Iterator[str]:
        yield from _twice(schema)
        yield from refused_partitions(schema, by)

    return Takes(_spark_refuses, lambda rows: None, columns)


def _function_refuses(kind: pa.DataType) -> str | None:
    why = _spark_refuses(kind)
    return why and why.replace(_CAST, "cast it in a map, or take the rows with `frame: arrow`")


def _spark_refuses(kind: pa.DataType) -> str | None:
    if pa.types.is_decimal(kind) and not 0 <= kind.scale <= kind.precision <= _SPARKS_DIGITS:
        return f"Spark has decimals of at most {_SPARKS_DIGITS} digits; {_CAST}"
    if twice := twice_in_structs(kind):
        return f"{twice}; rename one"
    return None if any(is_of(kind) for is_of in _SPARKS) else f"Spark has no such type; {_CAST}"


def _table(place_of: type[TablePlace[Any]], sink: topology.Sink) -> Takes:
    """The rows that a table takes, the one that is there if there is one."""
    return Takes(place_of.types.refuses, _encode_parquet, lambda schema: refusals(place_of, sink, schema))


def unread_columns(sink: topology.Sink, schema: pa.Schema) -> Iterator[str]:
    """Sentences on columns that can be written, and that readers may not find."""
    if sink.format == "kafka" and VALUE in schema.names:
        others = [name for name in schema.names if name not in (KEY, VALUE)]
        if others:
            yield (
                f"sends the columns key and value alone, not {', '.join(map(repr, others))}; put them into the value, or "
                "rename it to send each row as JSON"
            )
        return
    if sink.format in ("console", "memory", "function"):
        return
    folded: dict[str, str] = {}
    for name in dict.fromkeys(schema.names):
        if (other := folded.setdefault(name.casefold(), name)) != name:
            yield f"has the columns {other!r} and {name!r}, which Spark and DuckDB take for one; rename one"


TAKES: Mapping[str, Callable[[topology.Sink, pa.Schema], Takes]] = {
    "parquet": lambda sink, schema: _in_folders(PARQUET, sink),
    "json": lambda sink, schema: _in_folders(JSON, sink),
    "csv": lambda sink, schema: _in_folders(CSV, sink),
    "delta": lambda sink, schema: _table(DeltaPlace, sink),
    "iceberg": lambda sink, schema: _table(IcebergPlace, sink),
    "console": lambda sink, schema: ANYTHING,
    "memory": lambda sink, schema: ANYTHING,
    "function": _function,
    "spark": _spark,
    "kafka": kafka,
}
