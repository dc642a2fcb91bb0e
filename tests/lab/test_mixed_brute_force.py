"""Mixed against MixedBF, which is held against the paper's best number of entries moved back in tests/papers."""

from __future__ import annotations

import numpy as np
from support.planning import zipf_input

from streamtopology.lab.groupings.planners import get


def test_mixed_moves_little_more_than_brute_force_within_a_bounded_table():
    pairs = []
    for seed in range(3):
        given_input = zipf_input(seed, m=1500, max_entries=200)
        plans = [get(name)(given_input) for name in ("mixed-bf", "mixed")]
        assert all(plan.theta_reached and len(plan.table.entry_hashes) <= 200 for plan in plans)
        pairs.append([plan.moved_bytes for plan in plans])
    brute, few_trials = np.sum(pairs, axis=0)
    assert brute <= few_trials
