"""The streams of POSG's evaluation (Rivetti et al., section V-A), and what stands in for its tweets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from streamtopology.lab.reproduce.experiment import Parameters
from streamtopology.lab.reproduce.experiments.posg.queues import Stream
from streamtopology.lab.reproduce.trace import KEYS, read_trace
from streamtopology.lab.simulate.streams import draw, zipf_exponent, zipf_probabilities
from streamtopology.routing.table.hashing import hash_int64

Floats = npt.NDArray[np.float64]

MILLISECOND = 1e-3


def synthetic(parameters: Parameters, rng: np.random.Generator) -> Stream:
    """`m` tuples over `n` items, Zipf-`alpha`; `wn` execution times at equal steps in wmin..wmax ms fall to items at random."""
    n, wn = int(parameters["n"]), int(parameters["wn"])
    values: Floats = np.linspace(float(parameters["wmin"]), float(parameters["wmax"]), wn, dtype=np.float64) * MILLISECOND
    costs = rng.permutation(values[np.arange(n) * wn // n])
    items = draw(zipf_probabilities(n, parameters["alpha"]), int(parameters["m"]), rng)
    return _stream(items, costs, int(parameters["k"]), parameters["provisioning"], parameters.get("slowness"), rng)


def mentions(parameters: Parameters, rng: np.random.Generator) -> Stream:
    """In place of the tweets: `n` entities, Zipf with a first share of `p1`, of the classes media (25 ms), politicians
    (5 ms) and others (1 ms) in the shares given; the most frequent is a politician, as in the paper. Or the first `m` keys of a
    trace, with classes that are drawn."""
    shares = np.array(parameters["class_shares"])
    trace = read_trace(parameters["trace"], KEYS) if parameters["trace"] else None
    n = trace.n_keys if trace else int(parameters["n"])
    costs = rng.choice(np.array(parameters["class_ms"]) * MILLISECOND, n, p=shares / shares.sum())
    if trace:
        items = trace.keys[: int(parameters["m"])]
        costs[np.bincount(items).argmax()] = parameters["class_ms"][1] * MILLISECOND
    else:
        items = draw(zipf_probabilities(n, zipf_exponent(n, float(parameters["p1"]))), int(parameters["m"]), rng)
        costs[0] = parameters["class_ms"][1] * MILLISECOND
    return _stream(items, costs, int(parameters["k"]), parameters["provisioning"], None, rng)


def _stream(
    items: npt.NDArray[np.int64],
    costs: Floats,
    k: int,
    provisioning: float,
    periods: Sequence[Sequence[float]] | None,
    rng: np.random.Generator,
) -> Stream:
    """Tuples at equal intervals of `provisioning` percent of W / k. `periods`: slowness of instances, in equal parts.

    Items have other names, so other hashes, in each stream: which of them share a cell of a sketch is drawn, too.
    """
    slowness = np.ones((1, k)) if periods is None else np.array(periods, np.float64)
    starts = np.arange(len(slowness)) * len(items) // len(slowness)
    interval = float(costs[items].mean()) / k * provisioning / 100
    # Items are numbered in the order of their hashes: their names mean nothing, and sorted ones are found faster.
    hashes = hash_int64(np.arange(len(costs)) + int(rng.integers(1 << 40)))
    by_hash = np.argsort(hashes)
    number = np.empty(len(costs), np.int64)
    number[by_hash] = np.arange(len(costs))
    sorted_costs = np.empty(len(costs))
    sorted_costs[number] = costs
    return Stream(number[items], hashes[by_hash], sorted_costs, interval, starts, slowness)
