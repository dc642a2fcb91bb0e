"""The methods and the `output` of a user's class, held against how the runtime calls them, before any tuple is processed."""

from __future__ import annotations

import inspect
from typing import Any

import pyarrow as pa

from streamtopology.jobs.operators.base import Operator, OperatorError
from streamtopology.jobs.operators.casting import can_take_rows, plain_type
from streamtopology.jobs.operators.tuple_operator import TupleOperator
from streamtopology.jobs.state import Field

# The methods that the runtime calls -> what it calls them with.
_ARGUMENTS = {
    "begin": ("batch",),
    "process": ("rows", "state"),
    "finish": ("batch", "state"),
    "combine": ("state", "slots", "partial"),
    "shown": ("state", "slots"),
    "tuple_weights": ("rows",),
    "process_tuple": ("row", "state"),
}


def refuse_async(operator: Operator) -> None:
    """Raise OperatorError if a method is a coroutine: nothing would await it."""
    for name in ("prepare", *_ARGUMENTS):
        method = getattr(operator, name, None)
        if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
            raise OperatorError(f"{type(operator).__name__}.{name} is async, which nothing would await; make it a plain method")


def check_fields(operator: Operator) -> None:
    """Raise OperatorError unless the class declares its state by Fields."""
    fields: Any = operator.fields
    if not isinstance(fields, (tuple, list)) or not all(isinstance(field, Field) for field in fields):
        raise OperatorError(
            f"the `fields` of {type(operator).__name__} are {fields!r:.80}; make them a tuple of Field, such as "
            '(Field("count", np.int64),)'
        )


def check_output(operator: Operator, output: Any) -> None:
    """Raise OperatorError unless `output`, which `prepare` returned, is the schema that the class declares, or none."""
    name, declared = type(operator).__name__, operator.output
    for what, schema in (("the `output`", declared), ("what prepare() returns", output)):
        if schema is not None and not isinstance(schema, pa.Schema):
            raise OperatorError(
                f"{what} of {name} is a {type(schema).__name__}, {schema!r:.60}; make it a schema, such as "
                'pa.schema([("sensor", pa.int64())]), or None'
            )
    if output is not None and len(set(output.names)) < len(output.names):
        twice = sorted({column for column in output.names if output.names.count(column) > 1})
        raise OperatorError(f"the `output` of {name} has {', '.join(twice)} twice; give each column a name of its own")
    if declared is not None and (output is None or not declared.equals(output)):
        returned = "None" if output is None else ", ".join(f"{field.name} {field.type}" for field in output)
        raise OperatorError(f"prepare() of {name} returns {returned}, not its `output`; end it with `return self.output`")
    for column in output or ():
        _check_type(column, column.name, name)
    if declared is None and output is not None and isinstance(operator, TupleOperator):
        raise OperatorError(f"prepare() of {name} returns a schema, but sets no `output`; set self.output to it")


def _check_type(column: pa.Field, place: str, name: str) -> None:
    """Raise OperatorError for a type of which no row could be routed, or in which a name has two meanings."""
    kind = column.type
    found = f"the `output` of {name} declares {place!r} as {kind}"
    parts = [kind.field(number) for number in range(kind.num_fields)] if kind == plain_type(kind) else []
    names = [part.name for part in parts]
    if len(set(names)) < len(names):
        twice = next(part for part in names if names.count(part) > 1)
        raise OperatorError(f"{found}, with the field {twice!r} twice; give each field a name of its own")
    for part in parts:
        _check_type(part, place, name)
    if not can_take_rows(plain_type(kind)):
        raise OperatorError(f"{found}, in which Arrow cannot take single rows; declare its values without run-ends")


def check_methods(operator: Operator) -> None:
    """Raise OperatorError for a method that the class lacks, that yields batches, or that takes other arguments."""
    is_by_tuple = isinstance(operator, TupleOperator)
    wanted, base = ("process_tuple", TupleOperator) if is_by_tuple else ("process", Operator)
    if _is_inherited(operator, wanted, base) and _is_inherited(operator, "accept", base):
        raise OperatorError(f"{type(operator).__name__} has no {wanted}(); override it")
    for name, arguments in _ARGUMENTS.items():
        method = getattr(operator, name, None)
        if method is None or (is_by_tuple and name == "process"):
            continue
        if inspect.isgeneratorfunction(method) and name != "process_tuple":
            raise OperatorError(f"{type(operator).__name__}.{name} is a generator; return what it yields at once, in one table")
        _check_signature(operator, name, method, arguments)


def _is_inherited(operator: Operator, name: str, base: type[Operator]) -> bool:
    return name not in vars(operator) and getattr(type(operator), name) is getattr(base, name)


def _check_signature(operator: Operator, name: str, method: Any, arguments: tuple[str, ...]) -> None:
    if not callable(method):
        raise OperatorError(f"{type(operator).__name__}.{name} is a {type(method).__name__}; make it a method")
    try:
        signature = inspect.signature(method)
    except (TypeError, ValueError):
        return  # a function of C has none
    try:
        signature.bind(*arguments)
    except TypeError as error:
        called = ", ".join(arguments)
        raise OperatorError(
            f"{type(operator).__name__}.{name}{signature} does not take what it is called with, ({called}): {error}; declare "
            f"`def {name}(self, {called})`"
        ) from error
