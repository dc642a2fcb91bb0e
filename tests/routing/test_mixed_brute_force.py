"""MixedBF against the paper's Mixed run by hand for every number of entries moved back."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.planning import Paper, papers_cases, plan_input, zipf_input

from streamtopology.routing.planners import get


@settings(max_examples=80, deadline=None)
@given(case=papers_cases(), n_max=st.integers(0, 14))
def test_no_number_of_entries_moved_back_does_better(case, n_max):
    k, cost, memory, owner, home, theta = case
    paper = Paper(cost, memory, home, k, theta, 1.5)
    table = sorted((key for key in range(len(cost)) if owner[key] != home[key]), key=lambda key: (memory[key], key))
    moved = {}
    for n in range(len(table) + 1):
        at = dict(enumerate(owner)) | {key: home[key] for key in table[:n]}
        result = paper.run(at, paper.by_gamma)
        fits = sum(place != home[key] for key, place in result.items()) <= n_max
        balanced = all(paper.load(result, d) <= paper.limit() for d in range(k))
        if fits and balanced:
            moved[n] = sum(memory[key] for key, place in result.items() if place != owner[key])
    plan = get("mixed-bf")(plan_input(cost, owner, k, homes=home, state=memory, tolerance=theta, max_entries=n_max))
    if moved:
        assert plan.moved_bytes == min(moved.values())
        assert plan.theta_reached


def test_mixed_moves_little_more_than_brute_force_within_a_bounded_table():
    pairs = []
    for seed in range(3):
        given_input = zipf_input(seed, m=1500, max_entries=200)
        plans = [get(name)(given_input) for name in ("mixed-bf", "mixed")]
        assert all(plan.theta_reached and len(plan.table.entry_hashes) <= 200 for plan in plans)
        pairs.append([plan.moved_bytes for plan in plans])
    brute, few_trials = np.sum(pairs, axis=0)
    assert brute <= few_trials
