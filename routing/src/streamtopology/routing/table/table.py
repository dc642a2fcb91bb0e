"""The routing table: explicit entries (key hash -> instance) and a bucket array (hash -> bucket -> instance).

Most keys are light, and an entry for each would cost memory and time. A few keys are heavy, and no hash places them well.
So heavy keys have entries and all others share buckets, which also bounds what a plan has to decide.

Every table-driven grouping is this one structure, so there is one lookup kernel, one wire format and one way to find the
keys that move between two tables.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from streamtopology.contract.errors import UnreadableData
from streamtopology.contract.format_number import FORMAT, ONE_VERSION, check_format
from streamtopology.routing.table.hashing import frozen_copy, hash_int64, kernel_input
from streamtopology.routing.table.kernel import njit
from streamtopology.routing.table.perfect_hash import (
    EntryIndex,
    Hashes,
    Instances,
    entry_index,
    fill_buckets,
    find_entries,
    find_silent,
    lookup_buckets,
    lookup_entries,
)
from streamtopology.routing.table.splits import MOST_TURNS, NO_SPLITS, Splits, TurnIndex, dealt

BUCKETS = 4096
TABLE_FORMAT = 1


class TableFormatError(UnreadableData):
    """A serialised table is damaged, not a table, or of another version; the message says which."""


@dataclass(frozen=True, eq=False)
class RoutingTable:
    """The owner of every key. Immutable: its arrays are read-only copies of what was given.

    entry_hashes: uint64[E], sorted and distinct: the keys with an entry of their own. entry_instances: int32[E].
    buckets: int32[B], the instance of every bucket, for all other keys. splits: entries with several owners, of which the
    entry's instance is the home: there the key's state is, and rows that come to another owner are merged into it.
    ValueError says what does not fit.
    """

    entry_hashes: Hashes
    entry_instances: Instances
    buckets: Instances
    splits: Splits = NO_SPLITS

    def __post_init__(self) -> None:
        for name, dtype in (("entry_hashes", np.uint64), ("entry_instances", np.int32), ("buckets", np.int32)):
            object.__setattr__(self, name, frozen_copy(getattr(self, name), dtype, name))
        if len(self.entry_hashes) != len(self.entry_instances):
            raise ValueError(f"{len(self.entry_hashes)} entry_hashes for {len(self.entry_instances)} entry_instances")
        if not (self.entry_hashes[1:] > self.entry_hashes[:-1]).all():
            raise ValueError("entry_hashes must be sorted and distinct; with_entries() sorts them")
        if not len(self.buckets):
            raise ValueError("buckets is empty; a table needs at least one, as keys without an entry must go somewhere")
        if self.buckets.min() < 0 or (len(self.entry_instances) and self.entry_instances.min() < 0):
            raise ValueError("instances are numbered from 0; the table names a negative one")
        if len(self.splits):
            self._check_splits()

    @staticmethod
    def uniform(instances: Sequence[int], n_buckets: int = BUCKETS, seed: int | None = None) -> RoutingTable:
        """Plain hashing: buckets dealt to `instances` in turn, in their own order or, given a seed, shuffled."""
        if not len(instances):
            raise ValueError("a table needs at least one instance to deal its buckets to")
        deal = np.arange(n_buckets) if seed is None else shuffled(n_buckets, seed)
        buckets = np.empty(n_buckets, np.int32)
        buckets[deal] = np.resize(np.asarray(instances, np.int32), n_buckets)
        return RoutingTable(np.empty(0, np.uint64), np.empty(0, np.int32), buckets)

    def lookup(self, hashes: Hashes) -> Instances:
        """int32[n], the instance of each key hash (uint64[n]): its only owner, or the home of a split key."""
        keys = kernel_input(hashes, np.uint64, "hashes")
        owners = np.empty(len(keys), np.int32)
        if len(self.entry_hashes):
            lookup_entries(keys, *self._index, self.buckets, owners)
        else:
            lookup_buckets(keys, self.buckets, owners)
        return owners

    def deal(self, hashes: Hashes, start: int) -> Instances:
        """int32[n], the instance of each row (key hashes uint64[n]): as `lookup`, but those of split keys take turns.

        `start` differs from batch to batch and from router to router, and not between attempts of one batch.
        """
        if not len(self.splits):
            return self.lookup(hashes)
        return dealt(self.turn_index.codes(kernel_input(hashes, np.uint64, "hashes")), self.turn_index.turns, start)

    def has_entry(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """bool[n], which of the keys (uint64[n]) have an entry of their own."""
        keys = kernel_input(hashes, np.uint64, "hashes")
        found = np.zeros(len(keys), np.bool_)
        if len(self.entry_hashes):
            salts, slot_hashes, _, shift = self._index
            find_entries(keys, salts, slot_hashes, shift, found)
        return found

    def silent_entries(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """bool[E], which entries are of none of the keys (uint64[n])."""
        keys = kernel_input(hashes, np.uint64, "hashes")
        silent = np.zeros(len(self.entry_hashes), np.bool_)
        if len(silent):
            salts, slot_hashes, _, shift = self._index
            find_silent(keys, self.entry_hashes, salts, slot_hashes, shift, silent)
        return silent

    def route(self, hashes: Hashes, k: int) -> tuple[Instances, npt.NDArray[np.int64]]:
        """`lookup`, and int64[k]: how many of the keys go to each of the instances 0..k-1."""
        if self._highest_instance >= k:
            raise ValueError(f"the table names instance {self._highest_instance}, but there are only {k} instances")
        owners, counts = self.lookup(hashes), np.zeros(k, np.int64)
        _count(owners, counts)
        return owners, counts

    def instances(self) -> tuple[int, ...]:
        """Every instance that the table can name, in order."""
        each = (self.buckets, self.entry_instances, self.splits.owners)
        named = np.zeros(1 + max(int(part.max(initial=0)) for part in each), np.bool_)
        for part in each:
            named[part] = True
        return tuple(np.flatnonzero(named).tolist())

    def with_entries(self, hashes: Hashes, instances: Instances) -> RoutingTable:
        """The same buckets with these explicit entries, in any order, instead of the present ones; none is split."""
        if len(hashes) != len(instances):
            raise ValueError(f"{len(hashes)} hashes for {len(instances)} instances; an entry is one of each")
        order = np.argsort(hashes)
        sorted_hashes = np.asarray(hashes)[order]
        twice = sorted_hashes[1:][sorted_hashes[1:] == sorted_hashes[:-1]]
        if len(twice):
            raise ValueError(f"hash {int(twice[0]):#018x} has several entries; a key has one instance")
        return RoutingTable(sorted_hashes, np.asarray(instances)[order], self.buckets)

    def with_splits(self, splits: Splits) -> RoutingTable:
        """The same table with these split keys instead of the present ones; one without an entry has its home at its bucket."""
        lacking = splits.hashes[~self.has_entry(splits.hashes)]
        hashes = np.concatenate([self.entry_hashes, lacking])
        instances = np.concatenate([self.entry_instances, self.lookup(lacking)])
        return replace(self.with_entries(hashes, instances), splits=splits)

    def rescaled(self, instances: Sequence[int]) -> RoutingTable:
        """The table over another set of active instances, with no bucket moved without need.

        Instances that stay keep their buckets in proportion (a plan that gave a slow instance fewer holds), new ones
        get the mean number, those of removed ones are dealt out; a uniform table stays uniform. Entries of removed
        instances are dropped, so that these keys go to their bucket's instance; split keys lose these as owners.
        """
        active = np.unique(np.asarray(instances, np.int32))
        if not len(active):
            raise ValueError("a table needs at least one active instance")
        kept = np.isin(self.entry_instances, active)
        buckets = _redealt(self.buckets, active, np.array(self.instances(), np.int32))
        splits = self.splits.where(np.isin(self.splits.hashes, self.entry_hashes[kept])).among(active)
        return RoutingTable(self.entry_hashes[kept], self.entry_instances[kept], buckets, splits)

    def to_wire(self) -> dict[str, object]:
        """A JSON-able dict: format, the data (zlib, base64) and a checksum over both. Equal tables, equal dicts."""
        sizes = np.array([len(self.entry_hashes), len(self.buckets)], "<u8")
        entries = self.entry_hashes.astype("<u8").tobytes() + self.entry_instances.astype("<i4").tobytes()
        raw = sizes.tobytes() + entries + self.buckets.astype("<i4").tobytes() + _splits_to_bytes(self.splits)
        data = base64.b64encode(zlib.compress(raw)).decode("ascii")
        return {FORMAT: TABLE_FORMAT, "data": data, "checksum": _checksum(data)}

    @staticmethod
    def from_wire(wire: Mapping[str, object]) -> RoutingTable:
        """The table that `to_wire` was called on. TableFormatError if the dict is damaged or of another version."""
        data = _checked_data(wire)
        try:
            raw = zlib.decompress(base64.b64decode(data, validate=True))
            n_entries, n_buckets = np.frombuffer(raw, "<u8", 2).tolist()
            end = 16 + 12 * n_entries + 4 * n_buckets
            if len(raw) < end:
                raise ValueError(f"{len(raw)} bytes do not hold {n_entries} entries and {n_buckets} buckets")
            return RoutingTable(
                entry_hashes=np.frombuffer(raw, "<u8", n_entries, 16),
                entry_instances=np.frombuffer(raw, "<i4", n_entries, 16 + 8 * n_entries),
                buckets=np.frombuffer(raw, "<i4", n_buckets, 16 + 12 * n_entries),
                splits=_splits_from_bytes(raw[end:]),
            )
        except (binascii.Error, zlib.error, ValueError) as error:
            raise TableFormatError(f"the routing table's data is not a table: {error}") from error

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RoutingTable):
            return NotImplemented
        return all(np.array_equal(mine, others) for mine, others in zip(self._arrays(), other._arrays(), strict=True))

    def __hash__(self) -> int:
        return hash(tuple(array.tobytes() for array in self._arrays()))

    def __reduce__(self) -> tuple[type[RoutingTable], tuple[Hashes, Instances, Instances, Splits]]:
        return RoutingTable, (self.entry_hashes, self.entry_instances, self.buckets, self.splits)

    def _arrays(self) -> tuple[npt.NDArray[Any], ...]:
        splits = self.splits
        return (
            *(self.entry_hashes, self.entry_instances, self.buckets),
            *(splits.hashes, splits.first, splits.owners, splits.turns),
        )

    def _check_splits(self) -> None:
        """ValueError unless every split key has an entry, its home among the owners, and all turns fit."""
        if not self.has_entry(self.splits.hashes).all():
            raise ValueError("splits: a split key has an entry, which names its home; with_splits() adds it")
        homes = self.lookup(self.splits.hashes)
        at_home = homes[self.splits.key_by_owner] == self.splits.owners
        if (np.bincount(self.splits.key_by_owner, at_home, len(self.splits)) < 1).any():
            raise ValueError("splits: the home of a key is one of its owners")
        turns = self._highest_instance + 1 + int(self.splits.turns.sum())
        if turns > MOST_TURNS:
            raise ValueError(f"splits: {turns} turns and instances, at most {MOST_TURNS}")

    @cached_property
    def _highest_instance(self) -> int:
        return self.instances()[-1]

    @cached_property
    def _index(self) -> EntryIndex:
        return entry_index(self.entry_hashes, self.entry_instances)

    @cached_property
    def turn_index(self) -> TurnIndex:
        """The table made for dealing rows; it has at least one split key."""
        k = self._highest_instance + 1
        return TurnIndex.of(self.entry_hashes, self.entry_instances, self.buckets, self.splits, k)


def bucket_of(hashes: Hashes, n_buckets: int) -> npt.NDArray[np.int64]:
    """int64[n]: the bucket of each key hash, from its top bits; equal shares of the hashes for any `n_buckets`."""
    keys = kernel_input(hashes, np.uint64, "hashes")
    buckets = np.empty(len(keys), np.int64)
    fill_buckets(keys, n_buckets, buckets)
    return buckets


def moved(old: RoutingTable, new: RoutingTable, hashes: Hashes) -> tuple[npt.NDArray[np.bool_], Instances, Instances]:
    """Return bool[n], which of the keys (uint64[n]) change owner, and their old and new owners, int32[n] each."""
    old_owner, new_owner = old.lookup(hashes), new.lookup(hashes)
    return old_owner != new_owner, old_owner, new_owner


def partition(instances: Instances, k: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Rows grouped by their instance, a stable counting sort: (order int64[n], bounds int64[k + 1]).

    Rows of instance j are order[bounds[j]:bounds[j + 1]], in the order in which they came. ValueError when a row's
    instance is not one of 0..k-1.
    """
    owners = kernel_input(instances, np.int32, "instances")
    order, bounds = np.empty(len(owners), np.int64), np.zeros(k + 1, np.int64)
    stray = _partition(owners, order, bounds)
    if stray >= 0:
        raise ValueError(f"row {stray} is for instance {owners[stray]}, but there are only instances 0..{k - 1}")
    return order, bounds


def shuffled(n: int, seed: int) -> npt.NDArray[np.int64]:
    """A permutation of 0..n-1 that depends on the seed alone, not on numpy's generators."""
    first = np.uint64(seed * n % 2**64)
    return np.argsort(hash_int64((np.arange(n, dtype=np.uint64) + first).view(np.int64)), kind="stable")


def _redealt(buckets: Instances, active: Instances, before: Instances) -> Instances:
    """`buckets` with as many per active instance as `_quotas` says, moved only from instances with more."""
    counts = np.bincount(buckets, minlength=int(max(active.max(), before.max())) + 1)
    quotas = np.zeros(len(counts), np.int64)
    quotas[active] = _quotas(counts, active, before)
    order, bounds = partition(buckets, len(counts))
    surplus = [order[bounds[i] + quotas[i] : bounds[i + 1]] for i in np.flatnonzero(counts > quotas)]
    takers = np.repeat(np.arange(len(counts)), np.maximum(quotas - counts, 0))
    redealt = buckets.copy()
    if surplus:
        redealt[np.sort(np.concatenate(surplus))] = takers
    return redealt


def _quotas(counts: npt.NDArray[np.int64], active: Instances, before: Instances) -> npt.NDArray[np.int64]:
    """Return the number of buckets of each active instance: in proportion to its count, or the mean for a new one.

    Counts that differ by no more than one mean "equal", not "in this proportion": 5 and 4 would be 25 % apart for ever.
    """
    n_buckets = int(counts.sum())
    weights = np.where(np.isin(active, before), counts[active], n_buckets / len(before))
    if np.ptp(counts[before]) <= 1 or not weights.any():
        weights = np.ones(len(active))
    shares: npt.NDArray[np.float64] = weights * (n_buckets / weights.sum())
    quotas = np.floor(shares + 1e-9).astype(np.int64)
    # Where two have the same claim to a bucket that is left over, the one that has more now keeps it.
    claims = np.lexsort((-counts[active], np.round(quotas - shares, 9)))
    quotas[claims[: n_buckets - int(quotas.sum())]] += 1
    return quotas


def _splits_to_bytes(splits: Splits) -> bytes:
    """Their numbers of keys and owners (u8 each), then hashes u8[s], first u8[s + 1], owners i4[o], turns i4[o]."""
    parts = (
        np.array([len(splits), len(splits.owners)], "<u8"),
        splits.hashes.astype("<u8"),
        splits.first.astype("<u8"),
        splits.owners.astype("<i4"),
        splits.turns.astype("<i4"),
    )
    return b"".join(part.tobytes() for part in parts)


def _splits_from_bytes(raw: bytes) -> Splits:
    keys, owners = np.frombuffer(raw, "<u8", 2).tolist()
    at_owners = 16 + 8 * (2 * keys + 1)
    if len(raw) != at_owners + 8 * owners:
        raise ValueError(f"{len(raw)} bytes do not hold {keys} split keys with {owners} owners")
    return Splits(
        hashes=np.frombuffer(raw, "<u8", keys, 16),
        first=np.frombuffer(raw, "<u8", keys + 1, 16 + 8 * keys),
        owners=np.frombuffer(raw, "<i4", owners, at_owners),
        turns=np.frombuffer(raw, "<i4", owners, at_owners + 4 * owners),
    )


def _checksum(data: str) -> str:
    return f"{zlib.crc32(f'{TABLE_FORMAT}:{data}'.encode()):08x}"


def _checked_data(wire: Mapping[str, object]) -> str:
    check_format(wire, TABLE_FORMAT, "the routing table", ONE_VERSION, TableFormatError)
    data = wire.get("data")
    if not isinstance(data, str) or set(wire) != {FORMAT, "data", "checksum"}:
        raise TableFormatError("not a routing table: it has a format (a number), data (a text) and a checksum")
    if wire["checksum"] != _checksum(data):
        raise TableFormatError("the routing table is damaged: its checksum does not match; take an undamaged copy")
    return data


@njit(cache=True, nogil=True)
def _count(owners: Any, counts: Any) -> None:
    for i in range(len(owners)):
        counts[owners[i]] += 1


@njit(cache=True, nogil=True)
def _partition(owners: Any, order: Any, bounds: Any) -> int:
    """Fills `order` and `bounds`; returns the first row whose instance is out of range, or -1."""
    k = len(bounds) - 1
    for i in range(len(owners)):
        owner = owners[i]
        if owner < 0 or owner >= k:
            return i
        bounds[owner + 1] += 1
    for j in range(k):
        bounds[j + 1] += bounds[j]
    following = bounds[:k].copy()
    for i in range(len(owners)):
        owner = owners[i]
        order[following[owner]] = i
        following[owner] += 1
    return -1
