"""Re-routings under trial: a loss is taken back once, and predictions count by how the ones before them did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from support.observed import Stream
from support.rerouted import Run

from streamtopology.contract.reason_text import describe
from streamtopology.contract.reasons import EpochCause, EpochReason, Hold, HoldReason, RemedyKind, StageReason
from streamtopology.routing.control.decisions import Reroute
from streamtopology.routing.control.observed import ObservedBatch
from streamtopology.routing.control.slot_model import estimate
from streamtopology.routing.control.stages import Remedy
from streamtopology.routing.control.timings import StageTiming, Timings
from streamtopology.routing.control.trials import LEAST_TRUST, Trial, Trials
from streamtopology.routing.control.weighing import Scales, Worthwhile, contradicted
from streamtopology.routing.control.window import Window, WindowBatch
from streamtopology.routing.epochs.epoch import Epoch, Route
from streamtopology.routing.planners.plan import Plan
from streamtopology.routing.table.table import RoutingTable

FORMER = Epoch(1, {}, (), EpochReason(EpochCause.FIRST))
TABLE = RoutingTable.uniform((0, 1))


def batch(
    number: int, epoch: int, seconds: float, rows: int = 1000, read_ahead: bool = False, dearer: Sequence[float] = (1.0, 1.0)
) -> WindowBatch:
    """`dearer`: by how much on each slot a row takes longer than usual."""
    busy = [0.2 * each * rows / 1000 for each in dearer]
    timings = Timings.of([StageTiming("count", slot, rows // 2, each, each) for slot, each in enumerate(busy)])
    return WindowBatch.of(ObservedBatch(number, epoch, seconds, timings, rows, read_ahead=read_ahead), float(number), 0.08)


def tried(
    *after: float,
    predicted: float = 0.5,
    before: float = 1.0,
    kind: RemedyKind = RemedyKind.TABLE,
    dearer: Sequence[float] = (1.0, 1.0),
    former: Epoch = FORMER,
) -> Trials:
    """A re-routing of batches of `before` seconds, followed by batches that took these."""
    window, trials = Window(), Trials()
    for number in range(4):
        window.add(batch(number, 1, before))
    reason = EpochReason(EpochCause.REBALANCED, (StageReason(kind, "count", 0.3),))
    plans = {name: Plan(TABLE, 0.0, 0.0, before, before - predicted, 0.3, 0.0, True, "any") for name in former.routes}
    decision = Reroute(replace(former, number=2, reason=reason), plans, predicted, 0.3)
    trials.begin(decision, 0.0, Trial.of(decision, former, window.recent(60.0)))
    for number, seconds in enumerate(after, 4):
        window.add(batch(number, 2, seconds, dearer=dearer))
        trials.measure(window)
    return trials


def test_loss_is_taken_back_once():
    trials = tried(1.2, 1.2, 1.2, 1.2)
    decision = trials.take_back(replace(FORMER, number=2))
    assert decision is not None
    assert decision.epoch.number == 3
    assert decision.epoch.routes == FORMER.routes
    assert decision.predicted_gain_seconds == pytest.approx(0.2)
    assert decision.reason.cause is EpochCause.TAKEN_BACK
    assert describe(decision.reason) == "routed as before epoch 2, under which batches took 200 ms longer"
    assert trials.take_back(replace(FORMER, number=2)) is None


@pytest.mark.parametrize("after", [(0.5,) * 4, (1.0,) * 4, (1.01,) * 4, (0.7, 1.4, 0.7, 1.4), (1.2, 1.2, 1.2)])
def test_gain_noise_or_too_few_batches_take_nothing_back(after):
    assert tried(*after).take_back(replace(FORMER, number=2)) is None


@pytest.mark.parametrize(("policy", "is_taken_back"), [("locality", False), ("auto", True)])
def test_only_locality_that_was_asked_for_stays_though_it_loses(policy: str, is_taken_back: bool) -> None:
    """`auto` brings keys near each other to save seconds, so that a loss shows that it was wrong."""
    former = replace(FORMER, routes={"count": Route(policy, TABLE, (0, 1))})
    trials = tried(*(1.2,) * 4, kind=RemedyKind.LOCALITY, former=former)
    assert (trials.take_back(replace(former, number=2)) is not None) == is_taken_back


def test_an_epoch_that_does_not_run_yet_is_awaited_for_a_while():
    for trial in (None, Trial(Reroute(replace(FORMER, number=2), {}, 0.5, 0.3), FORMER, (batch(0, 1, 1.0),))):
        trials = Trials()
        trials.begin(Reroute(replace(FORMER, number=2), {}, 0.5, 0.3), 100.0, trial)
        assert trials.awaited(1, 159.0, 60.0) == 2
        assert trials.awaited(2, 159.5, 60.0) is None
        assert trials.is_pending == (trial is not None)
        trials.begin(Reroute(replace(FORMER, number=3), {}, 0.5, 0.3), 200.0, trial)
        assert trials.awaited(2, 261.0, 60.0) is None
        assert not trials.is_pending


@pytest.mark.parametrize(
    ("dearer", "lost"), [((10.0, 10.0), False), ((1.1, 1.1), True), ((10.0, 1.0), True), ((10.0, 0.1), True)]
)
def test_rows_that_became_dearer_everywhere_are_no_loss_of_the_rerouting(dearer, lost):
    trials = tried(*(8.0,) * 4, dearer=dearer)
    assert (trials.take_back(replace(FORMER, number=2)) is not None) == lost
    assert (trials.outcomes[-1].measured_gain_seconds > 0) == (not lost)


def test_a_loss_under_dearer_rows_is_one_beyond_them():
    trials = tried(*(11.0,) * 4, dearer=(10.0, 10.0))
    (outcome,) = trials.outcomes
    assert outcome.measured_gain_seconds == pytest.approx(-1.0)
    assert outcome.batch_seconds_before == pytest.approx(10.0)


def test_plain_loss_is_seen_in_two_batches():
    assert tried(1.6, 1.6).take_back(replace(FORMER, number=2)) is not None
    assert tried(1.6, 1.4).take_back(replace(FORMER, number=2)) is None


def test_another_epoch_since_then_is_not_undone():
    assert tried(2.0, 2.0).take_back(replace(FORMER, number=3)) is None


def test_batches_without_rows_measure_nothing():
    window = Window()
    window.add(batch(0, 1, 1.0, rows=0))
    assert Trial.of(Reroute(FORMER, {}, 0.5, 0.3), FORMER, window.recent(60.0)) is None
    assert not tried().outcomes


def test_prediction_off_by_a_third_halves_trust():
    assert tried(*(0.5,) * 4).trust == 1.0
    assert tried(*(0.65,) * 4).trust == 1.0  # 0.35 of 0.5 predicted
    assert tried(*(0.7,) * 4).trust == 0.5  # 0.3 of 0.5


def test_gain_beyond_the_prediction_is_no_reason_to_doubt_the_next() -> None:
    """The first batches of a run, which nothing divides yet, make the first re-routing seem better than it is."""
    trials = tried(*(0.1,) * 4)
    assert trials.outcomes[-1].measured_gain_seconds == pytest.approx(0.9)
    assert trials.trust == 1.0


def test_trust_stays_above_zero_and_comes_back():
    trials = tried()
    for _ in range(9):
        trials.trust = max(trials.trust / 2, LEAST_TRUST)
    assert trials.trust == LEAST_TRUST
    trials.regain_trust()
    assert trials.trust == pytest.approx(0.325)


def remedy(before: float, gain: float) -> Remedy:
    return Remedy(1.0, before, gain, 0.04, 0.0, StageReason(RemedyKind.TABLE, "count", 1.0))


def test_predicted_gain_counts_by_trust():
    judged = {"count": remedy(1.0, 0.1)}
    assert not isinstance(Scales().weigh(judged, 0.08, 1.0, 60.0, 1.0, {}), Hold)
    doubted = Scales().weigh(judged, 0.08, 1.0, 60.0, 0.3, {})
    assert isinstance(doubted, Hold)
    assert doubted.reason is HoldReason.NO_BETTER_PLAN
    assert describe(doubted).endswith("better, as far as predictions are trusted: the last ones did not hold")
    assert describe(replace(doubted, trust=1.0)).endswith("no plan is noticeably better")


def test_shares_of_an_uncertain_gain_come_with_a_switch_that_is_made_anyway():
    uncertain = replace(remedy(0.35, 0.13), noise_seconds=0.16, shares=(0.5, 0.5))
    alone = Scales().weigh({"(source)": uncertain}, 0.08, 1.0, 60.0, 1.0, {})
    assert isinstance(alone, Hold)
    assert alone.reason is HoldReason.NO_BETTER_PLAN
    both = Scales().weigh({"(source)": uncertain, "count": remedy(1.0, 0.3)}, 0.08, 1.0, 60.0, 1.0, {})
    assert isinstance(both, Worthwhile)
    assert both.remedies.keys() == {"(source)", "count"}
    worse = Scales().weigh(
        {"(source)": replace(uncertain, gain_seconds=0.0), "count": remedy(1.0, 0.3)}, 0.08, 1.0, 60.0, 1.0, {}
    )
    assert isinstance(worse, Worthwhile)
    assert worse.remedies.keys() == {"count"}


def test_stage_longer_than_its_batches_contradicts_them():
    judged, batches = {"count": remedy(2.0, 1.0)}, [batch(0, 1, 1.0), batch(1, 1, 1.2)]
    hold = contradicted(judged, batches)
    assert hold == Hold(HoldReason.CONTRADICTED, stages=("count",), stage_seconds=2.0, batch_seconds=1.1)
    assert describe(hold) == "by the reports count took 2.0 s of batches that took 1.1 s: the clocks of executors are wrong"
    assert contradicted({"count": remedy(1.6, 1.0)}, batches) is None


def test_source_read_ahead_may_last_longer_than_a_batch():
    judged = {"(source)": remedy(2.0, 1.0)}
    assert contradicted(judged, [batch(0, 1, 1.0)]) is not None
    assert contradicted(judged, [batch(0, 1, 1.0, read_ahead=True)]) is None


def test_rates_that_jump_are_known_to_be_uncertain():
    def model(*rates: float):
        return estimate([Timings.of([StageTiming("count", 0, 1000, 1000 / rate, 1000 / rate)]) for rate in rates], (1.0,))

    assert model(1000, 1000, 1000, 1000).error_seconds("count", 1.0) == 0
    wild = model(100, 1000, 1000, 10000)
    assert wild.error_seconds("count", 1.0) == pytest.approx(1.0895 * np.log(10) / 2)


class WorseAfterwards(Stream):
    """A stream of which every re-routing makes the batches long."""

    def batch(self, epoch):
        seconds, reports, sources = super().batch(epoch)
        return (seconds if epoch.routes == self.first_epoch().routes and not epoch.source_shares else 4.0), reports, sources


def test_controller_goes_back_to_the_former_routing():
    run = Run(WorseAfterwards(3)).go(20)
    (_, away), (taken_back_at, back) = run.reroutes[:2]
    assert back.epoch.routes == run.stream.first_epoch().routes
    assert back.plans["count"].moved_bytes == away.plans["count"].moved_bytes
    assert back.plans["count"].table == run.stream.first_epoch().routes["count"].table
    assert all(batch > taken_back_at + 4 for batch, _ in run.reroutes[2:])
