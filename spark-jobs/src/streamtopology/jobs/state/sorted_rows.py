"""Rows of a fixed width in a file, sorted by the hash of their key: the part of a state that has no room in memory.

The file is a cache. It has no name, so nothing of it outlives the process, nobody else cuts or changes it, and nothing has to
be repaired: after a death, state is read from the checkpoint. A range of hashes is written anew as a whole, to another place in
the file, and counts from then on: an error on the way leaves the rows as they were.
"""

from __future__ import annotations

import itertools
import mmap
import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from streamtopology.contract.errors import StreamTopologyError
from streamtopology.contract.formatting import size
from streamtopology.jobs.lazy import LazyModule

if TYPE_CHECKING:
    from streamtopology.jobs.state import sorted_kernels as kernels
else:
    kernels = LazyModule("streamtopology.jobs.state.sorted_kernels")

BLOCK = 4096
RANGES = 64
_GROWTH = 1.25
# So many reads are under way at once: a disk answers them together.
_READERS = 16
_FEWEST_FOR_READERS = 64


class StateDiskError(StreamTopologyError, OSError):
    """The disk does not take the part of a state that has no room in memory. No tuple is at fault."""


class SortedRows:
    """Rows of `width` words; the first one is the hash, by which they are sorted. Hashes are unique.

    On disk they take at most eight times their bytes: a range has a place of a power of two of blocks, beside it that of its
    newest version, and the places that smaller versions have had. In memory, 8 bytes a block and a bit a row.
    """

    def __init__(self, width: int) -> None:
        self._width, self._per_block = width, BLOCK // (8 * width)
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - it is there as long as its rows
        self._blocks = self._taken = 0
        self._free: dict[int, list[int]] = {}
        self._words = np.empty(0, np.uint64)
        self._fences = np.empty(0, np.uint64)
        self._dead = np.empty(0, np.uint8)
        self._starts, self._counts = np.zeros(RANGES, np.int64), np.zeros(RANGES, np.int64)
        self._readers: ThreadPoolExecutor | None = None
        self._living = 0

    def __len__(self) -> int:
        return self._living

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self._fences.nbytes + self._dead.nbytes

    def find(self, hashes: np.ndarray) -> np.ndarray:
        """int64[n]: the rows of these hashes, uint64[n] in their order, as the other methods take them; -1 where there is none.

        About a microsecond each, where the page is in the page cache; each page is read once.
        """
        blocks, rows = np.empty(len(hashes), np.int64), np.empty(len(hashes), np.int64)
        kernels.locate(hashes, self._starts, self._counts, self._fences, self._per_block, blocks)
        self._read_ahead(without_repetitions(blocks[blocks >= 0]))
        kernels.search(
            hashes, blocks, self._words, self._starts, self._counts, self._per_block, self._width, self._dead, rows
        )  # fmt: skip
        return rows

    def read(self, rows: np.ndarray) -> np.ndarray:
        """uint64[n, width] of rows that `find` or `living` gave."""
        found = np.empty((len(rows), self._width), np.uint64)
        kernels.gather(self._words, rows, self._per_block, found)
        return found

    def living(self, which: int) -> np.ndarray:
        """int64[]: the rows of a range, in the order of their hashes."""
        rows = np.empty(self._counts[which] + 1, np.int64)
        first = int(self._starts[which]) * self._per_block
        return rows[: kernels.living(first, int(self._counts[which]), self._dead, rows)]

    def kill(self, rows: np.ndarray) -> None:
        """Let living rows, each once, be found no more; the next `put` to their range leaves them out."""
        kernels.mark(self._dead, rows, True)
        self._living -= len(rows)

    def revive(self, rows: np.ndarray) -> None:
        """Undo `kill`, as long as nothing was `put`."""
        kernels.mark(self._dead, rows, False)
        self._living += len(rows)

    def put(self, rows: np.ndarray) -> Iterator[tuple[int, int]]:
        """Write uint64[n, width], sorted by their hashes, in place of those of the same hash.

        Yields the first and the last of `rows` (exclusive) that are written, range by range. Each range that has some is
        written whole, at about 10 ns a row. Raises StateDiskError: what was not yielded is not there.
        """
        bounds = np.searchsorted(rows[:, 0], np.arange(1, RANGES, dtype=np.uint64) << np.uint64(64 - kernels.RANGE_BITS))
        bounds = [0, *bounds.tolist(), len(rows)]
        for which, (first, last) in enumerate(itertools.pairwise(bounds)):
            if first < last:
                self._put(which, rows[first:last])
                yield first, last

    def _put(self, which: int, changed: np.ndarray) -> None:
        held = int(self._counts[which])
        most = -(-(held + len(changed)) // self._per_block)
        out, fences = np.zeros(most * kernels.BLOCK_WORDS, np.uint64), np.empty(most, np.uint64)
        before = int(self._starts[which])
        alive = len(self.living(which))
        count = kernels.merge(
            self._words, before * self._per_block, held, self._per_block, self._dead, changed, out, fences
        )  # fmt: skip
        blocks = -(-count // self._per_block)
        start = self._place(blocks)
        self._write(start, out[: blocks * kernels.BLOCK_WORDS])
        self._fences[start : start + blocks] = fences[:blocks]
        rows = np.arange(start * self._per_block, start * self._per_block + count)
        kernels.mark(self._dead, rows, False)
        if held:
            self._free.setdefault(_size_of(-(-held // self._per_block)), []).append(before)
        self._starts[which], self._counts[which] = start, count
        self._living += count - alive

    def _place(self, blocks: int) -> int:
        """The first of so many blocks of the file that nothing is in."""
        size = _size_of(blocks)
        if self._free.get(size):
            return self._free[size].pop()
        if self._taken + size > self._blocks:
            self._grow(max(self._taken + size, int(self._blocks * _GROWTH)))
        self._taken += size
        return self._taken - size

    def _grow(self, blocks: int) -> None:
        with _explaining(blocks * BLOCK):
            os.posix_fallocate(self._file.fileno(), self._blocks * BLOCK, (blocks - self._blocks) * BLOCK)
            mapped = mmap.mmap(self._file.fileno(), blocks * BLOCK, mmap.MAP_SHARED, mmap.PROT_READ)
        mapped.madvise(mmap.MADV_RANDOM)
        self._words = np.frombuffer(mapped, np.uint64)
        self._fences = _longer(self._fences, blocks)
        self._dead = _longer(self._dead, blocks * self._per_block // 8 + 1)
        self._blocks = blocks

    def _write(self, block: int, words: np.ndarray) -> None:
        rest, offset = words.data.cast("B"), block * BLOCK
        with _explaining(self._blocks * BLOCK):
            while rest.nbytes:
                written = os.pwrite(self._file.fileno(), rest, offset)
                rest, offset = rest[written:], offset + written

    def _read_ahead(self, blocks: np.ndarray) -> None:
        """Have the pages of these blocks in memory: read one after the other, each would wait for the disk."""
        if len(blocks) < _FEWEST_FOR_READERS:
            return
        self._readers = self._readers or ThreadPoolExecutor(_READERS, thread_name_prefix="state-read")
        list(self._readers.map(lambda part: kernels.read_ahead(self._words, part), np.array_split(blocks, _READERS)))


def without_repetitions(ordered: np.ndarray) -> np.ndarray:
    return ordered[np.flatnonzero(np.diff(ordered, prepend=~ordered[:1]))] if len(ordered) else ordered


def values_of(hashes: np.ndarray) -> np.ndarray:
    """uint64[n]: the words of the numbers that have these hashes, uint64[n]."""
    values = np.empty(len(hashes), np.uint64)
    kernels.unmix(np.ascontiguousarray(hashes), values)
    return values


def _size_of(blocks: int) -> int:
    """The blocks of a place for so many: a power of two."""
    return 1 << (blocks - 1).bit_length()


def _longer(array: np.ndarray, size: int) -> np.ndarray:
    longer = np.zeros(size, array.dtype)
    longer[: len(array)] = array
    return longer


@contextmanager
def _explaining(wanted: int) -> Iterator[None]:
    """Raise StateDiskError for an OSError of the file, which was to have `wanted` bytes."""
    try:
        yield
    except OSError as error:
        raise StateDiskError(
            f"state on disk cannot have its {size(wanted)} in {tempfile.gettempdir()}: {error.strerror or error}. Nothing is "
            "lost: make room there, name a larger disk by TMPDIR, or raise `memory` of the operator's state, and start again"
        ) from error
