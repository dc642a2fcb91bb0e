"""The values of a state field as users' code gets them: an array that refuses what its dtype cannot hold.

numpy wraps integers round, cuts fractions off and makes too large floats infinite without a word. Here every write through
numpy is checked first: by bounds, which cost a pass over the values that are written, and one by one where bounds do not
suffice. A write of the same dtype costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from math import isfinite
from numbers import Number
from typing import Any

import numpy as np

_BOUNDS = {char: (int(np.iinfo(char).min), int(np.iinfo(char).max)) for char in np.typecodes["AllInteger"]}
_INT64 = _BOUNDS[np.dtype(np.int64).char]
_SAFE_IN_A_DOUBLE = 2.0**62
_UNCHANGED = nullcontext()
_VALUES_OF: Mapping[Callable[..., Any], int] = {
    np.copyto: 1,
    np.put: 2,
    np.place: 2,
    np.putmask: 2,
    np.put_along_axis: 2,
    np.fill_diagonal: 1,
}
"""numpy's functions that write to their first argument -> the place of the values among their arguments."""
_WRAPPING = frozenset({"add", "subtract", "multiply", "negative", "absolute", "square", "power", "floor_divide"})
_Range = tuple[int, int]


class FieldValues(np.ndarray):
    """Values of the field `name`. Writes raise OverflowError where the dtype cannot hold a value; reads are numpy's.

    Arithmetic on it is checked as well. `np.asarray(values)` has the same memory without checks.
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
        return value if isinstance(value, np.ndarray) else _widened(value)

    def __setitem__(self, index: Any, value: Any) -> None:
        check(value, self.dtype, self.name)
        super().__setitem__(index, value)

    def fill(self, value: Any) -> None:
        check(value, self.dtype, self.name)
        super().fill(value)

    def put(self, indices: Any, values: Any, mode: Any = "raise") -> None:
        check(values, self.dtype, self.name)
        super().put(indices, values, mode)

    def astype(self, dtype: Any, *args: Any, **options: Any) -> np.ndarray:
        """A plain array: who converts values knows how."""
        return self.view(np.ndarray).astype(dtype, *args, **options)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        place = _VALUES_OF.get(func)
        if place is not None and len(args) > place and isinstance(args[0], FieldValues):
            check(args[place], args[0].dtype, args[0].name)
        out = kwargs.get("out")
        if isinstance(out, FieldValues):
            out[...] = func(*args, **{name: value for name, value in kwargs.items() if name != "out"})
            return out
        return super().__array_function__(func, types, args, kwargs)

    def __array_ufunc__(self, ufunc: np.ufunc, method: Any, *inputs: Any, **options: Any) -> Any:
        plain = tuple(map(_plain, inputs))
        given = options.get("out")
        if given is not None:
            options["out"] = tuple(map(_plain, given))
        if method == "at":
            return _at(ufunc, plain, self.name)
        if method != "__call__":
            made = getattr(ufunc, method)(*plain, **{name: value for name, value in options.items() if name != "out"})
            if given is None:
                return made
            given[0][...] = made
            return given[0]
        made = _called(ufunc, plain, options, self.name)
        return made if given is None else (given[0] if len(given) == 1 else given)


class GuardedFields(dict[str, FieldValues]):
    """The `arrays` of a state's fields, each guarded from when it is first asked for."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        super().__init__()
        self._arrays = arrays

    def __missing__(self, name: str) -> FieldValues:
        self[name] = FieldValues.of(self._arrays[name], name)
        return self[name]


def check(values: Any, dtype: np.dtype, name: str) -> None:
    """Raise OverflowError if a field `name` of `dtype` cannot hold one of `values`; floats may be rounded."""
    if type(values) is int and dtype.char in _BOUNDS:
        low, high = _BOUNDS[dtype.char]
        if low <= values <= high:
            return
    given = np.asarray(values)
    if given.dtype == dtype or np.can_cast(given.dtype, dtype, "safe") or not given.size:
        return
    if given.dtype.kind not in "biufO":
        raise _refusal(values, dtype, name)
    if given.dtype.kind == "O":
        unfit = [value for value in given.ravel().tolist() if not holds(dtype, value)]
        if unfit:
            raise _refusal(unfit[0], dtype, name)
        return
    fits = _fits(given, dtype)
    if not fits.all():
        raise _refusal(given[~fits].ravel()[0].item(), dtype, name)


def _fits(given: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """bool of the shape of `given`: the numbers that `dtype` holds."""
    if dtype.kind == "b":
        return (given == 0) | (given == 1)
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype.kind == "f":
            return np.isfinite(given.astype(dtype)) | ~np.isfinite(given)
        low, high = _BOUNDS[dtype.char]
        if given.dtype.kind == "f":
            return (given == np.floor(given)) & (given >= float(low)) & (given < float(high + 1))
        if _within(_range(given), (low, high)):
            return np.ones((), np.bool_)
        least, most = _BOUNDS[given.dtype.char]
        return (given >= max(low, least)) & (given <= min(high, most))


def holds(dtype: np.dtype, value: Any) -> bool:
    """True if `dtype` holds this number of Python's, an int of any size or a Decimal among them."""
    if not isinstance(value, Number) or isinstance(value, complex):
        return False
    number: Any = value
    if dtype.kind == "b":
        return number in (0, 1)
    is_finite = isinstance(number, int) or isfinite(number)
    if dtype.kind == "f":
        return not is_finite or abs(number) <= float(np.finfo(dtype).max)
    low, high = _BOUNDS[dtype.char]
    return is_finite and number == number // 1 and low <= number <= high


def _refusal(value: Any, dtype: np.dtype, name: str) -> OverflowError:
    return OverflowError(f"state field {name!r} is {dtype} and cannot hold {value!r}; declare another dtype")


def _plain(value: Any) -> Any:
    return value.view(np.ndarray) if isinstance(value, FieldValues) else value


def _widened(value: Any) -> Any:
    """A single value in a type of 64 bits, so that arithmetic on it does not wrap round before it is written back."""
    if value.dtype.itemsize < 8 and value.dtype.kind in "iuf":
        return np.float64(value) if value.dtype.kind == "f" else np.int64(value)
    return value


# --- arithmetic ---


def _called(ufunc: np.ufunc, inputs: Sequence[Any], options: dict[str, Any], name: str) -> Any:
    out = options.get("out")
    made = out[0].dtype if out is not None and out[0] is not None else _type_of_result(inputs)
    if made.kind in "iu" and ufunc.__name__ in _WRAPPING and all(map(_is_integer, inputs)):
        _check_result(ufunc, inputs, options.get("where", True), made, name)
    elif out is not None and made.kind in "iub" and not np.can_cast(_type_of_result(inputs), made, "safe"):
        result = ufunc(
            *inputs,
            **{option: value for option, value in options.items() if option not in ("out", "where", "casting", "dtype")},
        )
        where = options.get("where", True)
        check(result if where is True else result[np.broadcast_to(where, result.shape)], made, name)
    with _no_new_infinity(ufunc, made, name):
        return ufunc(*inputs, **options)


@contextmanager
def _raising(ufunc: np.ufunc, dtype: np.dtype, name: str) -> Iterator[None]:
    with np.errstate(over="raise"):
        try:
            yield
        except FloatingPointError as error:
            raise OverflowError(
                f"state field {name!r} is {dtype} and cannot hold the result of {ufunc.__name__}; declare another dtype"
            ) from error


def _no_new_infinity(ufunc: np.ufunc, dtype: np.dtype, name: str) -> AbstractContextManager[None]:
    """In floats narrower than a double, which stands for Python's, an overflow is an error."""
    return _raising(ufunc, dtype, name) if dtype.kind == "f" and dtype.itemsize < 8 else _UNCHANGED


def _type_of_result(inputs: Sequence[Any]) -> np.dtype:
    try:
        return np.result_type(*inputs)
    except (TypeError, OverflowError):
        return np.dtype(object)  # numpy says what is wrong with them


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) or getattr(getattr(value, "dtype", None), "kind", "") in ("i", "u", "b")


def _check_result(ufunc: np.ufunc, inputs: Sequence[Any], where: Any, dtype: np.dtype, name: str) -> None:
    """Raise OverflowError if a result is beyond `dtype`."""
    if any(np.size(each) == 0 for each in inputs):
        return
    if _within(_range_of(ufunc, inputs), _BOUNDS[dtype.char]):
        return
    wide = np.int64 if _within(_range_of(ufunc, inputs), _INT64) else object
    exact = np.broadcast_to(
        ufunc(*(np.asarray(each).astype(wide) for each in inputs)), np.broadcast_shapes(*map(np.shape, inputs))
    )
    check(exact if where is True else exact[np.broadcast_to(where, exact.shape)], dtype, name)


def _range(values: Any) -> _Range:
    if isinstance(values, int):
        return values, values
    array = np.asarray(values)
    return int(array.min()), int(array.max())


def _range_of(ufunc: np.ufunc, inputs: Sequence[Any]) -> _Range | None:
    """Bounds of the results, by those of the inputs; None: unknown."""
    ranges = [_range(each) for each in inputs]
    (low, high), (other_low, other_high) = ranges[0], ranges[-1]
    match ufunc.__name__:
        case "add":
            return low + other_low, high + other_high
        case "subtract":
            return low - other_high, high - other_low
        case "multiply":
            ends = [one * other for one in (low, high) for other in (other_low, other_high)]
            return min(ends), max(ends)
        case "negative":
            return -high, -low
        case "absolute":
            return 0, max(abs(low), abs(high))
        case "square":
            return 0, max(low * low, high * high)
        case "floor_divide":
            return -max(abs(low), abs(high)), max(abs(low), abs(high))
        case _:
            return None


def _within(found: _Range | None, bounds: _Range) -> bool:
    return found is not None and bounds[0] <= found[0] and found[1] <= bounds[1]


def _at(ufunc: np.ufunc, inputs: Sequence[Any], name: str) -> None:
    """`ufunc.at(values, index, operand)`, where an index may be there several times."""
    values, index, *operand = inputs
    if values.dtype.kind in "iu" and operand and _is_integer(np.asarray(operand[0])):
        if ufunc.__name__ in ("add", "subtract"):
            _check_sums(ufunc, values, index, operand[0], name)
        elif ufunc.__name__ in _WRAPPING:
            _check_exactly(ufunc, values, index, operand[0], object, name)
        else:
            check(operand[0], values.dtype, name)
    with _no_new_infinity(ufunc, values.dtype, name):
        ufunc.at(values, index, *operand)


def _check_sums(ufunc: np.ufunc, values: np.ndarray, index: Any, operand: Any, name: str) -> None:
    before = values[index]
    if not before.size:
        return
    low, high = _range(operand)
    low, high = (low, high) if ufunc.__name__ == "add" else (-high, -low)
    first, last = _range(before)
    found = (first + min(low, 0) * before.size, last + max(high, 0) * before.size)
    if _within(found, _BOUNDS[values.dtype.char]):
        return
    if values.dtype.itemsize < 8 and _within(found, _INT64):
        _check_exactly(ufunc, values, index, operand, np.int64, name)
        return
    about = values.astype(np.float64)
    ufunc.at(about, index, operand)
    if values.dtype != np.int64 or float(np.abs(about[index]).max()) > _SAFE_IN_A_DOUBLE:
        _check_exactly(ufunc, values, index, operand, object, name)


def _check_exactly(ufunc: np.ufunc, values: np.ndarray, index: Any, operand: Any, wide: Any, name: str) -> None:
    exact = values.astype(wide)
    ufunc.at(exact, index, np.asarray(operand).astype(wide))
    check(exact[index], values.dtype, name)
