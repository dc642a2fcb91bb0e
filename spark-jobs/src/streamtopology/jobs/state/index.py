"""The slot of each key: the index, the keys themselves and the free slots.

It knows nothing of values. Slots are dense and reused; a slot freed in a batch is not given out again before the batch
is committed, so that a rollback finds its key and its values where they were.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from streamtopology.jobs.columnar.keys import NO_NULLS, KeyColumns, key_kind
from streamtopology.jobs.lazy import LazyModule
from streamtopology.jobs.state.layout import ARENA_USED, FREE, FREE_SLOTS, LENGTH_BITS, LONGEST, NULL_SLOT, SIZE
from streamtopology.jobs.state.schema import StateError

if TYPE_CHECKING:
    from streamtopology.jobs.columnar import key_kernels
    from streamtopology.jobs.state import kernels
    from streamtopology.routing.table import hashing
else:
    key_kernels = LazyModule("streamtopology.jobs.columnar.key_kernels")
    kernels = LazyModule("streamtopology.jobs.state.kernels")
    hashing = LazyModule("streamtopology.routing.table.hashing")

GROWTH = 1.5
FEWEST_SLOTS = 512
FEWEST_ARENA_BYTES = 16 * 1024
LARGEST_ARENA = 1 << (63 - LENGTH_BITS)
# Share of the index entries that may be taken; linear probing stays short up to here.
FULLEST = 0.6

NO_SLOTS = np.empty(0, dtype=np.int64)


class KeyIndex:
    """Slots of keys of one kind. `stamps` (int32[capacity]) is the caller's: FREE, or when the slot was touched."""

    def __init__(self, key_types: pa.Schema) -> None:
        self._types = key_types
        self._is_bytes = key_kind(key_types) == "bytes"
        self._codes = np.empty(FEWEST_SLOTS, dtype=np.uint64)
        self._places = np.empty(FEWEST_SLOTS if self._is_bytes else 0, dtype=np.int64)
        self._arena = np.empty(FEWEST_ARENA_BYTES if self._is_bytes else 0, dtype=np.uint8)
        self._dead_bytes = 0
        self._free = np.empty(0, dtype=np.int32)
        self._counters = np.array([0, 0, -1, 0], dtype=np.int64)
        self._marked = self._counters.copy()
        self._index = _no_entries(2 * FEWEST_SLOTS)
        self.stamps = np.full(FEWEST_SLOTS, FREE, dtype=np.int32)

    @property
    def capacity(self) -> int:
        """The number of slots that the arrays have room for."""
        return self._codes.size

    @property
    def taken(self) -> int:
        """The number of slots given out and not released."""
        return int(self._counters[SIZE] - self._counters[FREE_SLOTS])

    @property
    def null_slot(self) -> int:
        """The slot of the NULL key; -1: there is none."""
        return int(self._counters[NULL_SLOT])

    @property
    def nbytes(self) -> int:
        """Bytes of every array held, room to grow included."""
        arrays = (self._codes, self._places, self._arena, self._free, self._index, self.stamps)
        return sum(array.nbytes for array in arrays)

    def upsert(self, keys: KeyColumns, stamp: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Slots of the keys (int64[n]), which of them got the stamp just now, which are new (int32[], stamp + 1)."""
        codes, valid = self._codes_of(keys), _flags(keys)
        slots = np.empty(len(keys), dtype=np.int64)
        touched, inserted = np.empty(len(keys), dtype=np.int32), np.empty(len(keys), dtype=np.int32)
        row = n_touched = n_inserted = 0
        while True:
            row, more_touched, more_inserted = kernels.upsert(
                codes, keys.offsets, keys.data, valid, self._is_bytes, row, self._most_keys, stamp,
                self._index, self._shift, self._codes, self._places, self._arena, self.stamps, self._free,
                self._counters, slots, touched[n_touched:], inserted[n_inserted:],
            )  # fmt: skip
            n_touched += more_touched
            n_inserted += more_inserted
            if row == len(keys):
                return slots, touched[:n_touched].copy(), inserted[:n_inserted].copy()
            self._grow(int(keys.offsets[row + 1] - keys.offsets[row]) if self._is_bytes else 0)

    def find(self, keys: KeyColumns) -> np.ndarray:
        """Slots of the keys (int64[n]), -1 where there is none."""
        slots = np.empty(len(keys), dtype=np.int64)
        kernels.find(
            self._codes_of(keys), keys.offsets, keys.data, _flags(keys), self._is_bytes,
            self._index, self._shift, self._codes, self._places, self._arena, self.stamps, self._counters, slots,
        )  # fmt: skip
        return slots

    def unlink(self, slots: np.ndarray) -> None:
        """Make the keys of these slots unknown; keys and slots stay as they are."""
        kernels.unlink(self._index, self._shift, self._codes, slots, self._counters[NULL_SLOT])
        if self._counters[NULL_SLOT] >= 0 and np.any(slots == self._counters[NULL_SLOT]):
            self._counters[NULL_SLOT] = -1

    def mark(self) -> None:
        """Begin a batch: what `rewind` goes back to."""
        self._marked = self._counters.copy()

    def rewind(self, unlinked: np.ndarray) -> None:
        """Give back every slot taken since `mark` (they are unlinked already) and make `unlinked` keys known again."""
        self._counters[:] = self._marked
        kernels.link(self._index, self._shift, self._codes, unlinked, self._counters[NULL_SLOT])

    def release(self, slots: np.ndarray) -> None:
        """Let unlinked slots be given out again."""
        used = int(self._counters[FREE_SLOTS])
        if used + slots.size > self._free.size:
            self._free = _grown(self._free, max(used + slots.size, int(used * GROWTH)), used)
        self._free[used : used + slots.size] = slots
        self._counters[FREE_SLOTS] += slots.size
        if self._is_bytes:
            self._dead_bytes += int((self._places[slots] & LONGEST).sum())
            if self._dead_bytes > max(FEWEST_ARENA_BYTES, self._counters[ARENA_USED] // 2):
                self._compact_arena()

    def live(self) -> np.ndarray:
        """int64[]: the slots that hold a key, ascending."""
        return np.flatnonzero(self.stamps[: self._counters[SIZE]] != FREE)

    def touched_since(self, stamp: int) -> np.ndarray:
        """int64[]: the slots that hold a key and have this stamp or a later one."""
        return np.flatnonzero(self.stamps[: self._counters[SIZE]] >= stamp)

    def in_buckets(self, flagged: np.ndarray, routing: np.ndarray | None) -> np.ndarray:
        """int64[]: the slots of keys whose bucket is flagged (bool[]), and that of NULL.

        A key's bucket is by `routing` (uint64[capacity]), where there is one, or by its own hash.
        """
        size = int(self._counters[SIZE])
        slots = np.empty(size + 1, dtype=np.int64)
        codes, are_hashes = (self._codes, self._is_bytes) if routing is None else (routing, True)
        n = kernels.in_buckets(codes, are_hashes, self.stamps[:size], int(self._counters[NULL_SLOT]), flagged, slots)
        return slots[:n].copy()

    def keys(self, slots: np.ndarray) -> KeyColumns:
        """The keys in these slots."""
        valid = self._valid(slots)
        if not self._is_bytes:
            return KeyColumns.of_values(self._types, self._codes[slots].view(np.int64), valid)
        offsets, data = self._bytes_of(slots)
        return KeyColumns.of_bytes(self._types, offsets, data, valid).with_hashes(self._codes[slots])

    def hashes(self, slots: np.ndarray) -> np.ndarray:
        """uint64[]: the hash of the key in each of these slots."""
        if self._is_bytes:
            return self._codes[slots]
        return hashing.hash_int64(self._codes[slots].view(np.int64), self._valid(slots))

    def reserve(self, keys: int, key_bytes: int) -> None:
        """Make room for `keys` more keys of `key_bytes` in all, as when their number is known from a file."""
        if self.taken + keys > self.capacity:
            self._grow_slots(self.taken + keys)
        while keys + self.taken > self._most_keys:
            self._double_index()
        if self._is_bytes:
            self._grow_arena(key_bytes)

    @property
    def _most_keys(self) -> int:
        return int(self._index.size * FULLEST)

    @property
    def _shift(self) -> int:
        return 65 - self._index.size.bit_length()

    def _valid(self, slots: np.ndarray) -> np.ndarray | None:
        """bool: the slots that do not hold NULL; a NULL deleted in this batch counts as NULL until its tombstone is written."""
        now, before = self._counters[NULL_SLOT], self._marked[NULL_SLOT]
        return None if now < 0 and before < 0 else (slots != now) & (slots != before)

    def _codes_of(self, keys: KeyColumns) -> np.ndarray:
        return keys.hashes if self._is_bytes else keys.values.view(np.uint64)

    def _grow(self, key_bytes: int) -> None:
        if self.taken >= self._most_keys:
            self._double_index()
        if self._counters[FREE_SLOTS] == 0 and self._counters[SIZE] == self.capacity:
            self._grow_slots(int(self.capacity * GROWTH))
        if self._is_bytes:
            self._grow_arena(key_bytes)

    def _grow_slots(self, capacity: int) -> None:
        size = int(self._counters[SIZE])
        self._codes = _grown(self._codes, capacity, size)
        self.stamps = _grown(self.stamps, capacity, size)
        if self._is_bytes:
            self._places = _grown(self._places, capacity, size)

    def _grow_arena(self, more: int) -> None:
        used = int(self._counters[ARENA_USED])
        if more > LONGEST or used + more > LARGEST_ARENA:
            raise StateError(
                f"a key of {more:,} bytes does not fit next to {used:,} bytes of other keys: an instance holds at most "
                f"{LARGEST_ARENA:,} bytes of keys, {LONGEST:,} a key; raise `parallelism` or use a shorter key"
            )
        if used + more > self._arena.size:
            self._arena = _grown(self._arena, max(used + more, int(self._arena.size * GROWTH)), used)

    def _double_index(self) -> None:
        self._index = _no_entries(2 * self._index.size)
        kernels.link(self._index, self._shift, self._codes, self.live(), self._counters[NULL_SLOT])

    def _bytes_of(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        offsets = np.zeros(slots.size + 1, dtype=np.int64)
        places = self._places[slots]
        np.cumsum(places & LONGEST, out=offsets[1:])
        data = np.empty(int(offsets[-1]), dtype=np.uint8)
        key_kernels.gather_bytes(places >> LENGTH_BITS, offsets, self._arena, data)
        return offsets, data

    def _compact_arena(self) -> None:
        slots = self.live()
        offsets, self._arena = self._bytes_of(slots)
        self._places[slots] = offsets[:-1] << LENGTH_BITS | np.diff(offsets)
        self._counters[ARENA_USED] = self._arena.size
        self._dead_bytes = 0


def _flags(keys: KeyColumns) -> np.ndarray:
    return NO_NULLS if keys.valid is None else keys.valid


def _grown(array: np.ndarray, capacity: int, used: int) -> np.ndarray:
    larger = np.empty(capacity, dtype=array.dtype)
    larger[:used] = array[:used]
    return larger


def _no_entries(size: int) -> np.ndarray:
    # Not np.zeros: only np.empty asks for huge pages, and lookups at random are six times as fast on them.
    index = np.empty(size, dtype=np.uint64)
    index.fill(0)
    return index
