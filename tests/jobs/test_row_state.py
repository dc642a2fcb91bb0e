"""Row state against lists of rows: appends, expiry and moves, committed or undone, and their deltas replayed."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from streamtopology.jobs.columnar.keys import KeyColumns
from streamtopology.jobs.state import Ownership, RowState, RowStateSchema, StateError
from streamtopology.routing.table.table import RoutingTable

LEFT = pa.schema({"k": pa.string(), "at": pa.int64(), "x": pa.int32()})
RIGHT = pa.schema({"at": pa.timestamp("us", "UTC"), "k": pa.string()})
SCHEMA = RowStateSchema({"left": LEFT, "right": RIGHT}, key=("k",), time="at")

Row = tuple[str | None, int | None, int | None]  # key, event time in seconds, x (left only)

KEYS = ["a", "b", "", None]
seconds = st.one_of(st.none(), st.integers(0, 9))
rows = st.lists(st.tuples(st.sampled_from(KEYS), seconds, st.integers(0, 99)), max_size=6)


def left_batch(content: list[Row]) -> pa.RecordBatch:
    micros = [None if at is None else at * 1_000_000 for _, at, _ in content]
    columns = [[k for k, _, _ in content], micros, [x for _, _, x in content]]
    return pa.RecordBatch.from_arrays([pa.array(c, f.type) for c, f in zip(columns, LEFT, strict=True)], schema=LEFT)


def right_batch(content: list[Row]) -> pa.RecordBatch:
    micros = [None if at is None else at * 1_000_000 for _, at, _ in content]
    columns = [micros, [k for k, _, _ in content]]
    return pa.RecordBatch.from_arrays([pa.array(c, f.type) for c, f in zip(columns, RIGHT, strict=True)], schema=RIGHT)


def contents(state: RowState) -> dict[str, list[Row]]:
    def second(micros: int | None) -> int | None:
        return None if micros is None else micros // 1_000_000

    def order(row: Row) -> str:
        return repr(row)

    left, right = state.rows("left"), state.rows("right")
    assert left.schema == LEFT
    assert right.schema == RIGHT
    right_times = right.column("at").cast(pa.int64()).to_pylist()
    return {
        "left": sorted([(r["k"], second(r["at"]), r["x"]) for r in left.to_pylist()], key=order),
        "right": sorted(
            [(k, second(at), None) for k, at in zip(right.column("k").to_pylist(), right_times, strict=True)], key=order
        ),
    }


class RowStateAgainstLists(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.state, self.replica = RowState(SCHEMA), RowState(SCHEMA)
        self.model: dict[str, list[Row]] = {"left": [], "right": []}
        self.committed = {alias: list(kept) for alias, kept in self.model.items()}

    @rule(content=rows)
    def append_left(self, content: list[Row]) -> None:
        self.state.append("left", left_batch(content))
        self.model["left"] += content

    @rule(content=rows, cut=st.integers(0, 6))
    def append_right_as_a_table_of_slices(self, content: list[Row], cut: int) -> None:
        batch = right_batch(content)
        self.state.append("right", pa.Table.from_batches([batch.slice(0, cut), batch.slice(cut)]))
        self.model["right"] += [(k, at, None) for k, at, _ in content]

    @rule(before=st.one_of(st.integers(0, 10), st.just(math.inf)))
    def expire(self, before: float) -> None:
        self.state.expire(before)
        for alias, kept in self.model.items():
            self.model[alias] = [row for row in kept if row[1] is not None and row[1] >= before]

    @rule(bit=st.integers(0, 7), comes_back=st.booleans())
    def hand_over(self, bit: int, comes_back: bool) -> None:
        def meant(hashes: np.ndarray) -> np.ndarray:
            return (hashes >> np.uint64(bit)) & np.uint64(1) == 1

        hashes = KeyColumns.from_arrays([pa.array(KEYS)], ["k"], len(KEYS)).hashes
        moving = {key for key, goes in zip(KEYS, meant(hashes), strict=True) if goes}
        moved = self.state.extract(meant)
        self.state.remove(meant)
        other = RowState(SCHEMA)
        other.insert(moved)
        assert all(row[0] in moving for kept in contents(other).values() for row in kept)
        if comes_back:
            self.state.insert(moved)
        else:
            self.model = {alias: [row for row in kept if row[0] not in moving] for alias, kept in self.model.items()}

    @rule(seed=st.integers(0, 9))
    def name_those_who_leave(self, seed: int) -> None:
        """Each row whose key belongs to another instance leaves once, for that instance."""
        table = RoutingTable.uniform((0, 1, 2), 8, seed)
        hashes = KeyColumns.from_arrays([pa.array(KEYS)], ["k"], len(KEYS)).hashes
        owner_of = dict(zip(KEYS, table.lookup(hashes).tolist(), strict=True))
        left = 0
        for owner, entries, rows in self.state.leaving(Ownership(table, 1)):
            other = RowState(SCHEMA)
            other.insert(rows)
            assert owner != 1
            assert len(other) == entries > 0
            assert {owner_of[row[0]] for kept in contents(other).values() for row in kept} == {owner}
            left += entries
        assert left == sum(owner_of[row[0]] != 1 for kept in self.model.values() for row in kept)

    @rule()
    def commit(self) -> None:
        delta = self.state.delta()
        self.state.commit()
        self.replica.apply(delta)
        assert contents(self.replica) == contents(self.state)
        assert self.state.delta().num_rows == 0
        self.committed = {alias: list(kept) for alias, kept in self.model.items()}

    @rule()
    def rollback(self) -> None:
        self.state.rollback()
        self.model = {alias: list(kept) for alias, kept in self.committed.items()}

    @rule()
    def continue_from_a_snapshot(self) -> None:
        if self.state.delta().num_rows == 0:
            restored = RowState(SCHEMA)
            restored.restore(self.state.snapshot())
            self.state = restored

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        assert contents(self.state) == {alias: sorted(kept, key=repr) for alias, kept in self.model.items()}
        assert len(self.state) == sum(map(len, self.model.values()))


TestRowStateAgainstLists = RowStateAgainstLists.TestCase
TestRowStateAgainstLists.settings = settings(max_examples=40, stateful_step_count=20)


def test_many_small_batches_become_few_chunks_that_hold_only_their_rows() -> None:
    state = RowState(SCHEMA)
    large = left_batch([("a", 5, x) for x in range(10_000)])
    for i in range(1_000):
        state.append("left", large.slice(i, 1))
        state.commit()
    assert state.rows("left").column("x").to_pylist() == list(range(1_000))
    assert state.rows("left").column("x").num_chunks < 20
    assert state.nbytes < 100_000


def test_rows_with_columns_in_another_order_are_taken_in() -> None:
    """The columns of a source were declared in another order between two runs."""
    before, now = (
        RowState(SCHEMA),
        RowState(RowStateSchema({"left": pa.schema(list(LEFT)[::-1]), "right": RIGHT}, ("k",), "at")),
    )
    before.append("left", left_batch([("a", 3, 7)]))
    now.apply(before.delta())
    now.insert(before.snapshot())
    assert now.rows("left").to_pylist() == 2 * [{"k": "a", "at": 3_000_000, "x": 7}]
    assert now.rows("left").column_names == ["x", "at", "k"]


def test_wrong_use_is_reported() -> None:
    state = RowState(SCHEMA)
    with pytest.raises(StateError, match="no input 'middle'"):
        state.append("middle", left_batch([("a", 1, 1)]))
    with pytest.raises(StateError, match="do not fit"):
        state.append("left", right_batch([("a", 1, 1)]))
    state.append("left", left_batch([("a", 1, 1)]))
    with pytest.raises(StateError, match="not committed"):
        state.apply(state.delta())
    with pytest.raises(StateError, match="have the columns"):
        state.restore(left_batch([]))
    with pytest.raises(StateError, match="'right' have no column 'x'"):
        RowStateSchema(SCHEMA.inputs, key=("x",), time="at")
    with pytest.raises(StateError, match="not a timestamp"):
        RowStateSchema(SCHEMA.inputs, key=("k",), time="k")
