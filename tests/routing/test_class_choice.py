"""The autoscaler of several classes: enough capacity, the most for its price, and never to and fro."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopology.contract.reason_text import describe
from streamtopology.contract.reasons import ChoiceReason, ScalingReason
from streamtopology.routing.control.autoscaler import ClassLoad, Recommendation, ScalingInput, decide
from streamtopology.routing.control.class_choice import (
    Asked,
    ClassDecision,
    ClassHistory,
    ScalableClass,
    choose,
    decide_classes,
    options_of,
)
from streamtopology.topology import Autoscale, ExecutorClass, ScaledClass

WINDOW = 300.0
STEP = 15.0
SETTINGS = Autoscale("", "Operator", target_utilisation=0.5, stabilisation_seconds=WINDOW)
# The window has passed with nothing that would have asked for more.
LONG_AGO: ClassHistory = (Asked(-1e6, 0.0),)

LARGE = ScalableClass("large", 2, 1, 8, 1.0, 1.0)
SMALL = ScalableClass("small", 0, 0, 8, 0.25, 0.3)
SPOT = ScalableClass("spot", 0, 0, 3, 1.0, 0.5)


def _options(draw: st.DrawFn, most: int) -> list[ScalableClass]:
    options: list[ScalableClass] = []
    for index in range(draw(st.integers(1, 3))):
        fewest, wanted, top = sorted(draw(st.tuples(*[st.integers(0, most)] * 3)))
        top, fewest = max(top, 1), max(fewest, 1) if not index else fewest
        wanted = max(wanted, fewest)
        capacity, price = draw(st.sampled_from([0.25, 0.3, 0.5, 1.0, 1.7])), draw(st.sampled_from([0.1, 0.4, 1.0, 1.3, 2.0]))
        options.append(ScalableClass(f"class{index}", wanted, fewest, max(top, wanted), capacity, price))
    return options


_small_cases = st.composite(_options)(4)
_cases = st.composite(_options)(30)
_loads = st.floats(0, 40)


def capacity(options: Sequence[ScalableClass], counts: Mapping[str, int]) -> float:
    return sum(counts[option.name] * option.capacity for option in options)


def price(options: Sequence[ScalableClass], counts: Mapping[str, int]) -> float:
    return sum(counts[option.name] * option.price for option in options)


def present(options: Sequence[ScalableClass]) -> dict[str, int]:
    return {option.name: option.wanted for option in options}


@pytest.mark.parametrize(
    ("needed", "chosen", "reason", "name"),
    [
        (2.0, {}, None, ""),
        (3.0, {"spot": 1}, ChoiceReason.MOST_FOR_PRICE, "spot"),
        (2.21, {"small": 1}, ChoiceReason.CHEAPEST_ENOUGH, "small"),
        (5.2, {"spot": 3, "small": 1}, ChoiceReason.MOST_FOR_PRICE, "spot"),
        (8.0, {"spot": 3, "large": 5}, ChoiceReason.MOST_FOR_PRICE, "spot"),
        (1.0, {"large": 1}, ChoiceReason.CAN_BE_MISSED, "large"),
        (0.0, {"large": 1}, ChoiceReason.CAN_BE_MISSED, "large"),
        (99.0, {"spot": 3, "large": 8, "small": 8}, ChoiceReason.MOST_FOR_PRICE, "spot"),
    ],
)
def test_executors_are_added_by_what_they_bring_for_their_price(
    needed: float, chosen: dict[str, int], reason: ChoiceReason | None, name: str
) -> None:
    options = [LARGE, SMALL, SPOT]
    assert choose(options, needed) == present(options) | chosen
    choice = decision(options, needed).reason.choice
    assert choice is not None
    assert (choice.reason, choice.name) == (reason, name)


def decision(
    options: Sequence[ScalableClass], needed: float, at: float = 0.0, history: ClassHistory = LONG_AGO, window: float = WINDOW
) -> ClassDecision:
    """The decision where all executors run that are wanted, and so much capacity is needed."""
    running = capacity(options, present(options))
    busy = needed * SETTINGS.target_utilisation / running
    loads = {option.name: ClassLoad(option.wanted, option.wanted * busy, option.capacity) for option in options}
    seen = ScalingInput(at, sum(option.wanted for option in options), loads, rows_per_second=1000.0)
    return decide_classes(seen, options, replace(SETTINGS, stabilisation_seconds=window), history)


def test_decision_names_class_price_and_reason() -> None:
    more = decision([LARGE, SPOT], 4.0).reason
    assert describe(more) == (
        "2 of class large and 2 of class spot: for its price one of spot brings 2.0 times what one of large does; "
        "busy 100% of the measured capacity of 2 executors, target 50%"
    )
    full = decision([LARGE, replace(SPOT, wanted=3), SMALL], 9.0).reason
    assert "large, since classes that bring more for their price are at maxReplicas; busy 90%" in describe(full)
    assert "one of small is enough, and the cheapest that is; busy" in describe(decision([LARGE, SMALL], 2.24).reason)
    fewer = decision([replace(LARGE, wanted=4), replace(SPOT, wanted=2)], 4.0).reason
    assert describe(fewer).startswith("2 of class large and 2 of class spot: for its price one of spot brings 2.0 times")
    most = decision([LARGE, SPOT], 99.0).reason
    assert describe(most).endswith("more would be needed: each class is held at maxReplicas")
    least = decision([LARGE, replace(SPOT, wanted=2)], 0.0).reason
    assert (least.reason, describe(least)[:31]) == (ScalingReason.AT_MINIMUM, "1 of class large and 0 of class")
    assert decision([LARGE, SPOT], 2.1).reason.reason is ScalingReason.ON_TARGET


def test_price_is_cpu_unless_every_scaled_class_has_a_cost() -> None:
    scaled = replace(SETTINGS, classes=(ScaledClass("spot", 0, 3), ScaledClass("large", 1, 8)))
    loads = {"large": ClassLoad(2, 1.0, 0.8), "spot": ClassLoad(0, 0.0, 0.5)}
    executors = [ExecutorClass("large", 2, 1.0, cost_per_hour=0.9), ExecutorClass("spot", 9, 0.5, cost_per_hour=0.1)]
    options, priced = options_of(scaled, executors, loads)
    assert priced
    assert options == (ScalableClass("spot", 3, 0, 3, 0.5, 0.1), ScalableClass("large", 2, 1, 8, 0.8, 0.9))
    options, priced = options_of(scaled, [executors[0], replace(executors[1], cost_per_hour=None)], loads)
    assert not priced
    assert [option.price for option in options] == [0.5, 1.0]


def test_nothing_measured_keeps_the_executors() -> None:
    kept = decide_classes(ScalingInput(0.0, 2, {}), [LARGE, SPOT], SETTINGS)
    assert (kept.replicas, kept.reason.reason) == ({"large": 2, "spot": 0}, ScalingReason.NOT_MEASURED)


@settings(max_examples=300)
@given(_cases, _loads)
def test_bounds_hold_and_capacity_is_enough_where_they_allow_it(options: list[ScalableClass], needed: float) -> None:
    counts = choose(options, needed)
    assert all(option.fewest <= counts[option.name] <= option.most for option in options)
    most = capacity(options, {option.name: option.most for option in options})
    assert capacity(options, counts) >= min(needed, most) - 1e-4
    spare = capacity(options, counts) - needed
    if needed < capacity(options, present(options)):
        assert all(counts[option.name] <= option.wanted for option in options)
        assert all(counts[option.name] == option.fewest or option.capacity > spare - 1e-4 for option in options)
    else:
        assert all(counts[option.name] >= option.wanted for option in options)


@settings(max_examples=300)
@given(_cases, st.tuples(_loads, _loads).map(sorted))
def test_more_load_never_brings_less_capacity_nor_costs_less(options: list[ScalableClass], needed: list[float]) -> None:
    less, more = (choose(options, load) for load in needed)
    assert capacity(options, less) <= capacity(options, more) + 1e-4
    assert price(options, less) <= price(options, more) + 1e-4


def every_answer(options: Sequence[ScalableClass], needed: float) -> list[dict[str, int]]:
    """All that have enough capacity within the bounds, and only add executors or only take some away."""
    adds = needed > capacity(options, present(options))
    ranges = [range(option.wanted, option.most + 1) if adds else range(option.fewest, option.wanted + 1) for option in options]
    answers = (dict(zip(present(options), counts, strict=True)) for counts in itertools.product(*ranges))
    return [counts for counts in answers if capacity(options, counts) >= needed - 1e-9]


@settings(max_examples=300, deadline=None)
@given(_small_cases, st.floats(0, 12))
def test_choice_is_no_dearer_than_the_cheapest_but_for_one_executor(options: list[ScalableClass], needed: float) -> None:
    """Against all answers, and those with executors of one class among them; exactly so if these are enough."""
    answers = every_answer(options, needed)
    if not answers:
        return
    cheapest = min(price(options, counts) for counts in answers)
    found = price(options, choose(options, needed))
    assert cheapest - 1e-4 <= found < cheapest + max(option.price for option in options) + 1e-4


@settings(max_examples=200)
@given(st.integers(1, 20), st.floats(0, 1), st.floats(0.1, 2))
def test_list_of_one_class_is_decided_as_that_class_alone(executors: int, share: float, one_brings: float) -> None:
    alone = replace(SETTINGS, executor_class="large", min_replicas=1, max_replicas=20)
    seen = ScalingInput(0.0, executors, {"large": ClassLoad(executors, executors * share, one_brings)}, 1000.0)
    expected = decide(seen, alone, (Recommendation(-1e6, 1),))
    found = decide_classes(seen, [ScalableClass("large", executors, 1, 20, one_brings, 1.0)], alone, LONG_AGO)
    assert found.replicas == {"large": expected.replicas}
    assert found.reason.choice is not None
    assert found.reason.choice.reason is None


@settings(max_examples=200)
@given(_cases, st.floats(0.1, 40))
def test_same_load_is_followed_once_up_and_once_down(options: list[ScalableClass], needed: float) -> None:
    """Added executors stay; others may leave that they replace. Then nothing changes any more."""
    course = [present(options)]
    history: ClassHistory = LONG_AGO
    for step in range(2 * math.ceil(WINDOW / STEP) + 4):
        current = [replace(option, wanted=course[-1][option.name]) for option in options]
        decided = decision(current, needed, step * STEP, history)
        course.append(dict(decided.replicas))
        history = decided.history
    changes = [(before, after) for before, after in itertools.pairwise(course) if before != after]
    assert len(changes) <= 2
    grown = [all(after[name] >= count for name, count in before.items()) for before, after in changes]
    assert grown in ([], [True], [False], [True, False])
    if grown == [True, False]:
        last = changes[0][1]
        added = {name for name, count in changes[0][0].items() if last[name] > count}
        assert any(changes[1][1][name] > changes[0][0][name] for name in added), "not all undone"


def test_executors_go_only_when_the_whole_window_allows_it() -> None:
    options = [replace(LARGE, wanted=4), replace(SPOT, wanted=2)]
    first = decision(options, 3.0, history=())
    assert (first.replicas, first.reason.fewer_in_seconds) == (present(options), WINDOW)
    busier = decision(options, 4.1, at=100.0, history=first.history)
    assert busier.replicas == present(options)
    later = decision(options, 3.0, at=WINDOW, history=busier.history)
    assert (later.replicas, later.reason.held) == ({"large": 3, "spot": 2}, 5)
    assert "more were needed within the last 300 s" in describe(later.reason)
    last = decision(options, 3.0, at=WINDOW + 101.0, history=later.history)
    assert last.replicas == {"large": 1, "spot": 2}
    assert last.reason.held is None
