"""The numbers that the index of keyed state and its kernels agree on."""

from __future__ import annotations

FREE = -1
"""The stamp of a slot that holds no key."""

SIZE, FREE_SLOTS, NULL_SLOT, ARENA_USED = range(4)
"""Positions in the `counters` of a key index."""

LENGTH_BITS = 27
LONGEST = (1 << LENGTH_BITS) - 1
"""A key's place in the arena is start << LENGTH_BITS | length: keys up to 128 MiB in an arena up to 64 GiB."""
