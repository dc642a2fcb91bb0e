"""The index of keyed state: open addressing with linear probing from a key to its slot.

Every slot has a 64-bit *code*: the value of an int64 key, the hash of a bytes key. An entry of the index is 32 bits of
the mixed code (the tag) and slot + 1; 0 is free. So probing reads the index alone, and keys stay in slot order. A tag
is confirmed by the code, and the code of a bytes key by its bytes in the arena: two keys with one hash stay two keys.
Removal shifts later entries back, so there are no tombstones to clean. The NULL key is not in the index; its slot is
a counter.

Numba caches these functions by the time and size of this file, with the numbers of `layout` in them: who changes one there
changes this line here, too (layout 2).
"""

from __future__ import annotations

import numpy as np
from numba import njit, types

from streamtopology.jobs.state.layout import ARENA_USED, FREE, FREE_SLOTS, LENGTH_BITS, LONGEST, NULL_SLOT, SIZE
from streamtopology.routing.table.hashing import mix64
from streamtopology.routing.table.perfect_hash import bucket_number

# Rows whose lookups are under way at once: enough to hide cache misses, few enough for the first-level cache.
AHEAD = 256

Int64s = types.Array(types.int64, 1, "C", readonly=True)
UInt64s = types.Array(types.uint64, 1, "C", readonly=True)
Bytes = types.Array(types.uint8, 1, "C", readonly=True)
Flags = types.Array(types.boolean, 1, "C", readonly=True)
Int32s = types.Array(types.int32, 1, "C", readonly=True)
Int64sOut = types.Array(types.int64, 1, "C")
UInt64sOut = types.Array(types.uint64, 1, "C")
Int32sOut = types.Array(types.int32, 1, "C")
BytesOut = types.Array(types.uint8, 1, "C")

_SLOT = np.uint64(0xFFFFFFFF)
_TAG_SHIFT = np.uint64(32)
_FACTOR_1 = np.uint64(0x9E3779B97F4A7C15)
_FACTOR_2 = np.uint64(0xBF58476D1CE4E5B9)


@njit(cache=True, nogil=True, inline="always")
def _mixed(code):
    """The top bits are a key's home in the index, the low 32 its tag."""
    code = (code ^ (code >> np.uint64(32))) * _FACTOR_1
    code = (code ^ (code >> np.uint64(29))) * _FACTOR_2
    return code ^ (code >> np.uint64(32))


@njit(cache=True, nogil=True, inline="always")
def _slot_of(entry):
    return np.int64(entry & _SLOT) - 1


@njit(cache=True, nogil=True, inline="always")
def _entry(mixed, slot):
    return (mixed << _TAG_SHIFT) | np.uint64(slot + 1)


@njit(cache=True, nogil=True, inline="always")
def _next_like(index, position, mixed):
    """The first position from `position` on whose entry has the tag or is free."""
    while True:
        entry = index[position]
        if entry == 0 or (entry >> _TAG_SHIFT) == (mixed & _SLOT):
            return position
        position = (position + np.uint64(1)) & np.uint64(index.size - 1)


@njit(cache=True, nogil=True, inline="always")
def _same_bytes(data, start, length, arena, place):
    if length != place & LONGEST:
        return False
    arena_start = place >> LENGTH_BITS
    for byte in range(length):  # noqa: SIM110 (a generator is not for numba)
        if data[start + byte] != arena[arena_start + byte]:
            return False
    return True


@njit(cache=True, nogil=True)
def _look_ahead(row_codes, row, is_bytes, index, shift, codes, places, arena, stamps, ahead):
    """Find for the next AHEAD rows the likely position in the index (ahead[0]) and read what its lookup will need.

    A lookup is a chain of reads that each miss the cache, with branches between that are hard to foresee; here the
    reads of many rows run side by side. Only ahead[0] is used again, as a hint: entries may be added meanwhile.
    """
    rows = min(AHEAD, row_codes.size - row)
    for j in range(rows):
        ahead[0, j] = _mixed(row_codes[row + j]) >> np.uint64(shift)
    for j in range(rows):
        ahead[1, j] = index[ahead[0, j]]
    for j in range(rows):
        ahead[0, j] = _next_like(index, ahead[0, j], _mixed(row_codes[row + j]))
        ahead[1, j] = np.uint64(max(_slot_of(index[ahead[0, j]]), 0))
    for j in range(rows):
        ahead[2, j] = codes[ahead[1, j]]
    for j in range(rows):
        ahead[3, j] = stamps[ahead[1, j]]
    if is_bytes:
        for j in range(rows):
            ahead[2, j] = places[ahead[1, j]] >> LENGTH_BITS
        for j in range(rows):
            if ahead[2, j] < arena.size:
                ahead[3, j] = arena[ahead[2, j]]


@njit(cache=True, nogil=True, inline="always")
def _probe(index, position, code, is_bytes, codes, data, start, length, arena, places):
    """The position of the key's entry, or of the free entry where it belongs, from a position not past it."""
    mixed = _mixed(code)
    while True:
        position = _next_like(index, position, mixed)
        slot = _slot_of(index[position])
        if slot < 0:
            return position
        if codes[slot] == code and (not is_bytes or _same_bytes(data, start, length, arena, places[slot])):
            return position
        position = (position + np.uint64(1)) & np.uint64(index.size - 1)


@njit(
    types.UniTuple(types.int64, 3)(
        UInt64s, Int64s, Bytes, Flags, types.boolean, types.int64, types.int64, types.int32,
        UInt64sOut, types.int64, UInt64sOut, Int64sOut, BytesOut, Int32sOut, Int32sOut,
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
    ahead = np.empty((4, AHEAD), dtype=np.uint64)
    start = np.int64(0)
    length = np.int64(0)
    while row < slots.size:
        j = (row - first_row) % AHEAD
        if j == 0:
            _look_ahead(row_codes, row, is_bytes, index, shift, codes, places, arena, stamps, ahead)
        is_null = has_nulls and not valid[row]
        code = row_codes[row]
        if is_bytes:
            start = offsets[row]
            length = np.int64(0) if is_null else offsets[row + 1] - start
        position = ahead[0, j]
        if is_null:
            slot = counters[NULL_SLOT]
        else:
            position = _probe(index, position, code, is_bytes, codes, data, start, length, arena, places)
            slot = _slot_of(index[position])
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
                index[position] = _entry(_mixed(code), slot)
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
        UInt64sOut, types.int64, UInt64sOut, Int64sOut, BytesOut, Int32sOut, Int64sOut, Int64sOut,
    ),
    cache=True, nogil=True,
)  # fmt: skip
def find(
    row_codes, offsets, data, valid, is_bytes,
    index, shift, codes, places, arena, stamps, counters, slots,
):  # fmt: skip
    """Slots of the rows, -1 where the key is not there."""
    has_nulls = valid.size > 0
    ahead = np.empty((4, AHEAD), dtype=np.uint64)
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
        position = _probe(index, ahead[0, j], row_codes[row], is_bytes, codes, data, start, length, arena, places)
        slots[row] = _slot_of(index[position])


@njit(types.void(UInt64sOut, types.int64, UInt64sOut, Int64s, types.int64), cache=True, nogil=True)
def link(index, shift, codes, slots, null_slot):
    """Enter slots whose keys are known to be absent from the index."""
    for slot in slots:
        if slot == null_slot:
            continue
        mixed = _mixed(codes[slot])
        position = np.int64(mixed >> np.uint64(shift))
        while index[position] != 0:
            position = (position + 1) & (index.size - 1)
        index[position] = _entry(mixed, slot)


@njit(types.void(UInt64sOut, types.int64, UInt64sOut, Int64s, types.int64), cache=True, nogil=True)
def unlink(index, shift, codes, slots, null_slot):
    """Take slots out of the index; later entries of the same run move back so that no probe ends too early."""
    mask = index.size - 1
    for slot in slots:
        if slot == null_slot:
            continue
        hole = np.int64(_mixed(codes[slot]) >> np.uint64(shift))
        while _slot_of(index[hole]) != slot:
            hole = (hole + 1) & mask
        position = hole
        while True:
            position = (position + 1) & mask
            other = index[position]
            if other == 0:
                break
            home = np.int64(_mixed(codes[_slot_of(other)]) >> np.uint64(shift))
            if ((position - home) & mask) >= ((position - hole) & mask):
                index[hole] = other
                hole = position
        index[hole] = 0


@njit(
    types.UniTuple(types.int64, 2)(Int64s, Int32sOut, types.int32, Int64sOut, Int64sOut),
    cache=True,
    nogil=True,
)
def free_slots(slots, stamps, stamp_inserted, had_value, had_none):
    """Stamp slots FREE, each once; separate those that had a value before this batch from those that had none.

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


@njit(types.int64(UInt64s, types.boolean, Int32s, types.int64, Flags, Int64sOut), cache=True, nogil=True)
def in_buckets(codes, are_hashes, stamps, null_slot, flagged, slots):
    """List the live slots whose key is in a flagged bucket, and that of NULL; returns how many."""
    n = 0
    n_buckets = np.uint64(flagged.size)
    for slot in range(stamps.size):
        hashed = codes[slot] if are_hashes else mix64(codes[slot])
        slots[n] = slot
        n += stamps[slot] != FREE and (flagged[bucket_number(hashed, n_buckets)] or slot == null_slot)
    return n


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
