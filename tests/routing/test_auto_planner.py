"""`auto` plans no worse than any planner it weighs, splits a key exactly where that pays, and comes near the best there is."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopology.lab.groupings.planners import get
from streamtopology.routing.planners.auto import alternatives, auto
from streamtopology.routing.planners.plan import Plan, PlanInput, Splitting
from streamtopology.routing.planners.problem import PlanningProblem
from streamtopology.routing.planners.split import ItemPlacement, as_dealt, keys_to_split, scouts_beyond
from streamtopology.routing.table.hashing import hash_int64
from streamtopology.routing.table.pouring import Pace, pour
from streamtopology.routing.table.table import BUCKETS, RoutingTable
from streamtopology.routing.table.water import poured

UNEQUAL = (1e5, 1e5, 1e5, 0.3e5)
PART = Splitting(part_rows=0.3)


def asked(
    key_loads: list[float],
    capacities: tuple[float, ...] = UNEQUAL,
    rest: float = 0.0,
    fixed: float = 0.02,
    splitting: Splitting | None = PART,
    current: RoutingTable | None = None,
) -> PlanInput:
    """An operator of 64 bytes a key, whose fixed seconds grow as its instances are slower; `rest`: rows of light keys."""
    k, m = len(capacities), len(key_loads)
    return PlanInput(
        current=current or RoutingTable.uniform(range(k)),
        instances=tuple(range(k)),
        capacities=np.array(capacities),
        fixed_seconds=fixed * max(capacities) / np.array(capacities),
        key_hashes=hash_int64(np.arange(m, dtype=np.int64)),
        key_loads=np.array(key_loads),
        key_state=np.full(m, 64.0),
        bucket_loads=np.full(BUCKETS, rest / BUCKETS),
        bucket_state=np.full(BUCKETS, 64.0),
        tolerance=0.02,
        splitting=splitting,
    )


def split_of(plan: Plan) -> list[int]:
    """The numbers of the keys that a plan splits."""
    number = {int(key): place for place, key in enumerate(hash_int64(np.arange(100, dtype=np.int64)))}
    return sorted(number[int(key)] for key in plan.table.splits.hashes)


@pytest.mark.parametrize("p", [0.20, 0.24, 0.256, 0.26, 0.264, 0.268, 0.28, 0.4, 0.6])
@pytest.mark.parametrize("part_rows", [0.3, 200.0, 1000.0])
def test_key_is_split_exactly_from_its_break_even_on(p: float, part_rows: float) -> None:
    """Equal instances: p - 1/k > (f_m + (d - 1) m) / W, with W = 2 s of work a batch on one instance."""
    rows, k, fixed, capacity = 200_000, 4, 0.02, 1e5
    fewest = int(np.ceil(p * k - 1e-9))
    pays = p - 1 / k > (fixed + max(fewest - 1, 1) * part_rows / capacity) / (rows / capacity)
    given = asked([p * rows], (capacity,) * k, (1 - p) * rows, fixed, Splitting(part_rows))
    assert bool(len(keys_to_split(PlanningProblem.of(given), Splitting(part_rows)))) == pays
    if not pays:
        assert split_of(auto(given)) == []


def test_key_of_60_percent_is_split_where_its_state_can_be_combined() -> None:
    plan = auto(asked([120_000], rest=80_000))
    assert split_of(plan) == [0]
    line = (200_000 + 4 * 2_000) / 3.3e5
    assert plan.predicted_seconds_after == pytest.approx(line + 0.02, rel=0.01), "all end together, and merge"
    assert plan.theta_reached
    home = int(plan.table.lookup(plan.table.splits.hashes)[0])
    assert home != 3, "a slow home would hold up merging"
    whole = auto(asked([120_000], rest=80_000, splitting=None))
    assert split_of(whole) == []
    assert whole.predicted_seconds_after == pytest.approx(1.22, rel=0.01)


def test_part_without_a_stage_of_its_own_pays_sooner() -> None:
    p = 0.257
    for apart, split in ((True, []), (False, [0])):
        problem = PlanningProblem.of(asked([p * 200_000], (1e5,) * 4, (1 - p) * 200_000))
        assert keys_to_split(problem, Splitting(0.3, apart)).tolist() == split


def test_splits_that_no_longer_pay_are_joined_again_without_moving_state() -> None:
    before = auto(asked([120_000], rest=80_000)).table
    after = auto(asked([120_000], rest=80_000, splitting=Splitting(part_rows=60_000), current=before))
    assert split_of(after) == []
    calm = auto(asked([10_000], rest=190_000, current=before))
    assert calm.moved_bytes < 64 * BUCKETS


def test_plan_of_a_planned_table_is_to_keep_it() -> None:
    given = asked([120_000, 20_000, 9_000], rest=60_000)
    first = auto(given)
    again = auto(replace(given, current=first.table))
    assert again.table == first.table
    assert again.moved_bytes == 0
    assert again.predicted_seconds_before == pytest.approx(again.predicted_seconds_after)


def test_owners_that_are_gone_are_planned_for_no_more() -> None:
    first = auto(asked([120_000], rest=80_000)).table
    given = replace(
        asked([120_000], rest=80_000, current=first),
        instances=(0, 2, 3),
        capacities=np.array(UNEQUAL)[[0, 2, 3]],
        fixed_seconds=np.array([0.02, 0.02, 0.067]),
    )
    plan = auto(given)
    assert set(plan.table.instances()) <= {0, 2, 3}
    assert split_of(plan) == [0]


def test_keys_are_split_when_all_their_instances_are_gone() -> None:
    given = asked([120_000.0, 90_000.0], rest=20_000, current=RoutingTable.uniform([7]))
    plan = auto(given)
    assert split_of(plan)
    assert set(plan.table.instances()) <= set(given.instances)


def test_table_has_no_more_entries_than_allowed() -> None:
    loads = [60_000.0, 50_000.0, *([500.0] * 200)]
    for most in (0, 1, 2, 10):
        plan = auto(replace(asked(loads, rest=10_000), max_entries=most))
        assert len(plan.table.entry_hashes) <= most


SMALL = st.lists(st.sampled_from([0.0, 500.0, 3_000.0, 10_000.0, 30_000.0, 80_000.0]), min_size=1, max_size=4)


def best_by_brute_force(given: PlanInput) -> float:
    """Seconds of the best of all placements with all sets of split keys, each poured over all instances; without moving."""
    problem, splitting = PlanningProblem.of(given), given.splitting
    m, k = problem.n_keys, len(given.capacities)
    best = np.inf
    for owner in product(range(k), repeat=m):
        home = np.concatenate([np.array(owner, np.int32), problem.owner[m:]]).astype(np.int32)
        for chosen in product((False, True), repeat=m if splitting else 0):
            items = np.flatnonzero(chosen)
            whole = problem.loads.copy()
            whole[items] = 0
            filled = given.fixed_seconds * given.capacities + np.bincount(home, whole, k)
            first = k * np.arange(len(items) + 1)
            owners = np.tile(np.arange(k, dtype=np.int32), len(items))
            parts = poured(filled, given.capacities, problem.loads[items], first, owners)
            placement = ItemPlacement(home, items, first, owners, parts)
            merge = placement.merge_seconds(problem, splitting) if splitting else 0.0
            best = min(best, placement.work_seconds(problem) + merge)
    return best


@settings(max_examples=60, deadline=None)
@given(SMALL, st.sampled_from([(1e5, 1e5), (1e5, 1e5, 0.3e5), (1e5, 0.5e5)]), st.booleans())
def test_plan_is_near_the_best_of_brute_force(loads: list[float], capacities: tuple[float, ...], splits: bool) -> None:
    given = replace(asked(loads, capacities, splitting=PART if splits else None))
    best = best_by_brute_force(given)
    plan = auto(given)
    switching = 0.3 * best / 60 + 1e-3
    assert plan.predicted_seconds_after <= 1.25 * best + switching
    assert plan.predicted_seconds_after >= best * (1 - 1e-9)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(0, 60_000), max_size=12),
    st.floats(0, 100_000),
    st.sampled_from([UNEQUAL, (1e5,) * 4, UNEQUAL * 2]),
    st.sampled_from([None, PART, Splitting(0.3, apart=False), Splitting(2_000.0)]),
)
def test_plan_is_no_worse_than_keeping_or_any_planner_weighed(
    loads: list[float], rest: float, capacities: tuple[float, ...], splitting: Splitting | None
) -> None:
    given = asked(loads, capacities, rest, splitting=splitting)
    plan = auto(given)
    weighed = {one.name: one for one in alternatives(PlanningProblem.of(given))}
    total = min(one.seconds + one.move for one in weighed.values())
    for name in ("mixed", "simple"):
        assert total <= get(name)(given).predicted_seconds_after + weighed["fresh"].move + 1e-9
    assert plan.predicted_seconds_after <= plan.predicted_seconds_before + 1e-9
    assert splitting is not None or not len(plan.table.splits)
    assert plan.table == given.current or set(plan.table.instances()) <= set(given.instances)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(1_000, 80_000), min_size=1, max_size=6), st.floats(20_000, 100_000))
def test_routers_deal_in_the_predicted_seconds(loads: list[float], rest: float) -> None:
    given = asked(loads, rest=rest)
    plan = auto(given)
    later = replace(given, current=plan.table)
    problem = PlanningProblem.of(later)
    planned = as_dealt(problem).work(problem)
    light = hash_int64(np.arange(100, 40_100, dtype=np.int64))[: int(rest)]
    rows = np.concatenate([np.repeat(given.key_hashes, np.array(loads).astype(int)), np.resize(light, int(rest))])
    pace = Pace(given.capacities, given.fixed_seconds)
    dealt = pour(plan.table, np.random.default_rng(1).permutation(rows), pace, 3).owners
    done = given.fixed_seconds + np.bincount(dealt, minlength=4) / given.capacities
    assert done.max() <= 1.1 * float((given.fixed_seconds + planned / given.capacities).max())


def test_scouts_wait_until_merging_is_worth_it() -> None:
    capacities, fixed = np.array(UNEQUAL), np.array([0.02, 0.02, 0.02, 0.067])
    assert scouts_beyond(200_000, capacities, fixed, PART) == 1.15
    assert scouts_beyond(20_000, capacities, fixed, PART) == pytest.approx(1 + 0.02 / 0.085, rel=0.02)
    dear = scouts_beyond(200_000, capacities, fixed, Splitting(20_000.0))
    assert dear == pytest.approx(1 + (0.02 + 3 * 0.2) / 0.6303, rel=0.01)


@pytest.mark.parametrize("exponent", [0.9, 1.2])
def test_kept_table_is_weighed_as_routers_scout_by_it(exponent: float) -> None:
    """More keys are too heavy for the slow instance than routers see in a sample, or split by themselves."""
    share = 1 / np.arange(1, 2_001) ** exponent
    loads = np.floor(200_000 * share / share.sum())
    given = asked(loads.tolist())
    keep = next(alternatives(PlanningProblem.of(given)))
    beyond = scouts_beyond(loads.sum(), given.capacities, given.fixed_seconds, PART)
    rows = np.random.default_rng(1).permutation(np.repeat(given.key_hashes, loads.astype(int)))
    dealt = pour(given.current, rows, Pace(given.capacities, given.fixed_seconds, scouts_beyond=beyond), 3).owners
    done = given.fixed_seconds + np.bincount(dealt, minlength=4) / given.capacities
    assert keep.work == pytest.approx(float(done.max()), rel=0.1)
