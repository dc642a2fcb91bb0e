"""The types and columns that tables of Delta and Iceberg have, and how rows differ from a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from streamtopology.jobs.columnar.dictionaries import decoded_type
from streamtopology.jobs.connectors.sinks.takes import names_twice, twice_in_structs

_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
_PLAIN: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_boolean, pa.types.is_signed_integer, pa.types.is_float32, pa.types.is_float64, pa.types.is_date32,
)  # fmt: skip
# Not views: Arrow's cast of them to lists is wrong.
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
_UNIT = "us"
_CAST = "cast it in a map, or write it to another format"


@dataclass(frozen=True)
class TableTypes:
    """What tables of one format have. `not_in_names`: characters. `smallest_bits`: of integers, others become wider."""

    format: str
    not_in_names: frozenset[str] = frozenset()
    smallest_bits: int = 8
    has_times_of_day: bool = False

    def refuses(self, kind: pa.DataType) -> str | None:
        """The reason why a table has no column of a type, whatever it is made of; None if it has."""
        if pa.types.is_dictionary(kind):
            return None
        if pa.types.is_timestamp(kind) or (self.has_times_of_day and pa.types.is_time(kind)):
            return None if kind.unit == _UNIT else f"{self.format} has times in microseconds alone; {_CAST}"
        if pa.types.is_decimal(kind):
            fits = pa.types.is_decimal128(kind) and 0 <= kind.scale <= kind.precision
            return None if fits else f"{self.format} has decimal128 alone, with scales from 0 on; {_CAST}"
        if pa.types.is_struct(kind) and kind.num_fields == 0:
            return f"{self.format} has no struct without fields; leave it out, or give it one"
        if twice := twice_in_structs(kind):
            return f"{twice}; rename one"
        made_of_parts = (*_LISTS, pa.types.is_struct, pa.types.is_map)
        has = any(is_of(kind) for is_of in (*_PLAIN, *_TEXTS, *_BYTES, *made_of_parts))
        return None if has else f"{self.format} has no such type; {_CAST}"

    def columns(self, schema: pa.Schema) -> Iterator[str]:
        """Sentences on columns that no table can have."""
        for name in names_twice(schema.names):
            yield f"cannot write two columns of the name {name!r}; rename one"
        for name in schema.names:
            if found := sorted(self.not_in_names & {*name}):
                yield f"cannot write column {name!r}: names of {self.format} have no {found[0]!r}; rename it"

    def stored(self, kind: pa.DataType) -> pa.DataType:
        """The type that a table has for values of `kind`, which it does not refuse."""
        kind = decoded_type(kind)
        if pa.types.is_struct(kind):
            return pa.struct([pa.field(field.name, self.stored(field.type)) for field in kind])
        if pa.types.is_map(kind):
            return pa.map_(self.stored(kind.key_type), self.stored(kind.item_type))
        if any(is_list(kind) for is_list in _LISTS):
            return pa.list_(self.stored(kind.value_type))
        if pa.types.is_timestamp(kind):
            return pa.timestamp(_UNIT, None if kind.tz is None else "UTC")
        if any(is_of(kind) for is_of in _TEXTS):
            return pa.string()
        if pa.types.is_signed_integer(kind) and kind.bit_width < self.smallest_bits:
            return pa.int32()
        return pa.binary() if any(is_of(kind) for is_of in _BYTES) else kind

    def stored_schema(self, schema: pa.Schema) -> pa.Schema:
        """The columns of a table for rows of `schema`. All may be NULL."""
        return pa.schema([pa.field(field.name, self.stored(field.type)) for field in schema])

    def differences(self, table: pa.Schema, rows: pa.Schema) -> Iterator[str]:
        """Sentences on columns for which rows do not fit a table. A column that rows do not have may be NULL there."""
        for field in rows:
            if field.name not in table.names:
                yield (
                    f"column {field.name!r} of type {self.stored(field.type)} is not in the table, which has "
                    f"{', '.join(table.names)}; add it there, or do not emit it"
                )
                continue
            there = table.field(field.name)
            kind, wanted = self.stored(field.type), self.stored(there.type)
            if wanted != kind:
                yield f"column {field.name!r} is {wanted} in the table, and {kind} in the rows; {_CAST}"
            elif field.nullable and not there.nullable:
                yield f"column {field.name!r} is NOT NULL in the table, and may be NULL in the rows; drop NOT NULL there"
        for there in table:
            if there.name not in rows.names and not there.nullable:
                yield (f"column {there.name!r} is NOT NULL in the table, and not in the rows; drop NOT NULL there, or emit it")


# Delta has no such names unless a table maps them, which delta-rs does not write.
DELTA = TableTypes("Delta", not_in_names=frozenset(" ,;{}()\n\t="))
ICEBERG = TableTypes("Iceberg", smallest_bits=32, has_times_of_day=True)


def fitted(rows: pa.Table, wanted: pa.Schema) -> pa.Table:
    """Rows with the columns of a table, from which they do not differ; what they do not have is NULL."""
    absent = pa.nulls(rows.num_rows)
    columns = [rows[name] if name in rows.column_names else absent for name in wanted.names]
    return pa.table([column.cast(kind) for column, kind in zip(columns, wanted.types, strict=True)], wanted)
