"""The keyed state of one instance, with the changes of the batch that is not yet committed kept apart.

The first touch of a slot in a batch copies its values (the before-image). So a batch is undone, or written as a delta, in
time proportional to the keys it touched, and never to the size of the state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from streamtopology.jobs.columnar.keys import KeyColumns, key_kind
from streamtopology.jobs.lazy import LazyModule
from streamtopology.jobs.state.arrow_values import ArrowValues
from streamtopology.jobs.state.field_values import GuardedFields
from streamtopology.jobs.state.index import NO_SLOTS, KeyIndex
from streamtopology.jobs.state.layout import FREE
from streamtopology.jobs.state.ownership import Ownership
from streamtopology.jobs.state.schema import (
    DELETED,
    ROUTING,
    ArrowField,
    KeyedStateSchema,
    StateError,
    concatenated,
    described,
)

if TYPE_CHECKING:
    from streamtopology.jobs.state import kernels
    from streamtopology.routing.table import table as tables
else:
    kernels = LazyModule("streamtopology.jobs.state.kernels")
    tables = LazyModule("streamtopology.routing.table.table")

_MOST_VERSIONS = 4096

# Arrays that have more than so many slots for a key, and more than a few in all, are made anew when keys go.
MOST_ROOM, SMALL_CAPACITY = 8, 1 << 16


class KeyedState:
    """The fields of each key. Not thread-safe: one instance, one batch at a time.

    Use: `slots = state.slots(keys)`, then read and write `state.column(name)[slots]`. Take `column` again after `slots`,
    `insert` or `touch`: the arrays move when they grow. A field made by `Field.of` has no such column: `read(name, slots)` and
    `write(name, slots, values)`. The runtime ends a batch with `commit` or `rollback`.

    >>> schema = KeyedStateSchema((Field("count", np.int64),), pa.schema([("sensor", pa.int64())]))
    >>> state = KeyedState(schema)
    >>> slots = state.slots(KeyColumns.from_arrow(pa.record_batch({"sensor": [7, 7, 8]}), ("sensor",)))
    >>> np.add.at(state.column("count"), slots, 1)
    >>> state.snapshot().to_pylist()
    [{'sensor': 7, 'count': 2}, {'sensor': 8, 'count': 1}]
    """

    def __init__(self, schema: KeyedStateSchema) -> None:
        self.schema = schema
        self._reset()

    def _reset(self) -> None:
        self._index = KeyIndex(self.schema.key_types)
        self.arrays = {
            field.name: np.full((self._index.capacity, *field.shape), field.initial, dtype=field.dtype)
            for field in self.schema.fields
        }
        self._guarded = GuardedFields(self.arrays)
        self._values = {field.name: ArrowValues(field.kind) for field in self.schema.fields if isinstance(field, ArrowField)}
        self._routing: np.ndarray | None = None
        self._stamp = 2
        self._versions: deque[tuple[int, int]] = deque(maxlen=_MOST_VERSIONS)  # (batch, the stamp of the batch after it)
        self._strangers: tuple[Ownership, int, np.ndarray] | None = None  # under whose table, at which stamp, which slots
        self._deleted_at = 0  # the stamp of the newest commit that deleted keys
        self._begin()

    def _begin(self) -> None:
        self._index.mark()
        self._images: list[tuple[np.ndarray, list[np.ndarray]]] = []
        self._inserted: list[np.ndarray] = []
        self._tombstones: list[np.ndarray] = []
        self._dropped: list[np.ndarray] = []
        self._evicted: list[np.ndarray] = []
        self._moved_in = np.empty(0, np.bool_)  # slots that `insert` filled and nothing has touched since
        self._ownership: Ownership | None = None
        self._deleted_count = 0

    # --- reading and writing ---

    def __len__(self) -> int:
        return self._index.taken - self._deleted_count

    @property
    def nbytes(self) -> int:
        """Bytes of every array held: values, keys, index, room to grow, before-images."""
        pending = [*self._inserted, *self._tombstones, *self._dropped, *self._evicted, self._moved_in]
        for slots, values in self._images:
            pending += [slots, *values]
        routing = 0 if self._routing is None else self._routing.nbytes
        columns = sum(column.nbytes for column in [*self.arrays.values(), *self._values.values()])
        return self._index.nbytes + columns + routing + sum(array.nbytes for array in pending)

    def slots(self, keys: KeyColumns, routing_hashes: np.ndarray | None = None) -> np.ndarray:
        """Slots of the keys (int64[n]), with new keys at their initial values; all of them count as touched.

        routing_hashes: uint64[n], when a key is routed by something else than itself, e.g. by its first column. Given
        always or never.
        """
        self._check_keys(keys)
        slots, touched, inserted = self._index.upsert(keys, self._stamp)
        self._keep_images(touched)
        self._grow_columns()
        if inserted.size:
            for field in self.schema.fields:
                self.arrays[field.name][inserted] = field.initial
            self._inserted.append(inserted)
            self._keep_routing(slots, routing_hashes)
        if self._moved_in.size:
            self._note_moved_in(slots, False)
        return slots

    def find(self, keys: KeyColumns) -> np.ndarray:
        """Slots of the keys (int64[n]), -1 where the key has no state. Touches nothing: to write, `touch` the slots."""
        self._check_keys(keys)
        return self._index.find(keys)

    def touch(self, slots: np.ndarray) -> None:
        """Announce a change of the values in these slots (int64[]; -1 is skipped)."""
        touched = np.empty(slots.size, dtype=np.int32)
        n = kernels.touch(slots, self._index.stamps, self._stamp, touched)
        self._keep_images(touched[:n].copy())
        if self._moved_in.size:
            self._note_moved_in(slots[slots >= 0], False)

    def column(self, name: str) -> np.ndarray:
        """The values of a field, dtype[capacity, *shape], by slot: a view, written in place. Raises OverflowError.

        Raises StateError for a field made by `Field.of`.
        """
        if name in self._values:
            raise StateError(
                f"field {name!r} has no numpy column; call state.read({name!r}, slots) and state.write({name!r}, slots, x)"
            )
        return self._guarded[name]

    def read(self, name: str, slots: np.ndarray) -> pa.Array:
        """The values of a field of any kind in these slots, int64[n]."""
        field, held = self.schema.field(name), self.arrays[name][slots]
        return self._values[name].take(held) if isinstance(field, ArrowField) else field.to_arrow(held)

    def write(self, name: str, slots: np.ndarray, values: pa.Array) -> None:
        """Replace the values of a field in these touched slots, int64[n]; of a slot that is there twice the last one counts.

        values: n of the field's type, or of one that it holds all values of. Raises StateError.
        """
        field = self.schema.field(name)
        fitting = field.widened(values)
        if fitting is None or len(values) != len(slots):
            found = f"{len(values)} values of type {values.type}"
            raise StateError(f"field {name!r} holds {field.arrow_type}, one value a slot; {found} for {len(slots)} slots given")
        placed = self._values[name].append(fitting) if isinstance(field, ArrowField) else field.to_numpy(fitting)
        self.arrays[name][slots] = placed

    def live(self) -> np.ndarray:
        """int64[]: all slots that hold a key."""
        return self._index.live()

    def touched(self) -> np.ndarray:
        """int64[]: slots touched in this batch that still hold a key, each once; a key that only moved here is not touched."""
        slots = self._changed()
        return slots[~self._moved_in[slots]] if self._moved_in.size else slots

    def delete(self, slots: np.ndarray) -> None:
        """Forget the keys in these slots (int64[]; repeated, deleted or -1 slots are passed over)."""
        self.touch(slots)
        self._tombstones.append(self._free(slots))

    def _free(self, slots: np.ndarray) -> np.ndarray:
        """Free the slots; of those that had a value before this batch, int32[]: the values stay there until its commit."""
        had_value, had_none = np.empty(slots.size, dtype=np.int64), np.empty(slots.size, dtype=np.int64)
        counts = kernels.free_slots(slots, self._index.stamps, self._stamp + 1, had_value, had_none)
        freed = had_value[: counts[0]].astype(np.int32)
        self._dropped.append(had_none[: counts[1]].astype(np.int32))
        self._index.unlink(_joined([freed, self._dropped[-1]]))
        self._deleted_count += sum(counts)
        return freed

    def keys(self, slots: np.ndarray) -> list[pa.Array]:
        """The key columns of these slots."""
        return self._index.keys(slots).decode()

    def hashes(self, slots: np.ndarray) -> np.ndarray:
        """uint64[]: the hash that routes the key in each of these slots."""
        return self._index.hashes(slots) if self._routing is None else self._routing[slots]

    # --- the batch's changes ---

    def delta(self) -> pa.RecordBatch:
        """The changes since the last commit: key columns, fields, `__deleted`. Deletions apply before the rest.

        After `evict` it is marked with the ownership, which applies before all.
        """
        tombstones = _joined(self._tombstones)
        rows = self._rows(np.concatenate([tombstones, self._changed()]), blank=tombstones.size)
        deleted = np.arange(rows.num_rows) < tombstones.size
        delta = rows.append_column(DELETED, pa.array(deleted))
        return delta if self._ownership is None else self._ownership.marked(delta)

    def commit(self) -> None:
        """Make the batch's changes final."""
        if any(slots.size for slots in self._tombstones):
            self._deleted_at = self._stamp
        freed = _joined([*self._tombstones, *self._dropped, *self._evicted])
        self._index.release(freed)
        self._stamp += 2
        self._begin()
        if freed.size and self._index.capacity > max(SMALL_CAPACITY, MOST_ROOM * len(self)):
            self.restore(self.snapshot())  # what keys have left behind would never be used again
            return
        for name, values in self._values.items():
            values.commit()
            if values.wants_sweep:
                live = self.live()
                self.arrays[name][live] = values.sweep(self.arrays[name][live])

    def rollback(self) -> None:
        """Undo everything since the last commit."""
        stamps = self._index.stamps
        inserted, tombstones = _joined(self._inserted), _joined([*self._tombstones, *self._evicted])
        self._index.unlink(inserted[stamps[inserted] != FREE])
        stamps[inserted] = FREE
        stamps[tombstones] = self._stamp  # they may have changed since any version: what was touched when is overwritten
        self._index.rewind(tombstones)
        for slots, values in self._images:
            for field, before in zip(self.schema.fields, values, strict=True):
                self.arrays[field.name][slots] = before
        for values in self._values.values():
            values.rollback()
        self._stamp += 2
        self._begin()

    def mark_version(self, batch: int) -> None:
        """Note that the state, without changes since, is that of the commit of `batch`."""
        if not self._versions or batch > self._versions[-1][0]:
            self._versions.append((batch, self._stamp))

    def changed_since(self, batch: int) -> np.ndarray | None:
        """int64[]: the slots of all keys held here that changed after the commit of `batch`, and maybe of others.

        None: it is not known, or keys have been deleted since, which have no slots.
        """
        stamp = self._stamp_after(batch)
        if stamp is None or self._deleted_at >= stamp:
            return None
        return self._index.touched_since(stamp)

    def _stamp_after(self, batch: int) -> int | None:
        """Later changes than that of the commit of `batch` have this stamp or a later one; None: it is not known."""
        return max((stamp for version, stamp in self._versions if version <= batch), default=None)

    # --- whole states, and parts that move ---

    def snapshot(self) -> pa.RecordBatch:
        """Every key with its values: key columns and fields."""
        return self._rows(self._index.live())

    def parts(self, most_bytes: int) -> Iterator[pa.RecordBatch]:
        """The snapshot in parts of about `most_bytes` in memory, at least one; each is made when it is asked for."""
        slots = self._index.live()
        for part in np.array_split(slots, max(1, -(-self.nbytes // most_bytes))):
            yield self._rows(part)

    def extend(self, part: pa.RecordBatch) -> None:
        """Add a further part of the snapshot that the state was restored from. Raises StateError."""
        self._check_rows(part)
        self._put(part)
        self.commit()

    def restore(self, snapshot: pa.RecordBatch) -> None:
        """Replace the state by `snapshot`, or by its first part; nothing is left to commit. Raises StateError."""
        self._check_rows(snapshot)
        self._reset()
        key_columns = snapshot.select(self.schema.key_types.names)
        self._index.reserve(snapshot.num_rows, 0 if key_kind(self.schema.key_types) == "int64" else key_columns.nbytes)
        self._put(snapshot)
        self.commit()

    def apply(self, delta: pa.RecordBatch) -> None:
        """Take over a delta that another state committed; nothing is left to commit. Raises StateError."""
        if self._has_changes:
            raise StateError("a delta cannot be applied over changes that are not committed")
        if DELETED not in delta.schema.names:
            raise StateError(f"a delta of keyed state has a column {DELETED!r}; this has {delta.schema.names}")
        self._check_rows(delta)
        ownership = Ownership.of(delta)
        if ownership is not None:
            self.evict(ownership)
        self._merge(delta)
        self.commit()

    def leaving(self, ownership: Ownership) -> Iterator[tuple[int, int, pa.RecordBatch]]:
        """The keys that belong to others now: owner, number of keys, and keys with values in the form of a snapshot."""
        slots, owners = self._strangers_of(ownership)
        self._strangers = ownership, self._stamp, slots
        for owner, rows in self._by_lot(slots, owners):
            yield owner, rows.num_rows, rows

    def dealt(self, lots: Callable[[np.ndarray], np.ndarray]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """All keys with their values in the form of snapshots, by the lot (int32[], from 0) that a hash (uint64[]) falls to."""
        slots = self._index.live()
        yield from self._by_lot(slots, lots(self.hashes(slots)))

    def evict(self, ownership: Ownership) -> None:
        """Drop the keys that belong to others: a change of this batch, stored in its delta as the ownership alone."""
        strangers = self._strangers_under(ownership)
        if strangers.size:
            self._evicted.append(self._free(strangers))
            self._ownership = ownership

    def insert(self, rows: pa.RecordBatch) -> None:
        """Take in keys and values from `leaving` or `changes` of another instance: a change of this batch that touches no key.

        Raises StateError.
        """
        self._check_rows(rows)
        moved = self._merge(rows) if DELETED in rows.schema.names else self._put(rows)
        self._note_moved_in(moved, True)

    def changes(self, of: pa.RecordBatch) -> pa.RecordBatch:
        """The current values of the keys in `of` (rows of deltas, repeated keys allowed), as one delta with each key once."""
        slots = self.find(KeyColumns.from_arrow(of, self.schema.key_types.names))
        here = self.written(np.unique(slots[slots >= 0]))
        gone = of.filter(pa.array(slots < 0)).replace_schema_metadata(None)
        gone = gone.set_column(gone.schema.get_field_index(DELETED), DELETED, pa.array(np.ones(gone.num_rows, np.bool_)))
        return concatenated([gone, here])

    def written(self, slots: np.ndarray) -> pa.RecordBatch:
        """The keys in these slots (int64[]) with their values, as a delta that deletes nothing."""
        rows = self._rows(slots)
        return rows.append_column(DELETED, pa.array(np.zeros(rows.num_rows, np.bool_)))

    # --- how ---

    def _strangers_under(self, ownership: Ownership) -> np.ndarray:
        """int64[]: the slots of keys that belong to others; known where these have just been asked for by `leaving`."""
        noted, self._strangers = self._strangers, None
        if noted is not None and noted[:2] == (ownership, self._stamp) and not self._has_changes:
            return noted[2]
        return self._strangers_of(ownership)[0]

    def _strangers_of(self, ownership: Ownership) -> tuple[np.ndarray, np.ndarray]:
        """int64[], int32[]: the slots of keys that belong to others, and whose they are."""
        slots = self._index.in_buckets(ownership.foreign_buckets(), self._routing)
        owners = ownership.owners(self.hashes(slots))
        strangers = np.flatnonzero(owners != ownership.instance)
        return slots[strangers], owners[strangers]

    def _changed(self) -> np.ndarray:
        """int64[]: slots touched or filled in this batch that still hold a key, each once."""
        slots = _joined([*(slots for slots, _ in self._images), *self._inserted])
        return slots[self._index.stamps[slots] != FREE]

    def _note_moved_in(self, slots: np.ndarray, moved_in: bool) -> None:
        missing = self._index.capacity - self._moved_in.size
        if missing:
            self._moved_in = np.concatenate([self._moved_in, np.zeros(missing, np.bool_)])
        self._moved_in[slots] = moved_in

    @property
    def _has_changes(self) -> bool:
        return any((self._images, self._inserted, self._tombstones, self._dropped, self._evicted))

    def _by_lot(self, slots: np.ndarray, lots: np.ndarray) -> Iterator[tuple[int, pa.RecordBatch]]:
        order, bounds = tables.partition(lots, int(lots.max(initial=0)) + 1)
        for lot in np.flatnonzero(np.diff(bounds)).tolist():
            yield lot, self._rows(slots[order[bounds[lot] : bounds[lot + 1]]])

    def _keep_images(self, slots: np.ndarray) -> None:
        if slots.size:
            self._images.append((slots, [self.arrays[field.name][slots] for field in self.schema.fields]))

    def _grow_columns(self) -> None:
        capacity = self._index.capacity
        for name, column in self.arrays.items():
            if len(column) < capacity:
                self.arrays[name] = _grown(column, capacity)
                for former in (column, self._guarded.pop(name, column)):
                    former.flags.writeable = False  # a write to it raises an error instead of being lost
        if self._routing is not None and self._routing.size < capacity:
            self._routing = _grown(self._routing, capacity)

    def _keep_routing(self, slots: np.ndarray, hashes: np.ndarray | None) -> None:
        if hashes is not None and self._routing is None and self._index.taken == self._inserted[-1].size:
            self._routing = np.empty(self._index.capacity, dtype=np.uint64)
        if (hashes is None) != (self._routing is None):
            raise StateError("routing_hashes must be given with every key of a state, or with none")
        if self._routing is not None:
            self._routing[slots] = hashes

    def _rows(self, slots: np.ndarray, blank: int = 0) -> pa.RecordBatch:
        """A batch of keys and values; the values of the first `blank` rows are zero, since no one will read them."""
        arrays, names = self._index.keys(slots).decode(may_widen=True), list(self.schema.key_types.names)
        for field in self.schema.fields:
            held = self.arrays[field.name][slots]
            held[:blank] = 0
            arrays.append(self._values[field.name].take(held) if isinstance(field, ArrowField) else field.to_arrow(held))
            names.append(field.name)
        if self._routing is not None:
            arrays.append(pa.array(self._routing[slots]))
            names.append(ROUTING)
        return self.schema.labelled(pa.RecordBatch.from_arrays(arrays, names=names))

    def _merge(self, delta: pa.RecordBatch) -> np.ndarray:
        """Deletions, then the rest; int64[]: the slots of the rest."""
        deleted = delta.column(DELETED)
        gone = KeyColumns.from_arrow(delta.filter(deleted), self.schema.key_types.names)
        self.delete(self.find(gone))
        return self._put(delta.filter(pa.array(~deleted.to_numpy(zero_copy_only=False))))

    def _put(self, rows: pa.RecordBatch) -> np.ndarray:
        routing = rows.column(ROUTING).to_numpy() if ROUTING in rows.schema.names else None
        slots = self.slots(KeyColumns.from_arrow(rows, self.schema.key_types.names), routing)
        for field in self.schema.fields:
            self.write(field.name, slots, rows.column(field.name))
        return slots

    def _check_keys(self, keys: KeyColumns) -> None:
        mine = self.schema.key_types
        if keys.kind != key_kind(mine) or len(keys.types) != len(mine):
            raise StateError(f"state keyed by ({described(mine)}) was asked for keys of ({described(keys.types)})")

    def _check_rows(self, rows: pa.RecordBatch) -> None:
        if not self.schema.fits(rows):
            raise StateError(f"rows of ({described(rows.schema)}) do not fit state of ({described(self.schema.columns())})")


def routing_hashes(rows: pa.RecordBatch, schema: KeyedStateSchema) -> np.ndarray:
    """uint64[n]: the hash that routes the key of each row of a snapshot or delta."""
    if ROUTING in rows.schema.names:
        return rows.column(ROUTING).to_numpy()
    return KeyColumns.from_arrow(rows, schema.key_types.names).hashes


def _joined(chunks: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate(chunks).astype(np.int64) if chunks else NO_SLOTS


def _grown(array: np.ndarray, capacity: int) -> np.ndarray:
    larger = np.empty((capacity, *array.shape[1:]), dtype=array.dtype)
    larger[: len(array)] = array
    return larger
