"""Key pairs: SpaceSaving's promises hold for pairs, and every pair kept is given back as the two hashes that it came as."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopology.routing.load.sketches.key_pairs import KeyPairSummary, pair_hashes

pair = st.tuples(st.integers(0, 5), st.integers(0, 5))
batches = st.lists(st.lists(st.tuples(pair, st.integers(0, 9)), max_size=20), min_size=1, max_size=6)


def feed(summary: KeyPairSummary, stream: list[list[tuple[tuple[int, int], int]]]) -> Counter[tuple[int, int]]:
    exact: Counter[tuple[int, int]] = Counter()
    for batch in stream:
        ends = np.array([key for key, _ in batch], np.uint64).reshape(-1, 2)
        summary.update(ends[:, 0], ends[:, 1], np.array([weight for _, weight in batch], np.int64))
        for key, weight in batch:
            exact[key] += weight
    return exact


def kept(summary: KeyPairSummary) -> dict[tuple[int, int], tuple[float, float]]:
    upstream, downstream, estimates, errors = summary.top(len(summary))
    return dict(zip(zip(upstream.tolist(), downstream.tolist(), strict=True), zip(estimates, errors, strict=True), strict=True))


@settings(max_examples=120)
@given(stream=batches, capacity=st.integers(1, 12))
def test_pairs_are_given_back_with_estimates_within_their_errors(stream, capacity):
    summary = KeyPairSummary(capacity)
    exact = feed(summary, stream)
    found = kept(summary)
    assert len(found) == len(summary) <= capacity
    for ends, (estimate, error) in found.items():
        assert estimate - error <= exact[ends] <= estimate
    for ends, weight in exact.items():
        assert ends in found or weight <= summary.counts.floor <= exact.total() / (capacity + 1)


@settings(max_examples=60)
@given(left=batches, right=batches)
def test_with_room_for_all_pairs_the_order_of_merging_does_not_matter(left, right):
    summaries = [KeyPairSummary(36), KeyPairSummary(36), KeyPairSummary(36), KeyPairSummary(36)]
    exact = feed(summaries[0], left) + feed(summaries[1], right)
    feed(summaries[2], left), feed(summaries[3], right)
    summaries[0].merge(summaries[1])
    summaries[3].merge(summaries[2])
    assert kept(summaries[0]) == kept(summaries[3])
    assert {ends: estimate for ends, (estimate, _) in kept(summaries[0]).items() if estimate} == +exact


def test_the_papers_example_keeps_the_frequent_pairs():
    """Figure 4's pairs: (Asia, #java) and (Asia, #ruby) are frequent, others are not."""
    asia, africa, java, ruby, python = range(5)
    summary = KeyPairSummary(2)
    first, second = np.array([asia, asia, africa], np.uint64), np.array([java, ruby, python], np.uint64)
    summary.update(first, second, np.array([3463, 3011, 12]))
    upstream, downstream, estimates, _ = summary.top(2)
    assert (upstream.tolist(), downstream.tolist()) == ([asia, asia], [java, ruby])
    assert estimates.tolist() == [3463.0, 3011.0]


def test_a_pair_is_ordered_and_needs_both_its_ends():
    one, two = np.array([1], np.uint64), np.array([2], np.uint64)
    assert pair_hashes(one, two) != pair_hashes(two, one)
    with pytest.raises(ValueError, match="1 upstream keys with 2 downstream"):
        KeyPairSummary(3).update(one, np.array([1, 2], np.uint64))
