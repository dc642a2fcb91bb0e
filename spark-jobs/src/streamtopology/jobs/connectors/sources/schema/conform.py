"""Convert a file's columns to the declared types, without loss; anything else is an error."""

# pyarrow.compute makes its functions when it is imported, unseen by the type checker.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from streamtopology.jobs.columnar.layouts import is_list, is_text
from streamtopology.jobs.columnar.plain_types import plain, plain_type
from streamtopology.jobs.connectors.sources.descriptors import SourceError
from streamtopology.jobs.connectors.sources.schema.required_fields import all_nullable, declared_required, null_field
from streamtopology.jobs.connectors.sources.schema.spark_types import spark_type
from streamtopology.topology import did_you_mean

_INTEGER_BITS = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}
_UNSIGNED_BITS = {pa.uint8(): 8, pa.uint16(): 16, pa.uint32(): 32}
_UINT64_DIGITS = 20
_EXACT_IN_FLOAT = {pa.float16(): 11, pa.float32(): 24, pa.float64(): 53}
_ZEROS = {"ms": r"(\.\d{3})0+(\D|$)", "us": r"(\.\d{6})0+(\D|$)", "ns": r"(\.\d{9})0+(\D|$)", "s": r"()\.0+(\D|$)"}
NULL_REMEDY = "write a value, or declare it without NOT NULL"
_ZONE = r":\d\d(\.\d+)?\s*(Z|[+-]\d\d(:?\d\d)?)$"


class SchemaMismatchError(SourceError):
    """A file's column is not what the manifest declares; `column` is its declared name, where that is known.

    `fitting`: a type that its value fits, "" if that is unknown.
    """

    def __init__(self, message: str, column: str | None = None, fitting: str = "STRING") -> None:
        super().__init__(message)
        self.column = column
        self.fitting = fitting


class MissingColumnError(SchemaMismatchError):
    """A file lacks a column that the manifest declares; the message lists those that it has."""


class NullValueError(SchemaMismatchError):
    """A column or field that is declared NOT NULL holds NULL; the message says what to do."""


def conform(table: pa.Table, declared: pa.Schema, place: str) -> pa.Table:
    """`table` with exactly the columns of `declared`, in that order.

    Widened without loss: integers, float to double, decimals, timestamp units (a timestamp without a zone counts as
    UTC), large and dictionary-encoded strings, strings to bytes, and other layouts (`plain_types`). Fields of structs are
    found by name, as columns are; one that is missing is NULL, as in Spark. Raises `SchemaMismatchError` that names
    `place`, column, found and declared type.
    """
    return pa.table([_column(table, field, place) for field in declared], schema=declared)


def _column(table: pa.Table, field: pa.Field, place: str) -> pa.ChunkedArray:
    if field.name not in table.column_names:
        raise MissingColumnError(
            f"{place}: column {field.name!r} is declared {field.type} but the file has no such column "
            f"(it has {', '.join(table.column_names)}{did_you_mean(field.name, table.column_names)})",
            field.name,
        )
    if len(table.schema.get_all_field_indices(field.name)) > 1:
        sentence = f"{place}: has several columns {field.name!r}; write the file with a name for each"
        raise SchemaMismatchError(sentence, field.name)
    column = table.column(field.name)
    if not field.nullable and column.null_count:
        count = f"{column.null_count:,} NULL{'' if column.null_count == 1 else 's'}"
        sentence = f"{place}: column {field.name!r} is declared NOT NULL but holds {count}; {NULL_REMEDY}"
        raise NullValueError(sentence, field.name)
    if column.type == field.type:
        return _checked_text(_checked_nulls(column, field, place), field, place)
    found = column.type
    if plain_type(found, field.type) != found:
        chunks = [plain(chunk, field.type) for chunk in column.chunks]
        column = pa.chunked_array(chunks, plain_type(found, field.type))
    if not widens(column.type, field.type):
        sentence = f"{place}: column {field.name!r} holds {found} but is declared {field.type}{_remedy(column.type)}"
        raise SchemaMismatchError(sentence, field.name)
    if pa.types.is_timestamp(column.type) and column.type.tz is None and field.type.tz is not None:
        column = pc.assume_timezone(column, "UTC")
    column = _checked_nulls(column, field, place)
    try:
        column = declared_required(column.cast(all_nullable(field.type)), field.type)
        return _checked_text(column, field, place)
    except pa.ArrowInvalid as error:
        unit = f"; write the file with times in '{field.type.unit}'" if pa.types.is_timestamp(field.type) else ""
        raise SchemaMismatchError(
            f"{place}: column {field.name!r} holds {column.type} that does not fit the declared {field.type}: {error}{unit}",
            field.name,
        ) from error


def _checked_nulls(column: pa.ChunkedArray, field: pa.Field, place: str) -> pa.ChunkedArray:
    """The column, if no field of a struct in it holds NULL that is declared NOT NULL."""
    name = next(filter(None, (null_field(chunk, field.type) for chunk in column.chunks)), None)
    if name is not None:
        sentence = f"{place}: column {field.name!r} has the field {name!r}, declared NOT NULL, which holds NULL; {NULL_REMEDY}"
        raise NullValueError(sentence, field.name)
    return column


def _checked_text(column: pa.ChunkedArray, field: pa.Field, place: str) -> pa.ChunkedArray:
    """The column, if it has no text that is none: a file may say of any bytes that they are UTF-8."""
    try:
        for chunk in column.chunks if _holds_text(field.type) else ():
            for texts in _texts_in(chunk):
                texts.validate(full=True)
    except pa.ArrowInvalid as error:
        remedy = "declare it BINARY" if not pa.types.is_nested(field.type) else "declare BINARY in place of its STRING"
        sentence = f"{place}: column {field.name!r} is declared {field.type} but holds bytes that are no UTF-8; {remedy}"
        raise SchemaMismatchError(sentence, field.name) from error
    return column


def check_texts(table: pa.Table, place: str) -> None:
    """Raises SchemaMismatchError for a column with bytes that are no UTF-8, of a table that keeps the types of its file."""
    for field, column in zip(table.schema, table.columns, strict=True):
        _checked_text(column, field, place)


def _holds_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _holds_text(kind.value_type)
    return is_text(kind) or any(_holds_text(kind.field(index).type) for index in range(kind.num_fields))


def _texts_in(values: pa.Array) -> Iterator[pa.Array]:
    """The arrays of texts in an array, at any depth."""
    kind = values.type
    if is_text(kind):
        yield values
    elif pa.types.is_dictionary(kind):
        yield from _texts_in(values.dictionary)
    elif pa.types.is_map(kind):
        yield from chain(_texts_in(values.keys), _texts_in(values.items))
    elif is_list(kind):
        yield from _texts_in(values.values)
    elif pa.types.is_struct(kind):
        for index in range(kind.num_fields):
            yield from _texts_in(values.field(index))


def _remedy(found: pa.DataType) -> str:
    name = spark_type(found)
    return "; write it as another type, such as a text" if name is None else f"; declare it {name}"


def widens(found: pa.DataType, declared: pa.DataType) -> bool:
    """True if every value of `found` is a value of `declared` (for timestamps: up to the declared unit)."""
    found = plain_type(found, declared)
    if found == declared or pa.types.is_null(found):
        return True
    if pa.types.is_dictionary(found):
        return widens(found.value_type, declared)
    if pa.types.is_string(found) or pa.types.is_large_string(found):
        return pa.types.is_string(declared) or pa.types.is_binary(declared)
    if pa.types.is_large_binary(found) or pa.types.is_fixed_size_binary(found):
        return pa.types.is_binary(declared)
    if pa.types.is_timestamp(found):
        return pa.types.is_timestamp(declared) and not (found.tz is not None and declared.tz is None)
    if pa.types.is_decimal(found):
        return pa.types.is_decimal(declared) and _decimal_widens(found, declared)
    if pa.types.is_list(found) or pa.types.is_large_list(found):
        return pa.types.is_list(declared) and widens(found.value_type, declared.value_type)
    if pa.types.is_struct(found):
        return pa.types.is_struct(declared) and _struct_widens(found, declared)
    if pa.types.is_map(found):
        return (
            pa.types.is_map(declared)
            and widens(found.key_type, declared.key_type)
            and widens(found.item_type, declared.item_type)
        )
    return _number_widens(found, declared)


def _number_widens(found: pa.DataType, declared: pa.DataType) -> bool:
    unsigned = found in _UNSIGNED_BITS
    bits = _UNSIGNED_BITS[found] + 1 if unsigned else _INTEGER_BITS.get(found)
    if found == pa.uint64():
        return pa.types.is_decimal(declared) and declared.precision - declared.scale >= _UINT64_DIGITS
    if bits is None:
        return found in _EXACT_IN_FLOAT and declared in _EXACT_IN_FLOAT and found.bit_width < declared.bit_width
    if declared in _EXACT_IN_FLOAT:
        return bits <= _EXACT_IN_FLOAT[declared]
    return bits <= _INTEGER_BITS.get(declared, 0)


def _decimal_widens(found: pa.DataType, declared: pa.DataType) -> bool:
    whole_digits_fit = found.precision - found.scale <= declared.precision - declared.scale
    return whole_digits_fit and found.scale <= declared.scale


def _struct_widens(found: pa.DataType, declared: pa.DataType) -> bool:
    """Fields are found by name. A missing one is NULL if it may be, and if no other has its name in another case."""
    names = [field.name for field in found]
    folded = {name.casefold() for name in names}
    return len(names) == len(set(names)) and all(
        widens(found.field(field.name).type, field.type)
        if field.name in names
        else field.nullable and field.name.casefold() not in folded
        for field in declared
    )


def parse_timestamps(texts: pa.ChunkedArray, declared: pa.DataType) -> pa.ChunkedArray:
    """ISO 8601 texts as timestamps, with or without a zone; those without count as UTC. Raises `pa.ArrowInvalid`.

    Further digits of a second than `declared` has may be zeros.
    """
    try:
        return _timestamps(texts, declared)
    except pa.ArrowInvalid:
        return _timestamps(pc.replace_substring_regex(texts, _ZEROS[declared.unit], r"\1\2"), declared)


def _timestamps(texts: pa.ChunkedArray, declared: pa.DataType) -> pa.ChunkedArray:
    naive_type = pa.timestamp(declared.unit)
    zoned = pc.match_substring_regex(texts, _ZONE)
    without_zone = pc.if_else(zoned, None, texts).cast(naive_type)
    with_zone = pc.if_else(zoned, texts, None).cast(pa.timestamp(declared.unit, tz="UTC"))
    in_utc = pc.coalesce(pc.assume_timezone(without_zone, "UTC"), with_zone)
    return in_utc if declared.tz is not None else in_utc.cast(naive_type)
