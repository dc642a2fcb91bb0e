"""The window of states against a plain sum over intervals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtopology.lab.reproduce.experiments.mixed.state_window import StateWindow

intervals = st.lists(st.dictionaries(st.integers(0, 12), st.integers(0, 99), max_size=8), max_size=8)


@given(history=intervals, w=st.integers(1, 5))
def test_state_is_the_sum_over_the_last_w_intervals(history, w):
    window = StateWindow(w)
    for interval in history:
        window = window.followed_by(np.array(list(interval), np.uint64), np.array(list(interval.values()), np.float64))
    asked = np.arange(14, dtype=np.uint64)
    expected = [sum(interval.get(key, 0) for interval in history[-w:]) for key in range(14)]
    assert window.state_of(asked).tolist() == expected
    assert window.keys().tolist() == sorted({key for interval in history[-w:] for key in interval})


def test_a_window_needs_an_interval_and_a_size_for_every_key():
    with pytest.raises(ValueError, match="0 intervals"):
        StateWindow(0)
    with pytest.raises(ValueError, match="1 sizes of state for 2 keys"):
        StateWindow(1).followed_by(np.zeros(2, np.uint64), np.zeros(1))
