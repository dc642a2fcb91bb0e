"""A switch in portions: every mixture of two tables gives each key one owner, which is that of one of the two."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.reasons import BY_TEST

from streamtopology.routing.epochs.epoch import Epoch, Route
from streamtopology.routing.epochs.gradual_switch import (
    can_switch_gradually,
    mixed_epoch,
    mixed_table,
    portions_of,
    portions_of_buckets,
)
from streamtopology.routing.epochs.placement import NOWHERE, Placement
from streamtopology.routing.epochs.switch_progress import GradualSwitch
from streamtopology.routing.table.hashing import hash_int64
from streamtopology.routing.table.table import RoutingTable

KEYS = hash_int64(np.arange(3_000))


@st.composite
def tables(draw: st.DrawFn) -> tuple[RoutingTable, RoutingTable]:
    """Two of one number of buckets, with entries for some of `KEYS`; some for the same keys."""
    random = np.random.default_rng(draw(st.integers(0, 10_000)))
    n_buckets = draw(st.integers(1, 300))

    def one() -> RoutingTable:
        plain = RoutingTable(np.empty(0, np.uint64), np.empty(0, np.int32), random.integers(0, 4, n_buckets, np.int32))
        chosen = random.choice(KEYS[:60], random.integers(0, 40), replace=False)
        return plain.with_entries(chosen, random.integers(0, 4, len(chosen), np.int32))

    return one(), one()


@given(tables(), st.integers(1, 400), st.integers(0, 400))
def test_a_key_is_where_the_new_table_has_it_once_its_portion_is_done(
    pair: tuple[RoutingTable, RoutingTable], portions: int, done: int
) -> None:
    before, after = pair
    mixed = mixed_table(before, after, done, portions)
    is_done = portions_of(KEYS, len(after.buckets), portions) < done
    assert np.array_equal(mixed.lookup(KEYS), np.where(is_done, after.lookup(KEYS), before.lookup(KEYS)))
    assert len(mixed.entry_hashes) <= len(np.union1d(before.entry_hashes, after.entry_hashes))


@given(tables(), st.integers(1, 40))
def test_each_key_that_moves_does_so_in_one_portion(pair: tuple[RoutingTable, RoutingTable], portions: int) -> None:
    before, after = pair
    owners = [mixed_table(before, after, done, portions).lookup(KEYS) for done in range(portions + 1)]
    assert np.array_equal(owners[0], before.lookup(KEYS))
    assert np.array_equal(owners[-1], after.lookup(KEYS))
    moves = sum((now != then).astype(int) for then, now in itertools.pairwise(owners))
    assert np.array_equal(moves, (before.lookup(KEYS) != after.lookup(KEYS)).astype(int))


@given(st.integers(1, 5_000), st.integers(1, 300))
def test_portions_have_equal_numbers_of_buckets(n_buckets: int, portions: int) -> None:
    counts = np.bincount(portions_of_buckets(n_buckets, portions), minlength=portions)
    assert len(counts) == portions
    assert np.ptp(counts) <= 1


def test_neighbouring_buckets_are_in_different_portions() -> None:
    portions = portions_of_buckets(4096, 8)
    assert np.mean(portions[1:] == portions[:-1]) < 0.25


def test_a_switch_ends_when_all_portions_are_done() -> None:
    switch = GradualSwitch.started(3, 2, 5)
    assert switch == GradualSwitch(3, 2, 5)
    assert switch.advanced(2) == GradualSwitch(3, 4, 5)
    assert switch.advanced(3) is switch.advanced(9) is None
    assert GradualSwitch.started(3, 1, 1) is None
    with pytest.raises(ValueError, match="1 to 4 of its portions done; found 5"):
        GradualSwitch(3, 5, 5)


def epoch(number: int, instances: int = 2, policy: str = "mixed", n_buckets: int = 16) -> Epoch:
    active = tuple(range(instances))
    table = RoutingTable.uniform(active, n_buckets, seed=number) if policy != "shuffle" else None
    placement = Placement.first([f"slot-{slot}" for slot in active], instances)
    return Epoch(number, {"counts": Route(policy, table, active)}, (), BY_TEST, placement)


def test_an_epoch_under_way_has_all_of_the_new_one_but_the_tables() -> None:
    before, after = epoch(1), replace(epoch(2, instances=3), source_shares=(0.5, 0.3, 0.2))
    mixed = mixed_epoch(before, after, GradualSwitch(1, 3, 7))
    assert (mixed.number, mixed.source_shares, mixed.placement) == (2, after.source_shares, after.placement)
    assert mixed.routes["counts"].instances == (0, 1, 2)
    assert mixed.routes["counts"].table == mixed_table(before.routes["counts"].table, after.routes["counts"].table, 3, 7)


@pytest.mark.parametrize(
    ("change", "can"),
    [
        (lambda after: after, True),
        (lambda after: epoch(2, instances=3), True),
        (lambda after: epoch(2, instances=1), False),
        (lambda after: epoch(2, policy="fields"), True),
        (lambda after: epoch(2, policy="shuffle"), True),
        (lambda after: epoch(2, n_buckets=17), False),
        (lambda after: replace(after, routes={**after.routes, "new": after.routes["counts"]}), False),
        (lambda after: replace(after, placement=None), False),
        (lambda after: replace(after, placement=replace(after.placement, slot_by_instance=(1, 0))), False),
        (lambda after: replace(after, placement=replace(after.placement, slot_by_instance=(0, NOWHERE))), False),
    ],
    ids=[
        "other table",
        "one more",
        "one fewer",
        "other policy",
        "no table",
        "buckets",
        "new node",
        "no placement",
        "swapped",
        "gone",
    ],
)
def test_a_switch_is_in_portions_where_all_instances_stay(change: Callable[[Epoch], Epoch], can: bool) -> None:
    assert can_switch_gradually(epoch(1), change(epoch(2))) is can
