"""Keyed state of which most is on disk: the keys that were used last are in memory, by the same index as without a disk.

A key that is asked for comes into memory with its values; there it is found, changed, written as a delta and rolled back as in
any other keyed state. Only what is committed goes to the disk: after a commit, the ranges of hashes whose turn it is are swept.
The checkpoint does not know: its deltas and snapshots are the same. So the disk can be lost at any time, like the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from streamtopology.jobs.columnar.keys import KeyColumns, key_kind
from streamtopology.jobs.state.index import FULLEST
from streamtopology.jobs.state.keyed import KeyedState, tables
from streamtopology.jobs.state.layout import FREE
from streamtopology.jobs.state.ownership import Ownership
from streamtopology.jobs.state.schema import ArrowField, KeyedStateSchema, StateError, concatenated
from streamtopology.jobs.state.sorted_rows import BLOCK, RANGES, SortedRows, values_of, without_repetitions

# Of the keys of a range that is swept, those that leave the memory: the ones that were used longest ago.
_LEAVING = 0.5
# What is known of the copy on disk of a key in memory: there is none, it is older, it is the same.
_NONE, _OLDER, _SAME = 0, 1, 2
_HASH = "__hash"
# Each time that keys leave, as the keys in memory are looked through for it.
_RANGES_AT_ONCE = 4
_FEWEST_LOADED = 1 << 12


class DiskState(KeyedState):
    """As KeyedState, with at most about `memory` bytes of keys in memory, and those of one batch beyond it.

    A row costs about what it does in memory. A key that is not in memory, known or new, costs some microseconds and the read of
    a page; one that leaves memory its share of a sweep, which writes a sixteenth of the file anew. The key is one column of
    numbers or times, and the fields are numbers: `unfit_for_disk` says so of others.

    >>> schema = KeyedStateSchema((Field("count", np.int64),), pa.schema([("sensor", pa.int64())]))
    >>> state = DiskState(schema, memory=0)
    >>> keys = KeyColumns.from_arrow(pa.record_batch({"sensor": [7, 7, 8]}), ("sensor",))
    >>> slots = state.slots(keys)
    >>> np.add.at(state.column("count"), slots, 1)
    >>> state.commit()
    >>> len(state), state.column("count")[state.find(keys)].tolist()
    (2, [2, 2, 1])
    """

    def __init__(self, schema: KeyedStateSchema, memory: int) -> None:
        refused = unfit_for_disk(schema)
        if refused:
            raise StateError(refused)
        self._row = _row_type(schema)
        self._most_keys = most_keys(schema, memory)
        self._is_loading = False
        self._most_loaded = max(self._most_keys // 4, _FEWEST_LOADED)
        super().__init__(schema)

    def _reset(self) -> None:
        self._cold = SortedRows(self._row.itemsize // 8)
        self._copies = np.zeros(0, np.uint8)  # by slot
        self._copied = 0  # keys in memory that have a copy on disk
        self._turn = 0
        self._swept_stamp = 0  # the newest stamp of a key that has left the memory
        super()._reset()
        self._grow_columns()

    def _begin(self) -> None:
        super()._begin()
        self._loaded: list[np.ndarray] = []
        self._killed: list[np.ndarray] = []
        self._came = 0

    # --- reading and writing ---

    def __len__(self) -> int:
        return super().__len__() + len(self._cold) - self._copied

    @property
    def nbytes(self) -> int:
        """As of KeyedState: what is in memory."""
        return super().nbytes + self._cold.nbytes + self._copies.nbytes

    def slots(self, keys: KeyColumns, routing_hashes: np.ndarray | None = None) -> np.ndarray:
        if self._is_loading:
            self._make_room(len(keys))
            return super().slots(keys, routing_hashes)
        slots, missing = self._found_in_memory(keys)
        if len(missing):
            slots[missing] = super().slots(keys.take(missing), routing_hashes)
        self.touch(slots)
        return slots

    def find(self, keys: KeyColumns) -> np.ndarray:
        slots, missing = self._found_in_memory(keys)
        if len(missing):
            slots[missing] = super().find(keys.take(missing))
        return slots

    def live(self) -> np.ndarray:
        """Raises StateError: not all keys have slots."""
        raise StateError("the slots of all keys were asked for, which state on disk does not have; leave out `state`")

    def _found_in_memory(self, keys: KeyColumns) -> tuple[np.ndarray, np.ndarray]:
        """int64[n]: the slots of those keys that were in memory, else -1; int64[]: which of the keys are to be found again.

        Those of them that are on disk are in memory now, and for those that are nowhere there is room.
        """
        self._check_keys(keys)
        slots = self._index.find(keys)
        missing = np.flatnonzero(slots < 0)
        if len(missing):
            of_disk = missing if keys.valid is None else missing[keys.valid[missing]]  # NULL stays in memory
            wanted = without_repetitions(np.sort(keys.hashes[of_disk]))
            self._make_room(len(wanted))
            rows = self._cold.find(wanted)
            self._load(rows[rows >= 0])
        return slots, missing

    def _load(self, rows: np.ndarray) -> None:
        """Have these rows of the disk in memory."""
        if not len(rows):
            return
        self._strangers = None
        held = self._cold.read(rows).view(self._row).reshape(-1)
        values = values_of(held[_HASH]).view(np.int64)
        # The stamp says that nothing has touched them since the oldest version.
        slots, _, _ = self._index.upsert(KeyColumns.of_values(self.schema.key_types, values, None), 0)
        self._grow_columns()
        for field in self.schema.fields:
            self.arrays[field.name][slots] = held[field.name]
        self._copies[slots] = _SAME
        self._copied += len(slots)
        self._loaded.append(slots)

    def _make_room(self, keys: int) -> None:
        """Have slots for so many more keys: as many as the memory is for, until that is not enough."""
        self._came += keys
        needed, held = self._index.taken + keys + 1, self._index.capacity  # one for NULL
        if needed > held:
            more = max(needed, min(held + held // 2, self._most_keys))
            self._index.reserve(more - self._index.taken, 0)
            self._grow_columns()

    def _grow_columns(self) -> None:
        super()._grow_columns()
        missing = self._index.capacity - len(self._copies)
        if missing > 0:
            self._copies = np.concatenate([self._copies, np.zeros(missing, np.uint8)])

    def _keep_images(self, slots: np.ndarray) -> None:
        super()._keep_images(slots)
        self._copies[slots] = np.minimum(self._copies[slots], _OLDER)

    def _free(self, slots: np.ndarray) -> np.ndarray:
        held = np.unique(slots[slots >= 0])
        held = held[(self._copies[held] != _NONE) & (self._index.stamps[held] != FREE)]
        if held.size:
            rows = self._cold.find(np.sort(self.hashes(held)))
            self._kill(rows[rows >= 0])
            self._copied -= held.size
        return super()._free(slots)

    def _kill(self, rows: np.ndarray) -> None:
        self._cold.kill(rows)
        self._killed.append(rows)

    # --- the batch's changes ---

    @property
    def _has_changes(self) -> bool:
        return super()._has_changes or bool(self._killed)

    def commit(self) -> None:
        """Make the batch's changes final, and sweep if there is more in memory than is for it. Raises StateDiskError.

        After the error it can be called again: the changes are final, and nothing is lost.
        """
        for slots in (*self._tombstones, *self._dropped, *self._evicted):
            self._copies[slots] = _NONE
        came = self._came
        super().commit()
        surplus = self._index.taken + min(came, self._most_keys // 2) - self._most_keys
        if surplus > 0:
            self._sweep(surplus)

    def rollback(self) -> None:
        for rows in self._killed:
            self._cold.revive(rows)
        loaded = np.zeros(self._index.capacity, np.bool_)
        for slots in self._loaded:
            loaded[slots] = True
        for freed in (self._tombstones, self._evicted):
            freed[:] = [slots[~loaded[slots]] for slots in freed]
        came = np.flatnonzero(loaded)
        self._inserted.append(came)  # their slots are given back: what they hold is on disk
        super().rollback()
        self._copies[came] = _NONE
        self._copied = int(np.count_nonzero(self._copies[self._index.live()]))

    def changed_since(self, batch: int) -> np.ndarray | None:
        stamp = self._stamp_after(batch)
        return None if stamp is None or self._swept_stamp >= stamp else super().changed_since(batch)

    # --- whole states, and parts that move ---

    def snapshot(self) -> pa.RecordBatch:
        return concatenated([super().snapshot(), *(rows for _, rows in self._on_disk())])

    def parts(self, most_bytes: int) -> Iterator[pa.RecordBatch]:
        yield from super().parts(most_bytes)
        for _, rows in self._on_disk():
            yield rows

    def restore(self, snapshot: pa.RecordBatch) -> None:
        super().restore(snapshot.slice(0, 0))
        self.extend(snapshot)

    def extend(self, part: pa.RecordBatch) -> None:
        self._is_loading = True  # its keys are nowhere yet: nothing is looked for on disk
        try:
            for first in range(0, part.num_rows, self._most_loaded):
                super().extend(part.slice(first, self._most_loaded))
        finally:
            self._is_loading = False

    def leaving(self, ownership: Ownership) -> Iterator[tuple[int, int, pa.RecordBatch]]:
        yield from super().leaving(ownership)
        for hashes, rows in self._on_disk(ownership):
            owners = ownership.owners(hashes)
            gone = np.flatnonzero(owners != ownership.instance)
            for owner, some in _dealt(rows.take(pa.array(gone)), owners[gone]):
                yield owner, some.num_rows, some

    def dealt(self, lots: Callable[[np.ndarray], np.ndarray]) -> Iterator[tuple[int, pa.RecordBatch]]:
        yield from super().dealt(lots)
        for hashes, rows in self._on_disk():
            yield from _dealt(rows, lots(hashes))

    def evict(self, ownership: Ownership) -> None:
        super().evict(ownership)
        for which in _ranges_of(ownership):
            rows = self._cold.living(which)
            gone = rows[ownership.strangers(self._cold.read(rows)[:, 0].copy())]
            if len(gone):
                self._kill(gone)
                self._ownership = ownership

    # --- how ---

    def _on_disk(self, ownership: Ownership | None = None) -> Iterator[tuple[np.ndarray, pa.RecordBatch]]:
        """The hashes, uint64[], and the keys with their values of what is on disk alone, a range at a time.

        ownership: only ranges in which keys may belong to others.
        """
        for which in range(RANGES) if ownership is None else _ranges_of(ownership):
            held = self._cold.read(self._cold.living(which)).view(self._row).reshape(-1)
            values = values_of(held[_HASH]).view(np.int64)
            keys = KeyColumns.of_values(self.schema.key_types, values, None)
            alone = self._index.find(keys) < 0
            held, keys = held[alone], keys.take(np.flatnonzero(alone))
            if len(held):
                arrays = [*keys.decode(), *(field.to_arrow(held[field.name].copy()) for field in self.schema.fields)]
                names = [*self.schema.key_types.names, *(field.name for field in self.schema.fields)]
                yield held[_HASH].copy(), self.schema.labelled(pa.RecordBatch.from_arrays(arrays, names=names))

    def _sweep(self, surplus: int) -> None:
        """Have at least `surplus` keys fewer in memory, where so many may leave; a range at a time, in turns."""
        left, share = surplus, max(_LEAVING, surplus / self._index.taken)
        for _ in range(RANGES // _RANGES_AT_ONCE):
            if left > 0:
                left -= self._sweep_ranges(share)

    def _sweep_ranges(self, share: float) -> int:
        """Write what is newer in memory than on disk; drop the share that was used longest ago, and return how many."""
        flagged = np.zeros(RANGES, np.bool_)
        flagged[self._turn : self._turn + _RANGES_AT_ONCE] = True
        slots = self._index.in_buckets(flagged, None)
        slots = slots[slots != self._index.null_slot]
        self._write(slots[self._copies[slots] != _SAME])
        leaving = int(np.ceil(share * len(slots)))
        stamps = self._index.stamps[slots]
        if leaving < len(slots):
            slots = slots[np.argpartition(stamps, leaving)[:leaving]]
        if len(slots):
            self._swept_stamp = max(self._swept_stamp, int(self._index.stamps[slots].max()))
            self._index.unlink(slots)
            self._index.stamps[slots] = FREE
            self._index.release(slots)
            self._index.mark()  # a rollback does not bring them back
            self._copies[slots] = _NONE
            self._copied -= len(slots)
        self._turn = (self._turn + _RANGES_AT_ONCE) % RANGES
        return len(slots)

    def _write(self, slots: np.ndarray) -> None:
        """Have these keys on disk, too."""
        hashes = self._index.hashes(slots)
        order = np.argsort(hashes)
        slots = slots[order]
        rows = np.zeros(len(slots), self._row)
        rows[_HASH] = hashes[order]
        for field in self.schema.fields:
            rows[field.name] = self.arrays[field.name][slots]
        for first, last in self._cold.put(rows.view(np.uint64).reshape(len(rows), self._row.itemsize // 8)):
            written = slots[first:last]
            self._copied += int(np.count_nonzero(self._copies[written] == _NONE))
            self._copies[written] = _SAME


def unfit_for_disk(schema: KeyedStateSchema) -> str:
    """The reason why state of this schema cannot be on disk; empty if it can."""
    if key_kind(schema.key_types) != "int64":
        keys = ", ".join(f"{key.name} {key.type}" for key in schema.key_types)
        return f"state on disk has a key of one column of numbers, times or booleans; here it is ({keys})"
    for field in schema.fields:
        if isinstance(field, ArrowField):
            return f"state on disk has fields of numbers; field {field.name!r} is {field.arrow_type}"
    if _row_type(schema).itemsize > BLOCK:
        return f"state on disk has at most {BLOCK:,} bytes a key; here it has {_row_type(schema).itemsize:,}"
    return ""


def _row_type(schema: KeyedStateSchema) -> np.dtype:
    """A row of the file: the hash, and the fields, in whole words."""
    fields = [(_HASH, np.dtype(np.uint64), ()), *((field.name, field.dtype, field.shape) for field in schema.fields)]
    kinds = [np.dtype((kind, shape)) for _, kind, shape in fields]
    ends = np.cumsum([kind.itemsize for kind in kinds]).tolist()
    names = [name for name, _, _ in fields]
    return np.dtype({"names": names, "formats": kinds, "offsets": [0, *ends[:-1]], "itemsize": -(-ends[-1] // 8) * 8})


def most_keys(schema: KeyedStateSchema, memory: int) -> int:
    """The keys that `memory` bytes are for."""
    # Values, code, stamp, copy, and place in the list of free slots; and the entries of the index.
    slot = sum(np.dtype((field.dtype, field.shape)).itemsize for field in schema.fields) + 8 + 4 + 1 + 4
    sizes = [1 << bits for bits in range(10, 40) if 8 << bits < memory]
    return max((min(int(FULLEST * size), (memory - 8 * size) // slot) for size in sizes), default=0)


def _ranges_of(ownership: Ownership) -> list[int]:
    """The ranges in which keys may belong to others."""
    foreign = np.flatnonzero(ownership.foreign_buckets())
    size = len(ownership.foreign_buckets())
    first, last = foreign * RANGES // size, ((foreign + 1) * RANGES - 1) // size
    flagged = np.zeros(RANGES, np.bool_)
    for low, high in zip(first.tolist(), last.tolist(), strict=True):
        flagged[low : high + 1] = True
    return np.flatnonzero(flagged).tolist()


def _dealt(rows: pa.RecordBatch, lots: np.ndarray) -> Iterator[tuple[int, pa.RecordBatch]]:
    order, bounds = tables.partition(lots, int(lots.max(initial=0)) + 1)
    for lot in np.flatnonzero(np.diff(bounds)).tolist():
        yield lot, rows.take(pa.array(order[bounds[lot] : bounds[lot + 1]]))
