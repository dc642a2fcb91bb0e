"""Readj's swaps and its sigma; its moves are held against a slow search in tests/papers."""

from __future__ import annotations

from support.planning import loads_after, plan_input, zipf_input

from streamtopology.lab.groupings.planners import get
from streamtopology.lab.groupings.readj import readj_at


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
