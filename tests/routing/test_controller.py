"""The control loop on a simulated stream: it converges, answers a change once, and is quiet otherwise."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.depth import deep
from support.observed import BASE, SLOTS, Stream
from support.rerouted import FACTS, Run

from streamtopology.contract.reasons import EpochCause, Hold, HoldReason
from streamtopology.routing.control.controller import GLARING
from streamtopology.routing.control.decisions import Recommend, TopologyFacts
from streamtopology.routing.control.feed import CommittedBatch
from streamtopology.routing.control.window import FEW_BATCHES, MIN_BATCHES
from streamtopology.routing.epochs.epoch import Epoch
from streamtopology.routing.load.load_report import LoadReport, SourceReport
from streamtopology.routing.planners.balance import imbalance
from streamtopology.topology import Rebalance


@deep(gate=4, long=8)
@given(seed=st.integers(0, 10**6), zipf=st.sampled_from([0.6, 0.85, 1.0]))
def test_from_plain_hashing_it_converges_within_three_reroutings_and_is_quiet_then(seed, zipf):
    run = Run(Stream(seed, zipf))
    before = run.stream.imbalance(run.epoch.routes["count"])
    run.go(200)
    assert before > 0.5
    assert run.stream.imbalance(run.epoch.routes["count"]) <= 0.08 + 0.05
    assert 1 <= len(run.reroutes) <= 3


@deep(gate=3, long=6)
@given(seed=st.integers(0, 10**6))
def test_a_balanced_noisy_stream_is_left_alone(seed):
    run = Run(Stream(seed, zipf=0.3, speeds=np.ones(SLOTS))).go(200)
    assert len(run.reroutes) <= 2


@deep(gate=3, long=6)
@given(seed=st.integers(0, 10**6), slot=st.integers(0, 2), factor=st.sampled_from([0.3, 0.5]))
def test_a_change_of_capacity_is_answered_once(seed, slot, factor):
    run = Run(Stream(seed, zipf=0.85)).go(100)
    run.stream.speeds = run.stream.speeds * np.where(np.arange(SLOTS) == slot, factor, 1.0)
    assert run.stream.imbalance(run.epoch.routes["count"]) > 0.2
    run.go(100)
    answers = [batch for batch, _ in run.reroutes if batch > 100]
    assert 1 <= len(answers) <= 2
    assert answers[0] <= 130
    assert run.stream.imbalance(run.epoch.routes["count"]) <= 0.08 + 0.05


def test_speeds_are_the_new_ones_two_batches_after_a_change():
    """Routers pour by them before anything is judged."""
    run = Run(Stream(5, zipf=0.3, speeds=np.ones(SLOTS)), mode="Off").go(20)
    run.stream.speeds = np.array([0.5, 1.0, 1.0, 1.0])
    model = run.go(2).controller.model(run.facts)
    assert model is not None
    assert model.speeds / model.speeds[1] == pytest.approx([0.5, 1, 1, 1], rel=0.1)


def test_source_rows_are_divided_by_measured_speed():
    run = Run(Stream(1)).go(40)
    shares = np.array(run.epoch.source_shares)
    rates = BASE["source"] * run.stream.speeds
    assert shares.sum() == pytest.approx(1)
    assert imbalance(run.stream.rows * shares, rates, np.full(SLOTS, 0.05)) < 0.1


def test_a_source_that_spark_places_is_left_alone():
    run = Run(Stream(1), replace(FACTS, source_by_share=False)).go(40)
    assert run.reroutes
    assert run.epoch.source_shares == ()


def test_a_source_that_is_read_ahead_is_left_alone_until_operators_wait_for_it():
    run = Run(Stream(1, read_ahead=True, source_rate=1e7)).go(40)
    assert run.reroutes
    assert run.epoch.source_shares == ()
    run.stream.source_rate = 2e5
    run.go(40)
    assert np.argmin(run.epoch.source_shares) == 3


def test_operators_without_a_planner_are_left_alone():
    run = Run(Stream(2, operators=("count", "top"))).go(60)
    first = run.stream.first_epoch()
    assert run.epoch.routes["count"].table != first.routes["count"].table
    assert run.epoch.routes["top"] == first.routes["top"]


def test_choosers_are_given_capacities():
    run = Run(Stream(3, policy="shuffle"), TopologyFacts((1.0,) * SLOTS, choosers=frozenset({"count"}))).go(60)
    assert run.stream.imbalance(run.epoch.routes["count"]) < 0.1
    assert 1 <= len(run.reroutes) <= 2


def test_the_gain_predicted_is_the_gain_measured():
    run = Run(Stream(4)).go(60)
    first = run.controller.outcomes[0]
    assert first.epoch == 2
    assert first.measured_gain_seconds == pytest.approx(first.predicted_gain_seconds, rel=0.25)
    _, decision = run.reroutes[0]
    assert decision.predicted_gain_seconds == first.predicted_gain_seconds
    assert decision.plans["count"].moved_bytes > 0
    assert decision.reason.cause is EpochCause.REBALANCED
    assert max(stage.imbalance for stage in decision.reason.stages) > Rebalance().tolerance


class SlowElsewhere(Stream):
    """Batches take as long as they take for reasons that no routing changes."""

    def batch(self, epoch: Epoch) -> tuple[float, list[LoadReport], list[SourceReport]]:
        return (1.0, *super().batch(epoch)[1:])


def test_after_a_rerouting_that_gained_nothing_it_waits_longer():
    run = Run(SlowElsewhere(12)).go(40)
    assert run.controller.outcomes[0].measured_gain_seconds == pytest.approx(0, abs=1e-3)
    assert max(hold.due_seconds for _, hold in run.held(HoldReason.NOT_DUE)) > Rebalance().interval_seconds


def test_recommend_says_what_it_would_do_and_leaves_it():
    run = Run(Stream(5), mode="Recommend").go(60)
    recommended = [decision for _, decision in run.decisions if isinstance(decision, Recommend)]
    assert recommended
    assert not run.reroutes
    assert recommended[0].epoch.number == 2
    assert run.epoch.number == 1


def test_off_is_off():
    run = Run(Stream(5), mode="Off").go(40)
    assert {decision for _, decision in run.decisions} == {Hold(HoldReason.OFF)}


def test_state_that_takes_longer_to_move_than_the_move_saves_stays():
    facts = replace(FACTS, source_by_share=False)
    light, heavy = (Run(Stream(6, bytes_per_key=size), facts).go(40) for size in (48, 50_000_000))
    assert light.reroutes
    assert not heavy.reroutes
    assert heavy.held(HoldReason.NOT_WORTH_COST)
    assert all(hold.cost_seconds >= hold.gain_seconds * hold.batches for _, hold in heavy.held(HoldReason.NOT_WORTH_COST))


def test_after_a_rerouting_a_small_imbalance_must_last():
    run = Run(Stream(11, zipf=0.6, noise=0.01)).go(60)
    settled = len(run.reroutes)
    run.stream.speeds = run.stream.speeds * np.array([0.86, 1.0, 1.0, 1.0])
    assert 0.08 < run.stream.imbalance(run.epoch.routes["count"]) < 0.12
    while len(run.reroutes) == settled and run.batches < 120:
        run.go(1)
    answered, _ = run.reroutes[settled]
    waited = [batch for batch, _ in run.held(HoldReason.MAY_NOT_LAST) if batch > 60]
    assert waited
    assert max(waited) < answered


def test_key_too_heavy_for_any_instance_is_not_chased():
    run = Run(Stream(7, zipf=2.5, speeds=np.ones(SLOTS))).go(200)
    assert run.stream.imbalance(run.epoch.routes["count"]) > 0.5
    assert len(run.reroutes) <= 2
    assert run.held(HoldReason.NO_BETTER_PLAN)


def test_an_epoch_is_not_judged_before_it_has_been_seen():
    run = Run(Stream(8), interval_seconds=0.5)
    before = run.stream.imbalance(run.epoch.routes["count"])
    run.go(60)
    batches = [batch for batch, _ in run.reroutes]
    assert before > GLARING
    assert batches[0] == FEW_BATCHES + 1  # the first batch of an epoch is not judged by
    assert all(later - earlier > MIN_BATCHES for earlier, later in pairwise(batches))


class Heated(Stream):
    """One of its rare keys becomes hot."""

    def heat(self, share: float) -> None:
        self.shares *= 1 - share
        self.shares[-1] += share


@pytest.mark.parametrize("speeds", [np.ones(SLOTS), np.array([1.0, 1.0, 1.0, 0.3])])
def test_a_key_that_becomes_hot_is_answered_though_no_judgement_is_due(speeds):
    run = Run(Heated(21, zipf=0.8, speeds=speeds), interval_seconds=100.0).go(120)
    settled = len(run.reroutes)
    run.stream.heat(0.2)
    run.go(FEW_BATCHES)
    (answered, decision), *others = run.reroutes[settled:]
    assert not others
    assert answered == 120 + FEW_BATCHES
    assert decision.plans["count"].predicted_seconds_after < 0.9 * decision.plans["count"].predicted_seconds_before
    assert run.stream.imbalance(run.epoch.routes["count"]) < 0.2


def test_batches_that_are_worse_by_noise_are_not_answered_out_of_turn():
    run = Run(Stream(22, zipf=0.3, speeds=np.ones(SLOTS)), interval_seconds=1e6, tolerance=0.08)
    judged = 0
    for _ in range(300):
        run.stream.speeds = run.stream.rng.uniform(0.7, 1.0, SLOTS)
        run.go(1)
        _, decision = run.decisions[-1]
        judged += not (isinstance(decision, Hold) and decision.reason is HoldReason.NOT_DUE)
    assert judged <= 1
    assert not run.reroutes


def test_two_bad_batches_are_judged_once():
    run = Run(Stream(23, zipf=0.3, speeds=np.ones(SLOTS)), interval_seconds=1e6).go(20)
    run.stream.speeds = np.array([0.4, 1.0, 1.0, 1.0])
    run.go(FEW_BATCHES + MIN_BATCHES)
    reasons = [decision.reason if isinstance(decision, Hold) else None for _, decision in run.decisions[20:]]
    assert reasons.count(HoldReason.NOT_DUE) == len(reasons) - 1
    assert reasons[FEW_BATCHES - 1] is not HoldReason.NOT_DUE


def test_an_imbalance_that_is_not_glaring_waits_for_a_median():
    run = Run(Stream(8, zipf=0.6, speeds=np.array([1.0, 1.0, 1.0, 0.8])), interval_seconds=0.5)
    assert 0.08 < run.stream.imbalance(run.epoch.routes["count"]) < GLARING
    run.go(60)
    assert run.reroutes[0][0] > MIN_BATCHES


def test_while_a_published_epoch_is_not_active_nothing_else_is_proposed():
    run = Run(Stream(9))
    while not run.reroutes:
        run.go(1)
    stale = run.stream.first_epoch()
    for _ in range(20):
        seconds, reports, sources = run.stream.batch(stale)
        run.time += seconds
        run.batches += 1
        run.controller.observe(CommittedBatch(run.batches, stale.number, seconds, reports, sources).observed())
        decision = run.controller.step(run.time, stale, run.facts)
        assert decision == Hold(HoldReason.NOT_ACTIVE, epoch=run.epoch.number)


def test_every_interval_without_a_change_says_why():
    run = Run(Stream(10)).go(120)
    assert run.held(HoldReason.BALANCED)
    assert run.held(HoldReason.NOT_DUE)
    assert all(decision.reason for _, decision in run.decisions)
