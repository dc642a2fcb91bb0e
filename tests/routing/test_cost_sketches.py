"""Count-Min, the pair F and W, and costs by key: against exact counts of the same stream."""

from __future__ import annotations

import math
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopology.contract.wire_values import from_wire, to_wire
from streamtopology.routing.load.sketches.cost_sketch import CostSketch
from streamtopology.routing.load.sketches.count_min import CountMin, dimensions
from streamtopology.routing.load.sketches.key_costs import MEMORY, KeyCosts
from streamtopology.routing.table.hashing import hash_int64

streams = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 20)), max_size=120)


def arrays(stream: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    return hash_int64(np.array([item for item, _ in stream], np.int64)), np.array([float(w) for _, w in stream])


def test_dimensions_are_the_papers() -> None:
    assert dimensions(0.70, 0.25) == (2, 4)  # figure 1
    assert dimensions(0.05, 0.1) == (4, 55)  # section IV-B
    with pytest.raises(ValueError, match="eps"):
        dimensions(0.0, 0.1)
    with pytest.raises(ValueError, match="delta"):
        dimensions(0.1, 1.0)


@settings(max_examples=80)
@given(stream=streams, rows=st.integers(1, 5), columns=st.integers(1, 30))
def test_count_min_never_says_too_little_and_each_row_holds_all(stream, rows, columns) -> None:
    sketch = CountMin.empty(rows, columns)
    hashes, weights = arrays(stream)
    sketch.update(hashes, weights)
    exact: Counter[int] = Counter()
    for item, weight in stream:
        exact[item] += weight
    items = np.array(list(exact), np.int64)
    assert (sketch.estimate(hash_int64(items)) >= [exact[int(item)] for item in items]).all()
    assert sketch.cells.sum(axis=1).tolist() == [float(exact.total())] * rows
    assert sketch.total == exact.total()


@settings(max_examples=60)
@given(parts=st.lists(streams, min_size=1, max_size=4), order=st.randoms())
def test_merging_in_any_order_is_one_sketch_of_all(parts, order) -> None:
    whole = CostSketch.empty(3, 11)
    sketches = []
    for part in parts:
        hashes, seconds = arrays(part)
        whole.update(hashes, seconds)
        sketches.append(CostSketch.empty(3, 11))
        sketches[-1].update(hashes, seconds)
    order.shuffle(sketches)
    merged = CostSketch.merged(sketches)
    assert (merged.frequencies.cells == whole.frequencies.cells).all()
    assert (merged.times.cells == whole.times.cells).all()
    again = from_wire(CostSketch, to_wire(merged))
    assert (again.times.cells == whole.times.cells).all()


def test_count_min_keeps_its_bound_on_a_zipf_stream() -> None:
    rng = np.random.default_rng(3)
    items = rng.zipf(1.2, 50_000) % 5_000
    eps, delta = 0.01, 0.05
    sketch = CountMin.empty(*dimensions(eps, delta))
    sketch.update(hash_int64(items.astype(np.int64)))
    exact = np.bincount(items, minlength=5_000)
    present = np.flatnonzero(exact)
    over = sketch.estimate(hash_int64(present)) - exact[present]
    assert np.mean(over >= eps * (len(items) - exact[present])) <= delta


def test_rows_hash_independently_of_each_other() -> None:
    sketch = CountMin.empty(2, 16)
    sketch.update(hash_int64(np.arange(1)))
    others = hash_int64(np.arange(1, 20_000))
    first = CountMin(sketch.cells[:1]).estimate(others) > 0
    both = sketch.estimate(others) > 0
    assert first.mean() == pytest.approx(1 / 16, abs=0.01)
    assert both.mean() == pytest.approx(1 / 256, abs=0.003)


def test_sketches_of_other_shapes_and_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="do not add up"):
        CountMin.empty(2, 3).merge(CountMin.empty(2, 4))
    with pytest.raises(ValueError, match="2 items with 1 weights"):
        CountMin.empty(1, 3).update(np.zeros(2, np.uint64), np.ones(1))
    with pytest.raises(ValueError, match="at least one column"):
        CountMin(np.zeros((2, 0)))


def slow_cost(stream: list[tuple[int, int]], sketch: CostSketch, key: int) -> float:
    """Listing III.2, cell by cell, with the columns found by what a sketch of that key alone fills."""
    alone = CountMin.empty(*sketch.frequencies.cells.shape)
    alone.update(hash_int64(np.array([key])))
    least, cost = math.inf, math.nan
    for row in range(len(alone.cells)):
        column = int(np.flatnonzero(alone.cells[row])[0])
        count = sketch.frequencies.cells[row, column]
        if count < least:
            least = count
            mean = sum(w for _, w in stream) / len(stream) if stream else 0.0
            cost = sketch.times.cells[row, column] / count if count else mean
    return cost


@settings(max_examples=60)
@given(stream=streams, key=st.integers(0, 60))
def test_a_cost_is_w_over_f_where_f_is_least(stream, key) -> None:
    sketch = CostSketch.empty(3, 7)
    sketch.update(*arrays(stream))
    assert sketch.estimate(hash_int64(np.array([key])))[0] == pytest.approx(slow_cost(stream, sketch, key))


def test_cells_without_tuples_cost_what_is_asked_for() -> None:
    sketch = CostSketch.empty(1, 100)
    assert sketch.estimate(hash_int64(np.arange(3))).tolist() == [0.0] * 3
    sketch.update(hash_int64(np.array([1, 1])), np.array([2.0, 4.0]))
    assert sketch.mean == 3.0
    found = sketch.estimate(hash_int64(np.arange(5)), empty=9.0)
    assert found[1] == 3.0
    assert (found[[0, 2, 3, 4]] == 9.0).sum() >= 3


@settings(max_examples=60)
@given(parts=st.lists(streams, min_size=1, max_size=4), order=st.randoms())
def test_with_room_for_all_keys_costs_are_exact_in_any_order(parts, order) -> None:
    order.shuffle(parts)
    costs = KeyCosts.empty(64, 2, 5)
    exact: defaultdict[int, list[float]] = defaultdict(list)
    for part in parts:
        of_part = KeyCosts.empty(64, 2, 5)
        of_part.update(*arrays(part))
        costs.merge(of_part)
        for key, seconds in part:
            exact[key].append(seconds)
    keys = sorted(exact)
    assert costs.estimate(hash_int64(np.array(keys, np.int64))) == pytest.approx([np.mean(exact[key]) for key in keys])
    unseen = np.mean([np.mean(exact[key]) for key in keys]) if keys else 0.0
    assert costs.estimate(hash_int64(np.array([99])))[0] == pytest.approx(unseen)


@settings(max_examples=60)
@given(stream=streams, capacity=st.integers(1, 10))
def test_no_tuple_is_lost_when_keys_have_to_go(stream, capacity) -> None:
    costs = KeyCosts.empty(capacity, 2, 9)
    for start in range(0, len(stream), 10):
        costs.update(*arrays(stream[start : start + 10]))
    assert len(costs.hashes) <= capacity
    assert (costs.hashes[1:] > costs.hashes[:-1]).all()
    assert costs.tuples.sum() + costs.light.frequencies.total == len(stream)
    assert costs.seconds.sum() + costs.light.times.total == pytest.approx(sum(w for _, w in stream))
    wired = from_wire(KeyCosts, to_wire(costs))
    asked = hash_int64(np.arange(50))
    assert (wired.estimate(asked) == costs.estimate(asked)).all()


def test_the_most_frequent_keys_stay() -> None:
    costs = KeyCosts.empty(2, 2, 9)
    costs.update(hash_int64(np.array([1, 1, 1, 2, 2, 3])), np.array([1.0, 1, 1, 5, 5, 7]))
    assert set(costs.hashes.tolist()) == set(hash_int64(np.array([1, 2])).tolist())
    assert costs.estimate(hash_int64(np.array([3])))[0] == 7.0


def test_costs_of_a_slow_instance_count_at_common_speed() -> None:
    slow, costs = KeyCosts.empty(1, 1, 1), KeyCosts.empty(1, 1, 1)
    slow.update(hash_int64(np.array([1, 1, 2])), np.array([4.0, 4.0, 6.0]))
    costs.merge(slow, slowness=2.0)
    assert costs.estimate(hash_int64(np.array([1, 2]))).tolist() == [2.0, 3.0]


def test_changed_cost_of_a_key_is_believed_after_a_memory_of_tuples() -> None:
    key, costs = hash_int64(np.array([1])), KeyCosts.empty(4, 1, 1)
    costs.update(np.repeat(key, 10_000), np.full(10_000, 1.0))
    for _ in range(4):
        costs.forget()
        costs.update(np.repeat(key, MEMORY), np.full(MEMORY, 3.0))
    assert costs.estimate(key)[0] == pytest.approx(3.0, abs=0.15)


def test_damaged_wire_forms_are_refused() -> None:
    wire = to_wire(KeyCosts.empty(2, 1, 1))
    with pytest.raises(ValueError, match="hashes is damaged"):
        from_wire(KeyCosts, {**wire, "hashes": "no"})
    with pytest.raises(ValueError, match="light is missing"):
        from_wire(KeyCosts, {name: value for name, value in wire.items() if name != "light"})
    with pytest.raises(ValueError, match="at least one key"):
        KeyCosts.empty(0, 1, 1)
