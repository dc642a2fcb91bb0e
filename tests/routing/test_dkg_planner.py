"""DKG beyond the paper: unequal machines, tables of many buckets, drift, state. Its listings are in tests/papers."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from streamtopology.routing import planners
from streamtopology.routing.control.slot_model import SlotModel
from streamtopology.routing.control.stages import TableStage
from streamtopology.routing.epochs.epoch import Route
from streamtopology.routing.load.bucket_rows import BucketRows
from streamtopology.routing.load.load_report import LoadReport
from streamtopology.routing.planners import PlanError, PlanInput
from streamtopology.routing.planners.balance import finish_seconds, imbalance
from streamtopology.routing.planners.dkg import DkgSettings, build, dkg, drift, schedule, two_choices, without_sparse_items
from streamtopology.routing.planners.llfd import CANDIDATE
from streamtopology.routing.table.table import BUCKETS, RoutingTable, moved
from streamtopology.topology import groupings


def plan_input(
    buckets: list[float], keys: dict[int, float] | None = None, k: int = 2, n_keys_state: float = 0.0, **changes: object
) -> PlanInput:
    """`buckets` loads of a table dealt in turn to k instances; `keys`: hash -> load, in addition to the buckets."""
    keys = keys or {}
    defaults: dict[str, object] = {
        "current": RoutingTable.uniform(range(k), len(buckets)),
        "instances": tuple(range(k)),
        "capacities": np.ones(k),
        "fixed_seconds": np.zeros(k),
        "key_hashes": np.array(list(keys), np.uint64),
        "key_loads": np.array(list(keys.values()), np.float64),
        "key_state": np.full(len(keys), n_keys_state),
        "bucket_loads": np.array(buckets, np.float64),
        "bucket_state": np.zeros(len(buckets)),
        "tolerance": 0.0,
    }
    return PlanInput(**{**defaults, **changes})


def loads_under(given_input: PlanInput, table: RoutingTable) -> np.ndarray:
    """Load per instance, counted the slow way."""
    loads: Counter[int] = Counter()
    for owner, load in zip(table.lookup(given_input.key_hashes), given_input.key_loads, strict=True):
        loads[int(owner)] += load
    for owner, load in zip(table.buckets, given_input.bucket_loads, strict=True):
        loads[int(owner)] += load
    return np.array([loads[instance] for instance in given_input.instances])


# ---- the schedule ----------------------------------------------------------------------------------------------------


def test_the_schedule_of_an_example_by_hand():
    # 0.6 alone; 0.2 to the other; then 0.1 and 0.1 there, too: what lambda = 60.7 k - 100 of the paper rests on.
    assert schedule(np.array([0.1, 0.6, 0.2, 0.1, 0.0]), np.ones(2), np.zeros(2)).tolist() == [1, 0, 1, 1, CANDIDATE]


@settings(max_examples=100)
@given(
    loads=st.lists(st.integers(0, 50), max_size=20),
    machines=st.lists(st.tuples(st.sampled_from([0.3, 1.0, 2.0]), st.sampled_from([0.0, 5.0, 80.0])), min_size=1, max_size=4),
)
def test_on_unequal_machines_each_item_goes_where_it_is_done_first(loads, machines):
    capacities, fixed = (np.array(column) for column in zip(*machines, strict=True))
    owner = schedule(np.array(loads, np.float64), capacities, fixed)
    totals = np.zeros(len(machines))
    for item in sorted(range(len(loads)), key=lambda item: (-loads[item], item)):
        if loads[item] > 0:
            done = fixed + (totals + loads[item]) / capacities
            assert done[owner[item]] == pytest.approx(done.min())
            totals[owner[item]] += loads[item]


# ---- tables with more buckets than k * mu, as on Spark ------------------------------------------------------------------


def test_a_run_of_buckets_is_one_bucket_of_the_paper():
    fine = plan_input([1.0] * 12, k=2, options={"mu": 2})
    table = dkg(fine).table
    assert [len(set(run)) for run in table.buckets.reshape(4, 3)] == [1, 1, 1, 1]
    assert np.bincount(table.buckets).tolist() == [6, 6]


@st.composite
def any_input(draw):
    """Keys and, half of the time, buckets; unequal instances, some of them new, some of the current ones gone."""
    known, n_buckets = draw(st.integers(1, 6)), draw(st.sampled_from([1, 7, 8, 40]))
    instances = tuple(sorted(draw(st.sets(st.integers(0, 7), min_size=1, max_size=4))))
    m = draw(st.integers(0, 20))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    hashes = rng.integers(0, 2**64, m, dtype=np.uint64)
    explicit = np.sort(rng.choice(np.append(hashes, rng.integers(0, 2**64, 3, dtype=np.uint64)), m // 2, False))
    entries = rng.integers(0, known, len(explicit)).astype(np.int32)
    buckets = rng.integers(0, known, n_buckets).astype(np.int32)
    with_buckets = draw(st.booleans())
    return PlanInput(
        current=RoutingTable(explicit, entries, buckets),
        instances=instances,
        capacities=rng.choice([0.3, 1.0, 2.0], len(instances)) * 100,
        fixed_seconds=rng.choice([0.0, 0.1, 0.5], len(instances)),
        key_hashes=hashes,
        key_loads=np.round(rng.random(m) * 10 ** rng.uniform(0, 3, m), 3) * rng.integers(0, 4, m).clip(0, 1),
        key_state=rng.integers(0, 50, m) * 1.0,
        bucket_loads=rng.integers(0, 30, n_buckets) * 1.0 if with_buckets else np.empty(0),
        bucket_state=rng.integers(0, 90, n_buckets) * 1.0 if with_buckets else np.empty(0),
        tolerance=draw(st.sampled_from([0.0, 0.08, 0.3])),
        max_entries=draw(st.sampled_from([0, 2, 100])),
        options={"theta": draw(st.sampled_from([0.05, 0.2])), "mu": draw(st.sampled_from([1, 2, 10]))},
    )


@settings(max_examples=250)
@given(given_input=any_input())
def test_a_plan_is_what_its_table_does_and_keeps_every_bound(given_input):
    plan = dkg(given_input)
    loads = loads_under(given_input, plan.table) if len(given_input.bucket_loads) else None
    machines = (given_input.capacities, given_input.fixed_seconds)
    theta = given_input.options["theta"]

    assert set(plan.table.instances()) <= set(given_input.instances)
    if drift(given_input):
        assert len(plan.table.entry_hashes) <= min(given_input.max_entries, 2 / theta)
    else:
        assert plan.table == given_input.current
        assert plan.moved_bytes == plan.moved_keys_estimate == 0
    if loads is not None:
        assert loads.sum() == pytest.approx(given_input.key_loads.sum() + given_input.bucket_loads.sum())
        assert plan.predicted_seconds_after == pytest.approx(finish_seconds(loads, *machines).max())
        assert plan.imbalance_after == pytest.approx(imbalance(loads, *machines))
    changed, _, _ = moved(given_input.current, plan.table, given_input.key_hashes)
    expected = given_input.key_state[changed].sum()
    if len(given_input.bucket_loads):
        expected += given_input.bucket_state[plan.table.buckets != given_input.current.buckets].sum()
    assert plan.moved_bytes == pytest.approx(expected)
    assert dkg(given_input).table == plan.table, "the same input, the same plan"


@settings(max_examples=150)
@given(given_input=any_input())
def test_a_table_just_learnt_is_not_learnt_again(given_input):
    first = dkg(given_input)
    again = replace(given_input, current=first.table)
    assert drift(again) == ""
    assert dkg(again).table == first.table


@settings(max_examples=150)
@given(given_input=any_input())
def test_load_where_there_was_none_does_not_make_a_table_one_that_was_never_learnt(given_input):
    assume(drift(given_input))
    everywhere = np.ones(len(given_input.current.buckets))
    later = {"bucket_loads": everywhere, "bucket_state": everywhere, "bucket_keys": everywhere}
    assert drift(replace(given_input, current=dkg(given_input).table, **later)) != "not learnt yet"


# ---- heavy hitters and drift --------------------------------------------------------------------------------------------


def test_heavy_hitters_enter_at_theta_and_leave_below_theta_minus_eps():
    key = 1 << 63
    options = {"theta": 0.2, "eps": 0.05, "mu": 1}

    def entries(share: float, current: RoutingTable) -> list[int]:
        others = (1 - share) * 100
        # The first bucket is over-full, so the table is learned again in any case.
        given_input = plan_input([others, 0, 0, 0], {key: share * 100}, current=current, options=options)
        assert drift(given_input) == "not learnt yet" or current.entry_hashes.size == 0
        return build_by_policy(given_input).entry_hashes.tolist()

    def build_by_policy(given_input: PlanInput) -> RoutingTable:
        return dkg(given_input).table

    without = RoutingTable.uniform([0, 1], 4)
    with_entry = without.with_entries(np.array([key], np.uint64), np.array([0], np.int32))
    assert entries(0.21, without) == [key]
    assert entries(0.19, without) == []
    assert entries(0.16, with_entry) == [key]
    assert entries(0.14, with_entry) == []


def learnt(loads: np.ndarray, hashes: np.ndarray, current: RoutingTable, **changes: object) -> PlanInput:
    k = 4
    return PlanInput(
        current=current,
        instances=tuple(range(k)),
        capacities=np.full(k, 100.0),
        fixed_seconds=np.zeros(k),
        key_hashes=hashes,
        key_loads=loads,
        key_state=np.ones(len(hashes)),
        options={"mu": 8},
        **changes,
    )


def test_the_table_is_left_alone_until_the_stream_drifts():
    rng = np.random.default_rng(5)
    hashes = rng.integers(0, 2**64, 2000, dtype=np.uint64)
    loads = 1e5 / np.arange(1, 2001)
    unlearnt = learnt(loads, hashes, RoutingTable.uniform(range(4)))
    assert drift(unlearnt) == "not learnt yet"
    table = dkg(unlearnt).table

    noisy = learnt(loads * rng.uniform(0.97, 1.03, 2000), hashes, table)
    assert drift(noisy) == ""
    assert dkg(noisy).table == table
    assert dkg(noisy).moved_bytes == 0

    other_keys = learnt(rng.permutation(loads), hashes, table)
    assert "under a new table" in drift(other_keys)
    assert dkg(other_keys).predicted_seconds_after < dkg(other_keys).predicted_seconds_before

    fewer = replace(other_keys, instances=(0, 1), capacities=np.ones(2), fixed_seconds=np.zeros(2))
    assert drift(fewer) == "instances [2, 3] are no longer active"


def test_learning_again_moves_no_more_state_than_it_must_among_equal_machines():
    rng = np.random.default_rng(6)
    hashes = rng.integers(0, 2**64, 2000, dtype=np.uint64)
    loads = 1e5 / np.arange(1, 2001)
    table = dkg(learnt(loads, hashes, RoutingTable.uniform(range(4)))).table
    drifted = loads.copy()
    drifted[[0, 1, 2, 3]] = loads[[3, 0, 1, 2]]
    again = learnt(drifted, hashes, table)
    plan = dkg(again)
    assert drift(again)
    # As if instances had been numbered at random, three quarters of the state would move.
    literal = build(replace(again, key_state=np.zeros(2000)))
    changed, _, _ = moved(table, literal.table, hashes)
    assert plan.moved_bytes <= changed.sum()
    assert plan.moved_bytes < 0.55 * 2000
    assert plan.predicted_seconds_after <= plan.predicted_seconds_before


def test_more_buckets_per_instance_balance_unequal_machines():
    rng = np.random.default_rng(8)
    hashes = rng.integers(0, 2**64, 20_000, dtype=np.uint64)
    loads = 1 / np.arange(1, 20_001)
    reached = []
    for mu in (2, 16, 64):
        given_input = replace(
            learnt(loads, hashes, RoutingTable.uniform(range(4))),
            capacities=np.array([1.0, 1.0, 1.0, 0.3]),
            options={"mu": mu},
        )
        reached.append(dkg(given_input).imbalance_after)
    assert reached == sorted(reached, reverse=True)
    assert reached[-1] < 0.02


def test_a_stage_gives_the_planner_the_options_of_the_grouping():
    half, tenth = 1 << 62, 3 << 62
    reports = [
        LoadReport(
            "count",
            0,
            0,
            600,
            0.6,
            0.6,
            heavy_hashes=np.array([half], np.uint64),
            heavy_rows=np.array([500]),
            heavy_seconds=np.zeros(1),
            heavy_bytes=np.ones(1, np.int64),
            heavy_labels=("half",),
            bucket_rows=BucketRows.of(np.bincount(np.arange(100), minlength=BUCKETS)),
        ),
        LoadReport(
            "count",
            1,
            1,
            400,
            0.4,
            0.4,
            heavy_hashes=np.array([tenth], np.uint64),
            heavy_rows=np.array([100]),
            heavy_seconds=np.zeros(1),
            heavy_bytes=np.ones(1, np.int64),
            heavy_labels=("tenth",),
            bucket_rows=BucketRows.of(np.bincount(np.arange(3000, 3300), minlength=BUCKETS)),
        ),
    ]
    model = SlotModel(np.ones(2), {"count": 1000.0}, {"count": np.full(2, 1000.0)}, {"count": np.zeros(2)})
    for options, entries in (({"theta": 0.3, "mu": 1}, [half]), ({"mu": 2}, [half, tenth])):
        route = Route("dkg", RoutingTable.uniform(range(2)), (0, 1), options)
        plan = TableStage("count", route, (0, 1), reports, reports, 1, "dkg").remedy(model, 0.08, 3000).plans["count"]
        assert plan.table.entry_hashes.tolist() == entries
        loaded = plan.table.buckets[3000:3300]
        assert len(set(loaded.tolist())) == 1, "one run of buckets, one instance"


# ---- the paper's variants -----------------------------------------------------------------------------------------------


def test_without_sparse_items_places_heavy_hitters_alone():
    heavy = {3 << 62: 40.0, 1 << 62: 30.0}
    plan = without_sparse_items(plan_input([9.0, 1.0], heavy, options={"mu": 1}))
    assert dict(zip(plan.table.entry_hashes.tolist(), plan.table.entry_instances.tolist(), strict=True)) == {
        3 << 62: 0,
        1 << 62: 1,
    }
    assert plan.table.buckets.tolist() == [0, 1]
    assert plan.predicted_seconds_after == 49


def test_with_two_choices_a_heavy_hitter_is_halved_over_two_instances():
    first, second = two_choices(plan_input([10.0, 10.0, 10.0], {7: 60.0}, k=3, options={"mu": 1}))
    assert first.buckets.tolist() == second.buckets.tolist() == [2, 2, 2]
    assert sorted([int(first.entry_instances[0]), int(second.entry_instances[0])]) == [0, 1]


# ---- options --------------------------------------------------------------------------------------------------------------


def test_the_grouping_names_its_planner_and_refuses_what_cannot_be():
    spec = groupings.get("dkg")
    assert planners.get(spec.planner or "") is dkg
    assert spec.check_options({"theta": 0.2, "mu": 16}) == {"theta": 0.2, "eps": None, "mu": 16}
    assert spec.option_problems({"eps": 0.2}) == {"eps": "found 0.2, expected 0 < eps < theta = 0.1"}
    assert set(spec.option_problems({"theta": 0, "mu": 1.5, "eps": "much"})) == {"theta", "mu", "eps"}
    for wrong in ({"theta": 2.0}, {"mu": 0}, {"theta": 0.1, "eps": 0.1}):
        with pytest.raises(PlanError, match="found"):
            DkgSettings(**wrong)
