"""The declared columns of a source, as operators can use them: plain names, decimals as floats, texts of values as values.

A column of texts that are JSON objects gives way to their fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from streamtopology.jobs.columnar.expressions import quoted
from streamtopology.jobs.connectors.sources.schema.conform import parse_timestamps
from streamtopology.jobs.scaffold.column_names import plain_names
from streamtopology.jobs.scaffold.json_text import JsonColumn, JsonField, json_column
from streamtopology.jobs.scaffold.sample import Option, Sample, joined
from streamtopology.jobs.scaffold.text_types import MICROSECONDS, are_times
from streamtopology.jobs.scaffold.written_values import written


def sampled(
    format_: str,
    title: str,
    rows: pa.Table,
    options: Mapping[str, Option],
    declared: Iterable[tuple[str, str]],
    parts: int,
    rows_per_part: int,
    notes: Iterable[str],
) -> Sample:
    """The sample of a source whose declared columns have the values `rows`: plain names, plain types."""
    names = plain_names(rows.column_names)
    columns: dict[str, pa.ChunkedArray] = {}
    expressions: dict[str, str] = {}
    remarks: dict[str, str] = {}
    hints: list[str] = []
    taken = {plain.lower() for plain in names.values()}
    for name, plain in names.items():
        found = _objects(name, rows.column(name))
        if found is not None:
            fields = _named(found, plain, taken)
            columns |= {label: one.values for label, one in fields.items()}
            expressions |= {label: f"{one.sql} AS {label}" for label, one in fields.items()}
            hints += _json_hints(name, found, list(fields))
            continue
        usable = _usable(name, rows.column(name))
        if usable is None:
            continue
        columns[plain] = usable.values
        if usable.sql or plain != name:
            expressions[plain] = f"{usable.sql or quoted(name)} AS {plain}"
        if usable.remark:
            remarks[plain] = f"{plain}: {usable.remark}"
        if usable.hint:
            hints.append(usable.hint)
    return Sample(
        format_,
        title,
        pa.table(columns),
        options,
        tuple(declared),
        expressions,
        parts=parts,
        rows_per_part=rows_per_part,
        notes=(*notes, *hints),
        remarks=remarks,
    )


def _objects(name: str, column: pa.ChunkedArray) -> JsonColumn | None:
    """The objects of a column: of a struct, or of texts that are JSON; None if it has none."""
    if pa.types.is_string(column.type):
        return json_column(column, quoted(name))
    if not pa.types.is_struct(column.type):
        return None
    inner = [field.name for field in column.type]
    parts = zip(inner, column.combine_chunks().flatten(), strict=True)
    fields = [JsonField(one, f"{quoted(name)}.{quoted(one)}", pa.chunked_array([values])) for one, values in parts]
    return JsonColumn(tuple(fields), 1, ())


def _named(found: JsonColumn, column: str, taken: set[str]) -> dict[str, JsonField]:
    """The fields under plain names, with that of their `column` where a name is `taken`; takes them."""
    named: dict[str, JsonField] = {}
    for field, plain in zip(found.fields, plain_names(one.name for one in found.fields).values(), strict=True):
        name = plain if plain.lower() not in taken else f"{column}_{plain}"
        while name.lower() in taken:
            name += "_"
        taken.add(name.lower())
        named[name] = field
    return named


def _json_hints(name: str, found: JsonColumn, fields: list[str]) -> list[str]:
    others = f"; {1 - found.share:.0%} of its texts are none, and read as NULL" if found.share < 1 else ""
    fields_text = f"column {name!r} holds JSON objects, whose fields are columns here: {joined(fields, most=20)}{others}"
    return [fields_text, *(f"{note} (column {name!r})" for note in found.notes)]


@dataclass(frozen=True)
class _Usable:
    """The values of a column for operators. sql: what makes them, empty if they are as declared.

    remark: what sql does. hint: what it could do for most of the values.
    """

    values: pa.ChunkedArray
    sql: str = ""
    remark: str = ""
    hint: str = ""


def _usable(name: str, column: pa.ChunkedArray) -> _Usable | None:
    """The column as operators can use it; None for nested ones."""
    if pa.types.is_decimal(column.type):
        return _decimal(name, column)
    if pa.types.is_string(column.type):
        return _text(name, column)
    return _Usable(column) if pa.types.is_primitive(column.type) or pa.types.is_boolean(column.type) else None


def _decimal(name: str, column: pa.ChunkedArray) -> _Usable:
    scale = column.type.scale
    units = f"{quoted(name)} * {10**scale}" if scale else quoted(name)
    remark = (
        f"DECIMAL({column.type.precision}, {scale}) as DOUBLE, so sums are rounded; exact are those of whole units, "
        f"CAST({units} AS BIGINT)"
    )
    return _Usable(column.cast(pa.float64()), f"CAST({quoted(name)} AS DOUBLE)", remark)


def _text(name: str, column: pa.ChunkedArray) -> _Usable:
    if are_times(column.drop_null()):
        return _Usable(parse_timestamps(column, MICROSECONDS), f"TRY_CAST({quoted(name)} AS TIMESTAMPTZ)")
    found = written(column)
    if found is None:
        return _Usable(column)
    sql = found.sql.format(quoted(name))
    if found.is_whole:
        return _Usable(found.values, sql, f"texts read as {found.what}; others become NULL")
    return _Usable(column, hint=f"column {name!r}: {found.share:.0%} of the texts are {found.what}: {sql} reads these")
