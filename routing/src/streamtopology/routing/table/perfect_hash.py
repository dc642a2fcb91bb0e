"""Finds a routing table's explicit entries without a branch: a perfect hash, built once per table.

A key's group (its lowest bits) has a salt chosen such that all entries of all groups get slots of their own
(Belazzougui, Botelho, Dietzfelbinger: Hash, displace and compress, 2009). A lookup reads one slot and costs the same
whether few keys have an entry or most, in any order; with open addressing a stream that mixes keys with and without
entries mispredicts every second branch, which is 5 ns each. No hash is set aside to mark empty slots: they hold the
first entry's hash, and a key with that hash looks into no slot but its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from streamtopology.routing.table.kernel import njit

Hashes = npt.NDArray[np.uint64]
Instances = npt.NDArray[np.int32]

# salts uint64[groups], slot_hashes uint64[slots], slot_instances int32[slots], shift from a product to its slot.
EntryIndex = tuple[Hashes, Hashes, Instances, np.uint64]

_SALT_STEP = np.uint64(0xD6E8FEB86659FD93)
_SLOT_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SALTS_TRIED = 1 << 14
_HALF = np.uint64(32)


def entry_index(hashes: Hashes, instances: Instances) -> EntryIndex:
    """The index of at least one entry; `hashes` are distinct. Linear in their number."""
    n_groups = 1 << (len(hashes) - 1).bit_length()
    groups = (hashes & np.uint64(n_groups - 1)).astype(np.int64)
    by_group = np.argsort(groups, kind="stable")
    sizes = np.bincount(groups, minlength=n_groups)
    ends = np.cumsum(sizes)
    largest_first = np.argsort(-sizes, kind="stable")
    slot_bits = (len(hashes) * 5 // 4).bit_length()
    while True:
        salts, slots = np.zeros(n_groups, np.uint64), np.empty(len(hashes), np.int64)
        shift, taken = np.uint64(64 - slot_bits), np.zeros(1 << slot_bits, np.bool_)
        if _place(hashes, by_group, ends - sizes, ends, largest_first, shift, taken, salts, slots):
            break
        slot_bits += 1
    slot_hashes, slot_instances = np.full(1 << slot_bits, hashes[0]), np.zeros(1 << slot_bits, np.int32)
    slot_hashes[slots], slot_instances[slots] = hashes, instances
    return salts, slot_hashes, slot_instances, shift


@njit(cache=True, nogil=True)
def lookup_entries(keys: Any, salts: Any, slot_hashes: Any, slot_instances: Any, shift: Any, buckets: Any, owners: Any) -> None:
    """owners[i] = the instance of the entry for keys[i], else of its bucket."""
    n_buckets, group_mask = np.uint64(len(buckets)), np.uint64(len(salts) - 1)
    for i in range(len(keys)):
        key = keys[i]
        slot = _slot(key, salts[key & group_mask], shift)
        # Both are read before one is chosen: that keeps it a conditional move, not a jump.
        by_entry, by_bucket = slot_instances[slot], buckets[bucket_number(key, n_buckets)]
        owners[i] = by_entry if slot_hashes[slot] == key else by_bucket


@njit(cache=True, nogil=True)
def find_entries(keys: Any, salts: Any, slot_hashes: Any, shift: Any, found: Any) -> None:
    """found[i] = whether keys[i] has an entry; an empty slot holds a hash that looks for another."""
    group_mask = np.uint64(len(salts) - 1)
    for i in range(len(keys)):
        key = keys[i]
        found[i] = slot_hashes[_slot(key, salts[key & group_mask], shift)] == key


@njit(cache=True, nogil=True)
def find_silent(keys: Any, entry_hashes: Any, salts: Any, slot_hashes: Any, shift: Any, silent: Any) -> None:
    """silent[j] = whether entry_hashes[j] is none of `keys`."""
    group_mask = np.uint64(len(salts) - 1)
    heard = np.zeros(len(slot_hashes), np.bool_)
    for i in range(len(keys)):
        key = keys[i]
        slot = _slot(key, salts[key & group_mask], shift)
        heard[slot] |= slot_hashes[slot] == key
    for j in range(len(entry_hashes)):
        key = entry_hashes[j]
        silent[j] = not heard[_slot(key, salts[key & group_mask], shift)]


@njit(cache=True, nogil=True)
def lookup_buckets(keys: Any, buckets: Any, owners: Any) -> None:
    """owners[i] = the instance of the bucket of keys[i]."""
    n_buckets = np.uint64(len(buckets))
    for i in range(len(keys)):
        owners[i] = buckets[bucket_number(keys[i], n_buckets)]


@njit(cache=True, nogil=True)
def fill_buckets(keys: Any, n_buckets: Any, numbers: Any) -> None:
    """numbers[i] = the bucket of keys[i]."""
    for i in range(len(keys)):
        numbers[i] = bucket_number(keys[i], np.uint64(n_buckets))


@njit(cache=True, nogil=True, inline="always")
def bucket_number(key: Any, n_buckets: Any) -> Any:
    """The bucket of one hash: the top bits as a fraction of `n_buckets`, which need not be a power of two."""
    return ((key >> _HALF) * n_buckets) >> _HALF


@njit(cache=True, nogil=True, inline="always")
def _slot(key: Any, salt: Any, shift: Any) -> Any:
    return ((key ^ salt) * _SLOT_MULTIPLIER) >> shift


@njit(cache=True, nogil=True)
def _place(
    hashes: Any, by_group: Any, starts: Any, ends: Any, group_order: Any, shift: Any, taken: Any, salts: Any, slots: Any
) -> bool:
    """Finds a salt for every group, and so a slot for every hash; False if none of the first salts will do for one."""
    for group in group_order:
        members = by_group[starts[group] : ends[group]]
        salt = np.uint64(0)
        for _ in range(_SALTS_TRIED):
            if _settle(hashes, members, salt, shift, taken, slots):
                break
            salt += _SALT_STEP
        else:
            return False
        salts[group] = salt
    return True


@njit(cache=True, nogil=True)
def _settle(hashes: Any, members: Any, salt: Any, shift: Any, taken: Any, slots: Any) -> bool:
    """Takes the members' slots under this salt if all are free and distinct, else none."""
    for settled in range(len(members)):
        slot = _slot(hashes[members[settled]], salt, shift)
        if taken[slot]:
            for member in members[:settled]:
                taken[slots[member]] = False
            return False
        taken[slot] = True
        slots[members[settled]] = slot
    return True
