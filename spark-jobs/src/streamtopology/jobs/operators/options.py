"""Readers of operator options and of the columns that they name; each error says what is allowed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from streamtopology.contract.errors import InvalidInput
from streamtopology.jobs.columnar.keys import key_types
from streamtopology.topology import did_you_mean

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ns|us|ms|s|m|h|d)")
_UNIT_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class OptionError(InvalidInput):
    """An option, or a column that it names, does not fit. The message says what was found and what is allowed.

    Raised in an operator's `__init__` and `prepare`, it refuses the manifest before anything starts.

    >>> raise OptionError("option 'above' is -1; allowed: a number greater than 0", about="above")
    Traceback (most recent call last):
    streamtopology.jobs.operators.options.OptionError: option 'above' is -1; allowed: a number greater than 0

    about: the name of the option, or the column or expression in its value; `validate` names its place in the manifest.
    """

    def __init__(self, message: str, about: str | None = None) -> None:
        super().__init__(message)
        self.about = about


class MissingOption(OptionError):
    """An operator cannot do without an option that it was not given."""

    def __init__(self, message: str, option: str) -> None:
        super().__init__(message, about=option)
        self.option = option


class UnknownOption(OptionError):
    """An operator has no option of this name."""

    def __init__(self, option: str, allowed: Sequence[str]) -> None:
        message = f"unknown option {option!r}; allowed: {', '.join(allowed)}{did_you_mean(option, allowed)}"
        super().__init__(message, about=option)
        self.option = option


class UnknownColumn(OptionError):
    """An option or a key names a column that its input does not have."""

    def __init__(self, message: str, column: str, alias: str, columns: Sequence[str]) -> None:
        super().__init__(message, about=column)
        self.column, self.alias, self.columns = column, alias, tuple(columns)


NONE_RENAMED: Mapping[str, tuple[str, ...]] = {}


def key_schema(
    inputs: Mapping[str, pa.Schema], key: tuple[str, ...], renamed: Mapping[str, tuple[str, ...]] = NONE_RENAMED
) -> pa.Schema:
    """Names and types of the key columns, which must agree in all inputs that have all columns of these names.

    An input may have its key under another name (`inputs: [{from: a, key: id}]`): `renamed` is then
    `self.renamed_keys`. Its tuples carry their keys all the same, and its column of the key's name is one like others.
    Raises OptionError without a key, and for key columns that are missing or differ.

    >>> readings = pa.schema([("sensor", pa.int32()), ("celsius", pa.float64())])
    >>> key_schema({"readings": readings}, ("sensor",)).names
    ['sensor']
    """
    if not key:
        raise OptionError("an operator that remembers something per key needs a key; name it in grouping.key", about="key")
    found: pa.Schema | None = None
    named = [alias for alias, schema in inputs.items() if alias not in renamed and set(key) <= set(schema.names)]
    if len(inputs) == 1 or (not named and any(set(key) & set(schema.names) for schema in inputs.values())):
        named = list(inputs)  # for the sentence about the first column that is missing
    for alias in named:
        schema = inputs[alias]
        for name in key:
            require_column(inputs, name, alias)
        types = key_types(schema, key)
        if found is not None and types != found:
            raise OptionError(f"the key of input {alias!r} is {_described(types)}, of another {_described(found)}")
        found = types
    if found is None:
        raise OptionError(f"no input has the key {', '.join(key)}; there are the inputs {', '.join(inputs) or 'none'}")
    return found


def _described(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def require_column(inputs: Mapping[str, pa.Schema], name: str, alias: str) -> pa.Field:
    """The column `name` of input `alias`. Raises OptionError, which names the columns that the input has.

    >>> require_column({"readings": pa.schema([("celsius", pa.float64())])}, "celsius", "readings").type
    DataType(double)
    """
    schema = inputs[alias]
    places = schema.get_all_field_indices(name)
    if len(places) != 1:
        what = "is there more than once" if places else "does not exist"
        message = f"column {name!r} {what} in input {alias!r}, which has {', '.join(schema.names)}"
        raise UnknownColumn(f"{message}{did_you_mean(name, schema.names)}", name, alias, schema.names)
    return schema.field(places[0])


def one_of(value: Any, allowed: Sequence[str], option: str) -> str:
    """The value of `option`, which must be one of `allowed`. Raises OptionError.

    >>> one_of("updates", ("updates", "tuples"), "emit")
    'updates'
    """
    if value not in allowed:
        raise OptionError(f"option {option!r} is {value!r}; allowed: {', '.join(allowed)}", about=option)
    return str(value)


def expressions_of(value: Any, option: str) -> tuple[str, ...]:
    """The SQL expressions of `option`, at least one. Raises OptionError.

    >>> expressions_of(["x * 2 AS y"], "select")
    ('x * 2 AS y',)
    """
    if not isinstance(value, list | tuple) or not value or not all(isinstance(text, str) for text in value):
        raise OptionError(
            f"option {option!r} is {value!r}; allowed: a list of SQL expressions such as 'x * 2 AS y'", about=option
        )
    return tuple(value)


def seconds_of(value: Any, option: str) -> float:
    """The duration that `option` gives, in seconds: `10us`, `1.5 s`, `2m`, or a number of seconds. Raises OptionError.

    >>> seconds_of("1.5 s", "every"), seconds_of(10, "every")
    (1.5, 10.0)
    """
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**63:
        return float(value)
    match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise OptionError(
            f"option {option!r} is {value!r}; allowed: a duration such as 10us, 5ms, 30s, 10m, 1h or 1d", about=option
        )
    return float(match[1]) * _UNIT_SECONDS[match[2]]
