"""The check of values against the dtype of the state field that is to hold them."""

from __future__ import annotations

from math import isfinite
from numbers import Number
from typing import Any

import numpy as np

BOUNDS = {char: (int(np.iinfo(char).min), int(np.iinfo(char).max)) for char in np.typecodes["AllInteger"]}
Range = tuple[int, int]


def check(values: Any, dtype: np.dtype, name: str) -> None:
    """Raise OverflowError if a field `name` of `dtype` cannot hold one of `values`; floats may be rounded."""
    if isinstance(values, int) and dtype.char in BOUNDS:
        low, high = BOUNDS[dtype.char]
        if low <= values <= high:
            return
    if isinstance(values, float) and dtype.char == "d":
        return
    given = np.asarray(values)
    if given.dtype == dtype or np.can_cast(given.dtype, dtype, "safe") or not given.size:
        return
    if given.dtype.kind not in "biufO":
        raise refusal(values, dtype, name)
    if given.dtype.kind == "O":
        unfit = [value for value in given.ravel().tolist() if not holds(dtype, value)]
        if unfit:
            raise refusal(unfit[0], dtype, name)
        return
    fits = _fits(given, dtype)
    if not fits.all():
        raise refusal(given[~fits].ravel()[0].item(), dtype, name)


def _fits(given: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """bool of the shape of `given`: the numbers that `dtype` holds."""
    if dtype.kind == "b":
        return (given == 0) | (given == 1)
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype.kind == "f":
            return np.isfinite(given.astype(dtype)) | ~np.isfinite(given)
        low, high = BOUNDS[dtype.char]
        if given.dtype.kind == "f":
            return (given == np.floor(given)) & (given >= float(low)) & (given < float(high + 1))
        if within(range_of(given), (low, high)):
            return np.ones((), np.bool_)
        least, most = BOUNDS[given.dtype.char]
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
    low, high = BOUNDS[dtype.char]
    return is_finite and number == number // 1 and low <= number <= high


def refusal(value: Any, dtype: np.dtype, name: str) -> OverflowError:
    return OverflowError(f"state field {name!r} is {dtype} and cannot hold {value!r}; declare another dtype")


def range_of(values: Any) -> Range:
    """The least and the greatest of integers."""
    if isinstance(values, int):
        return values, values
    array = np.asarray(values)
    return int(array.min()), int(array.max())


def within(found: Range | None, bounds: Range) -> bool:
    """True if a range is known and within the bounds."""
    return found is not None and bounds[0] <= found[0] and found[1] <= bounds[1]
