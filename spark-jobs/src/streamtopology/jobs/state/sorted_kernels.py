"""Kernels of `sorted_rows`: rows of whole words, sorted by hash, in blocks of a page.

A row never lies across two blocks, so one that is looked for costs one page. `fences` has the first hash of each block of the
file: with them the page is known before anything is read.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types

from streamtopology.jobs.state.kernels import Int64s, Int64sOut, UInt64s, UInt64sOut

BLOCK_WORDS = 512
# A range is what is written at once: the hashes that have their first bits in common.
RANGE_BITS = 6

_SHIFT = np.uint64(64 - RANGE_BITS)
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
# Inverses of the factors of `hashing.mix64`, modulo 2^64.
_FACTOR_1 = np.uint64(pow(0xBF58476D1CE4E5B9, -1, 1 << 64))
_FACTOR_2 = np.uint64(pow(0x94D049BB133111EB, -1, 1 << 64))

_Rows = types.Array(types.uint64, 2, "C", readonly=True)
_RowsOut = types.Array(types.uint64, 2, "C")
_Bits = types.Array(types.uint8, 1, "C")


@njit(cache=True, nogil=True, inline="always")
def _at(row, per_block, width):
    return (row // per_block) * BLOCK_WORDS + (row % per_block) * width


@njit(cache=True, nogil=True, inline="always")
def _is_dead(dead, row):
    return (dead[row >> 3] >> np.uint8(row & 7)) & np.uint8(1) != 0


@njit(types.void(UInt64s, UInt64sOut), cache=True, nogil=True)
def unmix(hashes, values):
    """The values, as words, that `hashing.mix64` makes these hashes of: it is a bijection."""
    for i in range(hashes.size):
        x = hashes[i]
        x = (x ^ (x >> np.uint64(31)) ^ (x >> np.uint64(62))) * _FACTOR_2
        x = (x ^ (x >> np.uint64(27)) ^ (x >> np.uint64(54))) * _FACTOR_1
        x = x ^ (x >> np.uint64(30)) ^ (x >> np.uint64(60))
        values[i] = x - _GAMMA


@njit(types.void(UInt64s, Int64s, Int64s, UInt64s, types.int64, Int64sOut), cache=True, nogil=True)
def locate(hashes, starts, counts, fences, per_block, blocks):
    """blocks[i] = the one block that may have hashes[i]; -1: none."""
    for i in range(hashes.size):
        wanted = hashes[i]
        which = wanted >> _SHIFT
        first = starts[which]
        low, high = first, first + (counts[which] + per_block - 1) // per_block
        while low < high:
            middle = (low + high) >> 1
            if fences[middle] <= wanted:
                low = middle + 1
            else:
                high = middle
        blocks[i] = low - 1 if low > first else -1


@njit(types.uint64(UInt64s, Int64s), cache=True, nogil=True)
def read_ahead(words, blocks):
    """Read a word of each block, so that its page is there."""
    total = np.uint64(0)
    for block in blocks:
        total ^= words[block * BLOCK_WORDS]
    return total


@njit(
    types.void(UInt64s, Int64s, UInt64s, Int64s, Int64s, types.int64, types.int64, _Bits, Int64sOut),
    cache=True, nogil=True,
)  # fmt: skip
def search(hashes, blocks, words, starts, counts, per_block, width, dead, rows):
    """rows[i] = the row of the file that has hashes[i], by the blocks of `locate`; -1 where no living row has it."""
    for i in range(hashes.size):
        rows[i] = -1
        if blocks[i] < 0:
            continue
        wanted, block = hashes[i], blocks[i]
        which = wanted >> _SHIFT
        low, high = 0, min(per_block, counts[which] - (block - starts[which]) * per_block)
        base = block * BLOCK_WORDS
        while low < high:
            middle = (low + high) >> 1
            if words[base + middle * width] < wanted:
                low = middle + 1
            else:
                high = middle
        row = block * per_block + low
        # Behind a block's last row there is another block, or what an earlier use of the place has left.
        ends = min(per_block, counts[which] - (block - starts[which]) * per_block)
        if low < ends and words[base + low * width] == wanted and not _is_dead(dead, row):
            rows[i] = row


@njit(types.void(UInt64s, Int64s, types.int64, _RowsOut), cache=True, nogil=True)
def gather(words, rows, per_block, out):
    """out[i] = the row rows[i] of the file."""
    width = out.shape[1]
    for i in range(rows.size):
        base = _at(rows[i], per_block, width)
        for word in range(width):
            out[i, word] = words[base + word]


@njit(types.int64(types.int64, types.int64, _Bits, Int64sOut), cache=True, nogil=True)
def living(first, count, dead, rows):
    """List the living rows of `count` from `first` on; returns how many."""
    n = 0
    for row in range(first, first + count):
        rows[n] = row
        n += not _is_dead(dead, row)
    return n


@njit(types.void(_Bits, Int64s, types.boolean), cache=True, nogil=True)
def mark(dead, rows, are_dead):
    """Let these rows be dead, or live again."""
    for row in rows:
        bit = np.uint8(1 << (row & 7))
        if are_dead:
            dead[row >> 3] |= bit
        else:
            dead[row >> 3] &= ~bit


@njit(
    types.int64(UInt64s, types.int64, types.int64, types.int64, _Bits, _Rows, UInt64sOut, UInt64sOut),
    cache=True, nogil=True,
)  # fmt: skip
def merge(words, first, count, per_block, dead, changed, out, fences):
    """Write the living of `count` rows of the file from `first` on, and `changed` (sorted) over them, to the blocks `out`.

    fences: of these blocks. Returns the number of rows.
    """
    width = changed.shape[1]
    n = 0
    j = 0
    row = first
    while row < first + count or j < len(changed):
        if row < first + count:
            base = _at(row, per_block, width)
            if j == len(changed) or words[base] < changed[j, 0]:
                if not _is_dead(dead, row):
                    to = _at(n, per_block, width)
                    for word in range(width):
                        out[to + word] = words[base + word]
                    if n % per_block == 0:
                        fences[n // per_block] = words[base]
                    n += 1
                row += 1
                continue
            if words[base] == changed[j, 0]:
                row += 1
        to = _at(n, per_block, width)
        for word in range(width):
            out[to + word] = changed[j, word]
        if n % per_block == 0:
            fences[n // per_block] = changed[j, 0]
        n += 1
        j += 1
    return n
