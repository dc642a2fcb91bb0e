"""Figures in an epoch of the controller: the routings that were weighed, the bound, and the keys and links that count."""

from __future__ import annotations

import numpy as np
import pytest
from support.observed import Stream
from support.rerouted import Run

from streamtopology.contract.reasons import BindingKind, LinkMove, RemedyKind
from streamtopology.routing.control.moves import MOST_MOVES, heaviest_links
from streamtopology.routing.epochs.epoch import Epoch
from streamtopology.routing.load.load_report import KeyPairs
from streamtopology.routing.planners import Plan
from streamtopology.routing.planners.joint import JointPlanInput
from streamtopology.routing.planners.plan import PlanInput
from streamtopology.routing.table.table import RoutingTable


def rerouted(**rebalance: object) -> tuple[Run, Epoch]:
    run = Run(Stream(seed=1), **rebalance).go(60)
    return run, run.reroutes[0][1].epoch


def test_epoch_carries_the_predicted_seconds_of_each_stage():
    run, epoch = rerouted()
    decision, weighed = run.reroutes[0][1], epoch.reason.weighed
    assert weighed is not None
    by_stage = {stage.stage: stage for stage in weighed.stages}
    plan = decision.plans["count"]
    assert by_stage["count"].taken
    assert by_stage["count"].kind is RemedyKind.TABLE
    assert by_stage["count"].keep_seconds == plan.predicted_seconds_before
    assert by_stage["count"].planned_seconds == pytest.approx(plan.predicted_seconds_after)
    saved = sum(stage.keep_seconds - stage.planned_seconds for stage in weighed.stages if stage.taken)
    assert (weighed.gain_seconds, weighed.cost_seconds) == (decision.predicted_gain_seconds, decision.cost_seconds)
    assert weighed.gain_seconds == pytest.approx(saved)
    assert min(weighed.gain_seconds, weighed.gain_seconds * weighed.trust) * weighed.batches > weighed.cost_seconds
    assert weighed.batch_seconds > by_stage["count"].keep_seconds


def test_epoch_carries_the_constraint_that_it_was_made_under():
    _, epoch = rerouted()
    assert epoch.reason.weighed is not None
    bound = epoch.reason.weighed.binding
    assert bound is not None
    assert (bound.kind, bound.stage) == (BindingKind.INSTANCE, "count")


def test_epoch_names_the_heaviest_keys_that_change_their_owner():
    run, epoch = rerouted()
    assert epoch.reason.weighed is not None
    moves = epoch.reason.weighed.keys
    before, after = run.stream.first_epoch().routes["count"].table, epoch.routes["count"].table
    assert before is not None
    assert after is not None
    hashes = np.array([int(move.key, 16) for move in moves], np.uint64)
    assert [move.before for move in moves] == before.lookup(hashes).tolist()
    assert [move.after for move in moves] == after.lookup(hashes).tolist()
    assert len(moves) == MOST_MOVES
    assert [move.rows for move in moves] == sorted((move.rows for move in moves), reverse=True)
    moved = np.flatnonzero(before.lookup(run.stream.hashes) != after.lookup(run.stream.hashes))
    heaviest = run.stream.hashes[moved[np.argsort(-run.stream.shares[moved])[:20]]]
    assert set(hashes.tolist()) <= set(heaviest.tolist())


def test_epoch_with_figures_is_the_same_after_the_wire():
    _, epoch = rerouted()
    assert Epoch.from_json(epoch.to_json()).reason == epoch.reason


def test_links_that_come_to_one_server_are_named_by_their_rows():
    keys = np.array([1, 2, 3], np.uint64)
    apart, together = table({1: 0, 2: 0, 3: 0}), table({1: 1, 2: 1, 3: 1})
    given = JointPlanInput(
        {"first": planned(apart), "second": planned(together)},
        {("first", "second"): KeyPairs(keys, keys, np.array([10, 30, 20], np.int64), 60)},
        batches=10,
    )
    plans = {"first": plan(table({1: 1, 2: 1, 3: 0})), "second": plan(together)}
    assert heaviest_links(given, plans) == (
        LinkMove("first", f"{2:016x}", "second", f"{2:016x}", 3.0),
        LinkMove("first", f"{1:016x}", "second", f"{1:016x}", 1.0),
    )


def table(owners: dict[int, int]) -> RoutingTable:
    return RoutingTable(
        np.array(sorted(owners), np.uint64), np.array([owners[key] for key in sorted(owners)]), np.zeros(8, np.int32)
    )


def planned(current: RoutingTable) -> PlanInput:
    nothing = np.empty(0)
    return PlanInput(current, (0, 1), np.ones(2), np.zeros(2), np.empty(0, np.uint64), nothing, nothing)


def plan(made: RoutingTable) -> Plan:
    return Plan(made, 0, 0, 1.0, 0.5, 0.5, 0.0, True, "made up")
