"""Columns of JSON lines by Python's parser, one value of a column after the other: for what Arrow's reader refuses.

That is a MAP as an object, and NaN and infinities as the texts that Spark writes. Values of another type than the declared
one are refused, as Arrow refuses them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from itertools import accumulate, chain
from typing import Any

import pyarrow as pa

from streamtopology.jobs.connectors.sources.conform import SchemaMismatchError
from streamtopology.jobs.connectors.sources.text_values import from_texts
from streamtopology.jobs.connectors.sources.time_patterns import TimePatterns

_NO_NUMBERS = {
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "+Infinity": float("inf"),
    "INF": float("inf"),
    "+INF": float("inf"),
    "-Infinity": float("-inf"),
    "-INF": float("-inf"),
}
"""Texts that are values of DOUBLE and FLOAT to Spark, too."""


class JsonLineError(SchemaMismatchError):
    """A text that is no JSON, or a value of another type than the declared one; `line` is 0 where it is unknown."""

    def __init__(self, message: str, column: str | None = None, line: int = 0) -> None:
        super().__init__(message, column)
        self.line = line


def columns_of_lines(block: bytes, declared: pa.Schema, times: TimePatterns, number: int) -> list[pa.Array]:
    """The declared columns of a block of lines of which the first has the `number`. Raises JsonLineError."""
    lines = [line for line in block.split(b"\n") if line.strip()]
    try:
        rows = json.loads(b"[%s]" % b",".join(lines), parse_float=Decimal)
        if len(rows) != len(lines) or not all(type(row) is dict for row in rows):
            raise ValueError
    except ValueError as error:
        raise _first_fault(block, number) from error
    columns: list[pa.Array] = []
    for field in declared:
        values = [row.get(field.name) for row in rows]
        try:
            columns.append(_array(values, field.type, times))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise _first_misfit(values, field, block, times, number, str(error)) from error
    return columns


def _first_fault(block: bytes, number: int) -> JsonLineError:
    for place, line in enumerate(block.split(b"\n"), number):
        if not line.strip():
            continue
        begin = repr(line[:80].decode(errors="replace"))
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            return JsonLineError(f"{error.msg} at character {error.colno}, in {begin}; each line is one object", line=place)
        if type(row) is not dict:
            return JsonLineError(f"each line is one object, and this one begins {begin}", line=place)
    return JsonLineError("each line is one object")


def _first_misfit(
    values: list[Any], field: pa.Field, block: bytes, times: TimePatterns, number: int, error: str
) -> JsonLineError:
    lines = [place for place, line in enumerate(block.split(b"\n"), number) if line.strip()]
    for place, value in zip(lines, values, strict=True):
        try:
            _array([value], field.type, times)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as reason:
            return JsonLineError(f"{_shown(value)} does not fit: {reason}", field.name, place)
    return JsonLineError(error, field.name)


def _shown(value: Any) -> str:
    kinds = {str: "the string", dict: "the object", list: "the array", bool: "the boolean"}
    text = str(value) if isinstance(value, Decimal) else json.dumps(value, default=str, ensure_ascii=False)
    return f"{kinds.get(type(value), 'the number')} {text if len(text) < 80 else text[:80] + '...'}"


def _array(values: Sequence[Any], kind: pa.DataType, times: TimePatterns) -> pa.Array:
    for is_kind, build in _BUILDERS:
        if is_kind(kind):
            return build(values, kind, times)
    raise ValueError(f"JSON has no {kind}")


def _booleans(values: Sequence[Any], kind: pa.DataType, _times: TimePatterns) -> pa.Array:
    return pa.array(_only(values, bool), kind)


def _integers(values: Sequence[Any], kind: pa.DataType, _times: TimePatterns) -> pa.Array:
    return pa.array(_only(values, int), kind)


def _floats(values: Sequence[Any], kind: pa.DataType, _times: TimePatterns) -> pa.Array:
    known = [_NO_NUMBERS.get(value, value) if type(value) is str else value for value in values]
    return pa.array([None if v is None else float(v) for v in _only(known, int, Decimal, float)], pa.float64()).cast(kind)


def _decimals(values: Sequence[Any], kind: pa.DataType, _times: TimePatterns) -> pa.Array:
    return pa.array([None if v is None else Decimal(v) for v in _only(values, int, Decimal, str)], kind)


def _texts(values: Sequence[Any], kind: pa.DataType, times: TimePatterns) -> pa.Array:
    return from_texts(pa.array(_only(values, str), pa.string()), kind, times)


def _lists(values: Sequence[Any], kind: pa.DataType, times: TimePatterns) -> pa.Array:
    items = _array(list(chain.from_iterable(v for v in _only(values, list) if v)), kind.value_type, times)
    return pa.ListArray.from_arrays(_offsets(values), items, type=kind, mask=_missing(values))


def _structs(values: Sequence[Any], kind: pa.DataType, times: TimePatterns) -> pa.Array:
    fields = [kind.field(index) for index in range(kind.num_fields)]
    rows = [value or {} for value in _only(values, dict)]
    parts = [_array([row.get(field.name) for row in rows], field.type, times) for field in fields]
    return pa.StructArray.from_arrays(parts, fields=fields, mask=_missing(values))


def _maps(values: Sequence[Any], kind: pa.DataType, times: TimePatterns) -> pa.Array:
    maps = [value for value in _only(values, dict) if value]
    keys = from_texts(pa.array(list(chain.from_iterable(maps)), pa.string()), kind.key_type, times)
    items = _array(list(chain.from_iterable(value.values() for value in maps)), kind.item_type, times)
    return pa.MapArray.from_arrays(_offsets(values), keys, items, type=kind, mask=_missing(values))


def _only(values: Sequence[Any], *kinds: type) -> Sequence[Any]:
    found = set(map(type, values)) - {type(None), *kinds}
    if found:
        raise TypeError(f"found {' and '.join(sorted(_NAMES.get(kind, kind.__name__) for kind in found))}")
    return values


def _offsets(values: Sequence[Any]) -> pa.Array:
    return pa.array([0, *accumulate(len(value) if value else 0 for value in values)], pa.int32())


def _missing(values: Sequence[Any]) -> pa.Array:
    return pa.array([value is None for value in values], pa.bool_())


_NAMES = {str: "string", bool: "boolean", int: "number", Decimal: "number with a fraction", list: "array", dict: "object"}
_Builder = Callable[[Sequence[Any], pa.DataType, TimePatterns], pa.Array]
_BUILDERS: tuple[tuple[Callable[[pa.DataType], bool], _Builder], ...] = (
    (pa.types.is_boolean, _booleans),
    (pa.types.is_integer, _integers),
    (pa.types.is_floating, _floats),
    (pa.types.is_decimal, _decimals),
    (pa.types.is_string, _texts),
    (pa.types.is_timestamp, _texts),
    (pa.types.is_date, _texts),
    (pa.types.is_binary, _texts),
    (pa.types.is_list, _lists),
    (pa.types.is_struct, _structs),
    (pa.types.is_map, _maps),
)
