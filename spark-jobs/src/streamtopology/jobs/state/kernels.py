"""The index of keyed state: open addressing with linear probing from a key to its slot.

An entry is slot + 1, 0 is free, so that an index costs 4 bytes an entry and the keys stay in slot order. Every slot has a
64-bit *code*: the value of an int64 key, the hash of a bytes key. Equal codes of bytes keys are confirmed in the arena of
key bytes, so two keys with one hash stay two keys. Removal shifts later entries back, so there are no tombstones to clean.
The NULL key is not in the index; its slot is a counter.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types

FREE = -1
"""The stamp of a slot that holds no key."""

SIZE, FREE_SLOTS, NULL_SLOT, ARENA_USED = range(4)
"""Positions in the `counters` of a key index."""

LENGTH_BITS = 31
LONGEST = (1 << LENGTH_BITS) - 1
"""A key's place in the arena is start << LENGTH_BITS | length: keys up to 2 GB in an arena up to 4 GB."""

AHEAD = 32
"""Rows whose lookups are under way at once: enough to hide a cache miss, few enough to stay in the first-level cache."""

Int64s = types.Array(types.int64, 1, "C", readonly=True)
UInt64s = types.Array(types.uint64, 1, "C", readonly=True)
Bytes = types.Array(types.uint8, 1, "C", readonly=True)
Flags = types.Array(types.boolean, 1, "C", readonly=True)
Int64sOut = types.Array(types.int64, 1, "C")
UInt64sOut = types.Array(types.uint64, 1, "C")
Int32sOut = types.Array(types.int32, 1, "C")
BytesOut = types.Array(types.uint8, 1, "C")


@njit(types.int64(types.uint64, types.int64), cache=True, nogil=True, inline="always")
def _home(code, shift):
    code ^= code >> np.uint64(32)
    code *= np.uint64(0x9E3779B97F4A7C15)
    code ^= code >> np.uint64(29)
    code *= np.uint64(0xBF58476D1CE4E5B9)
    return np.int64(code >> np.uint64(shift))


@njit(cache=True, nogil=True, inline="always")
def _same_bytes(data, start, length, arena, place):
    if length != place & LONGEST:
        return False
    arena_start = place >> LENGTH_BITS
    for byte in range(length):
        if data[start + byte] != arena[arena_start + byte]:
            return False
    return True


@njit(cache=True, nogil=True, inline="always")
def _probe(index, shift, codes, code, is_bytes, data, start, length, arena, places):
    """The position of the key's entry, or of the free entry where it belongs."""
    mask = index.size - 1
    position = _home(code, shift)
    while True:
        slot = index[position] - 1
        if slot < 0:
            return position
        if codes[slot] == code and (not is_bytes or _same_bytes(data, start, length, arena, places[slot])):
            return position
        position = (position + 1) & mask


@njit(cache=True, nogil=True)
def _look_ahead(row_codes, row, is_bytes, index, shift, codes, places, arena, stamps, ahead):
    """Read for the next rows what their lookup will need.

    A lookup is a chain of reads that each miss the cache, with branches between that are hard to foresee; this does the
    reads of AHEAD rows side by side. ahead[0] = the likely slot, [1] = its code, [2] = its place, [3] = stamp, key byte.
    """
    rows = min(AHEAD, row_codes.size - row)
    for j in range(rows):
        ahead[0, j] = index[_home(row_codes[row + j], shift)] - 1
    for j in range(rows):
        slot = max(ahead[0, j], 0)
        ahead[1, j] = np.int64(codes[slot])
        ahead[3, j] = stamps[slot]
    if is_bytes:
        for j in range(rows):
            ahead[2, j] = places[max(ahead[0, j], 0)]
        for j in range(rows):
            if ahead[0, j] >= 0 and ahead[2, j] & LONGEST > 0:
                ahead[3, j] = arena[ahead[2, j] >> LENGTH_BITS]


@njit(
    types.UniTuple(types.int64, 3)(
        UInt64s, Int64s, Bytes, Flags, types.boolean, types.int64, types.int64, types.int32,
        Int32sOut, types.int64, UInt64sOut, Int64sOut, BytesOut, Int32sOut, Int32sOut,
        Int64sOut, Int64sOut, Int32sOut, Int32sOut,
    ),
    cache=True, nogil=True,
)  # fmt: skip
def upsert(
    row_codes, offsets, data, valid, is_bytes, row, most_keys, stamp,
    index, shift, codes, places, arena, stamps, free,
    counters, slots, touched, inserted,
):  # fmt: skip
    """Slots of the rows from `row` on; a key that is new takes a free slot.

    Fills slots[row...], `touched` with the slots seen first in this batch that had a value before (stamped `stamp`),
    `inserted` with those that had none (stamped `stamp` + 1).
    Stops where a new key needs more room than there is (most_keys, slots, arena).
    Returns (the row it stopped at, touched, inserted).
    """
    n_touched = 0
    n_inserted = 0
    first_row = row
    has_nulls = valid.size > 0
    ahead = np.empty((4, AHEAD), dtype=np.int64)
    start = np.int64(0)
    length = np.int64(0)
    while row < slots.size:
        j = (row - first_row) % AHEAD
        if j == 0:
            _look_ahead(row_codes, row, is_bytes, index, shift, codes, places, arena, stamps, ahead)
        is_null = has_nulls and not valid[row]
        code = row_codes[row]
        position = np.int64(-1)
        slot = ahead[0, j]
        if is_bytes:
            start = offsets[row]
            length = np.int64(0) if is_null else offsets[row + 1] - start
        if is_null:
            slot = counters[NULL_SLOT]
        elif (
            slot < 0
            or ahead[1, j] != np.int64(code)
            or (is_bytes and not _same_bytes(data, start, length, arena, ahead[2, j]))
        ):
            position = _probe(index, shift, codes, code, is_bytes, data, start, length, arena, places)
            slot = np.int64(index[position]) - 1
        if slot < 0:
            reuse = counters[FREE_SLOTS] > 0
            if counters[SIZE] - counters[FREE_SLOTS] >= most_keys or not (reuse or counters[SIZE] < codes.size):
                break
            if is_bytes and (length > LONGEST or counters[ARENA_USED] + length > arena.size):
                break
            if reuse:
                counters[FREE_SLOTS] -= 1
                slot = np.int64(free[counters[FREE_SLOTS]])
            else:
                slot = counters[SIZE]
                counters[SIZE] += 1
            codes[slot] = code
            if is_bytes:
                used = counters[ARENA_USED]
                places[slot] = used << LENGTH_BITS | length
                for byte in range(length):
                    arena[used + byte] = data[start + byte]
                counters[ARENA_USED] = used + length
            if is_null:
                counters[NULL_SLOT] = slot
            else:
                index[position] = slot + 1
            stamps[slot] = stamp + 1
            inserted[n_inserted] = slot
            n_inserted += 1
        elif stamps[slot] < stamp:
            stamps[slot] = stamp
            touched[n_touched] = slot
            n_touched += 1
        slots[row] = slot
        row += 1
    return row, n_touched, n_inserted


@njit(
    types.void(
        UInt64s, Int64s, Bytes, Flags, types.boolean,
        Int32sOut, types.int64, UInt64sOut, Int64sOut, BytesOut, Int32sOut, Int64sOut, Int64sOut,
    ),
    cache=True, nogil=True,
)  # fmt: skip
def find(
    row_codes, offsets, data, valid, is_bytes,
    index, shift, codes, places, arena, stamps, counters, slots,
):  # fmt: skip
    """Slots of the rows, -1 where the key is not there."""
    has_nulls = valid.size > 0
    ahead = np.empty((4, AHEAD), dtype=np.int64)
    start = np.int64(0)
    length = np.int64(0)
    for row in range(slots.size):
        j = row % AHEAD
        if j == 0:
            _look_ahead(row_codes, row, is_bytes, index, shift, codes, places, arena, stamps, ahead)
        if has_nulls and not valid[row]:
            slots[row] = counters[NULL_SLOT]
            continue
        if is_bytes:
            start = offsets[row]
            length = offsets[row + 1] - start
        slot = ahead[0, j]
        if (
            slot < 0
            or ahead[1, j] != np.int64(row_codes[row])
            or (is_bytes and not _same_bytes(data, start, length, arena, ahead[2, j]))
        ):
            position = _probe(index, shift, codes, row_codes[row], is_bytes, data, start, length, arena, places)
            slot = np.int64(index[position]) - 1
        slots[row] = slot


@njit(types.void(Int32sOut, types.int64, UInt64sOut, Int64s, types.int64), cache=True, nogil=True)
def link(index, shift, codes, slots, null_slot):
    """Enter slots whose keys are known to be absent from the index."""
    mask = index.size - 1
    for slot in slots:
        if slot == null_slot:
            continue
        position = _home(codes[slot], shift)
        while index[position] != 0:
            position = (position + 1) & mask
        index[position] = slot + 1


@njit(types.void(Int32sOut, types.int64, UInt64sOut, Int64s, types.int64), cache=True, nogil=True)
def unlink(index, shift, codes, slots, null_slot):
    """Take slots out of the index; later entries of the same run move back so that no probe ends too early."""
    mask = index.size - 1
    for slot in slots:
        if slot == null_slot:
            continue
        hole = _home(codes[slot], shift)
        while index[hole] != slot + 1:
            hole = (hole + 1) & mask
        position = hole
        while True:
            position = (position + 1) & mask
            other = index[position]
            if other == 0:
                break
            if ((position - _home(codes[other - 1], shift)) & mask) >= ((position - hole) & mask):
                index[hole] = other
                hole = position
        index[hole] = 0


@njit(
    types.UniTuple(types.int64, 2)(Int64s, Int32sOut, types.int32, types.int32, Int64sOut, Int64sOut),
    cache=True,
    nogil=True,
)
def free_slots(slots, stamps, stamp, stamp_inserted, had_value, had_none):
    """Stamp slots FREE, each once; tell those that had a value before this batch from those that had none.

    Negative slots (keys that `find` did not find) and slots that are free already are passed over.
    """
    n_value = 0
    n_none = 0
    for slot in slots:
        if slot < 0 or stamps[slot] == FREE:
            continue
        if stamps[slot] == stamp_inserted:
            had_none[n_none] = slot
            n_none += 1
        else:
            had_value[n_value] = slot
            n_value += 1
        stamps[slot] = FREE
    return n_value, n_none


@njit(types.int64(Int64s, Int32sOut, types.int32, Int32sOut), cache=True, nogil=True)
def touch(slots, stamps, stamp, touched):
    """Stamp live slots and list those seen first in this batch; returns how many."""
    n_touched = 0
    for slot in slots:
        if slot >= 0 and stamps[slot] != FREE and stamps[slot] < stamp:
            stamps[slot] = stamp
            touched[n_touched] = slot
            n_touched += 1
    return n_touched
