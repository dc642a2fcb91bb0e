"""State moves only to executors that have room for it: against a reference that looks at one key after the other."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.observed import SLOTS, Stream
from support.rerouted import FACTS, Run

from streamtopology.contract.reasons import Hold, HoldReason, RemedyKind, StageReason
from streamtopology.routing.control.memory import arriving_bytes, overfilled
from streamtopology.routing.control.stages import Remedy
from streamtopology.routing.control.weighing import Scales, Worthwhile
from streamtopology.routing.planners import get
from streamtopology.routing.planners.plan import PlanInput
from streamtopology.routing.table.table import RoutingTable

BUCKETS = 64


def a_problem(seed: int, keys: int) -> PlanInput:
    rng = np.random.default_rng(seed)
    hashes = np.unique(rng.integers(0, 2**64, keys, np.uint64))
    return PlanInput(
        current=RoutingTable.uniform(range(SLOTS), BUCKETS),
        instances=tuple(range(SLOTS)),
        capacities=rng.uniform(100, 1000, SLOTS),
        fixed_seconds=np.zeros(SLOTS),
        key_hashes=hashes,
        key_loads=rng.pareto(1.2, len(hashes)),
        key_state=rng.integers(0, 1000, len(hashes)).astype(np.float64),
        bucket_loads=rng.uniform(0, 2, BUCKETS),
        bucket_state=rng.integers(0, 1000, BUCKETS).astype(np.float64),
    )


@given(seed=st.integers(0, 10**6), keys=st.integers(0, 40), planner=st.sampled_from(["mixed", "auto", "consistent"]))
def test_what_arrives_is_what_each_key_and_bucket_brings(seed: int, keys: int, planner: str):
    problem = a_problem(seed, keys)
    plan = get(planner)(problem)
    slots, expected = [3, 2, 1, 0], Counter[int]()
    before, after = problem.current.lookup(problem.key_hashes), plan.table.lookup(problem.key_hashes)
    for old, new, size in zip(before, after, problem.key_state, strict=True):
        expected[slots[old]] -= size
        expected[slots[new]] += size
    for old, new, size in zip(problem.current.buckets, plan.table.buckets, problem.bucket_state, strict=True):
        expected[slots[old]] -= size
        expected[slots[new]] += size
    found = arriving_bytes(problem, plan, slots)
    assert found == pytest.approx({slot: expected[slot] for slot in range(SLOTS)}, abs=1e-6)
    assert sum(found.values()) == pytest.approx(0, abs=1e-6)


def test_a_slot_is_overfilled_by_what_it_has_no_room_for():
    free = {0: 100.0, 1: -5.0}
    assert overfilled({0: 101.0, 1: 1.0, 2: 1e12}, free) == {0: 101.0, 1: 1.0}
    assert overfilled({0: 99.0, 1: -1.0, 2: 1e12}, free) == {}


def test_a_routing_that_an_executor_has_no_memory_for_is_not_made_and_says_so():
    roomy = Run(Stream(3, zipf=0.85)).go(60)
    assert roomy.reroutes
    full = Run(Stream(3, zipf=0.85), replace(FACTS, free_bytes=dict.fromkeys(range(SLOTS), 10.0))).go(60)
    assert [reroute.plans for _, reroute in full.reroutes] == [{}] * len(full.reroutes), "shares of the source move no state"
    (_, hold), *_ = full.held(HoldReason.NO_ROOM)
    assert hold.stages == ("count",)
    assert hold.state_bytes > hold.free_bytes == 10.0


def brings(imbalance: float, **arriving: float) -> Remedy:
    """A remedy that gains a lot, and brings these bytes to slots."""
    moved = {int(slot.removeprefix("slot")): size for slot, size in arriving.items()}
    return Remedy(imbalance, 1.0, 0.5, 0.01, 0.0, StageReason(RemedyKind.TABLE, "", imbalance), arriving_bytes=moved)


def test_a_routing_that_is_not_worth_its_cost_needs_no_memory():
    dear = replace(brings(1.0, slot0=10), gain_seconds=0.1, moved_bytes=1e15)
    found = Scales().weigh({"count": dear}, 0.08, 1.0, 60.0, 1.0, {0: 1.0})
    assert isinstance(found, Hold)
    assert found.reason is HoldReason.NOT_WORTH_COST


@given(
    arriving=st.lists(st.tuples(st.booleans(), *[st.integers(-20, 20)] * 3), min_size=1, max_size=5),
    free=st.dictionaries(st.integers(0, 2), st.integers(-5, 30)),
)
def test_what_is_carried_out_fits_and_what_is_not_would_not_have(arriving: list[tuple], free: dict[int, int]):
    judged = {
        f"op{number}": brings(1.0 if ripe else 0.01, slot0=a, slot1=b, slot2=c)
        for number, (ripe, a, b, c) in enumerate(arriving)
    }
    ripe = {name for name, remedy in judged.items() if remedy.imbalance > 0.08}
    found = Scales().weigh(judged, 0.08, 1.0, 60.0, 1.0, free)
    if not ripe:
        assert isinstance(found, Hold)
        assert found.reason is HoldReason.BALANCED
    elif isinstance(found, Worthwhile):
        total = Counter[int]()
        for remedy in found.remedies.values():
            total.update(remedy.arriving_bytes)
        assert all(size <= 0 or size <= free.get(slot, np.inf) for slot, size in total.items())
        assert ripe & found.remedies.keys()
    else:
        assert found.reason is HoldReason.NO_ROOM
        assert set(found.stages) == ripe
        assert sum(judged[name].arriving_bytes[found.slot] for name in ripe) == found.state_bytes > found.free_bytes
