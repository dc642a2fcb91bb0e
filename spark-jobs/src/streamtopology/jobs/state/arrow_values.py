"""The values of a state field of any Arrow type, each at a *place*: the number that the state keeps for a key.

A value is never changed where it is. A new value gets a new place, and what no key points to is garbage. So before-images,
rollback and moving keys handle numbers and decode no value. Now and then a sweep copies what still lives out of chunks that
are mostly garbage, a bounded part at a time.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa

from streamtopology.jobs.state.value_types import row_bytes

# The place of NULL, the value of a new key.
NULL = 0

# Below it memory is not worth a sweep.
_FLOOR = 1 << 20
# Bytes held, as a multiple of those that lived at the last sweep, that call for the next one, and that one leaves.
_MOST_HELD, _LEFT_HELD = 1.35, 1.1
# A sweep copies at most so many bytes, or so many for each that came since the last one, which keeps up with any stream.
_COPIED, _COPIED_PER_BYTE = 16 << 20, 4
# Each chunk costs a call of Arrow when values are taken, so small ones are merged.
_MOST_SMALL, _LARGE = 64, 32 << 20


class ArrowValues:
    """Values of one Arrow type by their place, int64.

    >>> values = ArrowValues(pa.string())
    >>> places = values.append(pa.array(["a", None, "c"]))
    >>> values.take(places[[2, 0]]).to_pylist()
    ['c', 'a']
    """

    def __init__(self, kind: pa.DataType) -> None:
        self._chunks: list[pa.Array] = [pa.nulls(1, kind)]
        self._starts = np.zeros(1, np.int64)  # the first place of each chunk; places in dropped chunks are not used again
        self._end = 1
        self._bytes = self._bytes_at_sweep = self._living_at_sweep = 0
        self._settled = (1, 1)  # chunks and places that are committed

    @property
    def nbytes(self) -> int:
        """Bytes of all chunks."""
        return self._bytes + self._starts.nbytes

    def append(self, values: pa.Array) -> np.ndarray:
        """int64[n]: the places of `values`, which are copied, since they may lie in the memory of a whole batch."""
        return self._add(pa.concat_arrays([values, values.slice(0, 0)]))  # of one array alone Arrow makes no copy

    def _add(self, chunk: pa.Array) -> np.ndarray:
        first = self._end
        if len(chunk):
            self._chunks.append(chunk)
            self._starts = np.append(self._starts, first)
            self._end += len(chunk)
            self._bytes += chunk.nbytes
        return np.arange(first, self._end)

    def take(self, places: np.ndarray) -> pa.Array:
        """The values at `places`, int64[n]."""
        chunks = self._chunks_of(places)
        order = np.argsort(chunks, kind="stable")
        sorted_chunks, sorted_places = chunks[order], places[order]
        bounds = [*np.flatnonzero(np.diff(sorted_chunks, prepend=-1)).tolist(), len(places)]
        pieces = [
            self._chunks[sorted_chunks[start]].take(pa.array(sorted_places[start:end] - self._starts[sorted_chunks[start]]))
            for start, end in pairwise(bounds)
        ]
        if len(pieces) <= 1:
            return pieces[0] if pieces else self._chunks[0].slice(0, 0)
        back = np.empty(len(places), np.int64)
        back[order] = np.arange(len(places))
        return pa.concat_arrays(pieces).take(pa.array(back))

    def rollback(self) -> None:
        """Forget what was appended since the last commit: no key points to it any more."""
        count, self._end = self._settled
        self._bytes -= sum(chunk.nbytes for chunk in self._chunks[count:])
        del self._chunks[count:]
        self._starts = self._starts[:count].copy()

    def commit(self) -> None:
        """Keep what was appended."""
        self._settled = len(self._chunks), self._end

    @property
    def wants_sweep(self) -> bool:
        """True if garbage may have become too much, or chunks too many."""
        at_least_small = len(self._chunks) - self._bytes // _LARGE
        return at_least_small > _MOST_SMALL or self._bytes > max(_FLOOR, _MOST_HELD * self._living_at_sweep)

    def sweep(self, places: np.ndarray) -> np.ndarray:
        """Free garbage, between two batches. places: int64[n], all that keys point to; returns the new place of each."""
        chunks = self._chunks_of(places)
        held, living = self._weighed(chunks, places)
        leaving = self._leaving(held, living)
        moving = np.flatnonzero(leaving[chunks])
        swept = places.copy()
        swept[moving] = self._add(self.take(places[moving]))
        kept = np.flatnonzero(~np.append(leaving, np.zeros(len(self._chunks) - len(leaving), np.bool_)))
        self._chunks = [self._chunks[chunk] for chunk in kept]
        self._starts = self._starts[kept]
        self._bytes = sum(chunk.nbytes for chunk in self._chunks)
        self._bytes_at_sweep, self._living_at_sweep = self._bytes, int(living.sum())
        self.commit()
        return swept

    def _chunks_of(self, places: np.ndarray) -> np.ndarray:
        return np.searchsorted(self._starts, places, "right") - 1

    def _weighed(self, chunks: np.ndarray, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """int64[chunks]: the bytes of all values of each chunk, and of those at `places`."""
        held, living = np.zeros((2, len(self._chunks)), np.int64)
        order = np.argsort(chunks, kind="stable")
        bounds = np.searchsorted(chunks[order], np.arange(len(self._chunks) + 1))
        for chunk, values in enumerate(self._chunks):
            sizes = row_bytes(values)
            alive = places[order[bounds[chunk] : bounds[chunk + 1]]] - self._starts[chunk]
            held[chunk] = values.nbytes
            living[chunk] = np.ceil(values.nbytes * sizes[alive].sum() / max(sizes.sum(), 1)) if sizes.any() else len(alive)
        return held, living

    def _leaving(self, held: np.ndarray, living: np.ndarray) -> np.ndarray:
        """bool[chunks]: those to drop, after their living values are copied. The chunk of NULL stays."""
        leaving = living == 0
        most = max(_COPIED, _COPIED_PER_BYTE * (self._bytes - self._bytes_at_sweep))
        garbage = held - living
        left, copied = int(garbage[~leaving].sum()), 0
        for chunk in np.argsort(-garbage / np.maximum(held, 1), kind="stable").tolist():
            if left <= (_LEFT_HELD - 1) * living.sum() or copied + living[chunk] > most:
                break
            if not leaving[chunk]:
                leaving[chunk] = True
                left -= int(garbage[chunk])
                copied += int(living[chunk])
        small = np.flatnonzero(~leaving & (held < _LARGE))
        if len(small) > _MOST_SMALL // 2:
            by_size = small[np.argsort(held[small], kind="stable")]
            leaving[by_size[: len(small) - _MOST_SMALL // 4]] = True
        leaving[0] = False
        return leaving
