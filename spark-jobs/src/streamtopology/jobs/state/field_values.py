"""The values of a state field as users' code gets them: an array that refuses what its dtype cannot hold.

numpy wraps integers round, cuts fractions off and makes too large floats infinite without a word. Here every write through
numpy is checked first (`field_checks`); a write of the same dtype costs nothing. Results of arithmetic are exact or refused
(`field_arithmetic`), and single integers are Python's (`field_numbers`), since what has wrapped round fits its dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from streamtopology.jobs.state.field_arithmetic import ARITHMETIC, PRODUCTS, at, called, in_64_bits, outer, reduced
from streamtopology.jobs.state.field_checks import check
from streamtopology.jobs.state.field_numbers import NUMBERS, FieldInteger

# numpy's functions that write to their first argument -> its name; the place and name of the values.
_WRITES: Mapping[Callable[..., Any], tuple[str, int, str]] = {
    np.copyto: ("dst", 1, "src"),
    np.put: ("a", 2, "v"),
    np.place: ("arr", 2, "vals"),
    np.putmask: ("a", 2, "values"),
    np.put_along_axis: ("arr", 2, "values"),
    np.fill_diagonal: ("a", 1, "val"),
}


class FieldValues(np.ndarray):
    """Values of the field `name`. Writes raise OverflowError where the dtype cannot hold a value.

    Arithmetic on them gives what plain Python does, or raises OverflowError; integers of it are guarded in turn.
    `np.asarray(values)` has the same memory without checks.
    """

    name: str

    @staticmethod
    def of(values: np.ndarray, name: str) -> FieldValues:
        """`values`, whose memory is shared, as those of field `name`."""
        guarded = values.view(FieldValues)
        guarded.name = name
        return guarded

    def __array_finalize__(self, obj: Any) -> None:
        self.name = getattr(obj, "name", "")

    def __getitem__(self, index: Any) -> Any:
        value = super().__getitem__(index)
        make = NUMBERS.get(type(value))
        return value if make is None else make(value)

    def __setitem__(self, index: Any, value: Any) -> None:
        if type(value) is FieldInteger:
            value = int(value)  # which numpy stores four times as fast
        check(value, self.dtype, self.name)
        super().__setitem__(index, value)

    @property
    def flat(self) -> Any:
        """The values in one dimension; to write single ones, take `values[...]` or `values.reshape(-1)`."""
        values = self.reshape(-1)
        if not np.shares_memory(values, self):
            values.flags.writeable = False  # a write to a copy would be lost
        return values

    @flat.setter
    def flat(self, value: Any) -> None:
        check(value, self.dtype, self.name)
        plain: Any = self.view(np.ndarray)
        plain.flat = value

    def fill(self, value: Any) -> None:
        check(value, self.dtype, self.name)
        super().fill(value)

    def put(self, indices: Any, values: Any, mode: Any = "raise") -> None:
        check(values, self.dtype, self.name)
        super().put(indices, values, mode)

    def take(self, *args: Any, **options: Any) -> Any:
        return self._guarded(self.view(np.ndarray).take(*args, **options))

    def dot(self, *args: Any, **options: Any) -> Any:
        return np.dot(self, *args, **options)

    def trace(self, *args: Any, **options: Any) -> Any:
        return np.trace(self, *args, **options)

    def astype(self, dtype: Any, *args: Any, **options: Any) -> np.ndarray:
        """A plain array: who converts values knows how."""
        return self.view(np.ndarray).astype(dtype, *args, **options)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func in _WRITES:
            target, place, values = _WRITES[func]
            written = kwargs.get(target, args[0] if args else None)
            if isinstance(written, FieldValues):
                check(kwargs[values] if values in kwargs else args[place], written.dtype, written.name)
        out = kwargs.get("out")
        if isinstance(out, FieldValues):
            out[...] = func(*args, **{name: value for name, value in kwargs.items() if name != "out"})
            return out
        if func in ARITHMETIC:
            return self._guarded(in_64_bits(func, _plain_ones(args), _plain_options(kwargs), self.name))
        made = super().__array_function__(func, types, args, kwargs)
        return self._guarded(made) if isinstance(made, np.generic) else made

    def __array_ufunc__(self, ufunc: np.ufunc, method: Any, *inputs: Any, **options: Any) -> Any:
        plain = tuple(map(_plain, inputs))
        given = options.get("out")
        if method == "at":
            return at(ufunc, plain, self.name)
        if method == "__call__" and given is not None and ufunc.__name__ not in PRODUCTS:
            called(ufunc, plain, options | {"out": tuple(map(_plain, given))}, self.name)
            return given[0] if len(given) == 1 else given
        options.pop("out", None)
        if method == "__call__":
            made = called(ufunc, plain, options, self.name)
        elif method == "outer":
            made = outer(ufunc, plain, options, self.name)
        else:
            made = reduced(ufunc, method, plain, options, self.name)
        if given is None:
            return self._guarded(made)
        given[0][...] = made
        return given[0]

    def _guarded(self, made: Any) -> Any:
        """A result: integers and narrow floats stay those of the field; what cannot wrap round is plain."""
        if isinstance(made, tuple):
            return tuple(map(self._guarded, made))
        if isinstance(made, np.ndarray):
            narrow = made.dtype.kind in "iu" or (made.dtype.kind == "f" and made.dtype.itemsize < 8)
            return FieldValues.of(made, self.name) if narrow else _plain(made)
        make = FieldInteger if type(made) is int else NUMBERS.get(type(made))
        return made if make is None else make(made)


class GuardedFields(dict[str, FieldValues]):
    """The `arrays` of a state's fields, each guarded from when it is first asked for."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        super().__init__()
        self._arrays = arrays

    def __missing__(self, name: str) -> FieldValues:
        self[name] = FieldValues.of(self._arrays[name], name)
        return self[name]


def _plain(value: Any) -> Any:
    return value.view(np.ndarray) if isinstance(value, FieldValues) else value


def _plain_ones(values: Sequence[Any]) -> list[Any]:
    return [_plain_ones(value) if isinstance(value, (list, tuple)) else _plain(value) for value in values]


def _plain_options(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _plain(value) for name, value in options.items()}
