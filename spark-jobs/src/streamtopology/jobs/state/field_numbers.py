"""A single integer of a state field: Python's, whatever number of numpy it is combined with."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from streamtopology.jobs.state.field_arithmetic import called

_INT64 = np.iinfo(np.int64)
_UINT64 = np.iinfo(np.uint64)


class FieldInteger(int):
    """An integer that never wraps round: Python's, also next to a np.int8 or np.uint64, whose types would win."""

    __array_priority__ = 1000.0
    __slots__ = ()
    __hash__ = int.__hash__

    def item(self) -> int:
        """The plain integer, as numpy's scalars have it."""
        return int(self)


# Types of numpy's single values -> those whose arithmetic does not wrap round before a value is written back.
NUMBERS: Mapping[type, Callable[[Any], Any]] = {
    **{np.dtype(char).type: FieldInteger for char in np.typecodes["AllInteger"]},
    **{np.dtype(char).type: np.float64 for char in "ef"},
}


# Operators that wrap round in arrays of integers -> numpy's.
_CHECKED: Mapping[Any, np.ufunc] = {
    operator.__add__: np.add, operator.__sub__: np.subtract, operator.__mul__: np.multiply, operator.__pow__: np.power,
    operator.__lshift__: np.left_shift, operator.__floordiv__: np.floor_divide,
}  # fmt: skip


def _operand(value: FieldInteger, other: Any) -> Any:
    """`value` for numpy, in a type of 64 bits that holds it and does not make a float of `other`."""
    if value >= 0 and (value > _INT64.max or getattr(other, "dtype", None) == np.uint64):
        return np.uint64(value) if value <= _UINT64.max else int(value)
    return np.int64(value) if value >= _INT64.min else int(value)


def _both_ways(run: Callable[[Any, Any], Any], plain: Callable[..., Any], is_swapped: bool) -> Callable[..., Any]:
    def method(self: FieldInteger, other: Any, *modulo: Any) -> Any:
        if type(other) is not int:
            if isinstance(other, np.integer) and not isinstance(other, np.timedelta64):
                other = int(other)
            elif isinstance(other, (np.generic, np.ndarray)):
                pair = (other, _operand(self, other)) if is_swapped else (_operand(self, other), other)
                checked = _CHECKED.get(run) if other.dtype.kind in "iu" else None
                return run(*pair) if checked is None else called(checked, pair, {}, "(read singly)")
        made = plain(self, other, *modulo)
        return FieldInteger(made) if type(made) is int else made

    return method


def _alone(plain: Callable[[int], int]) -> Callable[[FieldInteger], FieldInteger]:
    return lambda self: FieldInteger(plain(self))


for _name in ("add", "sub", "mul", "floordiv", "mod", "pow", "truediv", "lshift", "rshift", "and", "or", "xor", "divmod"):
    _run = divmod if _name == "divmod" else getattr(operator, f"__{_name}__")
    setattr(FieldInteger, f"__{_name}__", _both_ways(_run, getattr(int, f"__{_name}__"), False))
    setattr(FieldInteger, f"__r{_name}__", _both_ways(_run, getattr(int, f"__r{_name}__"), True))
for _name in ("lt", "le", "eq", "ne", "gt", "ge"):
    setattr(FieldInteger, f"__{_name}__", _both_ways(getattr(operator, _name), getattr(int, f"__{_name}__"), False))
for _name in ("neg", "abs", "invert", "pos"):
    setattr(FieldInteger, f"__{_name}__", _alone(getattr(int, f"__{_name}__")))
