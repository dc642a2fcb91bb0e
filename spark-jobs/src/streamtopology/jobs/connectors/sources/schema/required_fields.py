"""Fields of structs that are declared NOT NULL: they hold a value in each struct that is not NULL itself.

Arrow's cast counts the NULLs of the structs that are NULL, too. So columns are cast to types without NOT NULL first.
"""

from __future__ import annotations

import pyarrow as pa

from streamtopology.jobs.columnar.map_entries import lists_of


def null_field(values: pa.Array, declared: pa.DataType) -> str | None:
    """The path of a field that is declared NOT NULL and holds NULL, in a struct of `values` that is not NULL itself."""
    if pa.types.is_null(values.type) or not _has_required(declared):
        return None
    if pa.types.is_list(declared):
        return null_field(values.flatten(), declared.value_type)
    if pa.types.is_map(declared):
        parts = ((values.keys, declared.key_type), (values.items, declared.item_type))
        return next(filter(None, (null_field(lists_of(values, part).flatten(), kind) for part, kind in parts)), None)
    present = values.drop_null()
    for field in map(declared.field, range(declared.num_fields)):
        part = present.field(field.name) if present.type.get_field_index(field.name) >= 0 else pa.nulls(len(present))
        if not field.nullable and part.null_count:
            return str(field.name)
        if below := null_field(part, field.type):
            return f"{field.name}.{below}"
    return None


def _has_required(kind: pa.DataType) -> bool:
    """True if a struct in it has a field that is declared NOT NULL."""
    fields = [kind.field(index) for index in range(kind.num_fields)]
    return any((pa.types.is_struct(kind) and not field.nullable) or _has_required(field.type) for field in fields)


def all_nullable(kind: pa.DataType) -> pa.DataType:
    """The type without NOT NULL."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, all_nullable(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(all_nullable(kind.value_type)))
    return pa.map_(kind.key_type, all_nullable(kind.item_type)) if pa.types.is_map(kind) else kind


def declared_required(column: pa.ChunkedArray, declared: pa.DataType) -> pa.ChunkedArray:
    """A column of the type `all_nullable(declared)` as one of `declared`; `null_field` has found no NULL."""
    return pa.chunked_array([_required(chunk, declared) for chunk in column.chunks], declared)


def _required(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if values.type == kind:
        return values
    if pa.types.is_struct(kind):
        parts = [_required(values.field(index), field.type) for index, field in enumerate(kind)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=values.is_null())
    if pa.types.is_map(kind):
        parts = [_required(values.keys, kind.key_type), _required(values.items, kind.item_type)]
        held = pa.StructArray.from_arrays(parts, fields=[kind.key_field, kind.item_field])
    else:
        held = _required(values.values, kind.value_type)
    return pa.Array.from_buffers(kind, len(values), values.buffers()[:2], offset=values.offset, children=[held])
