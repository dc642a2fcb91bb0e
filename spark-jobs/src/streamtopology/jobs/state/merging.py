"""A snapshot and the deltas after it as one new snapshot, part by part: no more than the changed keys is held as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from streamtopology.jobs.columnar.keys import KeyColumns
from streamtopology.jobs.state.keyed import KeyedState, routing_hashes
from streamtopology.jobs.state.ownership import Ownership
from streamtopology.jobs.state.rows import RowState
from streamtopology.jobs.state.schema import KeyedStateSchema, RowStateSchema, StateSchema, concatenated


class _Changes(Protocol):
    """The changes that deltas make to a snapshot that they follow."""

    def add(self, delta: pa.RecordBatch) -> None: ...

    def kept_of(self, part: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """The rows of a part of the snapshot that the deltas leave as they are, in the form of a snapshot."""
        ...

    def parts(self, most_bytes: int) -> Iterator[pa.RecordBatch]:
        """The rows that the deltas bring, in the form of a snapshot."""
        ...


def merged(
    snapshot: Iterable[pa.RecordBatch], deltas: Iterable[pa.RecordBatch], schema: StateSchema, most_bytes: int
) -> Iterator[pa.RecordBatch]:
    """The state after `deltas` as a snapshot in parts of about `most_bytes`, at least one. Raises StateError.

    The parts of `snapshot` are read one by one, after all deltas.
    """
    changes: _Changes = _KeyChanges(schema) if isinstance(schema, KeyedStateSchema) else _RowChanges(schema)
    for delta in deltas:
        changes.add(delta)
    yield from _joined(_rows_of(changes, snapshot, most_bytes), most_bytes)


def _rows_of(changes: _Changes, snapshot: Iterable[pa.RecordBatch], most_bytes: int) -> Iterator[pa.RecordBatch]:
    for part in snapshot:
        yield from changes.kept_of(part)
    yield from changes.parts(most_bytes)


def _joined(rows: Iterable[pa.RecordBatch], most_bytes: int) -> Iterator[pa.RecordBatch]:
    """`rows` with small neighbours of the same columns in one batch: parts that shrink do not become many."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in rows:
        if held and not held[-1].num_rows:
            held, size = [], 0
        if held and not batch.num_rows:
            continue
        if held and (size + batch.nbytes > most_bytes or batch.schema != held[0].schema):
            yield _one(held)
            held, size = [], 0
        held.append(batch)
        size += batch.nbytes
    yield _one(held)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else concatenated(batches)


class _KeyChanges:
    """Keys with their newest values; which keys any delta names; and who owned what on the way."""

    def __init__(self, schema: KeyedStateSchema) -> None:
        self._schema = schema
        self._newest = KeyedState(schema)
        self._named = KeyedState(KeyedStateSchema((), schema.key_types))
        self._owners: list[Ownership] = []

    def add(self, delta: pa.RecordBatch) -> None:
        self._newest.apply(delta)
        self._named.slots(self._keys_of(delta))
        self._named.commit()
        ownership = Ownership.of(delta)
        if ownership is not None:
            self._owners.append(ownership)

    def kept_of(self, part: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        kept = self._named.find(self._keys_of(part)) < 0
        hashes = routing_hashes(part, self._schema) if self._owners else None
        for ownership in self._owners:
            assert hashes is not None
            kept &= ~ownership.strangers(hashes)
        yield part if kept.all() else part.filter(pa.array(kept))

    def parts(self, most_bytes: int) -> Iterator[pa.RecordBatch]:
        return self._newest.parts(most_bytes)

    def _keys_of(self, rows: pa.RecordBatch) -> KeyColumns:
        return KeyColumns.from_arrow(rows, self._schema.key_types.names)


class _RowChanges:
    """The rows that deltas append and do not remove again, and all their removals."""

    def __init__(self, schema: RowStateSchema) -> None:
        self._schema = schema
        self._newest = RowState(schema)
        self._removals: list[pa.RecordBatch] = []

    def add(self, delta: pa.RecordBatch) -> None:
        self._newest.apply(delta)
        removals = delta.filter(pc.call_function("not_equal", [delta.column("change"), "append"]))
        if removals.num_rows:
            self._removals.append(removals)

    def kept_of(self, part: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        kept = RowState(self._schema)
        kept.restore(part)
        for removals in self._removals:
            kept.apply(removals)
        yield kept.snapshot()

    def parts(self, most_bytes: int) -> Iterator[pa.RecordBatch]:
        return self._newest.parts(most_bytes)
