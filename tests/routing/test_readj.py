"""Readj against a slow search over all its moves, and its promises."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.planning import loads_after, plan_input, zipf_input

from streamtopology.routing.planners import get
from streamtopology.routing.planners.readj import readj_at


def best_moves(loads: list[float], owners: list[int], homes: list[int], k: int, theta: float, sigma: float) -> list[float]:
    """Loads per instance after Readj, by trying every move and swap on a copy. Equal capacities."""
    at, mean = list(owners), sum(loads) / k
    limit = (1 + theta) * max(mean, *loads) * (1 + 1e-9)

    def totals(place):
        return [sum(load for load, d in zip(loads, place, strict=True) if d == instance) for instance in range(k)]

    for key in sorted(range(len(loads)), key=lambda key: (-loads[key], key)):
        if at[key] != homes[key] and totals(at)[homes[key]] + loads[key] <= limit:
            at[key] = homes[key]
    candidates = [key for key in range(len(loads)) if loads[key] >= sigma * mean and loads[key] > 0]
    while max(totals(at)) > limit:
        options = [at]
        for a in candidates:
            for target in range(k):
                options.append([target if key == a else d for key, d in enumerate(at)])
            for b in candidates:
                options.append([at[b] if key == a else at[a] if key == b else d for key, d in enumerate(at)])
        best = min(options, key=lambda place: sum(total**2 for total in totals(place)))
        if sum(total**2 for total in totals(best)) >= sum(total**2 for total in totals(at)):
            break
        at = best
    return totals(at)


@settings(max_examples=60, deadline=None)
@given(
    loads=st.lists(st.integers(1, 10**6), min_size=2, max_size=7, unique=True),
    k=st.integers(2, 3),
    theta=st.sampled_from([0.0, 0.08]),
    sigma=st.sampled_from([0.0, 0.3]),
    seed=st.integers(0, 1000),
)
def test_readj_makes_the_best_move_each_time(loads, k, theta, sigma, seed):
    owners, homes = np.random.default_rng(seed).integers(0, k, (2, len(loads))).tolist()
    given_input = plan_input(loads, owners, k, homes=homes, tolerance=theta)
    after = loads_after(given_input, readj_at(given_input, sigma).table)
    assert sorted(after) == sorted(best_moves(loads, owners, homes, k, theta, sigma))


def test_two_keys_are_swapped_where_no_move_helps():
    """12 against 8: moving 7 or 5 makes it worse or no better, swapping 7 for 5 is perfect."""
    given_input = plan_input([7, 5, 5, 3], [0, 0, 1, 1], 2)
    assert loads_after(given_input, readj_at(given_input, 0.0).table).tolist() == [10, 10]


def test_a_smaller_sigma_balances_what_a_larger_one_cannot():
    given_input = zipf_input(1, m=1000)
    coarse, fine = readj_at(given_input, 0.5), readj_at(given_input, 1 / 256)
    assert not coarse.theta_reached
    assert fine.theta_reached
    assert get("readj")(given_input).theta_reached
