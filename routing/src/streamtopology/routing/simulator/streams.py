"""Streams of items as the papers draw them. Items are int64 ranks: 0 is the most frequent one unless said otherwise."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

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


def zipf_exponent(n_items: int, top_share: float) -> float:
    """The exponent with which the most frequent of n_items has this share, 1 / n_items <= top_share < 1; to 1e-9."""
    ranks = np.arange(1, n_items + 1, dtype=np.float64)
    low, high = 0.0, 64.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if 1.0 / (ranks**-middle).sum() < top_share else (low, middle)
    return low
