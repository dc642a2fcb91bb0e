"""Random operators and streams for the oracles: from a few keys to dozens, from even to heavy tails."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from papers.mixed import Operator

# Instances that a planner is held against by `make test-long`.
MANY = 1000

# Of these, in `make test`.
A_FEW = 40

LARGEST = 100_000

TAILS: list[Callable[[np.random.Generator, int], np.ndarray]] = [
    lambda rng, n: rng.integers(1, 100, n),
    lambda rng, n: 200 / np.arange(1, n + 1),  # Zipf's 1.0
    lambda rng, n: 5_000 / np.arange(1, n + 1) ** 2,
    lambda rng, n: 20 * (1 + rng.pareto(0.8, n)),  # without a mean: one key is often heavier than all others together
]


def costs(rng: np.random.Generator, n: int) -> list[int]:
    """n whole numbers from 1, in no order."""
    drawn = TAILS[rng.integers(len(TAILS))](rng, n)
    return rng.permutation(np.clip(np.rint(drawn), 1, LARGEST)).astype(int).tolist()


def operator(seed: int, most_keys: int = 200) -> tuple[Operator, int]:
    """An operator that has been re-routed before, more or less, and an N_max."""
    rng = np.random.default_rng(seed)
    k = int(rng.integers(2, 1 + min(8, most_keys // 2)))
    n = round(k * (most_keys / k) ** rng.random())
    cost = costs(rng, n)
    memory = costs(rng, n) if rng.random() < 0.5 else [max(int(c * rng.random() * 2), 1) for c in cost]
    home = rng.integers(0, k, n)
    moved = rng.random(n) < rng.choice([0.1, 0.5, 1.0])
    at = np.where(moved, rng.integers(0, k, n), home)
    percent = int(rng.choice([0, 2, 8, 30]))
    return Operator(cost, memory, home.tolist(), at.tolist(), k, percent), int(rng.integers(0, n + 1))
