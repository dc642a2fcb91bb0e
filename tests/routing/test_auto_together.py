"""`auto` for several operators: never worse than each alone, near the best there is, and each alone where that is right."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopology.routing.load.load_report import KeyPairs
from streamtopology.routing.planners import JointPlan, JointPlanInput, PlanError, PlanInput
from streamtopology.routing.planners.auto import auto
from streamtopology.routing.planners.joint import ALONE
from streamtopology.routing.planners.key_graph import KeyGraph
from streamtopology.routing.planners.key_search import Search
from streamtopology.routing.planners.plan import Splitting
from streamtopology.routing.planners.switch_costs import MOVED_BYTES_PER_SECOND, SWITCH_SECONDS, SwitchCosts
from streamtopology.routing.planners.together import LEAST_GAIN, SLACKS, auto_together
from streamtopology.routing.table.hashing import hash_int64
from streamtopology.routing.table.splits import Splits
from streamtopology.routing.table.table import RoutingTable, bucket_of

N_BUCKETS = 16
# By which a switch must have earned its cost: batches here take a tenth of a second.
BATCHES = 600.0


def keys_of(operator: int, count: int) -> np.ndarray:
    return hash_int64(np.arange(count, dtype=np.int64) + 1000 * operator)


def pairs_of(first: np.ndarray, second: np.ndarray, rows: np.ndarray) -> KeyPairs:
    """Key i of the one operator is followed by key j of the other rows[i, j] times."""
    i, j = np.nonzero(rows)
    counts = rows[i, j].astype(np.int64)
    return KeyPairs.summed(first[i], second[j], counts, int(counts.sum()), None)


def operator(hashes: np.ndarray, loads: np.ndarray, capacities: tuple[float, ...], **other: Any) -> PlanInput:
    k = len(capacities)
    fields: dict[str, Any] = {
        "current": RoutingTable.uniform(range(k), N_BUCKETS),
        "instances": tuple(range(k)),
        "capacities": np.array(capacities),
        "fixed_seconds": np.zeros(k),
        "key_hashes": hashes,
        "key_loads": loads.astype(np.float64),
        "key_state": np.full(len(hashes), 64.0),
        "switch": SwitchCosts(BATCHES),
    }
    return PlanInput(**{**fields, **other})


def chain_of(rows: np.ndarray, capacities: tuple[float, ...], remote_seconds: float, **other: Any) -> JointPlanInput:
    """Two operators whose rows are all those of the pairs."""
    first, second = keys_of(1, len(rows)), keys_of(2, rows.shape[1])
    operators = {
        "A": operator(first, rows.sum(axis=1), capacities, **other),
        "B": operator(second, rows.sum(axis=0), capacities, **other),
    }
    return JointPlanInput(operators, {("A", "B"): pairs_of(first, second, rows)}, remote_seconds=remote_seconds)


def alone(asked: JointPlanInput) -> dict[str, RoutingTable]:
    return {name: auto(one).table for name, one in asked.operators.items()}


def tables(plan: JointPlan) -> dict[str, RoutingTable]:
    return {name: one.table for name, one in plan.plans.items()}


# ---- the objective, slowly and obviously -------------------------------------------------------------------------


def seconds_by(asked: JointPlanInput, by: dict[str, RoutingTable]) -> float:
    """Seconds of a batch with these tables, without splits and without the cost of changing to them."""
    place = {instance: position for position, instance in enumerate(asked.instances)}
    work: dict[str, list[float]] = {}
    total = 0.0
    for name, one in asked.operators.items():
        loads = dict(zip(one.key_hashes.tolist(), one.key_loads.tolist(), strict=True))
        buckets = one.bucket_loads.copy()
        for key, rows in unknown_keys(asked, name).items():
            loads[key] = rows
            if len(buckets):
                buckets[bucket_of(np.array([key], np.uint64), N_BUCKETS)[0]] -= rows
        work[name] = [0.0] * len(place)
        for key, rows in loads.items():
            work[name][place[int(by[name].lookup(np.array([key], np.uint64))[0])]] += rows
        for bucket, rows in enumerate(buckets):
            work[name][place[int(by[name].buckets[bucket])]] += rows
        total += max(one.fixed_seconds[j] + work[name][j] / one.capacities[j] for j in range(len(place)))
    for (before, after), pairs in asked.pairs.items():
        sent, received = [0.0] * len(place), [0.0] * len(place)
        together = 0.0
        for up, down, n in zip(pairs.upstream.tolist(), pairs.downstream.tolist(), pairs.rows.tolist(), strict=True):
            of_up = sum(r for u, r in zip(pairs.upstream.tolist(), pairs.rows.tolist(), strict=True) if u == up)
            of_down = sum(r for d, r in zip(pairs.downstream.tolist(), pairs.rows.tolist(), strict=True) if d == down)
            rows = max(n - n**0.5 - of_up * of_down / pairs.seen, 0.0) / asked.batches
            together += rows
            at = (place[int(by[name].lookup(np.array([key], np.uint64))[0])] for name, key in ((before, up), (after, down)))
            here, there = at
            if here != there:
                sent[here] += rows
                received[there] += rows
        chance = pairs.seen / asked.batches - together
        for j in range(len(place)):
            here, there = work[before][j] / sum(work[before]), work[after][j] / sum(work[after])
            sent[j] += chance * here * (1 - there)
            received[j] += chance * there * (1 - here)
        total += asked.remote_seconds * max(*sent, *received)
    return total


def unknown_keys(asked: JointPlanInput, name: str) -> dict[int, float]:
    """The keys of an operator that only pairs name: their rows along the edge that shows most of them."""
    known, rows = set(asked.operators[name].key_hashes.tolist()), dict[int, float]()
    for edge, pairs in asked.pairs.items():
        for end, hashes in zip(edge, (pairs.upstream, pairs.downstream), strict=True):
            for key in set(hashes.tolist()) - known if end == name else ():
                along = float(pairs.rows[hashes == key].sum()) / asked.batches
                rows[key] = max(rows.get(key, 0.0), along)
    return rows


def change_seconds(asked: JointPlanInput, plan: JointPlan) -> float:
    changed = any(plan.plans[name].table != one.current for name, one in asked.operators.items())
    moved = sum(one.moved_bytes for one in plan.plans.values())
    return (SWITCH_SECONDS * changed + moved / MOVED_BYTES_PER_SECOND) / BATCHES


def stage_seconds(one: PlanInput, table: RoutingTable) -> float:
    rows = np.bincount(table.lookup(one.key_hashes), one.key_loads, len(one.instances))
    return float((one.fixed_seconds + rows / one.capacities).max())


def best_by_brute_force(asked: JointPlanInput) -> float:
    """Seconds of the best of all tables with which no stage takes longer than alone or the greatest slack; changing is free."""
    k, by_alone = len(asked.instances), alone(asked)
    placed = {
        name: [
            table
            for owner in product(range(k), repeat=len(one.key_hashes))
            if stage_seconds(one, table := one.current.with_entries(one.key_hashes, np.array(owner, np.int32)))
            <= 1e-9 + max(stage_seconds(one, by_alone[name]), (1 + SLACKS[-1]) * one.key_loads.sum() / one.capacities.sum())
        ]
        for name, one in asked.operators.items()
    }
    return min(seconds_by(asked, {"A": a, "B": b}) for a in placed["A"] for b in placed["B"])


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.sampled_from([0, 30, 200, 900, 4000]), min_size=9, max_size=9),
    st.sampled_from([(1e4, 1e4), (1e4, 0.3e4)]),
    st.sampled_from([1e-5, 1e-4, 5e-4]),
)
def test_plan_is_near_the_best_of_brute_force(counts: list[int], capacities: tuple[float, ...], remote: float) -> None:
    rows = np.array(counts).reshape(3, 3)
    rows[0, 0] += 100
    asked = chain_of(rows, capacities, remote)
    plan = auto_together(asked)
    best, found = best_by_brute_force(asked), seconds_by(asked, tables(plan))
    assert found <= 1.3 * best + SWITCH_SECONDS / BATCHES + 2e-3


# ---- what every plan promises --------------------------------------------------------------------------------------


@st.composite
def any_input(draw: st.DrawFn) -> JointPlanInput:
    """A chain of three or a diamond; some keys known, some only from pairs; unequal servers, some new, some gone."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    instances = tuple(sorted(draw(st.sets(st.integers(0, 5), min_size=1, max_size=4))))
    edges = draw(st.sampled_from([[("A", "B"), ("B", "C")], [("A", "B"), ("A", "C"), ("B", "D"), ("C", "D")]]))
    names = sorted({name for edge in edges for name in edge})
    keys = {name: keys_of(ord(name), draw(st.integers(2, 10))) for name in names}
    pairs = {
        edge: pairs_of(keys[edge[0]], keys[edge[1]], rng.integers(0, 60, (len(keys[edge[0]]), len(keys[edge[1]]))) ** 2)
        for edge in edges
    }
    batches, with_buckets = draw(st.integers(1, 4)), draw(st.booleans())
    operators: dict[str, PlanInput] = {}
    for name in names:
        known = keys[name][: draw(st.integers(0, len(keys[name])))]
        entries = np.sort(rng.choice(keys[name], 2, False))
        operators[name] = operator(
            known,
            rng.integers(1, 20_000, len(known)),
            tuple(rng.choice([0.1, 0.3, 1.0], len(instances)) * 1e5),
            current=RoutingTable(
                entries, rng.integers(0, 6, 2).astype(np.int32), rng.integers(0, 6, N_BUCKETS).astype(np.int32)
            ),
            instances=instances,
            fixed_seconds=rng.choice([0.0, 0.02], len(instances)),
            key_state=rng.integers(0, 5000, len(known)) * 1.0,
            bucket_loads=np.full(N_BUCKETS, 60_000.0) if with_buckets else np.empty(0),
            bucket_state=rng.integers(0, 9000, N_BUCKETS) * 1.0 if with_buckets else np.empty(0),
            max_entries=draw(st.sampled_from([0, 3, 100])),
        )
    return JointPlanInput(operators, pairs, batches, draw(st.sampled_from([0.0, 1e-6, 1e-5, 1e-4])))


@settings(max_examples=120, deadline=None)
@given(any_input())
def test_plan_is_never_worse_than_each_alone(asked: JointPlanInput) -> None:
    plan = auto_together(asked)
    by_alone = auto_together(replace(asked, remote_seconds=0.0))
    assert tables(by_alone) == alone(asked)
    found = seconds_by(asked, tables(plan)) + change_seconds(asked, plan)
    of_alone = seconds_by(asked, tables(by_alone)) + change_seconds(asked, by_alone)
    with_buckets = all(len(one.bucket_loads) for one in asked.operators.values())
    if plan.chosen == ALONE:
        assert tables(plan) == alone(asked)
    elif with_buckets or not any(unknown_keys(asked, name) for name in asked.operators):
        assert found <= (1 - LEAST_GAIN) * of_alone + 1e-9
        predicted = sum(one.predicted_seconds_after for one in plan.plans.values()) + plan.remote_after
        assert predicted == pytest.approx(seconds_by(asked, tables(plan)), rel=1e-6)


@settings(max_examples=80, deadline=None)
@given(any_input())
def test_plan_uses_active_instances_and_bounded_tables_and_is_deterministic(asked: JointPlanInput) -> None:
    plan, again = auto_together(asked), auto_together(asked)
    assert tables(plan) == tables(again)
    for name, one in plan.plans.items():
        assert set(one.table.instances()) <= set(asked.instances) or one.table == asked.operators[name].current
        assert len(one.table.entry_hashes) <= asked.operators[name].max_entries


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 80), min_size=2, max_size=12), st.lists(st.integers(1, 80), min_size=2, max_size=12))
def test_pairs_that_are_chance_give_each_alone(up: list[int], down: list[int]) -> None:
    asked = chain_of(np.outer(up, down), (1e4, 1e4, 0.3e4), 1e-3)
    plan = auto_together(asked)
    assert plan.chosen == ALONE
    assert tables(plan) == alone(asked)


# ---- cases ---------------------------------------------------------------------------------------------------------

# 24 keys in 8 communities; within one every key is followed by every other.
COMMUNITIES = np.kron(np.eye(8), np.full((3, 3), 400)).astype(np.int64)


def test_communities_come_to_one_server_where_the_network_is_dear() -> None:
    asked = chain_of(COMMUNITIES, (1e5,) * 4, 1e-4)
    plan = auto_together(asked)
    assert plan.chosen not in (ALONE, "keep")
    assert plan.locality_after == 1.0
    assert plan.remote_after < 0.2 * plan.remote_before
    assert max(one.imbalance_after for one in plan.plans.values()) < 0.01


def test_planned_tables_are_kept() -> None:
    asked = chain_of(COMMUNITIES, (1e5,) * 4, 1e-4)
    first = auto_together(asked)
    running = {name: replace(one, current=first.plans[name].table) for name, one in asked.operators.items()}
    again = auto_together(replace(asked, operators=running))
    assert tables(again) == tables(first)
    assert sum(one.moved_bytes for one in again.plans.values()) == 0


def test_slow_server_gets_its_share_only() -> None:
    rows = np.kron(np.eye(33), np.full((2, 2), 400)).astype(np.int64)
    plan = auto_together(chain_of(rows, (1e5, 1e5, 1e5, 0.3e5), 1e-4))
    assert plan.locality_after > 0.9
    assert max(one.imbalance_after for one in plan.plans.values()) < 0.15


@pytest.mark.parametrize("remote", [1e-6, 1e-3])
def test_servers_do_not_idle_for_the_network(remote: float) -> None:
    """One community of everything: on one server no row would be remote."""
    rows = np.full((12, 12), 400) + 4000 * np.eye(12, dtype=np.int64)
    plan = auto_together(chain_of(rows, (1e5,) * 4, remote))
    assert plan.locality_after == pytest.approx(0.59, abs=0.01)
    assert max(one.imbalance_after for one in plan.plans.values()) <= SLACKS[-1]


def test_keys_are_planned_when_all_their_instances_are_gone() -> None:
    asked = chain_of(COMMUNITIES, (1e5,) * 4, 1e-4, current=RoutingTable.uniform([7], N_BUCKETS))
    plan = auto_together(asked)
    assert all(set(one.table.instances()) <= set(range(4)) for one in plan.plans.values())
    assert plan.locality_after > 0.9


def test_split_key_stays_split_and_the_others_are_planned_around_it() -> None:
    rows = np.zeros((25, 25), np.int64)
    rows[:24, :24] = COMMUNITIES
    rows[24, :24] = 3000
    hot = keys_of(1, 25)[24:]
    everywhere = Splits.of(hot, np.array([0, 4]), np.arange(4, dtype=np.int32), np.ones(4))
    asked = chain_of(rows, (1e5,) * 4, 1e-4, splitting=Splitting(0.3, apart=False))
    first = replace(asked.operators["A"], current=asked.operators["A"].current.with_splits(everywhere))
    asked = replace(asked, operators={**asked.operators, "A": first})
    plan = auto_together(asked)
    assert plan.chosen != ALONE
    assert plan.plans["A"].table.splits.hashes.tolist() == hot.tolist()
    assert plan.plans["A"].imbalance_after < 0.1
    first, second = (plan.plans[name].table.lookup(keys_of(n, 24)) for name, n in (("A", 1), ("B", 2)))
    assert (first == second).mean() > 0.9


def test_operators_on_a_single_server_are_planned_alone() -> None:
    assert auto_together(chain_of(COMMUNITIES, (1e5,), 1.0)).chosen == ALONE


def test_cost_of_a_remote_row_is_not_negative() -> None:
    for cost in (-1e-6, float("nan"), float("inf")):
        with pytest.raises(PlanError, match="remote_seconds"):
            chain_of(COMMUNITIES, (1e5,) * 4, cost)


def test_search_moves_an_item_to_its_neighbour_unless_that_is_full() -> None:
    search = Search(
        stage=np.array([0, 1], np.int32),
        order=np.array([1, 0]),
        loads=np.array([10.0, 10.0]),
        capacities=np.full((2, 2), 100.0),
        adjacency=(np.array([0, 1, 2]), np.array([1, 0]), np.array([10.0, 10.0])),
        origin=np.array([0, 1], np.int32),
        anchor=np.zeros(2),
    )
    start = np.array([0, 1], np.int32)
    done = np.array([[0.1, 0.0], [0.0, 0.1]])
    assert len(set(search.improved(start, done, np.array([0.1, 0.1]), 1e-3).tolist())) == 1
    full = np.array([[0.1, 0.5], [0.5, 0.1]])
    assert search.improved(start, full, np.array([0.1, 0.1]), 1e-3).tolist() == [0, 1]
    tied = replace(search, anchor=np.ones(2))
    assert tied.improved(start, done, np.array([0.1, 0.1]), 1e-3).tolist() == [0, 1]


def test_graph_counts_the_same_locality_as_tables() -> None:
    asked = chain_of(COMMUNITIES, (1e5,) * 4, 1e-4)
    keys = KeyGraph.of(tuple(asked.operators), asked.pairs)
    plan = auto_together(asked)
    pairs = asked.pairs["A", "B"]
    at = plan.plans["A"].table.lookup(pairs.upstream), plan.plans["B"].table.lookup(pairs.downstream)
    assert len(keys) == 48
    assert plan.locality_after == pytest.approx(pairs.rows[at[0] == at[1]].sum() / pairs.rows.sum())
