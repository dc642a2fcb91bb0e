"""Keyed state against a dictionary: batches of changes, committed or undone, and their deltas replayed elsewhere."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.states import all_slots, extracted, forget

from streamtopology.jobs.columnar.keys import KeyColumns, KeyTypeError, widened
from streamtopology.jobs.state import DiskState, Field, KeyedState, KeyedStateSchema, Ownership, StateError, concatenated
from streamtopology.routing.table.table import RoutingTable

NOTES = pa.list_(pa.struct([("text", pa.large_string()), ("n", pa.int16())]))
FIELDS = (
    Field("count", np.dtype("i8")),
    Field("spread", np.dtype("f4"), shape=(2, 3), initial=-1),
    Field.of("notes", NOTES),
)
# So long that a few batches make more garbage than a sweep leaves.
LONG = "a note " * 10_000

KEY_SPACES: dict[str, tuple[pa.Schema, list[tuple[object, ...]]]] = {
    "int": (pa.schema({"k": pa.int32()}), [(n,) for n in range(-6, 6)] + [(None,)]),
    "string": (pa.schema({"k": pa.string()}), [("x" * n,) for n in range(8)] + [("y",), ("z",), (None,)]),
    "pair": (
        pa.schema({"k": pa.string(), "window": pa.timestamp("us")}),
        [(k, w) for k in ("a", "", None) for w in (0, 60, None)],
    ),
}

Note = tuple[str | None, int]
Values = tuple[int, tuple[float, ...], tuple[Note, ...] | None]


def key_columns(types: pa.Schema, rows: list[tuple[object, ...]]) -> KeyColumns:
    arrays = [pa.array([row[i] for row in rows], type=field.type) for i, field in enumerate(types)]
    return KeyColumns.from_arrays(arrays, types.names, len(rows))


def routing_hashes(types: pa.Schema, rows: list[tuple[object, ...]]) -> np.ndarray | None:
    """A pair is routed by its first column; a single key by itself."""
    if len(types) == 1:
        return None
    return key_columns(pa.schema([types.field(0)]), [row[:1] for row in rows]).hashes


def plain(columns: list[pa.Array]) -> list[tuple[object, ...]]:
    """Keys as the tuples in KEY_SPACES."""
    numbers = [column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in columns]
    return list(zip(*(column.to_pylist() for column in numbers), strict=True))


def contents(state: KeyedState) -> dict[tuple[object, ...], Values]:
    rows = state.snapshot()
    count, spread = rows["count"].to_pylist(), rows["spread"].to_pylist()
    lists = rows["notes"].to_pylist() if "notes" in rows.schema.names else [None] * rows.num_rows
    notes = [None if each is None else tuple((note["text"], note["n"]) for note in each) for each in lists]
    keys = plain([rows[name] for name in state.schema.key_types.names])
    found = list(zip(keys, zip(count, map(tuple, spread), notes, strict=True), strict=True))
    assert len(dict(found)) == len(found), "a key is there twice"
    return dict(found)


class KeyedStateAgainstDictionary(RuleBasedStateMachine):
    """`model` is what the state must hold now, `committed` what it must go back to."""

    fields = FIELDS

    def empty(self) -> KeyedState:
        return KeyedState(self.schema)

    @initialize(space=st.sampled_from(sorted(KEY_SPACES)))
    def start(self, space: str) -> None:
        self.types, self.keys = KEY_SPACES[space]
        self.schema = KeyedStateSchema(self.fields, self.types)
        self.state, self.replica = self.empty(), self.empty()
        self.model: dict[tuple[object, ...], Values] = {}
        self.committed: dict[tuple[object, ...], Values] = {}
        self.committed_rows: pa.RecordBatch | None = None
        self.changed: set[tuple[object, ...]] = set()
        self.versions: list[pa.RecordBatch] = []
        self.evicted: set[tuple[object, ...]] = set()
        self.gone: list[set[tuple[object, ...]]] = []  # strangers let go with each version

    def some_keys(self, picks: list[int]) -> list[tuple[object, ...]]:
        return [self.keys[pick % len(self.keys)] for pick in picks]

    @rule(picks=st.lists(st.integers(0, 50), max_size=8), amount=st.integers(1, 9))
    def add(self, picks: list[int], amount: int) -> None:
        rows = self.some_keys(picks)
        slots = self.state.slots(key_columns(self.types, rows), routing_hashes(self.types, rows))
        np.add.at(self.state.column("count"), slots, amount)
        self.state.column("spread")[slots, 1, 2] = amount
        for row in rows:
            count, spread, notes = self.model.get(row, (0, (-1.0,) * 6, None))
            self.model[row] = (count + amount, (*spread[:5], float(amount)), notes)
        self.changed |= set(rows)

    @rule(picks=st.lists(st.integers(0, 50), max_size=5))
    def overwrite_what_is_there(self, picks: list[int]) -> None:
        rows = self.some_keys(picks)
        slots = self.state.find(key_columns(self.types, rows))
        assert [slot >= 0 for slot in slots] == [row in self.model for row in rows]
        self.state.touch(slots)
        self.state.column("count")[slots[slots >= 0]] = 100
        present = [row for row in rows if row in self.model]
        self.model |= {row: (100, *self.model[row][1:]) for row in present}
        self.changed |= set(present)

    @precondition(lambda self: self.fields is FIELDS)
    @rule(picks=st.lists(st.integers(0, 50), max_size=8), long=st.integers(0, 3))
    def note(self, picks: list[int], long: int) -> None:
        """Each with a note of its own; of a key that is there twice the last one counts."""
        rows = self.some_keys(picks)
        notes = [((LONG if number < long else None, number),) * (number % 3) for number in range(len(rows))]
        slots = self.state.slots(key_columns(self.types, rows), routing_hashes(self.types, rows))
        self.state.write("notes", slots, pa.array(notes, NOTES))
        for row, note in zip(rows, notes, strict=True):
            self.model[row] = (*self.model.get(row, (0, (-1.0,) * 6, None))[:2], note)
        self.changed |= set(rows)

    @rule(picks=st.lists(st.integers(0, 50), max_size=5))
    def delete(self, picks: list[int]) -> None:
        rows = self.some_keys(picks)
        self.state.delete(self.state.find(key_columns(self.types, rows)))
        for row in rows:
            self.model.pop(row, None)

    @rule(bit=st.integers(0, 7))
    def hand_over_and_take_back(self, bit: int) -> None:
        """Moved keys are gone here, complete there, and complete here again."""

        def meant(hashes: np.ndarray) -> np.ndarray:
            return (hashes >> np.uint64(bit)) & np.uint64(1) == 1

        before = contents(self.state)
        moved = extracted(self.state, meant)
        forget(self.state, meant)
        other = self.empty()
        other.insert(moved)
        stays, goes = contents(self.state), contents(other)
        assert {**stays, **goes} == before
        assert not stays.keys() & goes.keys()
        assert meant(other.hashes(all_slots(other))).all()
        assert not meant(self.state.hashes(all_slots(self.state))).any()
        self.state.insert(moved)
        self.changed |= goes.keys()

    @rule(bit=st.integers(0, 7), sends_them=st.booleans(), goes_on=st.booleans())
    def evict(self, bit: int, sends_them: bool, goes_on: bool) -> None:
        """Keys that a table gives to another instance are gone, and the delta says it in a few words."""
        if self.state.delta().schema.metadata:
            return  # a batch has one table
        table = RoutingTable(np.empty(0, np.uint64), np.empty(0, np.int32), np.array([bit % 2, (bit + 1) % 2], np.int32))
        if sends_them:
            list(self.state.leaving(Ownership(table, 0)))
            if goes_on:  # what was known of strangers then is no longer all
                self.add([bit, bit + 1], 1)
        tombstones = pc.sum(self.state.delta()["__deleted"]).as_py() or 0
        strangers = set(contents(self.state))
        self.state.evict(Ownership(table, 0))
        strangers -= set(contents(self.state))
        assert set(self.state.hashes(all_slots(self.state)) >> np.uint64(63)) <= {bit % 2}
        assert (pc.sum(self.state.delta()["__deleted"]).as_py() or 0) == tombstones
        self.model = {key: values for key, values in self.model.items() if key not in strangers}
        self.changed -= strangers
        self.evicted |= strangers

    @rule(seed=st.integers(0, 9))
    def name_those_who_leave(self, seed: int) -> None:
        """Each key that belongs to another instance leaves once, for that instance."""
        table = RoutingTable.uniform((0, 1, 2), 8, seed)
        rest = contents(self.state)
        for owner, keys, rows in self.state.leaving(Ownership(table, 1)):
            other = self.empty()
            other.insert(rows)
            assert owner != 1
            assert len(other) == keys == rows.num_rows > 0
            assert set(table.lookup(other.hashes(all_slots(other)))) == {owner}
            assert all(rest.pop(key) == values for key, values in contents(other).items())
        stay = self.empty()
        stay.insert(extracted(self.state, Ownership(table, 1).owned))
        assert rest == contents(stay)

    @rule()
    def tell_what_became_of_keys(self) -> None:
        """The changes of any keys, applied to their former state, give the current one."""
        other = self.empty()
        other.insert(self.committed_rows) if self.committed_rows is not None else None
        keys = self.state.snapshot(), self.committed_rows
        rows = [part.append_column("__deleted", pa.array([False] * part.num_rows)) for part in keys if part is not None]
        if len({part.schema for part in rows}) == 1:
            other.insert(self.state.changes(pa.concat_batches(rows)))
            assert contents(other) == contents(self.state)

    @rule()
    def commit(self) -> None:
        delta = self.state.delta()
        written = delta.filter(pa.array(~delta["__deleted"].to_numpy(zero_copy_only=False)))
        assert self.changed & self.model.keys() == set(plain([written[name] for name in self.types.names]))
        self.state.commit()
        self.replica.apply(delta)
        self.committed = dict(self.model)
        self.committed_rows = self.state.snapshot()
        self.changed = set()
        self.state.mark_version(len(self.versions))
        self.versions.append(self.committed_rows)
        self.gone.append(self.evicted)
        self.evicted = set()
        assert contents(self.replica) == self.committed
        assert len(self.state.touched()) == 0
        assert self.state.delta().num_rows == 0

    @rule()
    def rollback(self) -> None:
        self.state.rollback()
        self.model = dict(self.committed)
        self.changed = self.evicted = set()

    @rule()
    def continue_from_a_snapshot(self) -> None:
        if self.model == self.committed and not self.changed:
            restored = self.empty()
            restored.restore(self.state.snapshot())
            restored.mark_version(len(self.versions) - 1)
            self.state.rollback()
            self.state = restored

    @rule(back=st.integers(0, 6))
    def tell_what_changed_since(self, back: int) -> None:
        """The keys that changed since a version, applied to it, give the last commit, except for strangers."""
        version = len(self.versions) - 1 - back
        if version < 0 or self.model != self.committed or self.changed:
            return
        slots = self.state.changed_since(version)
        if slots is not None:
            other = self.empty()
            other.insert(self.versions[version])
            other.insert(self.state.written(slots))
            others: set[tuple[object, ...]] = set().union(*self.gone[version + 1 :])
            known, here = contents(other), contents(self.state)
            assert {key: known[key] for key in known.keys() - others} == {key: here[key] for key in here.keys() - others}
            assert all(known[key] == values for key, values in here.items())

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        assert contents(self.state) == self.model
        assert len(self.state) == len(self.model)


TestKeyedStateAgainstDictionary = KeyedStateAgainstDictionary.TestCase
TestKeyedStateAgainstDictionary.settings = settings(max_examples=120, stateful_step_count=30)


class DiskStateAgainstDictionary(KeyedStateAgainstDictionary):
    """No key stays in memory after a commit, or five of them do."""

    fields = FIELDS[:2]

    @initialize(memory=st.sampled_from((0, 8 * 1024 + 5 * 49)))
    def start(self, memory: int) -> None:
        self.memory = memory
        super().start("int")

    def empty(self) -> KeyedState:
        return DiskState(self.schema, self.memory)


TestDiskStateAgainstDictionary = DiskStateAgainstDictionary.TestCase
TestDiskStateAgainstDictionary.settings = settings(max_examples=120, stateful_step_count=30)


def counts(key_types: dict[str, pa.DataType]) -> KeyedState:
    return KeyedState(KeyedStateSchema((Field("count", np.dtype("i8")),), pa.schema(key_types)))


def test_changes_since_a_version_are_known_until_a_key_is_deleted() -> None:
    state = counts({"k": pa.int64()})
    for batch, keys in enumerate(([1, 2, 3], [2, 4], [5])):
        state.slots(KeyColumns.from_arrow(pa.record_batch({"k": keys}), ["k"]))
        state.commit()
        state.mark_version(batch)
    state.touch(state.live())
    state.rollback()

    def since(version: int) -> list[int] | None:
        slots = state.changed_since(version)
        return None if slots is None else sorted(state.keys(slots)[0].to_pylist())

    assert since(0) == since(1) == [1, 2, 3, 4, 5], "what was tried and undone counts, too"
    assert since(-1) is None, "the state has not been marked then"
    state.slots(KeyColumns.from_arrow(pa.record_batch({"k": [3]}), ["k"]))
    state.commit()
    state.mark_version(3)
    assert since(2) == [1, 2, 3, 4, 5]
    assert since(3) == []
    state.delete(state.find(KeyColumns.from_arrow(pa.record_batch({"k": [4]}), ["k"])))
    state.rollback()
    assert since(3) == [4], "it was deleted, but not for good"
    state.delete(state.find(KeyColumns.from_arrow(pa.record_batch({"k": [4]}), ["k"])))
    state.commit()
    assert since(3) is None
    state.mark_version(4)
    assert since(4) == []


def test_keys_with_one_hash_keep_their_own_counts() -> None:
    state = counts({"k": pa.string()})
    words = [f"word{i % 40}" for i in range(400)] + [None, ""]
    batch = pa.record_batch({"k": pa.array(words, type=pa.string())})
    keys = KeyColumns.from_arrow(batch, ["k"])
    keys = keys.with_hashes(np.full(len(keys), 7, dtype=np.uint64))
    np.add.at(state.column("count"), state.slots(keys), 1)
    assert len(state) == 42
    found = state.find(keys)
    assert state.column("count")[found].tolist() == [10] * 400 + [1, 1]

    state.commit()
    state.delete(found[:20])
    assert (state.find(keys)[20:40] == found[20:40]).all()
    assert (state.find(keys)[:20] == -1).all()
    state.rollback()
    assert (state.find(keys) == found).all()


@pytest.mark.parametrize("kind", ["int64", "string"])
def test_growth_in_the_middle_of_a_batch_is_undone_with_it(kind: str) -> None:
    numbers = np.random.default_rng(5).permutation(40_000)
    array = pa.array(numbers) if kind == "int64" else pa.array([f"key-{n}" for n in numbers])
    batch = pa.record_batch({"k": array})
    state = counts({"k": array.type})
    first, rest = (KeyColumns.from_arrow(part, ["k"]) for part in (batch.slice(0, 300), batch.slice(300)))
    slots = state.slots(first)
    state.column("count")[slots] = numbers[:300]
    state.commit()
    before = state.snapshot()

    state.delete(slots[:100])
    slots = state.slots(rest)
    state.column("count")[slots] = numbers[300:]
    assert len(state) == 39_900
    assert (state.column("count")[state.find(rest)] == numbers[300:]).all()
    state.rollback()
    assert state.snapshot().equals(before)
    assert (state.find(rest) == -1).all()


def test_deleting_hides_no_other_key_of_a_crowded_index() -> None:
    """600 keys take 0.59 of the smallest index, so that most share a run of entries with others."""
    rng = np.random.default_rng(3)
    state = counts({"k": pa.int64()})
    for _ in range(5):
        values = rng.integers(0, 2**60, 600)
        keys = KeyColumns.from_arrow(pa.record_batch({"k": values}), ["k"])
        slots = state.slots(keys)
        state.commit()
        for part in np.array_split(rng.permutation(600), 12):
            state.delete(slots[part])
            slots[part] = -1
            assert (state.find(keys) == slots).all()
        state.commit()


def test_slots_and_key_bytes_are_used_again() -> None:
    state = counts({"k": pa.string()})
    for round_ in range(60):
        names = pa.array([f"a rather long key, number {round_}-{i}" for i in range(500)])
        keys = KeyColumns.from_arrow(pa.record_batch({"k": names}), ["k"])
        state.slots(keys)
        state.commit()
        assert state.keys(state.find(keys))[0].equals(names)
        if round_ == 5:
            settled = state.nbytes
        state.delete(state.live())
        state.commit()
        assert len(state) == 0
    assert state.nbytes <= 1.5 * settled


def test_a_million_integer_keys_take_at_most_64_bytes_each() -> None:
    state = counts({"k": pa.int64()})
    values = np.random.default_rng(1).permutation(1_000_000) * 97
    for part in np.array_split(values, 10):
        keys = KeyColumns.from_arrow(pa.record_batch({"k": part}), ["k"])
        slots = state.slots(keys)
        state.column("count")[slots] = 1
        state.commit()
    assert len(state) == 1_000_000
    assert state.nbytes / len(state) <= 64
    everything = KeyColumns.from_arrow(pa.record_batch({"k": values}), ["k"])
    state.slots(everything)
    assert state.nbytes / len(state) <= 64


def test_memory_is_given_back_when_most_keys_have_moved_away() -> None:
    state = counts({"k": pa.int64()})

    def add(values: np.ndarray) -> None:
        slots = state.slots(KeyColumns.from_arrow(pa.record_batch({"k": values}), ["k"]))
        state.column("count")[slots] += 1

    add(np.arange(400_000))
    state.commit()
    full, ownership = state.nbytes, Ownership(RoutingTable.uniform(range(20)), 0)
    state.evict(ownership)
    state.commit()
    assert 15_000 < len(state) < 25_000
    assert state.nbytes < 0.15 * full
    assert (ownership.owners(state.hashes(state.live())) == 0).all()
    add(state.keys(state.live())[0].to_numpy())
    assert (state.column("count")[state.live()] == 2).all()
    state.rollback()
    assert (state.column("count")[state.live()] == 1).all()


def test_nbytes_counts_every_array() -> None:
    state = counts({"k": pa.string()})
    rows = pa.record_batch({"k": [f"{i}" for i in range(5_000)]})
    keys = KeyColumns.from_arrow(rows, ["k"])
    state.slots(keys, keys.hashes)
    state.commit()
    state.delete(state.slots(keys, keys.hashes)[:2_000])
    assert state.nbytes == reachable_array_bytes(state)


def reachable_array_bytes(root: object) -> int:
    arrays: dict[int, int] = {}
    to_visit: list[object] = [root]
    while to_visit:
        thing = to_visit.pop()
        if isinstance(thing, np.ndarray):
            owner = thing if thing.base is None else thing.base
            arrays[id(owner)] = owner.nbytes
        elif isinstance(thing, list | tuple):
            to_visit.extend(thing)
        elif isinstance(thing, dict):
            to_visit.extend(thing.values())
        elif type(thing).__module__.startswith("streamtopology.jobs.state"):
            to_visit.extend(vars(thing).values())
    counters = 2 * 4 * 8
    return sum(arrays.values()) - counters


def test_writing_to_a_column_taken_before_it_grew_is_an_error() -> None:
    state = counts({"k": pa.int64()})
    stale = state.column("count")
    keys = KeyColumns.from_arrow(pa.record_batch({"k": np.arange(10_000)}), ["k"])
    slots = state.slots(keys)
    with pytest.raises(ValueError, match="read-only"):
        stale[slots[:10]] = 1


# --- keys of more than 2 GiB in all, which one string column does not hold ---


def wide(rows: pa.RecordBatch) -> pa.RecordBatch:
    """`rows` as they are read from a file with more than 2 GiB of keys."""
    return rows.cast(pa.schema([field.with_type(widened(field.type)) for field in rows.schema]))


@pytest.mark.parametrize("types", [{"k": pa.string()}, {"k": pa.string(), "n": pa.int64()}, {"k": pa.binary()}])
def test_state_takes_keys_of_large_types(types: dict[str, pa.DataType]) -> None:
    state = counts(types)
    columns = {name: pa.array([1, 2] if name == "n" else [b"a", b"b"]).cast(type_) for name, type_ in types.items()}
    keys = KeyColumns.from_arrow(pa.record_batch(columns), list(types))
    state.column("count")[state.slots(keys)] = 7
    again, applied, extended = (KeyedState(state.schema) for _ in range(3))
    again.restore(state.schema.fitted(wide(state.snapshot())))
    applied.apply(state.schema.fitted(wide(state.delta())))
    extended.restore(state.snapshot().slice(0, 1))
    extended.extend(wide(state.snapshot().slice(1)))
    for other in (again, applied, extended):
        assert other.snapshot() == state.snapshot()


def test_changes_of_wide_and_narrow_deltas_are_one_delta() -> None:
    state = counts({"k": pa.string()})
    state.slots(KeyColumns.from_arrow(pa.record_batch({"k": ["a", "b"]}), ["k"]))
    delta = state.delta()
    gone = KeyedState(state.schema)
    gone.slots(KeyColumns.from_arrow(pa.record_batch({"k": ["gone"]}), ["k"]))
    changes = state.changes(concatenated([wide(delta), gone.delta()]))
    assert sorted(zip(changes["k"].to_pylist(), changes["__deleted"].to_pylist(), strict=True)) == [
        ("a", False), ("b", False), ("gone", True)
    ]  # fmt: skip


def test_keys_of_more_than_2_gib_are_decoded_to_a_large_type() -> None:
    """Of zeros that no memory has been touched for."""
    size = 3 << 30
    keys = KeyColumns.of_bytes(pa.schema({"k": pa.string()}), np.array([0, 1, size]), np.zeros(size, np.uint8), None)
    (column,) = keys.decode(may_widen=True)
    assert (column.type, len(column)) == (pa.large_string(), 2)
    with pytest.raises(KeyTypeError, match="do not fit one string column"):
        keys.decode()


def test_wrong_use_is_reported() -> None:
    state = counts({"k": pa.int64()})
    text = KeyColumns.from_arrow(pa.record_batch({"k": ["a"]}), ["k"])
    with pytest.raises(StateError, match=r"keyed by \(k int64\) was asked for keys of \(k string\)"):
        state.slots(text)
    number = KeyColumns.from_arrow(pa.record_batch({"k": [1]}), ["k"])
    state.slots(number)
    with pytest.raises(StateError, match="not committed"):
        state.apply(state.delta())
    other = KeyColumns.from_arrow(pa.record_batch({"k": [2]}), ["k"])
    with pytest.raises(StateError, match="every key of a state, or with none"):
        state.slots(other, other.hashes)
    with pytest.raises(StateError, match=r"do not fit state of \(k int64, count int64\)"):
        KeyedState(state.schema).restore(pa.record_batch({"k": pa.array([1], pa.int64()), "total": [1]}))
    with pytest.raises(StateError, match=r"Field\(<class 'str'>\): a field has a name and a type, such as Field\('count', np"):
        Field(str)  # pyright: ignore[reportArgumentType]
    with pytest.raises(StateError, match=r"'name': a numpy type .* is needed, not .*Field.of\('name', pa.string\(\)\)"):
        Field("name", np.dtype(str))
    with pytest.raises(StateError, match="declared twice"):
        KeyedStateSchema((Field("k", np.dtype("i8")),), pa.schema({"k": pa.int64()}))
