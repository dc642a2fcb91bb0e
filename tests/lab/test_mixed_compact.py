"""HLHE and the compact form: against slow references, and what they promise about estimates."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.planning import ANY_SIZE, any_input, loads_after, plan_input, zipf_input

from streamtopology.lab.groupings.compact import Records, hand_out, mixed_compact
from streamtopology.lab.groupings.discretise import discretise, representatives
from streamtopology.lab.groupings.planners import get
from streamtopology.routing.planners import PlanError
from streamtopology.routing.planners.problem import PlanningProblem

DEGREES = [1, 2, 8, 64, 256]


def hlhe(values: list[float], degree: int) -> list[float]:
    """The paper's two steps for values in descending order, one spacing after the other, in units of 1."""
    points = [0.0, *(2.0**e for e in range(degree.bit_length()))]
    while points[-1] < max(values):
        points.append(points[-1] + degree)
    deviation, chosen = 0.0, []
    for x in values:
        lower = max(point for point in points if point <= x)
        upper = min(point for point in points if point >= x)
        chosen.append(upper if deviation > 0 else lower)
        deviation += x - chosen[-1]
    return chosen


def one_group(values: np.ndarray) -> tuple[np.ndarray, int]:
    return np.zeros(len(values), np.int32), 1


def test_the_representatives_of_the_papers_example():
    assert representatives(4, 4).tolist() == [0, 1, 2, 4, 8]
    assert representatives(6, 2).tolist() == [0, 1, 2, 4, 6, 8, 10]
    assert representatives(3, 1).tolist() == [0, 1, 2, 3]


def test_an_example_by_hand():
    """R = 4: 7 is 4, three short; so 6 is 8, one short; so 3 is 4, even; so 3 is 2, one short; the ones are themselves."""
    values = np.array([7, 6, 3, 3, 1, 1.0])
    levels, points = discretise(values, 4, *one_group(values))
    assert points[levels].tolist() == [4, 8, 4, 2, 1, 1]


@settings(max_examples=150)
@given(values=st.lists(st.integers(1, 900), min_size=1, max_size=60), degree=st.sampled_from(DEGREES))
def test_descending_values_are_discretised_as_in_the_paper(values, degree):
    values = np.array([*sorted(values, reverse=True), 1.0])
    levels, points = discretise(values, degree, *one_group(values))
    assert points[levels].tolist() == hlhe(values.tolist(), degree)


@settings(max_examples=150)
@given(
    rows=st.lists(st.tuples(st.just(0.0) | st.floats(0.3, 5000), st.integers(0, 3)), min_size=1, max_size=80),
    degree=st.sampled_from(DEGREES),
)
def test_each_value_takes_a_neighbour_and_each_group_is_off_by_one_spacing_at_most(rows, degree):
    values, groups = np.array([row[0] for row in rows]), np.array([row[1] for row in rows], np.int32)
    levels, points = discretise(values, degree, groups, 4)
    chosen = points[levels]
    unit = values[values > 0].min(initial=np.inf)
    spacing = np.maximum(np.minimum(values, degree * unit), unit if np.isfinite(unit) else 0)
    assert (np.abs(chosen - values) <= spacing * (1 + 1e-9)).all()
    assert (chosen[values == 0] == 0).all()
    for group in range(4):
        mine = groups == group
        assert abs((chosen - values)[mine].sum()) <= spacing[mine].max(initial=0) * (1 + 1e-9)


def test_values_of_any_range_fit_and_are_still_right_in_sum():
    values = 10 ** np.random.default_rng(1).uniform(-12, 3, 5000)
    levels, points = discretise(values, 8, *one_group(values))
    assert len(points) < 1 << 20
    assert points[levels].sum() == pytest.approx(values.sum(), rel=1e-3)


def test_a_degree_that_is_no_power_of_two_is_refused():
    for degree in (0, 3, 1 << 17):
        with pytest.raises(PlanError, match=f"R: {degree} must be a power of two"):
            discretise(np.ones(1), degree, *one_group(np.ones(1)))


# ---- records -------------------------------------------------------------------------------------------------------


@settings(max_examples=80)
@given(given_input=any_input(), degree=st.sampled_from(DEGREES))
def test_records_are_the_keys_counted(given_input, degree):
    problem = PlanningProblem.of(replace(given_input, bucket_loads=np.empty(0), bucket_state=np.empty(0)))
    records = Records.of(problem, degree)
    k = len(given_input.instances)
    assert records.count.sum() == problem.n_keys
    assert np.array_equal(records.count, np.bincount(records.of_key, minlength=len(records.count)))
    assert np.array_equal(records.owner[records.of_key], problem.owner)
    assert np.array_equal(records.home[records.of_key], problem.fixed_home)
    rows = zip(records.owner, records.home, records.load, records.state, strict=True)
    assert max(Counter(rows).values(), default=1) == 1, "records that are alike are one"
    spacing = max(problem.loads.max(initial=0), 0)
    assert np.abs(records.estimated_totals(k) - problem.totals(problem.owner)).max() <= spacing + 1e-9


@settings(max_examples=100)
@given(
    loads=st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=40),
    k=st.integers(1, 4),
    theta=st.sampled_from([0.0, 0.08, 0.3]),
    seed=st.integers(0, 1000),
)
def test_alike_keys_are_planned_as_if_one_by_one(loads, k, theta, seed):
    """Loads and state that are representatives: balance is what it is over single keys, whichever of them move."""
    rng = np.random.default_rng(seed)
    owners, homes = rng.integers(0, k, (2, len(loads))).tolist()
    given_input = plan_input(loads, owners, k, homes=homes, tolerance=theta, max_entries=ANY_SIZE)
    compact, exact = mixed_compact(given_input, degree=8), get("mixed")(given_input)
    assert np.array_equal(loads_after(given_input, compact.table), loads_after(given_input, exact.table))


def test_overloaded_instance_hands_out_the_heavier_key_of_a_record():
    """Loads 10 and 6 are 8 each in their record, one of them moves from 0 to 1; 0 has 3 more than planned."""
    owner, deviation = np.zeros(2, np.int32), np.array([3.0, 0.0])
    one = np.ones(1, np.int64)
    hand_out(
        members=np.arange(2),
        loads=np.array([10.0, 6.0]),
        of_key=np.zeros(2, np.int32),
        estimates=np.array([8.0]),
        starts=np.array([0, 1]),
        targets=np.ones(1, np.int32),
        keys=one.copy(),
        staying=one.copy(),
        deviation=deviation,
        owner=owner,
    )
    assert owner.tolist() == [1, 0]
    assert deviation.tolist() == [1, 2]


def test_keys_of_a_record_are_chosen_so_that_real_loads_come_out_as_planned():
    """With R = 256 a record's keys differ by up to 256 units: moving any of them would miss the tolerance by far."""
    above = [mixed_compact(zipf_input(seed, m=20_000), 256).imbalance_after - 0.08 for seed in range(4)]
    assert max(above) <= 0.002


def test_a_large_operator_is_balanced_within_a_bounded_table_for_any_degree():
    for degree in DEGREES:
        given_input = zipf_input(3, m=20_000, max_entries=600)
        exact, compact = get("mixed")(given_input), mixed_compact(given_input, degree)
        assert exact.theta_reached
        assert compact.imbalance_after <= 0.08 + 0.01
        assert len(compact.table.entry_hashes) <= 600
        assert compact.moved_bytes < 2 * exact.moved_bytes
