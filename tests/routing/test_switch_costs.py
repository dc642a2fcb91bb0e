"""The cost of a switch: what moves, the portions in which it moves, and what `auto` makes of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from streamtopology.routing.planners.auto import Alternative, auto
from streamtopology.routing.planners.plan import PlanInput
from streamtopology.routing.planners.split import ItemPlacement
from streamtopology.routing.planners.switch_costs import MOVED_BYTES_PER_SECOND, SWITCH_SECONDS, SwitchCosts
from streamtopology.routing.table.hashing import hash_int64
from streamtopology.routing.table.table import BUCKETS, RoutingTable

# Bytes of a key, as of the demo's quantiles.
STATE = 2_000.0


def test_switch_is_paid_by_the_batches_of_the_horizon() -> None:
    assert SwitchCosts(60).a_batch(0.0, 1.0) == pytest.approx(SWITCH_SECONDS / 60)
    assert SwitchCosts(60).a_batch(MOVED_BYTES_PER_SECOND, 1.0) == pytest.approx((SWITCH_SECONDS + 1) / 60)


def test_gain_comes_later_with_each_doubling_of_the_portions() -> None:
    costs = [SwitchCosts(60, 1e4).a_batch(1e4 * portions, 0.5) for portions in (0.5, 1, 2, 4, 256)]
    at_once = [SwitchCosts(60).a_batch(1e4 * portions, 0.5) for portions in (0.5, 1, 2, 4, 256)]
    late = [one - other for one, other in zip(costs, at_once, strict=True)]
    assert late == pytest.approx([0, 0, 0.5 * 1 / 61, 0.5 * 2 / 62, 0.5 * 8 / 68])


def test_loss_is_not_cheaper_for_coming_late() -> None:
    assert SwitchCosts(60, 1e4).a_batch(1e6, -1.0) == SwitchCosts(60).a_batch(1e6, -1.0)


def test_few_keys_are_moved_where_moving_all_brings_little_more() -> None:
    """The slow one of four has a quarter of the keys. To relieve it takes a tenth of what dealing all of them again takes."""
    plan = auto(of_keys(np.full(4_000, 50.0)))
    assert plan.imbalance_after <= 0.02
    assert plan.moved_bytes < 0.4 * 4_000 * STATE


def test_few_keys_are_moved_when_the_loads_change_a_little() -> None:
    first = auto(of_keys(np.full(4_000, 50.0)))
    loads = 50.0 * np.where(np.arange(4_000) % 2, 0.7, 1.3) * np.where(np.arange(4_000) < 400, 20.0, 1.0)
    plan = auto(replace(of_keys(loads), current=first.table))
    assert plan.imbalance_after <= 0.021
    assert plan.moved_bytes < 0.1 * 4_000 * STATE


def test_whole_keys_are_not_expected_to_divide_a_batch_perfectly() -> None:
    whole = ItemPlacement.whole(np.zeros(4, np.int32))
    split = replace(whole, items=np.array([0]))
    seconds = [Alternative("any", placement, 1.0, 0.2, 0.0).expected_seconds(1.01) for placement in (whole, split)]
    assert seconds == pytest.approx([1.21, 1.2])


def of_keys(loads: np.ndarray) -> PlanInput:
    """An operator whose keys are all known, on four instances of which one is slow; a batch takes half a second."""
    fast = float(loads.sum()) / 3.3 / 0.5
    return PlanInput(
        current=RoutingTable.uniform(range(4)),
        instances=tuple(range(4)),
        capacities=np.array([fast, fast, fast, 0.3 * fast]),
        fixed_seconds=np.zeros(4),
        key_hashes=hash_int64(np.arange(len(loads), dtype=np.int64)),
        key_loads=loads,
        key_state=np.full(len(loads), STATE),
        bucket_loads=np.zeros(BUCKETS),
        bucket_state=np.zeros(BUCKETS),
        tolerance=0.02,
        switch=SwitchCosts(batches=33, portion_bytes=280e3),
    )
