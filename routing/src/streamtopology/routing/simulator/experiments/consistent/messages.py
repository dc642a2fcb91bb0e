"""The paper's streams of messages, drawn piece by piece, and what a routing of them costs in balance and memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from streamtopology.routing.hashing import hash_int64
from streamtopology.routing.simulator.streams import Floats, Items, draw, zipf_exponent, zipf_probabilities

PIECE = 1_000_000
"""Messages drawn at a time."""

STAND_IN = (
    "The log of Wikipedia pages (wikibench.eu, January 2008; 22 M messages, 2.9 M keys, p1 = 9.32 %) is replaced by "
    "independent draws from a Zipf distribution over as many keys with this p1 (exponent 1.05): no daily rhythm, no drift."
)


def wikipedia_like(n_keys: int, top_share: float) -> Floats:
    """Zipf over n_keys whose most frequent one has `top_share` of the messages (9.32 % in table I)."""
    return zipf_probabilities(n_keys, zipf_exponent(n_keys, top_share))


def pieces(
    probabilities: Floats, messages: int, seed: int, size: int = PIECE
) -> Iterator[tuple[Items, npt.NDArray[np.uint64]]]:
    """The stream as (keys int64[m], their hashes uint64[m]), m <= size; the seed decides on draws and on hashes."""
    rng = np.random.default_rng(seed)
    for start in range(0, messages, size):
        keys = draw(probabilities, min(size, messages - start), rng)
        yield keys, hash_int64(keys + (seed << 40))


@dataclass(eq=False)
class Tally:
    """What each worker got so far: messages (`loads` int64[n]) and distinct keys."""

    n_keys: int
    n_workers: int
    replicas: int = 0
    loads: npt.NDArray[np.int64] = field(init=False)
    _has: npt.NDArray[np.uint64] = field(init=False)

    def __post_init__(self) -> None:
        self.loads = np.zeros(self.n_workers, np.int64)
        self._has = np.zeros((self.n_keys, -(-self.n_workers // 64)), np.uint64)

    def add(self, keys: Items, workers: npt.NDArray[np.int32]) -> None:
        """Messages with these keys went to these workers."""
        self.replicas += int(_add(keys, workers, self.loads, self._has))

    @property
    def imbalance(self) -> float:
        """I(m) over the average load (section III): 0 is perfect, epsilon is PoRC's bound."""
        return float(self.loads.max() / self.loads.mean()) - 1

    @property
    def memory(self) -> float:
        """Keys kept by all workers together (M_w(m) of section III), as a share of the messages."""
        return self.replicas / int(self.loads.sum())


@njit(cache=True, nogil=True)
def _add(keys: Any, workers: Any, loads: Any, has: Any) -> Any:
    """Counts messages per worker and marks who has which key; returns how many marks are new."""
    new = np.int64(0)
    for i in range(len(keys)):
        worker = np.uint64(workers[i])
        loads[worker] += 1
        word, bit = has[keys[i], worker >> np.uint64(6)], worker & np.uint64(63)
        new += np.int64(np.uint64(1) & ~(word >> bit))
        has[keys[i], worker >> np.uint64(6)] = word | (np.uint64(1) << bit)
    return new
