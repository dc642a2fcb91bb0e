"""A snapshot and the deltas after it, merged part by part, are the state that loading them all gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.stages import random_table

from streamtopology.jobs.columnar.keys import KeyColumns
from streamtopology.jobs.state import Field, KeyedState, KeyedStateSchema, Ownership, RowState, RowStateSchema, merged
from streamtopology.routing.table.hashing import hash_int64

COUNTS = Field("count", np.dtype("i8"))
BY_NUMBER = KeyedStateSchema((COUNTS,), pa.schema({"k": pa.int64()}))
BY_TEXT = KeyedStateSchema((COUNTS, Field("sums", np.dtype("f8"), (3,))), pa.schema({"k": pa.string(), "n": pa.int32()}))
TUPLES = RowStateSchema({"a": pa.schema({"k": pa.int64(), "at": pa.int64()})}, key=("k",), time="at")

Keyed = tuple[list[pa.RecordBatch], list[pa.RecordBatch], list[dict[str, Any]]]


def keys_of(random: np.random.Generator, schema: KeyedStateSchema, rows: int) -> KeyColumns:
    numbers = [None if number == 0 else number for number in random.integers(0, 300, rows).tolist()]
    columns: dict[str, Any] = {"k": numbers}
    if schema is BY_TEXT:
        columns = {"k": [None if number is None else f"key {number}" for number in numbers], "n": numbers}
    return KeyColumns.from_arrow(pa.record_batch(columns, schema=schema.key_types), schema.key_types.names)


def life(seed: int, schema: KeyedStateSchema, routed_by_part: bool = False) -> Keyed:
    """The parts of a snapshot, the deltas after it, and the rows of the state at the end."""
    random = np.random.default_rng(seed)
    state = KeyedState(schema)
    deltas: list[pa.RecordBatch] = []
    snapshot: list[pa.RecordBatch] = []
    for batch in range(9):
        if random.random() < 0.3 and state.live().size:
            table = random_table(random, 2, state.hashes(state.live()))
            state.evict(Ownership(table, 0))
        keys = keys_of(random, schema, 120)
        slots = state.slots(keys, hash_int64(np.arange(len(keys)) % 7) if routed_by_part else None)
        np.add.at(state.column("count"), slots, 1)
        state.delete(random.choice(state.live(), 20))
        slots = state.slots(keys_of(random, schema, 5)) if not routed_by_part else slots[:0]
        deltas.append(state.delta())
        state.commit()
        if batch == 4:
            snapshot, deltas = list(state.parts(max(state.nbytes // 6, 1))), []
    return snapshot, deltas, state.snapshot().to_pylist()


def loaded(parts: list[pa.RecordBatch], schema: KeyedStateSchema) -> list[dict[str, Any]]:
    state = KeyedState(schema)
    state.restore(parts[0])
    for part in parts[1:]:
        state.extend(part)
    return state.snapshot().to_pylist()


@pytest.mark.parametrize("schema", [BY_NUMBER, BY_TEXT], ids=["numbers", "texts"])
@pytest.mark.parametrize("seed", range(30))
def test_merged_parts_are_the_state_after_the_deltas(schema: KeyedStateSchema, seed: int) -> None:
    snapshot, deltas, expected = life(seed, schema)
    parts = list(merged(iter(snapshot), iter(deltas), schema, 1000))
    assert sum(part.num_rows for part in parts) == len(expected), "no key is there twice"
    assert sorted(loaded(parts, schema), key=str) == sorted(expected, key=str)
    whole = list(merged(iter(parts), iter(()), schema, 1 << 30))
    assert len(whole) == 1
    assert sorted(whole[0].to_pylist(), key=str) == sorted(parts_rows(parts), key=str)


def parts_rows(parts: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for part in parts for row in part.to_pylist()]


@pytest.mark.parametrize("seed", range(10))
def test_hashes_that_route_keys_are_kept(seed: int) -> None:
    snapshot, deltas, expected = life(seed, BY_NUMBER, routed_by_part=True)
    assert sorted(loaded(list(merged(snapshot, deltas, BY_NUMBER, 1000)), BY_NUMBER), key=str) == sorted(expected, key=str)


def test_state_that_is_empty_is_one_part() -> None:
    state = KeyedState(BY_NUMBER)
    state.slots(keys_of(np.random.default_rng(1), BY_NUMBER, 50))
    snapshot = state.snapshot()
    state.commit()
    state.delete(state.live())
    (part,) = merged([snapshot], [state.delta()], BY_NUMBER, 1000)
    assert part.num_rows == 0
    assert loaded([part], BY_NUMBER) == []


def test_parts_that_shrink_become_fewer() -> None:
    state = KeyedState(BY_NUMBER)
    keys = pa.record_batch({"k": np.arange(10_000)})
    state.slots(KeyColumns.from_arrow(keys, ["k"]))
    state.commit()
    snapshot = list(state.parts(state.nbytes // 20))
    state.delete(np.arange(9_000))
    parts = list(merged(snapshot, [state.delta()], BY_NUMBER, snapshot[0].nbytes))
    assert len(parts) <= 5
    assert sum(part.num_rows for part in parts) == 1_000


def test_parts_of_the_snapshot_are_read_one_by_one() -> None:
    state = KeyedState(BY_NUMBER)
    state.slots(KeyColumns.from_arrow(pa.record_batch({"k": np.arange(10_000)}), ["k"]))
    state.commit()
    read: list[int] = []

    def snapshot() -> Iterator[pa.RecordBatch]:
        for part in state.parts(state.nbytes // 20):
            read.append(part.num_rows)
            yield part

    parts = merged(snapshot(), [], BY_NUMBER, 1)
    next(parts)
    assert len(read) <= 2


@pytest.mark.parametrize("seed", range(20))
def test_merged_rows_are_those_that_are_kept(seed: int) -> None:
    random = np.random.default_rng(seed)
    state = RowState(TUPLES)
    deltas: list[pa.RecordBatch] = []
    snapshot: list[pa.RecordBatch] = []
    for batch in range(10):
        times = (batch + random.integers(-3, 4, 30)) * 1_000_000
        state.append("a", pa.record_batch({"k": random.integers(0, 9, 30), "at": times}))
        if batch % 3 == 2:
            state.expire(batch - 3)
        if batch % 4 == 3:
            gone = hash_int64(random.integers(0, 9, 2))
            state.remove(lambda hashes, gone=gone: np.isin(hashes, gone))
        deltas.append(state.delta())
        state.commit()
        if batch == 4:
            snapshot, deltas = list(state.parts(400)), []
    parts = list(merged(snapshot, deltas, TUPLES, 2000))
    again = RowState(TUPLES)
    again.restore(parts[0])
    for part in parts[1:]:
        again.extend(part)
    order = [("at", "ascending"), ("k", "ascending")]
    assert again.rows("a").sort_by(order) == state.rows("a").sort_by(order)
