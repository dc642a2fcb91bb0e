"""Dataclasses as JSON values and back, by their fields: for a schema in which nothing but a few names differs.

Each field is written, and must be there; one that is not known is passed over.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import cache
from math import isfinite
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

Value = TypeVar("Value")

# Words that are Python's own, or would not be clear without the other.
_WIRE_NAMES = {"class_name": "class", "from_node": "from", "to_node": "to"}


def wire_name(field: str) -> str:
    """The name of a dataclass's field in JSON."""
    return _WIRE_NAMES.get(field, field)


def to_wire(value: object) -> Any:
    """The JSON value of a dataclass, and of all within it."""
    if isinstance(value, StrEnum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return {wire_name(field.name): to_wire(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_wire(item) for key, item in cast("Mapping[object, object]", value).items()}
    if isinstance(value, (tuple, list)):
        return [to_wire(item) for item in cast("tuple[object, ...]", value)]
    return value


def from_wire(kind: type[Value], wire: object) -> Value:
    """The value of this dataclass that `to_wire` was called on. KeyError names a missing field, TypeError a wrong one."""
    if not isinstance(wire, dict):
        raise TypeError(f"{kind.__name__} is {type(wire).__name__}, not a JSON object")
    given = cast("Mapping[str, object]", wire)
    values: dict[str, Any] = {}
    for name, hint in _hints(kind).items():
        key = wire_name(name)
        values[name] = _read(hint, given[key], key)
    return kind(**values)


@cache
def _hints(kind: Any) -> Mapping[str, Any]:
    """Field -> its type."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def _read(hint: Any, wire: object, name: str) -> Any:
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):  # only `X | None` is used
        return None if wire is None else _read(next(one for one in inner if one is not types.NoneType), wire, name)
    if origin is tuple and isinstance(wire, list):
        return tuple(_read(inner[0], item, name) for item in cast("list[object]", wire))
    if origin is Mapping and isinstance(wire, dict):
        return {str(key): _read(inner[1], item, name) for key, item in cast("Mapping[object, object]", wire).items()}
    if isinstance(hint, type):
        if is_dataclass(hint):
            return from_wire(hint, wire)
        if issubclass(hint, StrEnum):
            return hint(str(wire))
        if hint is float and isinstance(wire, int) and not isinstance(wire, bool):
            return float(wire)
        if isinstance(wire, float) and not isfinite(wire):  # JSON of Python has NaN, no other reader does
            raise TypeError(f"{name} is {wire}")
        if isinstance(wire, hint) and (hint is bool or not isinstance(wire, bool)):
            return wire
    raise TypeError(f"{name} is {wire!r:.60}")


def finite(value: Any) -> float:
    """A number that JSON, and the status of a topology, can hold."""
    number = float(value)
    if not isfinite(number):
        raise ValueError(f"{number} is no finite number")
    return number


def whole(value: Any) -> int:
    """A number that 64 bits hold, as those of a status."""
    number = int(value)
    if not -(2**63) <= number < 2**63:
        raise ValueError("a number has more than 64 bits")
    return number


def optional(kind: Callable[[Any], Any], value: object) -> Any:
    return None if value is None else kind(value)
