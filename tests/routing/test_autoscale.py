"""The built-in autoscaler: enough executors for the measured work, within the bounds, and never to and fro."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopology.contract.reason_text import describe
from streamtopology.contract.reasons import ScalingReason
from streamtopology.routing.control.autoscaler import (
    CATCH_UP_SECONDS,
    LAG_SECONDS,
    BatchLoad,
    ClassLoad,
    History,
    Recommendation,
    ScalingInput,
    decide,
    loads,
)
from streamtopology.routing.control.timings import StageTiming, Timings
from streamtopology.topology import Autoscale

WINDOW = 300.0
STEP = 15.0
SETTINGS = Autoscale("large", "Operator", 1, 1, 20, 0.7, WINDOW)
# The window has passed with nothing that would have asked for more.
LONG_AGO: History = (Recommendation(-1e6, 1),)

_settings = st.builds(
    lambda bounds, target, window: replace(
        SETTINGS, min_replicas=bounds[0], max_replicas=bounds[1], target_utilisation=target, stabilisation_seconds=window
    ),
    st.tuples(st.integers(1, 30), st.integers(1, 30)).map(sorted),
    st.floats(0.2, 1.0),
    st.sampled_from([0.0, 60.0, WINDOW]),
)
_shares = st.floats(0, 1)
_histories = st.lists(st.builds(Recommendation, st.floats(-1000, 0), st.integers(1, 40)), max_size=6).map(
    lambda some: tuple(sorted(some, key=lambda one: one.at))
)


def seen(
    executors: int,
    share: float,
    at: float = 0.0,
    wanted: int | None = None,
    capacity: float = 1.0,
    others: ClassLoad | None = None,
) -> ScalingInput:
    """Executors of the class that are busy for this share of their time, and perhaps those of another class."""
    classes = {"large": ClassLoad(executors, executors * share, capacity)}
    if others:
        classes["small"] = others
    return ScalingInput(at, executors if wanted is None else wanted, classes, rows_per_second=1000.0)


@pytest.mark.parametrize(
    ("given", "replicas", "reason", "needed"),
    [
        (seen(4, 0.70), 4, ScalingReason.ON_TARGET, 0),
        (seen(4, 0.76), 4, ScalingReason.ON_TARGET, 0),
        (seen(4, 0.95), 6, ScalingReason.LOAD, 6),
        (seen(4, 0.30), 2, ScalingReason.LOAD, 2),
        (seen(4, 0.00), 1, ScalingReason.AT_MINIMUM, 0),
        (seen(18, 1.0), 20, ScalingReason.AT_MAXIMUM, 26),
        (ScalingInput(0.0, 3, {}), 3, ScalingReason.NOT_MEASURED, 0),
    ],
)
def test_the_decision_says_why(given: ScalingInput, replicas: int, reason: ScalingReason, needed: int) -> None:
    decision = decide(given, SETTINGS, LONG_AGO)
    assert (decision.replicas, decision.reason.reason, decision.reason.needed) == (replicas, reason, needed)
    assert decision.reason.replicas == replicas
    if reason is not ScalingReason.NOT_MEASURED:
        load = given.classes["large"]
        assert decision.reason.utilisation == pytest.approx(load.busy / load.executors)
        assert (decision.reason.executors, decision.reason.target) == (load.executors, 0.7)


def test_other_classes_do_their_part_by_what_they_were_measured_to_do() -> None:
    """Work of 3.5 large ones needs 5 of them; four small ones of half the capacity stand for two."""
    small = ClassLoad(4, 2.0, 0.5)
    assert decide(seen(4, 2.5 / 4, others=small), SETTINGS, LONG_AGO).replicas == 3
    weaker = replace(small, capacity=0.25, busy=4.0)
    assert decide(seen(4, 2.5 / 4, others=weaker), SETTINGS, LONG_AGO).replicas == 4


def test_an_executor_that_does_less_than_it_declares_counts_for_less() -> None:
    """The same work of the other class asks for twice as many of a class of half the measured capacity."""
    work = ClassLoad(2, 2.0, 4.0)
    assert decide(seen(1, 1.0, capacity=1.0, others=work), SETTINGS, LONG_AGO).replicas == 5
    assert decide(seen(1, 1.0, capacity=0.5, others=work), SETTINGS, LONG_AGO).replicas == 9


def test_lag_is_worked_off_in_the_time_to_catch_up() -> None:
    ordinary = replace(seen(4, 0.7), lag_rows=1000.0 * LAG_SECONDS)
    assert decide(ordinary, SETTINGS, LONG_AGO).replicas == 4
    doubled = replace(seen(4, 0.7), lag_rows=1000.0 * (LAG_SECONDS + CATCH_UP_SECONDS))
    decision = decide(doubled, SETTINGS, LONG_AGO)
    assert decision.replicas == 8
    assert (decision.reason.lag_rows, decision.reason.lag_seconds) == (130_000, 130)


def test_bounds_that_changed_count_at_once() -> None:
    assert decide(seen(4, 0.7), replace(SETTINGS, max_replicas=2)).replicas == 2
    assert decide(seen(4, 0.7), replace(SETTINGS, min_replicas=9)).replicas == 9


@settings(max_examples=300)
@given(_settings, st.integers(0, 40), _shares, st.integers(0, 40), st.floats(0.05, 4), _histories, st.floats(0, 1e6))
def test_the_bounds_hold_whatever_is_seen(
    chosen: Autoscale, executors: int, share: float, wanted: int, capacity: float, history: History, lag: float
) -> None:
    given = replace(seen(executors, share, wanted=wanted, capacity=capacity), lag_rows=lag)
    assert chosen.min_replicas <= decide(given, chosen, history).replicas <= chosen.max_replicas


@settings(max_examples=300)
@given(
    _settings,
    st.integers(1, 20),
    st.tuples(_shares, _shares).map(sorted),
    _histories,
    st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)).map(sorted),
)
def test_more_load_never_asks_for_fewer(
    chosen: Autoscale, executors: int, shares: list[float], history: History, lags: list[float]
) -> None:
    less, more = (decide(seen(executors, share), chosen, history).replicas for share in shares)
    assert less <= more
    behind = (replace(seen(executors, shares[1]), lag_rows=lag) for lag in lags)
    less, more = (decide(given, chosen, history).replicas for given in behind)
    assert less <= more


def _followed(work: list[float], start: int, chosen: Autoscale) -> list[int]:
    """Executors after each step, when each step brings so much work (in executors) and a decision is carried out at once."""
    executors, history, course = start, (), []
    for step, amount in enumerate(work):
        decision = decide(seen(executors, min(amount / executors, 1.0), at=step * STEP), chosen, history)
        executors, history = decision.replicas, decision.history
        course.append(executors)
    return course


@settings(max_examples=150)
@given(_settings, st.floats(0.01, 30), st.integers(1, 30), st.lists(st.floats(-0.04, 0.04), min_size=60, max_size=60))
def test_constant_load_is_followed_once_and_then_left_alone(
    chosen: Autoscale, work: float, start: int, noise: list[float]
) -> None:
    chosen = replace(chosen, target_utilisation=min(chosen.target_utilisation, 0.9))  # noise on 1.0 cannot be seen
    exact = _followed([work] * 120, start, chosen)
    enough = chosen.within(math.ceil(work / chosen.target_utilisation - 1e-6))
    assert exact[-1] == exact[-30]
    assert abs(exact[-1] - enough) <= math.ceil(0.1 * enough) + 1
    changes = [(after > before) - (after < before) for before, after in pairwise(exact) if after != before]
    assert changes in ([1] * len(changes), [-1] * len(changes))  # never to and fro
    noisy = _followed(
        [work * (1 + noise[step % 60]) for step in range(240)], start, replace(chosen, stabilisation_seconds=900.0)
    )
    assert len(set(noisy[-60:])) == 1


@settings(max_examples=100)
@given(st.lists(st.floats(0, 14), min_size=1, max_size=80), st.integers(1, 20))
def test_executors_are_taken_away_only_when_the_whole_window_allows_it(work: list[float], start: int) -> None:
    """Against a slow reference: at each step, what every input of the window would have asked for by itself."""
    executors, history, asked = start, (), []
    for step, amount in enumerate(work):
        at = step * STEP
        given = seen(executors, min(amount / executors, 1.0), at=at)
        alone = decide(given, replace(SETTINGS, stabilisation_seconds=0.0), LONG_AGO).replicas
        asked.append((at, alone))
        decision = decide(given, SETTINGS, history)
        in_window = [replicas for when, replicas in asked if when > at - WINDOW]
        if alone >= executors:
            assert decision.replicas == alone
        elif at < WINDOW:
            assert decision.replicas == executors
        else:
            assert decision.replicas == min(executors, max(in_window))
        assert len(decision.history) <= WINDOW / STEP + 2
        executors, history = decision.replicas, decision.history


def _batch(at: float, busy: dict[int, float], rows_per_second: dict[int, float]) -> BatchLoad:
    timings = tuple(
        StageTiming("tail", slot, int(seconds * rows_per_second[slot]), seconds, seconds + 0.01)
        for slot, seconds in busy.items()
    )
    return BatchLoad(at, 1.0, Timings.of(timings))


def test_load_is_busy_time_weighed_by_measured_capacity() -> None:
    """The second slot declares the same CPU and does a quarter of the rows; both were busy for half the time."""
    rates = {0: 20_000.0, 1: 5_000.0, 2: 20_000.0}
    batches = [_batch(10.0 + 2 * index, {0: 1.0, 1: 1.0, 2: 0.5}, rates) for index in range(5)]
    seen_loads = loads(batches, ("large", "large", "small"), (1.0, 1.0, 1.0), until=19.0)
    large, small = seen_loads["large"], seen_loads["small"]
    assert (large.executors, small.executors) == (2, 1)
    assert large.busy == pytest.approx(2 * 0.5)  # 5 s of the 10 s from 9.0 to 19.0
    assert small.busy == pytest.approx(0.25)
    assert large.capacity / small.capacity == pytest.approx((1 + 0.25) / 2, rel=0.01)
    idle = loads(batches, ("large", "large", "small"), (1.0, 1.0, 1.0), until=59.0)
    assert idle["large"].busy == pytest.approx(2 * 0.1)
    assert loads([], ("large",), (1.0,), until=5.0) == {}


@pytest.mark.parametrize(
    ("given", "fewest", "replicas", "for_state"),
    [
        (replace(seen(4, 0.70), crowded=0.65), 1, 4, False),
        (replace(seen(4, 0.70), crowded=0.85), 1, 5, True),
        (replace(seen(4, 0.30), crowded=0.60), 1, 4, True),
        (replace(seen(4, 0.95), crowded=0.85), 1, 6, False),
        (replace(seen(4, 0.00), crowded=0.60), 1, 4, True),
        (replace(seen(4, 0.00), crowded=0.60), 0, 0, False),
    ],
    ids=["as the load says", "one more", "none can be missed", "the load needs more", "idle, but there", "asleep"],
)
def test_executors_are_enough_for_the_state_too(given: ScalingInput, fewest: int, replicas: int, for_state: bool) -> None:
    decision = decide(given, replace(SETTINGS, min_replicas=fewest), LONG_AGO)
    assert decision.replicas == replicas
    assert ("of the room that their memory has for it" in describe(decision.reason)) == for_state


def test_slots_that_are_gone_count_as_no_executors() -> None:
    timings = Timings.of([StageTiming("count", slot, 1000, 0.5, 0.6) for slot in (0, 2)])
    found = loads([BatchLoad(10.0, 1.0, timings)], ["large", "", "large", ""], [1.0] * 4, 10.0)
    assert found["large"].executors == 2
    assert found.keys() == {"large"}
