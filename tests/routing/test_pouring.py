"""A router pours the rows of split keys over their owners until all finish together, and splits a hot key by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopology.routing.table.hashing import hash_int64
from streamtopology.routing.table.pouring import MOST_SCOUTED, Pace, Poured, pour
from streamtopology.routing.table.splits import Splits
from streamtopology.routing.table.table import RoutingTable
from streamtopology.routing.table.water import poured, water_line

CAPACITIES = np.array([1.0, 1.0, 1.0, 0.3]) * 1e5
PACE = Pace(CAPACITIES, 0.02 * 1e5 / CAPACITIES)
SCOUTING = replace(PACE, scouts_beyond=1.15)
KEYS = hash_int64(np.arange(20_000, dtype=np.int64))
HOT = KEYS[0]
TABLE = RoutingTable.uniform(range(4))

BUSY = st.lists(st.tuples(st.floats(0, 10), st.sampled_from([0.0, 0.3, 1.0, 2.5])), min_size=1, max_size=6)


def line_by_bisection(done: Sequence[float], capacities: Sequence[float], work: float) -> float:
    """The slow, obvious water line."""
    low, high = 0.0, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        held = sum(max(middle - busy, 0.0) * capacity for busy, capacity in zip(done, capacities, strict=True))
        low, high = (middle, high) if held < work else (low, middle)
    return high


def rows_of_hot_key(share: float, n: int = 40_000, seed: int = 1) -> np.ndarray:
    random = np.random.default_rng(seed)
    return np.where(random.random(n) < share, HOT, KEYS[random.integers(1, len(KEYS), n)])


def split_over(*owners: int, key: np.uint64 = HOT) -> RoutingTable:
    among = np.array(owners, np.int32)
    return TABLE.with_entries(np.array([key]), among[:1]).with_splits(
        Splits.of(np.array([key]), np.array([0, len(owners)]), among, np.ones(len(owners)))
    )


def seconds(result: Poured, pace: Pace = PACE) -> np.ndarray:
    return pace.fixed_seconds + np.bincount(result.owners, minlength=4) / pace.capacities


@settings(max_examples=200)
@given(BUSY, st.floats(0.01, 50))
def test_water_line_is_that_of_a_plain_bisection(busy: list[tuple[float, float]], work: float) -> None:
    done, capacities = [each[0] for each in busy], [each[1] for each in busy]
    line = water_line(np.array(done), np.array(capacities), work)
    if not any(capacities):
        assert line == np.inf
    else:
        assert line == pytest.approx(line_by_bisection(done, capacities, work))


@settings(max_examples=100)
@given(BUSY, st.lists(st.floats(0, 20), max_size=4), st.data())
def test_poured_keys_end_level_and_nothing_is_lost(
    busy: list[tuple[float, float]], amounts: list[float], data: st.DataObject
) -> None:
    capacities = np.array([max(each[1], 0.1) for each in busy])
    among = st.lists(st.sampled_from(range(len(busy))), min_size=1, unique=True)
    owners = [data.draw(among) for _ in amounts]
    first = np.concatenate([[0], np.cumsum([len(of_key) for of_key in owners])]).astype(np.int64)
    flat = np.array([owner for of_key in owners for owner in of_key], np.int32)
    given_before = np.array([each[0] for each in busy])
    work = given_before.copy()
    parts = poured(work, capacities, np.array(amounts), first, flat)
    expected = given_before.copy()
    for key in np.argsort(amounts):
        mine = owners[key]
        line = line_by_bisection((expected / capacities)[mine].tolist(), capacities[mine].tolist(), amounts[key])
        for j in mine:
            expected[j] = max(expected[j], line * capacities[j])
        assert parts[first[key] : first[key + 1]].sum() == pytest.approx(amounts[key], abs=1e-9)
    assert work == pytest.approx(expected)


def test_split_key_levels_the_batch_of_its_router() -> None:
    hashes = rows_of_hot_key(0.9)
    result = pour(split_over(0, 1, 2, 3), hashes, PACE, 5)
    assert seconds(result) == pytest.approx(np.full(4, water_line(PACE.fixed_seconds, CAPACITIES, len(hashes))), rel=0.01)
    assert not len(result.scouted)
    others = hashes != HOT
    assert (result.owners[others] == TABLE.lookup(hashes[others])).all(), "only rows of the split key are dealt"


def test_each_of_several_routers_levels_its_own_part() -> None:
    hashes, pace = rows_of_hot_key(0.9), Pace(PACE.capacities, PACE.fixed_seconds, routers=4.0)
    parts = [pour(split_over(0, 1, 2, 3), part, pace, router).owners for router, part in enumerate(np.array_split(hashes, 4))]
    line = water_line(PACE.fixed_seconds, CAPACITIES, len(hashes))
    done = PACE.fixed_seconds + np.bincount(np.concatenate(parts), minlength=4) / CAPACITIES
    assert done == pytest.approx(np.full(4, line), rel=0.02)


def test_owners_that_are_full_already_get_no_row_of_a_split_key() -> None:
    hashes = np.concatenate([np.full(1_000, HOT), np.full(20_000, KEYS[1])])
    table = split_over(0, 1).with_splits(split_over(0, 1).splits)
    full = int(table.lookup(KEYS[1:2])[0])
    table = table if full in (0, 1) else split_over(full, 0)
    dealt = pour(table, hashes, PACE, 3).owners[:1_000]
    assert full not in dealt


@pytest.mark.parametrize("table", [TABLE, split_over(0, 1, key=KEYS[7])], ids=["whole keys", "another key split"])
def test_hot_key_that_nobody_planned_is_scouted_and_levelled(table: RoutingTable) -> None:
    hashes = rows_of_hot_key(0.9)
    result = pour(table, hashes, SCOUTING, 5)
    assert result.scouted.tolist() == [HOT]
    line = water_line(PACE.fixed_seconds, CAPACITIES, len(hashes))
    assert seconds(result).max() <= 1.02 * line
    assert len(pour(table, hashes, PACE, 5).scouted) == 0, "not where nothing is beyond anything"


def test_split_key_with_too_few_owners_is_scouted_too() -> None:
    result = pour(split_over(0, 3), rows_of_hot_key(0.9), SCOUTING, 5)
    assert result.scouted.tolist() == [HOT]
    assert seconds(result).max() <= 1.02 * water_line(PACE.fixed_seconds, CAPACITIES, 40_000)


def test_level_batch_is_not_scouted() -> None:
    equal = Pace(np.full(4, 1e5), np.full(4, 0.02), scouts_beyond=1.15)
    hashes = KEYS[np.random.default_rng(1).integers(1, len(KEYS), 40_000)]
    result = pour(TABLE, hashes, equal, 5)
    assert not len(result.scouted)
    assert (result.owners == TABLE.lookup(hashes)).all()


def test_retry_pours_and_scouts_as_the_first_attempt_did() -> None:
    hashes = np.concatenate([rows_of_hot_key(0.4, seed=seed) + np.uint64(seed) for seed in range(3)])
    first, again = (pour(split_over(0, 1, 2), hashes, SCOUTING, 9) for _ in range(2))
    assert first.owners.tobytes() == again.owners.tobytes()
    assert first.scouted.tolist() == again.scouted.tolist()
    assert pour(split_over(0, 1, 2), hashes, SCOUTING, 10).owners.tobytes() != first.owners.tobytes()


def test_instance_without_capacity_gets_no_row_of_a_key_scouted() -> None:
    pace = Pace(np.array([1e5, 1e5, 1e5, 1e5, 0.0]), np.full(5, 0.02), scouts_beyond=1.1)
    result = pour(TABLE, rows_of_hot_key(0.9), pace, 1)
    assert result.scouted.tolist() == [HOT]
    assert set(result.owners.tolist()) == {0, 1, 2, 3}


def test_number_of_keys_scouted_is_bounded() -> None:
    bucket = KEYS[TABLE.lookup(KEYS) == 3][:60]
    result = pour(TABLE, np.repeat(bucket, 500), SCOUTING, 1)
    assert len(result.scouted) == MOST_SCOUTED


def test_heavier_keys_of_other_instances_do_not_use_up_the_number() -> None:
    """Each of 20 keys at instance 3, which is slow, is lighter than any of 20 elsewhere."""
    owner = TABLE.lookup(KEYS)
    rows = np.concatenate([np.repeat(KEYS[owner != 3][:20], 500), np.repeat(KEYS[owner == 3][:20], 300)])
    result = pour(TABLE, np.random.default_rng(1).permutation(rows), SCOUTING, 1)
    assert TABLE.lookup(result.scouted).tolist() == [3] * MOST_SCOUTED


def test_batch_without_rows_is_poured_to_nobody() -> None:
    for table in (TABLE, split_over(0, 1)):
        assert len(pour(table, np.empty(0, np.uint64), SCOUTING, 1).owners) == 0
