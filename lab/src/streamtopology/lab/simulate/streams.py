"""Streams of items as the papers draw them. Items are int64 ranks: 0 is the most frequent one unless stated otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

Items = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def zipf_probabilities(n_items: int, exponent: float) -> Floats:
    """float64[n_items], summing to 1: item i has a share in proportion to 1 / (i + 1)^exponent; 0 is uniform."""
    weights = 1.0 / np.arange(1, n_items + 1, dtype=np.float64) ** exponent
    return weights / weights.sum()


def draw(probabilities: Floats, size: int, rng: np.random.Generator) -> Items:
    """int64[size] items, independent, item i with probabilities[i]."""
    upper = np.cumsum(probabilities)
    upper[-1] = 1.0  # rounding must not leave a gap at the end
    return np.searchsorted(upper, rng.random(size), side="right").astype(np.int64)


def zipf_counts(n_items: int, exponent: float, size: int) -> Items:
    """int64[n_items]: how often each item occurs among about `size` tuples, as expected; at least once each."""
    return np.maximum(np.rint(zipf_probabilities(n_items, exponent) * size), 1).astype(np.int64)


def swapped(counts: Items, owners: npt.NDArray[np.int32], instance: int, change: float, rng: np.random.Generator) -> Items:
    """The counts of the next interval, after swaps of counts between keys of different instances (mixed-routing, section 5).

    counts int64[n] and owners int32[n] of the keys. Random keys of `instance` trade with random keys elsewhere that are
    more frequent, until its load has grown by `change`, in tuples, or as far as it will. Swaps in any direction would all
    but cancel each other: the load of an instance would hardly leave what hashing gives.
    """
    mine, others = np.flatnonzero(owners == instance), np.flatnonzero(owners != instance)
    after, gained = counts.copy(), 0
    for _ in range(_SWAP_ROUNDS):
        if gained >= change or not len(mine) or not len(others):
            break
        tries = min(len(mine), _SWAP_TRIES)
        here, there = rng.choice(mine, tries), rng.choice(others, tries)
        gained += _swap(after, here, there, change - gained)
    return after


_SWAP_TRIES = 1 << 14
# Tries per key of an instance, or 2^14 if it has more, times this: by then it has what it can get.
_SWAP_ROUNDS = 200


@njit(cache=True, nogil=True)
def _swap(counts: Any, here: Any, there: Any, wanted: float) -> int:
    """Swaps in place, pair after pair, until enough is gained; returns what was."""
    gained = 0
    for i in range(len(here)):
        if gained >= wanted:
            break
        gain = counts[there[i]] - counts[here[i]]
        if gain > 0:
            counts[here[i]], counts[there[i]] = counts[there[i]], counts[here[i]]
            gained += gain
    return gained


def swapped_at_random(counts: Items, owners: npt.NDArray[np.int32], change: float, rng: np.random.Generator) -> Items:
    """The counts of the next interval, after swaps between random keys of different instances, whichever is heavier.

    Swaps end when the load of some instance has changed by `change`, in tuples. After as many as there are keys they end
    in any case: the counts are then dealt out at random, and more swaps change the loads no further.
    """
    after = counts.copy()
    first, second = rng.integers(len(counts), size=(2, len(counts)))
    _swap_until(after, owners, first, second, change, np.zeros(int(owners.max(initial=0)) + 1))
    return after


@njit(cache=True, nogil=True)
def _swap_until(counts: Any, owners: Any, first: Any, second: Any, change: float, grown: Any) -> None:
    """Swaps in place, pair after pair; `grown` float64[instances] starts at 0 and is used up."""
    for i in range(len(first)):
        here, there = owners[first[i]], owners[second[i]]
        if here == there:
            continue
        gain = counts[second[i]] - counts[first[i]]
        counts[first[i]], counts[second[i]] = counts[second[i]], counts[first[i]]
        grown[here] += gain
        grown[there] -= gain
        if abs(grown[here]) >= change or abs(grown[there]) >= change:
            break


def zipf_exponent(n_items: int, top_share: float) -> float:
    """The exponent with which the most frequent of n_items has this share, 1 / n_items <= top_share < 1; to 1e-9."""
    ranks = np.arange(1, n_items + 1, dtype=np.float64)
    low, high = 0.0, 64.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if 1.0 / (ranks**-middle).sum() < top_share else (low, middle)
    return low
