"""Columns of JSON lines by Python's parser, one value of a column after the other: for what Arrow's reader refuses.

That is a MAP as an object, and NaN and infinities as the texts that Spark writes. Values of another type than the declared
one are refused, as Arrow refuses them. Numbers with a fraction stay the texts of the file until Arrow makes values of a
column's type of them, so that both readers have the same ones.
"""

# pyarrow.compute makes its functions when it is imported, unseen by the type checker.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from itertools import accumulate, chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamtopology.jobs.connectors.sources.schema.conform import NULL_REMEDY, SchemaMismatchError
from streamtopology.jobs.connectors.sources.text.decimals import decimals
from streamtopology.jobs.connectors.sources.text.text_values import from_texts
from streamtopology.jobs.connectors.sources.text.time_patterns import TimePatterns

# Texts that are values of DOUBLE and FLOAT to Spark, too, as Arrow spells them.
NO_NUMBERS = {
    "NaN": "nan",
    "Infinity": "inf",
    "+Infinity": "inf",
    "INF": "inf",
    "+INF": "inf",
    "-Infinity": "-inf",
    "-INF": "-inf",
}

_WHOLE = re.compile("-?(0|[1-9][0-9]*)")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_MINUS_ZERO = re.compile(rb"-0[\s,}\]]")
_LONG = 4000
# Between the lines: an object over two of them does not make up for two objects in one.
_END_OF_LINE = b',"end of line",'
_BOOLEANS = {"true": True, "false": False}


class _Fraction(str):
    """The text of a number with a fraction or an exponent."""


class _MinusZero(int):
    """The number -0, which has a sign as a FLOAT or DOUBLE."""

    def __str__(self) -> str:
        return "-0"


class JsonLineError(SchemaMismatchError):
    """A text that is no JSON, or a value of another type than the declared one; `line` is 0 where it is unknown.

    `is_null`: a field that is declared NOT NULL holds NULL.
    """

    def __init__(
        self, message: str, column: str | None = None, line: int = 0, fitting: str = "", is_null: bool = False
    ) -> None:
        super().__init__(message, column, fitting)
        self.line = line
        self.is_null = is_null


class _NullField(ValueError):
    """A field that is declared NOT NULL holds NULL."""


def columns_of_lines(block: bytes, declared: pa.Schema, times: TimePatterns, number: int) -> list[pa.Array]:
    """The declared columns of a block of lines of which the first has the `number`. Raises JsonLineError."""
    lines = [line for line in block.split(b"\n") if line.strip()]
    try:
        found = parsed_json(b"[%s]" % _END_OF_LINE.join(lines))
        rows, ends = found[::2], found[1::2]
        if len(rows) != len(lines) or not all(type(row) is dict for row in rows) or any(type(end) is not str for end in ends):
            raise ValueError
    except (ValueError, RecursionError) as error:
        raise _first_fault(block, number) from error
    columns: list[pa.Array] = []
    for field in declared:
        values = [row.get(field.name) for row in rows]
        try:
            columns.append(_array(values, field.type, times))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise _first_misfit(values, field, block, times, number, str(error)) from error
    return columns


def parsed_json(text: bytes) -> Any:
    """The value of a JSON text, of which the numbers with a fraction are texts. Raises ValueError and RecursionError."""
    whole = _whole if _MINUS_ZERO.search(text) else None
    try:
        return json.loads(text, parse_int=whole, parse_float=_Fraction, parse_constant=_Fraction)
    except json.JSONDecodeError:
        raise
    except ValueError:  # Python makes no integers of more than 4,300 digits
        return json.loads(text, parse_int=_whole, parse_float=_Fraction, parse_constant=_Fraction)


def _whole(text: str) -> int | _Fraction:
    if text == "-0":
        return _MinusZero()
    return int(text) if len(text) < _LONG else _Fraction(text)


def _first_fault(block: bytes, number: int) -> JsonLineError:
    for place, line in enumerate(block.split(b"\n"), number):
        if not line.strip():
            continue
        begin = repr(line[:80].decode(errors="replace"))
        try:
            row = parsed_json(line)
        except json.JSONDecodeError as error:
            return JsonLineError(f"{error.msg} at character {error.colno}, in {begin}; {_ONE_OBJECT}", line=place)
        except RecursionError:
            return JsonLineError(f"its arrays and objects are nested too deeply, in {begin}; write them flatter", line=place)
        if type(row) is not dict:
            return JsonLineError(f"each line is one object, and this one begins {begin}; {REMEDY}", line=place)
    return JsonLineError(_ONE_OBJECT)


def _first_misfit(
    values: list[Any], field: pa.Field, block: bytes, times: TimePatterns, number: int, error: str
) -> JsonLineError:
    lines = [place for place, line in enumerate(block.split(b"\n"), number) if line.strip()]
    for place, value in zip(lines, values, strict=True):
        try:
            _array([value], field.type, times)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as reason:
            sentence, is_null = f"{_shown(value)} does not fit: {reason}", isinstance(reason, _NullField)
            return JsonLineError(sentence, field.name, place, _fitting(value), is_null)
    return JsonLineError(error, field.name)


def _fitting(value: Any) -> str:
    """A type that holds a value; "" for arrays and objects, whose parts may be what does not fit."""
    if isinstance(value, bool):
        return "BOOLEAN"
    if isinstance(value, _Fraction) or (isinstance(value, str) and value in NO_NUMBERS):
        return "DOUBLE"
    if isinstance(value, int):
        return "BIGINT" if -(2**63) <= value < 2**63 else "DECIMAL(38, 0)" if len(str(abs(value))) <= 38 else "DOUBLE"
    return "STRING" if isinstance(value, str) else ""


def _shown(value: Any) -> str:
    kinds = {str: "the string", dict: "the object", list: "the array", bool: "the boolean"}
    text = _spelt(value).encode("utf-8", "backslashreplace").decode()
    return f"{kinds.get(type(value), 'the number')} {text if len(text) < 80 else text[:80] + '...'}"


def _spelt(value: Any) -> str:
    """The JSON of a value, its numbers as they stand in the file."""
    if isinstance(value, _Fraction):
        return str(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_spelt, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(name)}: {_spelt(part)}' for name, part in value.items())}}}"
    return json.dumps(value, ensure_ascii=False)


def _array(values: Sequence[Any], kind: pa.DataType, times: TimePatterns) -> pa.Array:
    for is_kind, build in _BUILDERS:
        if is_kind(kind):
            return build(values, kind, times)
    raise ValueError(f"JSON has no {kind}")


def _booleans(values: Sequence[Any], kind: pa.DataType, _times: TimePatterns) -> pa.Array:
    return pa.array(_only(values, bool), kind)


def _integers(values: Sequence[Any], kind: pa.DataType, _times: TimePatterns) -> pa.Array:
    return pa.array(_only(values, int, _MinusZero), kind)


def _floats(values: Sequence[Any], kind: pa.DataType, _times: TimePatterns) -> pa.Array:
    known = [_Fraction(NO_NUMBERS[value]) if type(value) is str and value in NO_NUMBERS else value for value in values]
    texts = [None if v is None else NO_NUMBERS.get(text := str(v), text) for v in _only(known, int, _MinusZero, _Fraction)]
    return pa.array(texts, pa.string()).cast(kind)


def _decimals(values: Sequence[Any], kind: pa.DataType, _times: TimePatterns) -> pa.Array:
    return decimals(_only(values, int, _MinusZero, _Fraction, str), kind)


def _texts(values: Sequence[Any], kind: pa.DataType, times: TimePatterns) -> pa.Array:
    return from_texts(pa.array(_only(values, str), pa.string()), kind, times)


def _lists(values: Sequence[Any], kind: pa.DataType, times: TimePatterns) -> pa.Array:
    items = _array(list(chain.from_iterable(v for v in _only(values, list) if v)), kind.value_type, times)
    return pa.ListArray.from_arrays(_offsets(values), items, type=kind, mask=_missing(values))


def _structs(values: Sequence[Any], kind: pa.DataType, times: TimePatterns) -> pa.Array:
    fields = [kind.field(index) for index in range(kind.num_fields)]
    rows = [value or {} for value in _only(values, dict)]
    for field in fields:
        if not field.nullable and any(v is not None and v.get(field.name) is None for v in values):
            raise _NullField(f"its field {field.name!r} is declared NOT NULL; {NULL_REMEDY}")
    parts = [_array([row.get(field.name) for row in rows], field.type, times) for field in fields]
    return pa.StructArray.from_arrays(parts, fields=fields, mask=_missing(values))


def _maps(values: Sequence[Any], kind: pa.DataType, times: TimePatterns) -> pa.Array:
    maps = [value for value in _only(values, dict) if value]
    keys = _keys(list(chain.from_iterable(maps)), kind.key_type, times)
    if not pa.types.is_string(kind.key_type):
        _refuse_key_twice(keys, [place for place, value in enumerate(maps) for _ in value])
    items = _array(list(chain.from_iterable(value.values() for value in maps)), kind.item_type, times)
    return pa.MapArray.from_arrays(_offsets(values), keys, items, type=kind, mask=_missing(values))


def _keys(texts: list[str], kind: pa.DataType, times: TimePatterns) -> pa.Array:
    """The names of objects as values: numbers and booleans are spelt as they are as values of JSON, without the quotes."""
    if pa.types.is_boolean(kind):
        return _array([_BOOLEANS.get(text, text) for text in texts], kind, times)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _array([_number(text) for text in texts], kind, times)
    return _array(texts, kind, times)


def _number(text: str) -> str | int:
    if _WHOLE.fullmatch(text):
        return int(text)
    return _Fraction(text) if _NUMBER.fullmatch(text) else text


def _refuse_key_twice(keys: pa.Array, places: list[int]) -> None:
    """Raise ValueError for two names of an object that are one key, such as 1.0 and 1.00."""
    pairs = pa.table({"place": places, "key": keys}).group_by(["place", "key"]).aggregate([([], "count_all")])
    if pairs.num_rows < len(keys):
        key = pairs.filter(pc.greater(pairs.column("count_all"), 1)).column("key")[0]
        raise ValueError(f"it has the key {key} twice")


def _only(values: Sequence[Any], *kinds: type) -> Sequence[Any]:
    found = set(map(type, values)) - {type(None), *kinds}
    if found:
        raise TypeError(f"found {' and '.join(sorted(_NAMES.get(kind, kind.__name__) for kind in found))}")
    return values


def _offsets(values: Sequence[Any]) -> pa.Array:
    return pa.array([0, *accumulate(len(value) if value else 0 for value in values)], pa.int32())


def _missing(values: Sequence[Any]) -> pa.Array:
    return pa.array([value is None for value in values], pa.bool_())


_NAMES = {
    str: "string",
    bool: "boolean",
    int: "number",
    _MinusZero: "number",
    _Fraction: "number with a fraction",
    list: "array",
    dict: "object",
}
REMEDY = "write an object a line (jq -c '.[]' of an array, jq -c . of objects over several lines)"
_ONE_OBJECT = f"each line is one object; {REMEDY}"
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
