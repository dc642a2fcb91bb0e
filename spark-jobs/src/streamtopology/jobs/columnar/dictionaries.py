"""Columns without their dictionaries: the values themselves."""

from __future__ import annotations

import pyarrow as pa


def has_dictionary(kind: pa.DataType) -> bool:
    """True if a type is a dictionary or is made of one."""
    if isinstance(kind, pa.BaseExtensionType):
        return has_dictionary(kind.storage_type)
    nested = pa.types.is_nested(kind) and any(has_dictionary(kind.field(place).type) for place in range(kind.num_fields))
    return pa.types.is_dictionary(kind) or nested


def decoded(column: pa.Array) -> pa.Array:
    """The values of a column with a dictionary, of any type. Arrow decodes no views."""
    plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(column.type.value_type)
    if plain is None:
        return column.dictionary_decode()
    return pa.DictionaryArray.from_arrays(column.indices, column.dictionary.cast(plain)).dictionary_decode()


def decoded_type(kind: pa.DataType) -> pa.DataType:
    """The type without dictionaries, whose structs and lists may hold NULL: one that is NULL has NULL in all of its parts."""
    if pa.types.is_dictionary(kind):
        return decoded_type(kind.value_type)
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, decoded_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        key, item = (pa.field(field.name, decoded_type(field.type)) for field in (kind.key_field, kind.item_field))
        return pa.map_(key.with_nullable(False), item, keys_sorted=kind.keys_sorted)
    for is_list, made in ((pa.types.is_list, pa.list_), (pa.types.is_large_list, pa.large_list)):
        if is_list(kind):
            return made(pa.field(kind.value_field.name, decoded_type(kind.value_type)))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(pa.field(kind.value_field.name, decoded_type(kind.value_type)), kind.list_size)
    return kind


def decoded_rows(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows in the types that `decoded_type` gives."""
    fields = [field.with_type(decoded_type(field.type)) for field in rows.schema]
    columns = [_plain(column, field.type) for column, field in zip(rows.columns, fields, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, rows.schema.metadata))


def _plain(column: pa.Array, kind: pa.DataType) -> pa.Array:
    values = decoded(column) if pa.types.is_dictionary(column.type) else column
    return values if values.type.equals(kind) else values.cast(kind)
