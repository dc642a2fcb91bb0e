"""Streams whose hot keys change: Zipf keys of which some change places from interval to interval, or a trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from streamtopology.lab.reproduce.trace import KEYS, read_trace
from streamtopology.lab.simulate.streams import draw, zipf_probabilities

Items = npt.NDArray[np.int64]


def intervals_of(parameters: Mapping[str, Any], zipf: float, drift: float, seed: int) -> Iterator[Items]:
    """The keys of each of `intervals` intervals, in the order of their tuples: int64[`tuples`], numbered below `n_keys_of`.

    Between two intervals each rank loses its key with the probability `drift` to another rank that does. Of a trace the
    intervals are equal parts of its time, and neither of the two numbers counts.
    """
    count = int(parameters["intervals"])
    if parameters["trace"]:
        trace = read_trace(str(parameters["trace"]), KEYS)
        yield from (trace.keys[rows] for rows in trace.periods(count))
        return
    rng = np.random.default_rng(seed)
    of_rank = rng.permutation(int(parameters["keys"]))
    probabilities = zipf_probabilities(len(of_rank), zipf)
    for _ in range(count):
        yield of_rank[draw(probabilities, int(parameters["tuples"]), rng)]
        moving = np.flatnonzero(rng.random(len(of_rank)) < drift)
        of_rank[moving] = of_rank[rng.permutation(moving)]


def n_keys_of(parameters: Mapping[str, Any]) -> int:
    """The number of keys that the stream may have."""
    return read_trace(str(parameters["trace"]), KEYS).n_keys if parameters["trace"] else int(parameters["keys"])
