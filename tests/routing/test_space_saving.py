"""SpaceSaving's promises, against an exact count of the same stream."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopology.routing.load.sketches.space_saving import SpaceSaving

batches = st.lists(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 20)), max_size=25), min_size=1, max_size=8)
capacities = st.integers(1, 12)


def feed(summary: SpaceSaving, stream: list[list[tuple[int, int]]]) -> Counter[int]:
    exact: Counter[int] = Counter()
    for batch in stream:
        summary.update(np.array([i for i, _ in batch], np.uint64), np.array([w for _, w in batch], np.int64))
        for item, weight in batch:
            exact[item] += weight
    return exact


def assert_promises_hold(summary: SpaceSaving, exact: Counter[int]) -> None:
    total = exact.total()
    kept = dict(zip(summary.hashes.tolist(), zip(summary.estimates, summary.errors, strict=True), strict=True))
    assert len(kept) <= summary.capacity
    assert summary.total == total
    assert summary.floor <= total / (summary.capacity + 1)
    for item, weight in exact.items():
        if item in kept:
            estimate, error = kept[item]
            assert estimate - error <= weight <= estimate
            assert error <= summary.floor
        else:
            assert weight <= summary.floor
        if weight > total / summary.capacity:
            assert item in kept


@settings(max_examples=150)
@given(stream=batches, capacity=capacities)
def test_estimates_are_within_their_errors_and_heavy_items_are_kept(stream, capacity):
    summary = SpaceSaving(capacity)
    exact = feed(summary, stream)
    assert_promises_hold(summary, exact)


@settings(max_examples=150)
@given(left=batches, right=batches, capacity=capacities, other_capacity=capacities)
def test_merging_two_summaries_keeps_the_promises_of_the_coarser_one(left, right, capacity, other_capacity):
    summary, other = SpaceSaving(capacity), SpaceSaving(other_capacity)
    exact = feed(summary, left) + feed(other, right)
    summary.merge(other)
    coarser = min(capacity, other_capacity)
    kept = dict(zip(summary.hashes.tolist(), zip(summary.estimates, summary.errors, strict=True), strict=True))
    assert summary.floor <= exact.total() / (coarser + 1)
    for item, weight in exact.items():
        estimate, error = kept.get(item, (summary.floor, summary.floor))
        assert estimate - error <= weight <= estimate


@settings(max_examples=60)
@given(stream=batches)
def test_a_summary_with_room_for_all_items_is_exact(stream):
    summary = SpaceSaving(31)
    exact = feed(summary, stream)
    assert dict(zip(summary.hashes.tolist(), summary.estimates.tolist(), strict=True)) == dict(exact)
    assert not summary.errors.any()


def test_top_is_sorted_and_a_long_zipf_stream_finds_its_head():
    rng = np.random.default_rng(7)
    stream = (rng.zipf(1.3, 200_000) % 50_000).astype(np.uint64)
    summary = SpaceSaving(256)
    for part in np.array_split(stream, 40):
        summary.update(part)
    hashes, estimates, _ = summary.top(10)
    items, counts = np.unique(stream, return_counts=True)
    head = items[np.argsort(-counts, kind="stable")][:10]
    assert hashes.tolist() == head.tolist()
    assert (np.diff(estimates) <= 0).all()


def test_weights_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="negative"):
        SpaceSaving(3).update(np.array([1], np.uint64), np.array([-1]))
    with pytest.raises(ValueError, match="2 items with 1 weights"):
        SpaceSaving(3).update(np.array([1, 2], np.uint64), np.array([1]))
    with pytest.raises(ValueError, match="capacity 0"):
        SpaceSaving(0)
