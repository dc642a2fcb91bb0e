"""Declared CPU work: `costPerTuple: 10us` is burnt for real, the same number of loop turns on every executor.

A slow executor takes longer for the same turns, as it would for a real computation; that is why turns are calibrated
once, in the driver, and not on each executor.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numba as nb
import numpy as np

_CALIBRATION_TURNS = 5_000_000
_SEED = np.uint64(0x9E3779B97F4A7C15)


@nb.njit(cache=True, nogil=True)
def _spin(turns: int, seed: np.uint64) -> np.uint64:
    """A xorshift64 chain: each turn needs the one before, so nothing can be skipped or done at once."""
    x = seed
    for _ in range(turns):
        x ^= x << np.uint64(13)
        x ^= x >> np.uint64(7)
        x ^= x << np.uint64(17)
    return x


@nb.njit(cache=True, nogil=True)
def _spin_each(turns: np.ndarray, seed: np.uint64) -> np.uint64:
    x = seed
    for i in range(turns.shape[0]):
        for _ in range(turns[i]):
            x ^= x << np.uint64(13)
            x ^= x >> np.uint64(7)
            x ^= x << np.uint64(17)
    return x


def burn(tuples: int, iterations: int) -> int:
    """Spend `iterations` loop turns of CPU on each of `tuples`; the result depends on every turn."""
    return int(_spin(tuples * iterations, _SEED)) if tuples and iterations else 0


def burn_each(iterations: np.ndarray) -> int:
    """Spend `iterations[i]` loop turns (int64[n], none negative) on tuple i."""
    return int(_spin_each(np.ascontiguousarray(iterations, np.int64), _SEED))


def iterations_for(seconds: float, runs: int = 5, cpu_clock: Callable[[], float] = time.thread_time) -> float:
    """Loop turns that take `seconds` of CPU here; `iterations_for(1.0)` is turns per second.

    The fastest of `runs` counts, in CPU time of this thread: other load on the machine shall not make work lighter.
    """
    _spin(1, _SEED)
    fastest = float("inf")
    for _ in range(runs):
        started = cpu_clock()
        _spin(_CALIBRATION_TURNS, _SEED)
        fastest = min(fastest, cpu_clock() - started)
    return seconds * _CALIBRATION_TURNS / fastest
