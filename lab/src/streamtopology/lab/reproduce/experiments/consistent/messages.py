"""The paper's streams of messages, drawn piece by piece, and what a routing of them costs in balance and memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from streamtopology.lab.reproduce.experiment import Parameters
from streamtopology.lab.reproduce.trace import KEYS, read_trace
from streamtopology.lab.simulate.streams import Floats, Items, draw, zipf_exponent, zipf_probabilities
from streamtopology.routing.table.hashing import hash_int64

# Messages drawn at a time.
PIECE = 1_000_000

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


@dataclass(frozen=True, eq=False)
class Messages:
    """A stream that can be had again: `count` messages with `n_keys` keys; `pieces(seed, size)` gives it as `pieces` does."""

    count: int
    n_keys: int
    pieces: Callable[[int, int], Iterator[tuple[Items, npt.NDArray[np.uint64]]]]


def drawn(probabilities: Floats, count: int) -> Messages:
    return Messages(count, len(probabilities), lambda seed, size: pieces(probabilities, count, seed, size))


def wikipedia(parameters: Parameters) -> Messages:
    """The log's stand-in, or the trace that is named in place of it: the seed then decides on hashes only."""
    if not parameters["trace"]:
        return drawn(wikipedia_like(parameters["keys"], parameters["top_share"]), parameters["messages"])
    keys, n_keys = (trace := read_trace(parameters["trace"], KEYS)).keys, trace.n_keys

    def of_trace(seed: int, size: int) -> Iterator[tuple[Items, npt.NDArray[np.uint64]]]:
        for start in range(0, len(keys), size):
            piece = keys[start : start + size]
            yield piece, hash_int64(piece + (seed << 40))

    return Messages(len(keys), n_keys, of_trace)


@dataclass(eq=False)
class Tally:
    """The messages of each worker so far: messages (`loads` int64[n]) and distinct keys."""

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
