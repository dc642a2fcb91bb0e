"""The numbers that the index of keyed state and its kernels agree on."""

from __future__ import annotations

# The stamp of a slot that holds no key.
FREE = -1

# Positions in the `counters` of a key index.
SIZE, FREE_SLOTS, NULL_SLOT, ARENA_USED = range(4)

LENGTH_BITS = 27
# A key's place in the arena is start << LENGTH_BITS | length: keys up to 128 MiB in an arena up to 64 GiB.
LONGEST = (1 << LENGTH_BITS) - 1
