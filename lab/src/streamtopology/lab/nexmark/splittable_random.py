"""Java's SplittableRandom (java.util, JDK 17) for kernels: its state is uint64[2], the seed and what each step adds to it.

Bounded numbers, doubles and nexmark's own draws of them (LongGenerator, PriceGenerator, StringsGenerator) are equal to
Java's to the last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

State = npt.NDArray[np.uint64]

_GOLDEN_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_SPACE, _LOWER_A = 32, 97
_SHORTEST_STRING = 3
_MASK = 2**64 - 1


def unseeded(seed: int, number: int) -> State:
    """The state of call `number` of `new SplittableRandom()`, from 0, where Java's own seed, `defaultGen`, began as `seed`."""
    begun = seed + 2 * number * int(_GOLDEN_GAMMA)
    gamma = _mixed(begun + int(_GOLDEN_GAMMA), (33, 0xFF51AFD7ED558CCD), (33, 0xC4CEB9FE1A85EC53), 33) | 1
    if (gamma ^ gamma >> 1).bit_count() < 24:
        gamma ^= 0xAAAAAAAAAAAAAAAA
    return np.array([_mixed(begun, (30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), 31), gamma], np.uint64)


def _mixed(value: int, first: tuple[int, int], second: tuple[int, int], last: int) -> int:
    value &= _MASK
    for shift, factor in (first, second):
        value = (value ^ value >> shift) * factor & _MASK
    return value ^ value >> last


@njit(cache=True, nogil=True)
def seeded(seed: Any) -> Any:
    """The state of `new SplittableRandom(seed)`, of a uint64."""
    state = np.empty(2, np.uint64)
    state[0], state[1] = seed, _GOLDEN_GAMMA
    return state


@njit(cache=True, nogil=True)
def next_long(state: Any) -> Any:
    """nextLong(), as uint64."""
    state[0] += state[1]
    value = state[0]
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@njit(cache=True, nogil=True)
def next_uint32(state: Any) -> Any:
    """The 32 bits of nextInt(), as int64."""
    state[0] += state[1]
    value = state[0]
    value = (value ^ (value >> np.uint64(33))) * np.uint64(0x62A9D9ED799705F5)
    value = (value ^ (value >> np.uint64(28))) * np.uint64(0xCB24D0A5C88C35B3)
    return np.int64(value >> np.uint64(32))


@njit(cache=True, nogil=True)
def next_int(state: Any, bound: Any) -> Any:
    """nextInt(bound): int64 in [0, bound), for a bound from 1 to 2^31 - 1."""
    most = bound - 1
    drawn = next_uint32(state)
    if bound & most == 0:
        return drawn & most
    drawn >>= 1
    while drawn - drawn % bound + most >= 1 << 31:  # in Java this overflows an int: such numbers would come too often
        drawn = next_uint32(state) >> 1
    return drawn % bound


@njit(cache=True, nogil=True)
def next_up_to(state: Any, bound: Any) -> Any:
    """LongGenerator.nextLong: int64 in [0, bound)."""
    if bound < (1 << 31) - 1:
        return next_int(state, bound)
    drawn = next_long(state)
    if drawn >> np.uint64(63):
        drawn = np.uint64(0) - drawn  # Java's remainder has the number's sign, which nexmark drops
    return np.int64(drawn % np.uint64(bound))


@njit(cache=True, nogil=True)
def next_price(state: Any) -> Any:
    """PriceGenerator.nextPrice: int64 from 100 to 100,000,000."""
    share = np.float64(next_long(state) >> np.uint64(11)) * 2.0**-53
    return np.int64(np.floor(10.0 ** (share * 6.0) * 100.0 + 0.5))


@njit(cache=True, nogil=True)
def next_string(state: Any, longest: Any, special: Any, text: Any, at: Any) -> Any:
    """StringsGenerator.nextString: writes it to text uint8[] from `at` on, without spaces at its ends; returns its end."""
    end = at
    for _ in range(_SHORTEST_STRING + next_int(state, longest - _SHORTEST_STRING)):
        letter = special if next_int(state, 13) == 0 else _LOWER_A + next_int(state, 26)
        if letter != _SPACE or end > at:
            text[end] = letter
            end += 1
    while end > at and text[end - 1] == _SPACE:
        end -= 1
    return end
