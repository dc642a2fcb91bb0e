"""HyperLogLog: how many different values a stream has, with a standard deviation of 5 %, in 512 bytes.

Registers as in Flajolet, Fusy, Gandouet, Meunier 2007; the estimate is Ertl's, "New cardinality estimation algorithms for
HyperLogLog sketches", 2017, algorithm 6, which needs no tables of measured corrections.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

_INDEX_BITS = 9
REGISTERS = 1 << _INDEX_BITS
_RANK_BITS = 64 - _INDEX_BITS


def registers_of(hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(int64[n] which register, uint8[n] the least value that it then has) for the hashes, uint64[n], of values."""
    registers = (hashes >> np.uint64(_RANK_BITS)).astype(np.int64)
    rest = hashes & np.uint64((1 << _RANK_BITS) - 1)
    # A float has 53 bits: without the last two of 55 none is rounded up.
    highest = np.frexp(np.where(rest < 4, rest, rest & ~np.uint64(3)).astype(np.float64))[1]
    return registers, (_RANK_BITS + 1 - highest).astype(np.uint8)


def estimates(registers: np.ndarray) -> np.ndarray:
    """float64[n]: how many different values made these registers, uint8[n, REGISTERS]."""
    n, most = len(registers), _RANK_BITS + 1
    rows = np.arange(n)[:, None] * (most + 1)
    held = np.bincount((rows + registers).reshape(-1), minlength=n * (most + 1)).reshape(n, most + 1)
    of_empty, of_full = _corrections()
    total = of_full[held[:, most]]
    for rank in range(most - 1, 0, -1):
        total = 0.5 * (total + held[:, rank])
    total = total + of_empty[held[:, 0]]
    return REGISTERS * REGISTERS / (2 * math.log(2) * total)


@cache
def _corrections() -> tuple[np.ndarray, np.ndarray]:
    """Ertl's m sigma(c / m) and m tau(1 - c / m) for c = 0 to m, float64[m + 1] each."""
    shares = [count / REGISTERS for count in range(REGISTERS + 1)]
    empty, full = ([function(share) for share in shares] for function in (_sigma, lambda share: _tau(1 - share)))
    return REGISTERS * np.array(empty), REGISTERS * np.array(full)


def _sigma(x: float) -> float:
    if x == 1:
        return math.inf
    total, before, weight = x, -1.0, 1.0
    while total != before:
        x, before = x * x, total
        total, weight = total + x * weight, 2 * weight
    return total


def _tau(x: float) -> float:
    if x in (0, 1):
        return 0.0
    total, before, weight = 1 - x, -1.0, 1.0
    while total != before:
        x, before, weight = math.sqrt(x), total, 0.5 * weight
        total -= (1 - x) ** 2 * weight
    return total / 3
