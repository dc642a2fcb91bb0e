"""Arithmetic of numpy on state fields that gives what plain Python does, or raises OverflowError.

Results are checked by bounds first, which cost a pass over the inputs, and are computed exactly where bounds do not suffice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, cast

import numpy as np

from streamtopology.jobs.state.field_checks import BOUNDS, Range, check, range_of, within

_INT64 = BOUNDS[np.dtype(np.int64).char]
_SAFE_IN_A_DOUBLE = 2.0**62
# A shift by which no number but 0 fits 64 bits.
_MOST_SHIFT = 127
_UNCHANGED = nullcontext()
# numpy's ufuncs whose integers wrap round. Comparisons, minima, bitwise and, remainders and the like stay in their bounds.
_WRAPPING = frozenset({
    "add", "subtract", "multiply", "negative", "absolute", "square", "power", "floor_divide", "divmod", "left_shift", "lcm",
    "gcd",
})  # fmt: skip
PRODUCTS = frozenset({"matmul", "vecdot", "matvec", "vecmat"})
# numpy's functions that add and multiply integers without a ufunc, or lose the class of their arguments before.
# Any: pyright takes half a minute to join the types of all of their overloads.
ARITHMETIC: frozenset[Any] = frozenset({
    np.dot, np.vdot, np.inner, np.outer, np.tensordot, np.einsum, np.convolve, np.correlate, np.kron, np.cross, np.trace,
    np.ptp, np.nansum, np.nanprod, np.nancumsum, np.nancumprod, np.linalg.outer, np.linalg.cross, np.linalg.trace,
    np.linalg.tensordot, np.linalg.matmul, np.linalg.vecdot, np.linalg.multi_dot, np.linalg.matrix_power,
})  # fmt: skip


def called(ufunc: np.ufunc, inputs: Sequence[Any], options: dict[str, Any], name: str) -> Any:
    """`ufunc(*inputs, **options)` for plain arrays, of which one is of field `name`."""
    if ufunc.__name__ in PRODUCTS:
        return in_64_bits(ufunc, inputs, options, name)
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


def outer(ufunc: np.ufunc, inputs: Sequence[Any], options: dict[str, Any], name: str) -> Any:
    """`ufunc.outer`: each of one with each of the other."""
    one, other = map(np.asarray, inputs)
    return called(ufunc, (one.reshape(one.shape + (1,) * other.ndim), other), options, name)


def reduced(ufunc: np.ufunc, method: str, inputs: Sequence[Any], options: Mapping[str, Any], name: str) -> Any:
    """`ufunc.reduce`, `accumulate` or `reduceat`: exact for integers, in doubles for narrower floats."""
    values, given = np.asarray(inputs[0]), {option: value for option, value in options.items() if value is not None}
    run = getattr(ufunc, method)
    if values.dtype.kind == "f" and ufunc.__name__ in ("add", "multiply"):
        given = {"dtype": np.dtype(np.float64)} | given
        with _no_new_infinity(ufunc, np.dtype(given["dtype"]), name):
            return run(values, *inputs[1:], **given)
    dtype = np.dtype(given.pop("dtype", _type_of_sum(values.dtype) if ufunc.__name__ in ("add", "multiply") else values.dtype))
    wraps = values.dtype.kind in "iu" and dtype.kind in "iu" and ufunc.__name__ in _WRAPPING
    if not wraps or not values.size or within(_range_of_sum(ufunc, values, given), BOUNDS[dtype.char]):
        return run(values, *inputs[1:], **given, **({"dtype": dtype} if wraps or options.get("dtype") is not None else {}))
    if "where" in given:
        given = {"initial": 1 if ufunc.__name__ == "multiply" else 0} | given
    exact = run(values.astype(object), *inputs[1:], **given)
    if options.get("dtype") is not None or isinstance(exact, np.ndarray):
        check(exact, dtype, name)
    return exact.astype(dtype) if isinstance(exact, np.ndarray) else exact


def at(ufunc: np.ufunc, inputs: Sequence[Any], name: str) -> None:
    """`ufunc.at(values, index, operand)`, where an index may be there several times."""
    values, index, *operand = inputs
    if values.dtype.kind in "iu" and operand and _is_integer(np.asarray(operand[0])):
        if ufunc.__name__ in ("add", "subtract"):
            _check_sums(ufunc, values, index, operand[0], name)
        elif ufunc.__name__ in _WRAPPING:
            _check_exactly(ufunc, values, index, operand[0], object, name)
        else:
            check(operand[0], values.dtype, name)
    elif values.dtype.kind in "iu" and not operand and ufunc.__name__ in _WRAPPING:
        _check_result(ufunc, (values[index],), True, values.dtype, name)
    with _no_new_infinity(ufunc, values.dtype, name):
        ufunc.at(values, index, *operand)


def in_64_bits(func: Callable[..., Any], args: Sequence[Any], options: Mapping[str, Any], name: str) -> Any:
    """Products and sums of `func` in numbers of 64 bits. Raises OverflowError where integers of 64 bits could wrap round."""
    made = func(*_as_type(args, np.int64), **options)
    kinds = {each.dtype.kind for each in (made if isinstance(made, tuple) else (made,)) if hasattr(each, "dtype")}
    if kinds & set("iu"):
        about = func(*_as_type(args, np.float64), **{each: value for each, value in options.items() if each != "out"})
        if np.size(about) and float(np.abs(about).max()) > _SAFE_IN_A_DOUBLE:
            raise OverflowError(
                f"state field {name!r}: {func.__name__} may give integers that 64 bits cannot hold; declare another dtype, or "
                "give it np.asarray(values, np.float64), which rounds"
            )
    return made


def _as_type(args: Sequence[Any], integers: type) -> list[Any]:
    """The arguments, with integers of arrays as the type `integers`, and floats as doubles."""
    return [_each_as_type(each, integers) for each in args]


def _each_as_type(value: Any, integers: type) -> Any:
    if isinstance(value, (list, tuple)):
        kept = [_each_as_type(each, integers) for each in cast("Sequence[Any]", value)]
        return kept if isinstance(value, list) else tuple(kept)
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "iuf":
        return value
    if value.dtype.kind == "f":
        return np.asarray(value, np.float64)
    wraps = value.dtype == np.uint64 and value.size and int(value.max()) > _INT64[1]
    return np.asarray(value).astype(np.float64 if wraps else integers)


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


def _type_of_sum(dtype: np.dtype) -> np.dtype:
    return np.dtype(np.uint64 if dtype.kind == "u" else np.int64)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) or getattr(getattr(value, "dtype", None), "kind", "") in ("i", "u", "b")


def _check_result(ufunc: np.ufunc, inputs: Sequence[Any], where: Any, dtype: np.dtype, name: str) -> None:
    """Raise OverflowError if a result is beyond `dtype`."""
    if any(np.size(each) == 0 for each in inputs):
        return
    found = _range_of(ufunc, inputs)
    if within(found, BOUNDS[dtype.char]):
        return
    wide = np.int64 if within(found, _INT64) else object
    exact = np.broadcast_to(
        _exact(ufunc, [np.asarray(each).astype(wide) for each in inputs]), np.broadcast_shapes(*map(np.shape, inputs))
    )
    check(exact if where is True else exact[np.broadcast_to(where, exact.shape)], dtype, name)


def _exact(ufunc: np.ufunc, inputs: Sequence[np.ndarray]) -> np.ndarray:
    if ufunc.__name__ in ("floor_divide", "divmod"):  # the least number by -1 is the only one that wraps round; by 0 it is 0
        with np.errstate(divide="ignore"):
            return np.where(inputs[1] == -1, -inputs[0], 0)
    if ufunc.__name__ == "left_shift":
        return np.left_shift(inputs[0], np.minimum(inputs[1], _MOST_SHIFT))
    return ufunc(*inputs)


def _range_of(ufunc: np.ufunc, inputs: Sequence[Any]) -> Range | None:
    """Bounds of the results, by those of the inputs; None: unknown."""
    ranges = [range_of(each) for each in inputs]
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
        case "floor_divide" | "divmod":
            return -max(abs(low), abs(high)), max(abs(low), abs(high))
        case "left_shift" if other_low >= 0:
            most = min(other_high, _MOST_SHIFT)
            return min(low, low << most), max(high, high << most)
        case "gcd":
            return 0, max(map(abs, (low, high, other_low, other_high)))
        case _:
            return None


def _range_of_sum(ufunc: np.ufunc, values: np.ndarray, options: Mapping[str, Any]) -> Range | None:
    """Bounds of sums of any of the values."""
    if ufunc.__name__ != "add" or not isinstance(options.get("initial", 0), int):
        return None
    low, high = range_of(values)
    return min(low, 0) * values.size + options.get("initial", 0), max(high, 0) * values.size + options.get("initial", 0)


def _check_sums(ufunc: np.ufunc, values: np.ndarray, index: Any, operand: Any, name: str) -> None:
    before = values[index]
    if not before.size:
        return
    low, high = range_of(operand)
    low, high = (low, high) if ufunc.__name__ == "add" else (-high, -low)
    first, last = range_of(before)
    found = (first + min(low, 0) * before.size, last + max(high, 0) * before.size)
    if within(found, BOUNDS[values.dtype.char]):
        return
    if values.dtype.itemsize < 8 and within(found, _INT64):
        _check_exactly(ufunc, values, index, operand, np.int64, name)
        return
    about = values.astype(np.float64)
    ufunc.at(about, index, operand)
    if values.dtype != np.int64 or float(np.abs(about[index]).max()) > _SAFE_IN_A_DOUBLE:
        _check_exactly(ufunc, values, index, operand, object, name)


def _check_exactly(ufunc: np.ufunc, values: np.ndarray, index: Any, operand: Any, wide: Any, name: str) -> None:
    exact, other = values.astype(wide), np.asarray(operand).astype(wide)
    ufunc.at(exact, index, np.minimum(other, _MOST_SHIFT) if ufunc.__name__ == "left_shift" else other)
    check(exact[index], values.dtype, name)
