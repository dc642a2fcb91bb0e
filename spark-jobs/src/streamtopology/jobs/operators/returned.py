"""The check of an operator's rows against its declared `output`, before anything of the batch is committed.

Columns are matched by name. A type that differs is cast where every value keeps its meaning; all else is an error that
names class, column and finding: a sink that meets it after the commit could never go past it.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from numbers import Number
from typing import Any, cast

import numpy as np
import pyarrow as pa

from streamtopology.jobs.operators.base import OperatorError

_EXACT_IN_A_DOUBLE = 2.0**53
_NO_SUCH_VALUE = (pa.ArrowException, OverflowError, TypeError, ValueError)
_PLAIN: Mapping[pa.DataType, frozenset[type]] = {
    pa.int64(): frozenset({int, type(None)}),
    pa.int32(): frozenset({int, type(None)}),
    pa.timestamp("us"): frozenset({datetime.datetime, type(None)}),
    pa.timestamp("us", "UTC"): frozenset({datetime.datetime, type(None)}),
}
"""Types of values that Arrow converts exactly or refuses: no need to compare them one by one."""


class WrongOutput(OperatorError):
    """Rows of another shape than `output` declares: the class is at fault, whatever tuples it gets."""


class WrongValue(OperatorError):
    """A value that a column of `output` cannot hold: a tuple is at fault."""


def as_declared(returned: Any, declared: pa.Schema | None, name: str) -> list[pa.RecordBatch]:
    """The rows that an operator of class `name` returned, as batches of the schema `declared` (None: it returns none).

    Rows of that schema are passed on as they are, at no cost per tuple. Raises WrongOutput, WrongValue.
    """
    if returned is None:
        return []
    if not isinstance(returned, (pa.RecordBatch, pa.Table)):
        raise WrongOutput(f"{name} returns a {type(returned).__name__}; return a pa.RecordBatch or pa.Table, or None")
    batches = returned.to_batches() if isinstance(returned, pa.Table) else [returned]
    if declared is None:
        if returned.num_rows == 0:
            return []
        raise WrongOutput(
            f"{name} returns rows with {_named(returned.schema)}, but declares no `output`; set it to their schema"
        )
    if returned.schema.equals(declared):
        return batches
    _check_names(returned.schema, declared, name)
    return [_fitted(batch, declared, name) for batch in batches]


def from_dicts(emitted: Sequence[dict[str, Any]], schema: pa.Schema, name: str) -> pa.RecordBatch:
    """The dicts that an operator of class `name` emits, as rows. Raises WrongValue, which names the column and its value."""
    columns = [_from_values([row[field.name] for row in emitted], field, name) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _from_values(values: Sequence[Any], field: pa.Field, name: str) -> pa.Array:
    try:
        column = pa.array(values, field.type)
    except _NO_SUCH_VALUE:
        for value in values:
            _check_value(value, field, name)
        raise
    if not _PLAIN.get(field.type, frozenset()).issuperset(map(type, values)) and _may_round(field.type):
        for value, kept in zip(values, column, strict=True):
            if not _is_kept(value, _as_python(kept)):
                raise WrongValue(f"{_emits(value, field, name)}; a part of it would be lost")
    return column


def _as_python(scalar: pa.Scalar) -> Any:
    """The scalar's value; the scalar itself if Python has no such value, as for the year 20000."""
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        return scalar


def _check_value(value: Any, field: pa.Field, name: str) -> None:
    try:
        pa.array([value], field.type)
    except _NO_SUCH_VALUE as error:
        raise WrongValue(f"{_emits(value, field, name)}: {error}") from error


def _emits(value: Any, field: pa.Field, name: str) -> str:
    what = f"{name} emits {value!r} of type {type(value).__name__} as {field.name!r}"
    return f"{what}, which its `output` declares as {field.type}"


def _may_round(kind: pa.DataType) -> bool:
    """True for types to which Arrow converts Python's values without a word when a part of them is lost."""
    if pa.types.is_nested(kind):
        return any(_may_round(kind.field(i).type) for i in range(kind.num_fields))
    return pa.types.is_integer(kind) or pa.types.is_temporal(kind)


def _is_kept(value: Any, kept: Any) -> bool:
    """True if `kept`, as Arrow holds it, is all of `value`."""
    if isinstance(value, Number):  # as a time it would be of a unit that nobody named
        return isinstance(kept, Number) and bool(value == kept or value != value)
    if isinstance(value, datetime.datetime):
        exact = kept if isinstance(kept, datetime.datetime) else None
        return value.time() == datetime.time() if exact is None else value.microsecond == exact.microsecond
    if isinstance(value, Mapping) and isinstance(kept, Mapping):
        return all(_is_kept(value.get(name), each) for name, each in cast("Mapping[str, Any]", kept).items())
    if isinstance(value, (list, tuple)) and isinstance(kept, list):
        return all(map(_is_kept, cast("Sequence[Any]", value), cast("list[Any]", kept)))
    return True


def _check_names(returned: pa.Schema, declared: pa.Schema, name: str) -> None:
    missing = [column for column in declared.names if column not in returned.names]
    surplus = [column for column in returned.names if column not in declared.names]
    twice = sorted({column for column in returned.names if returned.names.count(column) > 1})
    if not (missing or surplus or twice):
        return
    findings = [
        *([f"lack {_listed(missing)}"] if missing else []),
        *([f"have {_listed(surplus)}"] if surplus else []),
        *([f"have {_listed(twice)} twice"] if twice else []),
    ]
    raise WrongOutput(
        f"{name} returns rows that {' and '.join(findings)}; its `output` declares {_named(declared)}. Return those columns, "
        "or declare others"
    )


def _fitted(batch: pa.RecordBatch, declared: pa.Schema, name: str) -> pa.RecordBatch:
    columns = [_column(batch.column(field.name), field, name) for field in declared]
    return pa.RecordBatch.from_arrays(columns, schema=declared)


def _column(values: pa.Array, field: pa.Field, name: str) -> pa.Array:
    if values.type.equals(field.type):
        return values
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), field.type)
    found = f"{name} returns {field.name!r} as {values.type}, which its `output` declares as {field.type}"
    if not _may_become(values.type, field.type):
        raise WrongOutput(f"{found}; return that type, or declare the other")
    try:
        fitted = values.cast(field.type)
        lossless = _equal(fitted.cast(values.type), values) and not _beyond_exact(values, field.type)
    except pa.ArrowException as error:
        raise WrongValue(f"{found}, and not every value fits: {error}") from error
    if not lossless:
        raise WrongValue(f"{found}, and not every value would stay what it is; return that type, or declare the other")
    return fitted


def _may_become(found: pa.DataType, declared: pa.DataType) -> bool:
    """True where a value of type `found` has one meaning as `declared`: numbers, texts, bytes, times of one clock."""
    if found.equals(declared) or pa.types.is_null(found):
        return True
    if isinstance(found, pa.DictionaryType):
        return _may_become(found.value_type, declared)
    if pa.types.is_timestamp(found) and pa.types.is_timestamp(declared):
        return (found.tz is None) == (declared.tz is None)
    if pa.types.is_struct(found) and pa.types.is_struct(declared):
        names = [field.name for field in found] == [field.name for field in declared]
        return names and all(_may_become(mine.type, its.type) for mine, its in zip(found, declared, strict=True))
    if _is_list(found) and _is_list(declared):
        return _may_become(found.value_type, declared.value_type)
    return any(
        kind(found) and kind(declared) for kind in (_is_number, _is_text, _is_bytes, pa.types.is_date, pa.types.is_duration)
    )


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _is_bytes(kind: pa.DataType) -> bool:
    fixed_or_view = pa.types.is_fixed_size_binary(kind) or pa.types.is_binary_view(kind)
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or fixed_or_view


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def _beyond_exact(values: pa.Array, declared: pa.DataType) -> bool:
    """True if doubles stand for integers that a double rounds: what they were before is lost already."""
    if not (pa.types.is_floating(values.type) and pa.types.is_integer(declared)):
        return False
    return bool((np.abs(values.drop_null().to_numpy(zero_copy_only=False)) > _EXACT_IN_A_DOUBLE).any())


def _equal(one: pa.Array, other: pa.Array) -> bool:
    if one.equals(other):
        return True
    if not pa.types.is_floating(one.type) or not one.is_null().equals(other.is_null()):
        return False
    mine, its = (each.drop_null().to_numpy(zero_copy_only=False) for each in (one, other))
    return np.array_equal(mine, its, equal_nan=True)


def _named(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, dict.fromkeys(names)))
