"""The check of an operator's rows against its declared `output`, before anything of the batch is committed.

Columns are matched by name. A type that differs is cast where every value keeps its meaning; all else is an error that
names class, column and finding: a sink that meets it after the commit could never go past it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from streamtopology.jobs.operators.base import OperatorError
from streamtopology.jobs.operators.casting import fitted, may_become
from streamtopology.jobs.operators.python_kept import loss

_NO_SUCH_VALUE = (pa.ArrowException, OverflowError, TypeError, ValueError)


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
        return [_refuse_nulls(batch, name) for batch in batches]
    _check_names(returned.schema, declared, name)
    return [_refuse_nulls(_fitted(batch, declared, name), name) for batch in batches]


def from_dicts(emitted: Sequence[dict[str, Any]], schema: pa.Schema, name: str) -> pa.RecordBatch:
    """The dicts that an operator of class `name` emits, as rows. Raises WrongValue, which names the column and its value."""
    columns = [_from_values([row[field.name] for row in emitted], field, name) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _from_values(values: Sequence[Any], field: pa.Field, name: str) -> pa.Array:
    try:
        if loss(values, field) is None:
            return pa.array(values, field.type)
    except _NO_SUCH_VALUE:
        for value in values:
            _check_value(value, field, name)
        raise
    for value in values:
        _check_value(value, field, name)
    raise WrongValue(f"{name} emits {field.name!r}, which its `output` declares as {field.type}, with values that do not fit")


def _check_value(value: Any, field: pa.Field, name: str) -> None:
    try:
        reason = loss([value], field)
        pa.array([value] if reason is None else [], field.type)
    except _NO_SUCH_VALUE as error:
        raise WrongValue(f"{_emits(value, field, name)}: {error}") from error
    if reason is not None:
        raise WrongValue(f"{_emits(value, field, name)}; {reason}")


def _emits(value: Any, field: pa.Field, name: str) -> str:
    what = f"{name} emits {value!r} of type {type(value).__name__} as {field.name!r}"
    return f"{what}, which its `output` declares as {field.type}"


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
    found = f"{name} returns {field.name!r} as {values.type}, which its `output` declares as {field.type}"
    if not may_become(values.type, field.type):
        raise WrongOutput(f"{found}; return that type, or declare the other")
    try:
        column = fitted(values, field.type)
    except pa.ArrowNotImplementedError as error:
        raise WrongOutput(f"{found}; return that type, or declare the other ({error})") from error
    except pa.ArrowException as error:
        raise WrongValue(f"{found}, and not every value fits: {error}") from error
    if column is None:
        raise WrongValue(f"{found}, and not every value would stay what it is; return that type, or declare the other")
    return column


def _refuse_nulls(batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
    """The batch, whose columns that are declared without NULL have none. Raises WrongValue."""
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if not field.nullable and column.null_count:
            raise WrongValue(f"{name} returns {field.name!r} with a NULL, which its `output` declares as {field.type} not null")
    return batch


def _named(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, dict.fromkeys(names)))
