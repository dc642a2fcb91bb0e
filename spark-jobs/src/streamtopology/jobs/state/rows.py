"""Rows that an instance keeps for a while, input by input, as a windowed join does.

Rows are kept in chunks, which are never changed, so a rollback only has to remember which chunks there were. The batch's
changes are a journal, and the journal is the delta.

Where keys leave, every chunk is made anew without their rows. So a move costs a pass over all rows, however few of them leave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamtopology.jobs.columnar.event_times import event_micros
from streamtopology.jobs.columnar.key_widening import keeps_keys
from streamtopology.jobs.columnar.keys import KeyColumns
from streamtopology.jobs.state.ownership import Ownership
from streamtopology.jobs.state.schema import RowStateSchema, StateError, meaning, other_meaning

# uint64[n] routing hashes -> bool[n]: the hashes meant.
HashMask = Callable[[np.ndarray], np.ndarray]

# Rows up to which small neighbouring chunks are made one; larger ones stay, and expire as a whole.
LARGEST_MERGED_CHUNK = 65_536

MICROSECONDS = 1_000_000

# A delta or snapshot, one change a row, in order: "append" (input, payload: Arrow stream of rows), "expire" (before: epoch
# seconds), "remove" (payload: uint64 routing hashes, little-endian).
CHANGES = pa.schema(
    [
        pa.field("change", pa.string()),
        pa.field("input", pa.string()),
        pa.field("before", pa.float64()),
        pa.field("payload", pa.large_binary()),
    ]
)


class _Chunk:
    """Rows; their oldest and newest event time in microseconds; the routing hashes of their keys, once they are asked for."""

    def __init__(self, rows: pa.Table, schema: RowStateSchema, hashes: np.ndarray | None = None) -> None:
        self.rows = rows
        times = _microseconds(rows, schema.time)
        self.oldest, self.newest = int(times.min()), int(times.max())
        self._schema = schema
        self._hashes = hashes

    @property
    def hashes(self) -> np.ndarray:
        """uint64[rows]."""
        if self._hashes is None:
            parts = [KeyColumns.from_arrow(batch, self._schema.key).hashes for batch in self.rows.to_batches()]
            self._hashes = np.concatenate(parts)
        return self._hashes

    def where(self, mask: np.ndarray) -> _Chunk:
        """A copy of the rows that `mask` (bool[rows]) says, at least one."""
        hashes = None if self._hashes is None else self._hashes[mask]
        return _Chunk(self.rows.filter(pa.array(mask)), self._schema, hashes)

    def followed_by(self, other: _Chunk) -> _Chunk:
        """A copy of the rows of both."""
        hashes = None
        if self._hashes is not None or other._hashes is not None:
            hashes = np.concatenate([self.hashes, other.hashes])
        return _Chunk(pa.concat_tables([self.rows, other.rows]).combine_chunks(), self._schema, hashes)


@dataclass(frozen=True)
class _Change:
    change: str
    input: str | None = None
    before: float | None = None
    payload: bytes | None = None


class RowState:
    """Rows by input alias. Not thread-safe. The runtime ends a batch with `commit` or `rollback`.

    >>> clicks = pa.schema([("user", pa.int64()), ("at", pa.int64())])
    >>> state = RowState(RowStateSchema({"clicks": clicks}, key=("user",), time="at"))
    >>> state.append("clicks", pa.record_batch({"user": [7], "at": [1_000_000]}, schema=clicks))
    >>> len(state)
    1
    """

    def __init__(self, schema: RowStateSchema) -> None:
        self.schema = schema
        self._chunks: dict[str, list[_Chunk]] = {alias: [] for alias in schema.inputs}
        self._before: dict[str, list[_Chunk]] | None = None
        self._journal: list[_Change] = []

    # --- reading and writing ---

    def __len__(self) -> int:
        return sum(chunk.rows.num_rows for chunks in self._chunks.values() for chunk in chunks)

    @property
    def nbytes(self) -> int:
        """Bytes of all rows held, those a rollback would bring back and the journal included."""
        held = {id(chunk): chunk.rows.nbytes for chunks in self._chunks.values() for chunk in chunks}
        held |= {id(chunk): chunk.rows.nbytes for chunks in (self._before or {}).values() for chunk in chunks}
        return sum(held.values()) + sum(len(change.payload or b"") for change in self._journal)

    def append(self, alias: str, rows: pa.RecordBatch | pa.Table) -> None:
        """Keep rows of an input; they are copied. Raises StateError when they are not of the declared schema."""
        table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
        if table.num_rows:
            self._append(alias, _stream(table))

    def rows(self, alias: str) -> pa.Table:
        """All rows kept of an input."""
        return pa.concat_tables([self._of(alias).empty_table(), *(chunk.rows for chunk in self._chunks[alias])])

    def expire(self, before: float) -> None:
        """Forget rows with an event time before `before` (epoch seconds; infinity forgets all) or with none."""
        self._change(_Change("expire", before=before))
        bound = before * MICROSECONDS

        def kept_of(chunk: _Chunk) -> np.ndarray:
            if chunk.oldest >= bound or chunk.newest < bound:
                return np.array(chunk.oldest >= bound)
            return _microseconds(chunk.rows, self.schema.time) >= bound

        self._keep(kept_of)

    # --- the batch's changes ---

    def delta(self) -> pa.RecordBatch:
        """The changes since the last commit, in order."""
        return _batch(self._journal)

    def commit(self) -> None:
        """Make the batch's changes final."""
        for chunks in self._chunks.values():
            _merge_small(chunks)
        self._before, self._journal = None, []

    def rollback(self) -> None:
        """Undo everything since the last commit."""
        if self._before is not None:
            self._chunks = self._before
        self._before, self._journal = None, []

    # --- whole states, and parts that move ---

    def snapshot(self) -> pa.RecordBatch:
        """All rows."""
        return _batch(list(self._appended()))

    def parts(self, most_bytes: int) -> Iterator[pa.RecordBatch]:
        """The snapshot in parts of about `most_bytes`, or of one chunk; at least one part, made when it is asked for."""
        part: list[_Change] = []
        size = 0
        for change in self._appended():
            length = len(change.payload or b"")
            if part and size + length > most_bytes:
                yield _batch(part)
                part, size = [], 0
            part.append(change)
            size += length
        yield _batch(part)

    def extend(self, part: pa.RecordBatch) -> None:
        """Add a further part of the snapshot that the state was restored from. Raises StateError."""
        _check(part)
        self._replay(part)
        self.commit()

    def restore(self, snapshot: pa.RecordBatch) -> None:
        """Replace the state by `snapshot`, or by its first part; nothing is left to commit. Raises StateError."""
        _check(snapshot)
        self._chunks = {alias: [] for alias in self.schema.inputs}
        self._replay(snapshot)
        self.commit()

    def apply(self, delta: pa.RecordBatch) -> None:
        """Take over a delta that another state committed; nothing is left to commit. Raises StateError."""
        if self._journal:
            raise StateError("a delta cannot be applied over changes that are not committed")
        self._replay(delta)
        self.commit()

    def leaving(self, ownership: Ownership) -> Iterator[tuple[int, int, pa.RecordBatch]]:
        """The rows that belong to others now: owner, number of rows, and the rows in the form of a snapshot."""
        owners_of = {id(chunk): ownership.owners(chunk.hashes) for chunks in self._chunks.values() for chunk in chunks}
        owners, counts = np.unique(np.concatenate([*owners_of.values(), np.empty(0, np.int32)]), return_counts=True)
        for owner, rows in zip(owners.tolist(), counts.tolist(), strict=True):
            if owner != ownership.instance:
                yield owner, rows, self._extract(lambda chunk, owner=owner: owners_of[id(chunk)] == owner)

    def extract(self, mask_of: HashMask) -> pa.RecordBatch:
        """The rows whose key's routing hash is meant, in the form of a snapshot."""
        return self._extract(lambda chunk: mask_of(chunk.hashes))

    def remove(self, mask_of: HashMask) -> None:
        """Forget the rows whose key's routing hash is meant: a change of this batch."""
        removed = [np.empty(0, dtype=np.uint64)]

        def kept_of(chunk: _Chunk) -> np.ndarray:
            hashes = chunk.hashes
            meant = mask_of(hashes)
            removed.append(np.unique(hashes[meant]))
            return ~meant

        self._begin()
        self._keep(kept_of)
        hashes = np.unique(np.concatenate(removed))
        if hashes.size:
            self._journal.append(_Change("remove", payload=hashes.astype("<u8").tobytes()))

    def evict(self, ownership: Ownership) -> None:
        """Forget the rows that belong to others: a change of this batch."""
        self.remove(ownership.strangers)

    def insert(self, rows: pa.RecordBatch) -> None:
        """Take in rows from `extract` of another instance: a change of this batch. Raises StateError."""
        self._replay(rows)

    # --- how ---

    def _of(self, alias: str) -> pa.Schema:
        if alias not in self.schema.inputs:
            raise StateError(f"state keeps rows of {', '.join(self.schema.inputs)}; there is no input {alias!r}")
        return self.schema.inputs[alias]

    def _begin(self) -> None:
        if self._before is None:
            self._before = {alias: list(chunks) for alias, chunks in self._chunks.items()}

    def _change(self, change: _Change) -> None:
        self._begin()
        self._journal.append(change)

    def _append(self, alias: str, payload: bytes) -> None:
        rows = _read(payload)
        if not rows.schema.equals(self._of(alias)):
            raise StateError(f"rows of input {alias!r} do not fit: {rows.schema} instead of {self._of(alias)}")
        self._change(_Change("append", input=alias, payload=payload))
        self._chunks[alias].append(_Chunk(rows, self.schema))

    def _appended(self) -> Iterator[_Change]:
        """The rows of each chunk as a change that appends them."""
        for alias, chunks in self._chunks.items():
            yield from (_Change("append", input=alias, payload=_stream(chunk.rows)) for chunk in chunks)

    def _extract(self, meant: Callable[[_Chunk], np.ndarray]) -> pa.RecordBatch:
        extracted: list[_Change] = []
        for alias, chunks in self._chunks.items():
            parts = [chunk.rows.filter(pa.array(meant(chunk))) for chunk in chunks]
            rows = pa.concat_tables([self._of(alias).empty_table(), *parts])
            if rows.num_rows:
                extracted.append(_Change("append", input=alias, payload=_stream(rows)))
        return _batch(extracted)

    def _fitted(self, alias: str, payload: bytes) -> bytes:
        """The rows with columns in another order, in wider types, as those of keys may have become, and with their meanings."""
        rows = _read(payload)
        wanted, held = self._of(alias), rows.schema
        if held.equals(wanted, check_metadata=True) or sorted(held.names) != sorted(wanted.names):
            return payload
        for column in held:
            if (means := meaning(column)) and means != (now := meaning(wanted.field(column.name))):
                raise other_meaning(column.name, means, now)
        rows = rows.select(wanted.names)
        return _stream(rows.cast(wanted)) if all(map(keeps_keys, rows.schema.types, wanted.types)) else payload

    def _replay(self, changes: pa.RecordBatch) -> None:
        _check(changes)
        for row in changes.to_pylist():
            if row["change"] == "append":
                self._append(row["input"], self._fitted(row["input"], row["payload"]))
            elif row["change"] == "expire":
                self.expire(row["before"])
            else:
                gone = np.frombuffer(row["payload"], dtype="<u8")
                self.remove(lambda hashes, gone=gone: np.isin(hashes, gone))

    def _keep(self, kept_of: Callable[[_Chunk], np.ndarray]) -> None:
        """Keep the rows that `kept_of` says: bool[rows of the chunk], or one bool for all of them."""
        for alias, chunks in self._chunks.items():
            kept = []
            for chunk in chunks:
                mask = kept_of(chunk)
                if mask.all():
                    kept.append(chunk)
                elif mask.any():
                    kept.append(chunk.where(mask))
            self._chunks[alias] = kept


def _stream(rows: pa.Table) -> bytes:
    """The rows as an Arrow stream of one batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows.combine_chunks())
    return sink.getvalue().to_pybytes()


def _read(payload: bytes) -> pa.Table:
    """The rows of a stream, whose memory they share."""
    with pa.ipc.open_stream(pa.py_buffer(payload)) as reader:
        return reader.read_all()


def _microseconds(rows: pa.Table, time: str) -> np.ndarray:
    """int64[n] event times; a row without one is older than all others."""
    column = rows.column(time)
    if pa.types.is_timestamp(column.type):
        times, valid = event_micros(column.combine_chunks())
        return times if valid is None else np.where(valid, times, np.iinfo(np.int64).min)
    return pc.fill_null(column, np.iinfo(np.int64).min).to_numpy()


def _merge_small(chunks: list[_Chunk]) -> None:
    """Merge from the end while a chunk is less than twice its successor: few chunks, and no row is copied often."""
    while len(chunks) > 1:
        last, before = chunks[-1].rows, chunks[-2].rows
        if before.num_rows >= 2 * last.num_rows or before.num_rows + last.num_rows > LARGEST_MERGED_CHUNK:
            return
        chunks[-2:] = [chunks[-2].followed_by(chunks[-1])]


def _batch(changes: list[_Change]) -> pa.RecordBatch:
    columns = zip(*((c.change, c.input, c.before, c.payload) for c in changes), strict=True) if changes else ([],) * 4
    arrays = [pa.array(column, type=field.type) for column, field in zip(columns, CHANGES, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=CHANGES)


def _check(changes: pa.RecordBatch) -> None:
    if not changes.schema.equals(CHANGES):
        raise StateError(f"changes of row state have the columns {CHANGES.names}, not {changes.schema.names}")
