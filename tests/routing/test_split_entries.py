"""A split key's rows take turns among its owners, in proportion and repeatably; its home, and all other keys, are as before."""

from __future__ import annotations

import base64
import pickle
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopology.routing.epochs.gradual_switch import mixed_table
from streamtopology.routing.table.hashing import hash_int64
from streamtopology.routing.table.splits import FINEST_TURNS, Splits
from streamtopology.routing.table.table import RoutingTable, TableFormatError

GOLDEN = 0x9E3779B9


def splits_of(keys: dict[int, dict[int, int]]) -> Splits:
    """Key -> owner -> turns."""
    in_order = sorted(keys)
    sizes = [len(keys[key]) for key in in_order]
    return Splits(
        np.array(in_order, np.uint64),
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        np.array([owner for key in in_order for owner in keys[key]], np.int32),
        np.array([turns for key in in_order for turns in keys[key].values()], np.int32),
    )


@st.composite
def tables(draw: st.DrawFn) -> RoutingTable:
    keys = st.integers(0, 2**64 - 1) | st.integers(0, 30)
    entries = draw(st.dictionaries(keys, st.integers(0, 5), max_size=20))
    buckets = draw(st.lists(st.integers(0, 5), min_size=1, max_size=10))
    plain = RoutingTable(np.empty(0, np.uint64), np.empty(0, np.int32), np.array(buckets, np.int32))
    plain = plain.with_entries(np.array(list(entries), np.uint64), np.array(list(entries.values()), np.int32))
    turns = st.dictionaries(st.integers(0, 5), st.integers(0, 40), max_size=6)
    split: dict[int, dict[int, int]] = {}
    for key in draw(st.sets(keys, max_size=4)):
        home = int(plain.lookup(np.array([key], np.uint64))[0])
        split[key] = draw(turns) | {home: draw(st.integers(1, 40))}
    return plain.with_splits(splits_of(split))


def turns_of(table: RoutingTable, key: int) -> list[int]:
    """Each turn's owner: the slow, obvious list."""
    splits = table.splits
    at = splits.hashes.tolist().index(key)
    stretch = range(splits.first[at], splits.first[at + 1])
    return [int(splits.owners[o]) for o in stretch for _ in range(splits.turns[o])]


def dealt_slowly(table: RoutingTable, keys: list[int], start: int) -> list[int]:
    owners = table.lookup(np.array(keys, np.uint64)).tolist()
    for row, key in enumerate(keys):
        if key in table.splits.hashes.tolist():
            turns = turns_of(table, key)
            turn = ((row + start) * GOLDEN % 2**32) >> 16
            owners[row] = turns[turn * len(turns) >> 16]
    return owners


@settings(max_examples=100)
@given(tables(), st.lists(st.integers(0, 30) | st.integers(0, 2**64 - 1), max_size=40), st.integers(0, 2**40))
def test_rows_of_split_keys_take_the_turn_of_a_plain_list(table: RoutingTable, others: list[int], start: int) -> None:
    keys = [*others, *table.splits.hashes.tolist() * 5, *table.entry_hashes.tolist()]
    dealt = table.deal(np.array(keys, np.uint64), start)
    assert dealt.tolist() == dealt_slowly(table, keys, start)
    assert table.deal(np.array(keys, np.uint64), start).tolist() == dealt.tolist(), "a retry deals as the first attempt did"


@settings(max_examples=100)
@given(tables())
def test_table_survives_wire_and_pickle(table: RoutingTable) -> None:
    wire = table.to_wire()
    again = RoutingTable.from_wire(wire)
    assert (again, hash(again), again.to_wire()) == (table, hash(table), wire)
    assert pickle.loads(pickle.dumps(table)) == table


def test_splits_that_are_cut_off_are_no_table() -> None:
    wire = RoutingTable.uniform([0, 1]).with_splits(splits_of({5: {0: 1, 1: 2}})).to_wire()
    raw = zlib.decompress(base64.b64decode(str(wire["data"])))
    for end in range(16 + 12 + 4 * 4096 + 1, len(raw)):
        data = base64.b64encode(zlib.compress(raw[:end])).decode()
        with pytest.raises(TableFormatError, match="not a table"):
            RoutingTable.from_wire({"format": 1, "data": data, "checksum": f"{zlib.crc32(f'1:{data}'.encode()):08x}"})


def test_dealt_shares_are_the_weights_in_any_subset_of_rows() -> None:
    weights = np.array([0.5, 0.3, 0.15, 0.05])
    split = Splits.of(np.array([3], np.uint64), np.array([0, 4]), np.arange(4, dtype=np.int32), weights)
    assert split.turns.sum() == FINEST_TURNS
    table = RoutingTable.uniform(range(4)).with_splits(split)
    random = np.random.default_rng(1)
    for share in (1.0, 0.6, 0.05):
        rows = np.where(random.random(200_000) < share, np.uint64(3), np.uint64(2**63))
        dealt = table.deal(rows, 12345)[rows == 3]
        assert np.bincount(dealt, minlength=4) / len(dealt) == pytest.approx(weights, abs=0.002 if share > 0.5 else 0.02)


def test_weights_become_turns_whose_rounding_is_carried_on() -> None:
    keys = np.array([9, 2], np.uint64)
    split = Splits.of(keys, np.array([0, 3, 5]), np.array([0, 1, 2, 4, 5], np.int32), np.array([1.0, 1.0, 1.0, 0.0, 0.0]))
    assert split.hashes.tolist() == [2, 9]
    assert split.turns_by_key.tolist() == [FINEST_TURNS] * 2
    assert split.owners.tolist() == [4, 5, 0, 1, 2]
    assert split.turns.tolist() == [2048, 2048, 1365, 1366, 1365], "without weights the parts are alike"


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({3: {1: 1, 2: 1}}, "home of a key is one of its owners"),
        ({3: {0: 0, 1: 0}}, "1 to 32767 turns"),
        ({3: {0: 40_000}}, "1 to 32767 turns"),
        ({3: {-1: 4, 0: 1}}, "numbered from 0"),
        ({key: {0: 30_000} for key in range(3)}, "at most 65536"),
    ],
)
def test_splits_that_do_not_fit_are_refused(keys: dict[int, dict[int, int]], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        RoutingTable.uniform([0]).with_splits(splits_of(keys))


def test_split_key_without_an_entry_is_refused() -> None:
    plain = RoutingTable.uniform([0])
    with pytest.raises(ValueError, match="a split key has an entry"):
        RoutingTable(plain.entry_hashes, plain.entry_instances, plain.buckets, splits_of({3: {0: 1}}))
    with pytest.raises(ValueError, match="named twice"):
        Splits(np.array([3], np.uint64), np.array([0, 2]), np.array([1, 1], np.int32), np.array([1, 1], np.int32))


def test_owners_that_are_gone_leave_the_others_their_parts() -> None:
    hashes = np.array([3, 4, 5], np.uint64)
    table = RoutingTable.uniform(range(3)).with_entries(hashes, np.array([0, 2, 0], np.int32))
    table = table.with_splits(splits_of({3: {0: 5, 1: 6, 2: 7}, 4: {0: 1, 2: 1}, 5: {0: 1, 2: 1}}))
    fewer = table.rescaled([0, 1])
    assert fewer.splits.hashes.tolist() == [3], "the home of 4 is gone, and 5 has one owner left"
    assert (fewer.splits.owners.tolist(), fewer.splits.turns.tolist()) == ([0, 1], [5, 6])
    assert fewer.lookup(np.array([5], np.uint64)).tolist() == [0]
    assert table.instances() == (0, 1, 2)


@settings(max_examples=50)
@given(tables(), st.integers(0, 3))
def test_gradual_switch_splits_the_keys_of_each_portion_as_its_table_does(table: RoutingTable, done: int) -> None:
    before = RoutingTable.uniform(range(6), len(table.buckets)).with_splits(splits_of({}))
    mixed = mixed_table(before, table, done, 3)
    for key in table.splits.hashes.tolist():
        keys = np.full(50, key, np.uint64)
        is_done = np.array_equal(mixed.lookup(keys), table.lookup(keys)) and key in mixed.splits.hashes.tolist()
        expected = table if is_done else before
        assert mixed.deal(keys, 7).tolist() == expected.deal(keys, 7).tolist()
    assert done < 3 or mixed.splits.hashes.tolist() == table.splits.hashes.tolist()


def test_entries_given_in_place_of_others_are_whole() -> None:
    table = RoutingTable.uniform(range(3)).with_splits(splits_of({3: {0: 5, 1: 6}}))
    hashes = hash_int64(np.arange(4, dtype=np.int64))
    assert not len(table.with_entries(hashes, np.zeros(4, np.int32)).splits)
