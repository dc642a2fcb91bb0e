"""Half-linear-half-exponential discretisation (HLHE) of loads and state sizes (mixed-routing, section 4.2).

Representatives of degree R = 2^r, in units: 0, 1, 2, 4, ..., R (the exponential part), then 2R, 3R, ... (the linear
part). A value between two representatives takes the upper one if the values before it were under-counted in sum, else
the lower one, so errors cancel instead of adding up. Two liberties, both to save a sort of all keys:

- values of equal spacing (the linear part, or between the same two powers of two) are taken in any order; the spacings
  come in descending order, so what is left of the error is no larger than with the paper's descending values;
- the error is kept per group. One group for all is the paper; one per instance bounds each instance's estimate.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from streamtopology.routing.planners.plan import PlanError

Floats = npt.NDArray[np.float64]
Levels = npt.NDArray[np.int32]

LARGEST_DEGREE = 1 << 16
# Units that the largest value has at most. What is then below one unit is represented by 0 or by 1 unit.
RANGE = float(1 << 20)


def unit_of(values: Floats) -> float:
    """The value that counts as 1: the smallest positive one (the paper's normalisation), within `RANGE` of the largest."""
    least, most = _positive_range(values)
    return max(least, most / RANGE) if most > 0 else 1.0


def discretise(values: Floats, degree: int, groups: npt.NDArray[np.int32], n_groups: int) -> tuple[Levels, Floats]:
    """Levels int32[n] of values float64[n] >= 0, and the representative that each level 0..max stands for.

    degree: R, a power of two; groups int32[n] in 0..n_groups-1, whose errors are balanced apart. PlanError if R is not
    a power of two up to 65,536. A few ns a value.
    """
    if degree < 1 or degree & (degree - 1) or degree > LARGEST_DEGREE:
        raise PlanError(f"degree of discretisation R: {degree} must be a power of two from 1 to {LARGEST_DEGREE}")
    bits, unit = degree.bit_length() - 1, unit_of(values)
    levels = np.empty(len(values), np.int32)
    _fill_levels(values, 1 / unit, bits, groups, np.zeros(n_groups), levels)
    return levels, representatives(int(levels.max(initial=0)), degree) * unit


def representatives(highest: int, degree: int) -> Floats:
    """float64[highest + 1]: what levels 0..highest stand for, in units."""
    bits, level = degree.bit_length() - 1, np.arange(highest + 1)
    exponential = np.exp2(np.minimum(level, bits + 1) - 1.0)
    return np.where(level == 0, 0.0, np.where(level <= bits, exponential, (level - bits) * float(degree)))


@njit(cache=True, nogil=True)
def _positive_range(values: Any) -> tuple[float, float]:
    """The smallest positive value and the largest one; (inf, 0) if none is positive."""
    least, most = np.inf, 0.0
    for value in values:
        if value > 0:
            least, most = min(least, value), max(most, value)
    return least, most


@njit(cache=True, nogil=True)
def _fill_levels(values: Any, per_unit: float, bits: int, groups: Any, deviation: Any, levels: Any) -> None:
    """Levels in place; `deviation` (per group, in units) is what the representatives so far fall short in sum."""
    degree = 1 << bits
    log2 = np.zeros(degree, np.int8)
    for x in range(2, degree):
        log2[x] = log2[x >> 1] + 1
    exponents = np.empty(len(values), np.int8)  # of the spacing: 2^exponent units; -1 below one unit
    for i in range(len(values)):
        x = values[i] * per_unit
        if x >= degree:
            exponents[i] = bits
            lower = np.int64(x) >> bits
            short = x - float(lower << bits)
            up = short > 0 and deviation[groups[i]] > 0
            deviation[groups[i]] += short - degree * up
            levels[i] = bits + lower + up
        else:
            exponents[i] = log2[np.int64(x)] if x >= 1 else -1
    for exponent in range(bits - 1, -2, -1):
        lowest = float(1 << exponent) if exponent >= 0 else 0.0
        spacing = lowest if exponent >= 0 else 1.0
        for i in range(len(values)):
            if exponents[i] == exponent:
                short = values[i] * per_unit - lowest
                up = short > 0 and deviation[groups[i]] > 0
                deviation[groups[i]] += short - spacing * up
                levels[i] = exponent + 1 + up
