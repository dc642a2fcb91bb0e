"""The types in which the keys of an operator's inputs meet.

Each input may have its key under another name and in another type. Equal keys meet only in one type, so key columns are cast
to the narrowest that holds all of them exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from streamtopology.jobs.columnar.key_widening import common_type
from streamtopology.jobs.connectors.sources.schema.spark_types import spark_type


@dataclass(frozen=True)
class Clash:
    """Key columns of two inputs whose types have none in common. alias: the later input."""

    alias: str
    sentence: str


@dataclass(frozen=True)
class Meeting:
    """The schemas of an operator's inputs by alias, their key columns in common types where there are such, and the clashes."""

    inputs: Mapping[str, pa.Schema]
    clashes: tuple[Clash, ...]


@dataclass(frozen=True)
class _KeyColumn:
    alias: str
    name: str
    type: pa.DataType


def meet(inputs: Mapping[str, pa.Schema], keys: Mapping[str, tuple[str, ...]]) -> Meeting:
    """Find the types in which keys of `inputs` meet. `keys`: the key columns by alias, as many for each.

    Columns that do not exist are passed over. Those that clash get the type of the first input's.
    """
    met, clashes = dict(inputs), list[Clash]()
    for names in zip(*keys.values(), strict=False):
        columns = [
            _KeyColumn(alias, name, inputs[alias].field(name).type)
            for alias, name in zip(keys, names, strict=True)
            if name in inputs[alias].names
        ]
        agreed, clashing = _agreed(columns)
        clashes += clashing
        for column in columns:
            met[column.alias] = _with_type(met[column.alias], column.name, agreed)
    return Meeting(met, tuple(clashes))


def casts(schema: pa.Schema, met: pa.Schema, key: tuple[str, ...]) -> tuple[tuple[str, pa.DataType], ...]:
    """The key columns of an input of `schema` that are cast to those of `met`, with their new types."""
    return tuple((name, met.field(name).type) for name in key if met.field(name).type != schema.field(name).type)


def cast_columns(batch: pa.RecordBatch, casts: tuple[tuple[str, pa.DataType], ...]) -> pa.RecordBatch:
    """`batch` with some columns in other types, which hold all of their values."""
    for name, type_ in casts:
        place = batch.schema.get_field_index(name)
        batch = batch.set_column(place, batch.schema.field(place).with_type(type_), batch.column(place).cast(type_))
    return batch


def _agreed(columns: list[_KeyColumn]) -> tuple[pa.DataType, list[Clash]]:
    """The common type of key columns that meet, and those columns that it leaves out."""
    agreed, clashes = pa.null(), list[Clash]()
    for column in columns:
        wider = common_type(agreed, column.type)
        if wider is None:
            clashes.append(Clash(column.alias, _sentence(columns[0], column)))
        else:
            agreed = wider
    return agreed, clashes


def _sentence(one: _KeyColumn, other: _KeyColumn) -> str:
    names = [spark_type(column.type) or str(column.type) for column in (one, other)]
    if names[0] == names[1]:
        names = [str(one.type), str(other.type)]
    return (
        f"key column {one.name!r} of input {one.alias!r} is {names[0]}, {other.name!r} of input {other.alias!r} is {names[1]}: "
        "no type holds the values of both exactly, so equal keys would not meet; cast one of them in the select of its source, "
        "or in a map"
    )


def _with_type(schema: pa.Schema, name: str, type_: pa.DataType) -> pa.Schema:
    place = schema.get_field_index(name)
    field = schema.field(place)
    is_dictionary_of_it = pa.types.is_dictionary(field.type) and field.type.value_type == type_
    return schema if field.type == type_ or is_dictionary_of_it else schema.set(place, field.with_type(type_))
