"""State on disk: the sorted rows of its file against a dictionary, its bounds, and a disk that takes no more.

What it does as keyed state is tested with keyed state, by the same histories (`test_keyed_state`).
"""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.depth import deep

from streamtopology.jobs.columnar.keys import KeyColumns
from streamtopology.jobs.state import DiskState, Field, KeyedState, KeyedStateSchema, StateDiskError, StateError
from streamtopology.jobs.state.sorted_rows import RANGES, SortedRows, values_of
from streamtopology.routing.table.hashing import hash_int64

COUNTS = KeyedStateSchema((Field("count", np.dtype("i8")),), pa.schema({"k": pa.int64()}))


def keys_of(values: np.ndarray) -> KeyColumns:
    return KeyColumns.from_arrow(pa.record_batch({"k": values}), ["k"])


def add(state: KeyedState, values: np.ndarray, amount: int = 1) -> None:
    slots = state.slots(keys_of(values))
    np.add.at(state.column("count"), slots, amount)


def counts(state: KeyedState) -> dict[int, int]:
    rows = state.snapshot()
    return dict(zip(rows["k"].to_pylist(), rows["count"].to_pylist(), strict=True))


puts = st.lists(st.tuples(st.integers(0, 2_000), st.integers(1, 900), st.integers(0, 3), st.booleans()), max_size=8)


@deep(gate=40, long=400)
@given(width=st.sampled_from((1, 2, 3, 100, 512)), puts=puts, seed=st.integers(0, 99))
def test_sorted_rows_hold_what_a_dictionary_holds(width: int, puts: list[tuple[int, int, int, bool]], seed: int) -> None:
    rng, rows, model = np.random.default_rng(seed), SortedRows(width), dict[int, list[int]]()
    everything = np.sort(rng.integers(0, 2**64, 3_000, dtype=np.uint64))
    everything[-100:] = np.sort(everything[-100:] % np.uint64(1 << 40)) + np.uint64(1 << 63)  # many in one range
    everything = np.unique(everything)
    for first, count, kills, undone in puts:
        some = everything[first : first + count]
        changed = rng.integers(0, 2**64, (len(some), width), dtype=np.uint64)
        changed[:, 0] = some
        for low, high in rows.put(changed):
            model |= {int(row[0]): row.tolist() for row in changed[low:high]}
        dying = rng.choice(some, min(kills, len(some)), replace=False)
        found = rows.find(np.sort(dying))
        rows.kill(found)
        assert (rows.find(np.sort(dying)) == -1).all()
        if undone:
            rows.revive(found)
        else:
            for one in dying.tolist():
                del model[one]
        assert len(rows) == len(model)
    found = rows.find(everything)
    assert (found >= 0).tolist() == [one in model for one in everything.tolist()]
    assert rows.read(found[found >= 0]).tolist() == [model[one] for one in everything.tolist() if one in model]
    by_range = [rows.read(rows.living(which))[:, 0].tolist() for which in range(RANGES)]
    assert [one for part in by_range for one in part] == sorted(model)


def test_numbers_come_back_from_their_hashes() -> None:
    values = np.array([0, 1, -1, 2**63 - 1, -(2**63), 123_456_789], np.int64)
    assert values_of(hash_int64(values)).view(np.int64).tolist() == values.tolist()


def test_what_is_in_memory_stays_within_its_bound_and_the_file_within_a_few_times_the_state() -> None:
    memory, rng = 2 << 20, np.random.default_rng(1)
    state, plain = DiskState(COUNTS, memory), KeyedState(COUNTS)
    for _ in range(60):
        values = rng.integers(0, 200_000, 10_000)
        for one in (state, plain):
            add(one, values)
            one.commit()
        assert state.nbytes < 1.1 * memory
    assert plain.nbytes > 4 * memory
    assert len(state) == len(plain)
    assert counts(state) == counts(plain)
    blocks = os.fstat(state._cold._file.fileno()).st_blocks * 512
    assert blocks < 8 * 16 * len(state)


def test_the_keys_used_last_stay_in_memory() -> None:
    state = DiskState(COUNTS, 1_000_000)
    hot = np.arange(500)
    for batch in range(40):
        add(state, hot)
        add(state, np.arange(10_000 * batch, 10_000 * batch + 3_000))
        state.commit()
    in_memory = state._index.find(keys_of(hot)) >= 0
    assert len(state) == 40 * 3_000
    assert in_memory.mean() > 0.9


def test_a_restored_snapshot_is_as_large_in_memory_as_the_bound_allows() -> None:
    whole, state = KeyedState(COUNTS), DiskState(COUNTS, 1 << 20)
    add(whole, np.arange(300_000), 3)
    whole.commit()
    first, *others = whole.parts(1 << 20)
    state.restore(first)
    for part in others:
        state.extend(part)
    assert state.nbytes < 1.2 * (1 << 20)
    assert counts(state) == counts(whole)


def test_a_full_disk_is_a_sentence_and_no_change_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    state = DiskState(COUNTS, 0)
    add(state, np.arange(5_000))
    state.commit()
    add(state, np.arange(40_000))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", full)
        with pytest.raises(StateDiskError, match=r"cannot have its .*: No space left on device\. Nothing is lost"):
            state.commit()
        add(state, np.arange(10))
        state.rollback()
    state.commit()
    assert counts(state) == {key: 2 if key < 5_000 else 1 for key in range(40_000)}


def test_no_file_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    state = DiskState(COUNTS, 0)
    add(state, np.arange(5_000))
    state.commit()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        (KeyedStateSchema(COUNTS.fields, pa.schema({"k": pa.string()})), r"here it is \(k string\)"),
        (KeyedStateSchema(COUNTS.fields, pa.schema({"k": pa.int64(), "l": pa.int64()})), r"\(k int64, l int64\)"),
        (KeyedStateSchema((Field.of("page", pa.string()),), COUNTS.key_types), "field 'page' is string"),
        (KeyedStateSchema((Field("all", np.dtype("f8"), shape=(512,)),), COUNTS.key_types), "at most 4,096 bytes a key"),
    ],
)
def test_state_of_other_than_fixed_width_is_refused(schema: KeyedStateSchema, sentence: str) -> None:
    with pytest.raises(StateError, match=sentence):
        DiskState(schema, 0)
