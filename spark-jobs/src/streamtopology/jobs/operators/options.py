"""Checks of what a manifest gives an operator: options and the columns they name, each error a sentence."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from streamtopology.jobs.keys import key_types

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ns|us|ms|s|m|h|d)")
_UNIT_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class OptionError(ValueError):
    """An option, or a column it names, does not fit; the sentence says what was found and what is allowed."""


def key_schema(inputs: Mapping[str, pa.Schema], key: tuple[str, ...]) -> pa.Schema:
    """Names and types of the key columns, the same in every input that has columns of these names.

    An input may call its key otherwise (`inputs: [{from: a, key: id}]`); its tuples come with their keys all the same.
    """
    if not key:
        raise OptionError("an operator that remembers something per key needs a key; name it in grouping.key")
    found: pa.Schema | None = None
    for alias, schema in inputs.items():
        if len(inputs) > 1 and not set(key) & set(schema.names):
            continue
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
    """The column `name` of input `alias`; OptionError names what the input has instead."""
    schema = inputs[alias]
    places = schema.get_all_field_indices(name)
    if len(places) != 1:
        what = "is there more than once" if places else "does not exist"
        raise OptionError(f"column {name!r} {what} in input {alias!r}, which has {', '.join(schema.names)}")
    return schema.field(places[0])


def one_of(value: Any, allowed: Sequence[str], option: str) -> str:
    if value not in allowed:
        raise OptionError(f"option {option!r} is {value!r}; allowed: {', '.join(allowed)}")
    return str(value)


def expressions_of(value: Any, option: str) -> tuple[str, ...]:
    """A list of SQL expressions, at least one."""
    if not isinstance(value, list | tuple) or not value or not all(isinstance(text, str) for text in value):
        raise OptionError(f"option {option!r} is {value!r}; allowed: a list of SQL expressions such as 'x * 2 AS y'")
    return tuple(value)


def seconds_of(value: Any, option: str) -> float:
    """Seconds of `10us`, `1.5 s`, `2m` ...; a plain number is seconds."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf"):
        return float(value)
    match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise OptionError(f"option {option!r} is {value!r}; allowed: a duration such as 10us, 5ms, 30s, 10m, 1h or 1d")
    return float(match[1]) * _UNIT_SECONDS[match[2]]
