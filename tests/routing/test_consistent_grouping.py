"""Consistent grouping: virtual workers through a table, signals, first-come-first-served pairing, and its planner."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopology.routing import planners
from streamtopology.routing.control.slot_model import SlotModel
from streamtopology.routing.control.stages import TableStage
from streamtopology.routing.epochs.epoch import Route
from streamtopology.routing.groupings import VirtualChooser, first_table, make_chooser
from streamtopology.routing.load.bucket_rows import BucketRows
from streamtopology.routing.load.load_report import LoadReport
from streamtopology.routing.planners import PlanError, PlanInput
from streamtopology.routing.planners.consistent import Pairing, Signal, signals
from streamtopology.routing.table.hashing import hash_int64
from streamtopology.routing.table.table import BUCKETS, RoutingTable
from streamtopology.topology import groupings
from streamtopology.topology.groupings import GroupingError

CONSISTENT = groupings.get("consistent")


def plan_input(owner: list[int], capacities: list[float], total: float = 1000.0, **more) -> PlanInput:
    k, nobody, nothing = len(capacities), np.empty(0, np.uint64), np.empty(0)
    table = RoutingTable(nobody, np.empty(0, np.int32), np.array(owner, np.int32))
    loads = np.full(len(owner), total / len(owner))
    return PlanInput(
        table, tuple(range(k)), np.array(capacities), np.zeros(k), nobody, nothing, nothing, loads, np.zeros(len(owner)), **more
    )


def test_a_virtual_worker_is_chosen_and_its_instance_looked_up() -> None:
    table = first_table("consistent", [3, 5], {"virtualWorkers": 4})
    assert table is not None
    assert np.bincount(table.buckets).tolist() == [0, 0, 0, 4, 0, 4]
    hashes = hash_int64(np.arange(10_000) % 700)
    active, none = np.array([3, 5], np.int32), np.zeros(2)
    router = make_chooser("consistent", active, none, 1, {"virtualWorkers": 4}, table)
    virtual = make_chooser("porc", np.arange(8, dtype=np.int32), np.zeros(8), 1).choose(hashes, len(hashes))
    assert np.array_equal(router.choose(hashes, len(hashes)), table.buckets[virtual])
    assert np.bincount(virtual).max() <= 1.01 * len(hashes) / 8 + 1


def test_virtual_workers_keep_their_loads_when_they_move() -> None:
    table = first_table("consistent", [0, 1], {})
    assert table is not None
    hashes = hash_int64(np.arange(2_000) % 97)
    still, moving = (make_chooser("consistent", np.arange(2, dtype=np.int32), np.zeros(2), 1, {}, table) for _ in range(2))
    assert isinstance(moving, VirtualChooser)
    assert np.array_equal(still.choose(hashes, 2_000), moving.choose(hashes, 2_000))
    moving.follow(RoutingTable(table.entry_hashes, table.entry_instances, 1 - table.buckets))
    assert np.array_equal(still.choose(hashes, 2_000), 1 - moving.choose(hashes, 2_000))
    with pytest.raises(GroupingError, match="3 virtual workers in place of 40"):
        moving.follow(RoutingTable.uniform([0, 1], 3))


def test_virtual_grouping_requires_a_table_and_a_positive_count() -> None:
    with pytest.raises(GroupingError, match="finds virtual workers in the operator's table; there is none"):
        make_chooser("consistent", np.arange(2, dtype=np.int32), np.zeros(2), 1)
    with pytest.raises(GroupingError, match="virtualWorkers: found 0, expected a whole number >= 1"):
        CONSISTENT.check_options({"virtualWorkers": 0})
    assert first_table("porc", [0, 1], {}) is None
    fields = first_table("fields", [0, 1], {})
    assert fields is not None
    assert fields == RoutingTable.uniform([0, 1])


def test_signals_follow_the_papers_thresholds() -> None:
    output = signals(np.array([0.0, 0.7499, 0.75, 0.8, 0.85, 0.8501, 3.0]))
    assert output == [Signal.IDLE, Signal.IDLE, Signal.IDLE, Signal.FINE, Signal.BUSY, Signal.BUSY, Signal.BUSY]


def test_pairs_are_made_first_come_first_served() -> None:
    source = Pairing(np.array([0, 1, 2, 3, 0, 1, 2, 3], np.int32))
    source.hear(2, Signal.BUSY)
    assert not source.pair()
    source.hear(0, Signal.BUSY)
    source.hear(2, Signal.BUSY)
    source.hear(3, Signal.IDLE)
    assert [(move.virtual, move.giver, move.taker) for move in source.pair()] == [(2, 2, 3)]
    source.hear(1, Signal.IDLE)
    source.hear(3, Signal.IDLE)
    assert [(move.virtual, move.giver, move.taker) for move in source.pair()] == [(0, 0, 1)]
    # Worker 3 still waits; a worker that is fine again waits no more.
    source.hear(3, Signal.FINE)
    assert not source.pair()
    assert source.owner.tolist() == [1, 1, 3, 3, 0, 1, 2, 3]


def test_least_recently_overloaded_workers_are_probed_where_none_is_idle() -> None:
    source = Pairing(np.array([0, 1, 2, 3, 0, 1, 2, 3], np.int32))
    for worker in (1, 0, 2):
        source.hear(worker, Signal.BUSY)
    assert source.pair() == []  # nobody but them has been heard
    for worker in (3, 1, 0):
        source.hear(worker, Signal.FINE)
    assert [(move.giver, move.taker) for move in source.pair()] == [(2, 3)], "who was never overloaded comes first"
    source.hear(3, Signal.BUSY)
    source.hear(2, Signal.BUSY)
    assert [(move.giver, move.taker) for move in source.pair()] == [(3, 1), (2, 0)], "then 1, which was before 0"


output = st.lists(st.tuples(st.integers(0, 4), st.sampled_from(list(Signal))), max_size=60)


@settings(max_examples=100)
@given(output)
def test_pairing_is_two_queues(words: list[tuple[int, Signal]]) -> None:
    source, owner = Pairing(np.arange(10) % 5), [i % 5 for i in range(10)]
    queues: dict[Signal, deque[int]] = {Signal.IDLE: deque(), Signal.BUSY: deque()}
    overloaded, heard = dict[int, int](), [-1]
    for worker, signal in words:
        source.hear(worker, signal)
        source.pair()
        for kind, queue in queues.items():
            if kind == signal and worker not in queue:
                queue.append(worker)
            if kind != signal and worker in queue:
                queue.remove(worker)
        overloaded.setdefault(worker, 0)
        if signal is Signal.BUSY:
            overloaded[worker] = len(heard)
        heard.append(worker)
        others = [one for one in sorted(overloaded, key=lambda one: (overloaded[one], one)) if one not in queues[Signal.BUSY]]
        takers = queues[Signal.IDLE] or deque(others)
        while takers and queues[Signal.BUSY]:
            giver = queues[Signal.BUSY].popleft()
            if giver in owner:
                owner[owner.index(giver)] = takers.popleft()
        assert source.owner.tolist() == owner


def test_the_planner_gives_workers_what_they_can_do() -> None:
    """Figure 8's cluster: 3 workers 5 times as fast as 7; of 220 virtual workers 10 for each slow one, 50 for each fast."""
    capacities = [5.0] * 3 + [1.0] * 7
    plan = planners.get("consistent")(plan_input([i % 10 for i in range(220)], capacities))
    held = np.bincount(plan.table.buckets, minlength=10)
    assert held.sum() == 220
    used = 0.8 * held / np.array([50.0] * 3 + [10.0] * 7)
    assert used.max() <= 0.85 + 0.8 / 10
    assert plan.predicted_seconds_before == pytest.approx(22 * 1000 / 220)
    assert plan.predicted_seconds_after == pytest.approx(1000 / 220 * float((held / np.array(capacities)).max()))
    assert plan.imbalance_after < 0.11 < plan.imbalance_before


def test_an_instance_without_virtual_workers_gets_some_where_the_others_miss_them() -> None:
    """The planner hears it by the measured capacity; it stays empty only where the others are within 0.85 / 0.8 of balance."""
    plan = planners.get("consistent")(plan_input([i % 4 for i in range(100)], [1.0] * 5))
    assert np.bincount(plan.table.buckets, minlength=5).min() >= 16
    within = planners.get("consistent")(plan_input([i % 19 for i in range(400)], [1.0] * 20))
    assert within.imbalance_after <= 0.85 / 0.8 - 1


@settings(max_examples=100)
@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=80),
    st.lists(st.sampled_from([0.3, 1.0, 2.0, 5.0]), min_size=1, max_size=5),
    st.floats(0, 1e6),
)
def test_a_plan_keeps_all_virtual_workers_and_never_ends_later(owner: list[int], capacities: list[float], total: float) -> None:
    given = plan_input(owner, capacities, total)
    plan, again = (planners.get("consistent")(given) for _ in range(2))
    assert len(plan.table.buckets) == len(owner)
    assert set(plan.table.instances()) <= set(range(len(capacities)))
    assert plan.table == again.table
    if max(owner) < len(capacities):
        assert plan.predicted_seconds_after <= plan.predicted_seconds_before
    assert plan.moved_bytes == 0


def test_at_balance_nothing_moves() -> None:
    given = plan_input([i % 4 for i in range(40)], [1.0, 1.0, 1.0, 1.0])
    assert planners.get("consistent")(given).table == given.current


def test_tables_of_other_groupings_are_refused() -> None:
    given = plan_input([0, 1], [1.0, 1.0])
    entries = given.current.with_entries(np.array([7], np.uint64), np.array([1], np.int32))
    with pytest.raises(PlanError, match="has no entries"):
        planners.get("consistent")(
            PlanInput(entries, (0, 1), np.ones(2), np.zeros(2), np.empty(0, np.uint64), np.empty(0), np.empty(0))
        )


def test_the_controller_plans_virtual_workers_from_reports_by_key() -> None:
    """Reports count rows per hash bucket; a virtual worker gets an equal part of them, wherever their keys hash."""
    table = first_table("consistent", [0, 1], {"virtualWorkers": 20})
    route = Route("consistent", table, (0, 1), {"virtualWorkers": 20})
    rows = BucketRows(np.array([17]), np.array([1000]), BUCKETS)
    reports = [LoadReport("count", i, i, 1000, busy, busy, bucket_rows=rows) for i, busy in ((0, 1.0), (1, 3.0))]
    rates = np.array([1000.0, 1000.0 / 3])
    model = SlotModel(np.array([1, 1 / 3]), {"count": 1000.0}, {"count": rates}, {"count": np.zeros(2)})
    remedy = TableStage("count", route, (0, 1), reports, reports, 1, "consistent").remedy(model, 0.08, 3000)
    (plan,) = remedy.plans.values()
    assert np.bincount(plan.table.buckets).tolist() == pytest.approx([30, 10], abs=1)
    assert remedy.moved_bytes == 0
