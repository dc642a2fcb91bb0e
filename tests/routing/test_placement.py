"""Executors come and go: instances stay where they are unless they must move, and numbers keep their meaning."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.reasons import BY_TEST

from streamtopology.routing.epochs.epoch import Epoch
from streamtopology.routing.epochs.placement import NOWHERE, Placement

NAMES = tuple(f"{name}-{ordinal}" for name in ("large", "small") for ordinal in range(4))

steps = st.lists(st.tuples(st.sets(st.sampled_from(NAMES), min_size=1), st.integers(1, 12)), min_size=1, max_size=6)


def reported(story: list[tuple[set[str], int]]) -> list[Placement]:
    names, instances = story[0]
    placements = [Placement.first(sorted(names), instances)]
    for names, instances in story[1:]:
        placements.append(placements[-1].rescaled(sorted(names), instances))
    return placements


@settings(max_examples=300)
@given(steps)
def test_every_instance_has_a_slot_that_is_there_and_slots_have_as_many(story: list[tuple[set[str], int]]) -> None:
    for (names, instances), placement in zip(story, reported(story), strict=True):
        assert set(placement.names) == names
        held = Counter(home for home in placement.slot_by_instance if home != NOWHERE)
        assert sum(held.values()) == instances
        counts = [held[slot] for slot in placement.present]
        assert max(counts) - min(counts) <= 1


@settings(max_examples=300)
@given(steps)
def test_an_instance_whose_slot_stays_is_moved_or_dropped_only_to_even_out(story: list[tuple[set[str], int]]) -> None:
    placements = reported(story)
    for before, after, (_, instances) in zip(placements, placements[1:], story[1:], strict=False):
        assert after.slots[: len(before.slots)] == before.slots, "a slot keeps its number"
        staying = [slot for slot in before.present if slot in after.present]
        held = Counter(home for home in before.slot_by_instance if home in staying)
        each, larger = divmod(instances, len(after.present))
        quotas = [each + 1] * larger + [each] * (len(after.present) - larger)
        most_kept = sum(min(had, quota) for had, quota in zip(sorted(held.values(), reverse=True), quotas, strict=False))
        kept = sum(home in staying and after.slot_of(instance) == home for instance, home in enumerate(before.slot_by_instance))
        assert kept == most_kept


@settings(max_examples=200)
@given(steps, st.integers(1, 12))
def test_an_operator_with_fewer_instances_is_spread_over_as_many_slots_as_it_can_be(
    story: list[tuple[set[str], int]], count: int
) -> None:
    placement = reported(story)[-1]
    wanted = min(count, story[-1][1])
    instances = placement.instances(count)
    assert len(instances) == wanted
    assert len({placement.slot_of(instance) for instance in instances}) == min(wanted, len(placement.present))
    assert set(placement.instances(wanted - 1)) <= set(instances)


def test_an_executor_for_each_instance_comes_and_goes_with_it() -> None:
    first = Placement.first(["large-0", "large-1", "small-0"], 3)
    wider = first.rescaled(["large-0", "large-1", "large-2", "small-0"], 4)
    assert wider.slots == ("large-0", "large-1", "small-0", "large-2")
    assert wider.slot_by_instance == (0, 1, 2, 3)
    narrow = wider.rescaled(["large-0", "small-0"], 2)
    assert narrow.slot_by_instance == (0, NOWHERE, 2)
    assert narrow.instances(2) == (0, 2)
    assert narrow.rescaled(["large-0", "large-1", "small-0"], 3).slot_by_instance == (0, 1, 2)


def test_more_instances_than_executors_are_shared_out_whole() -> None:
    eight = Placement.first(["a-0", "a-1", "a-2"], 8)
    assert eight.rescaled(["a-0", "a-1", "a-2", "a-3"], 8).slot_by_instance == (0, 1, 2, 0, 1, 2, 3, 3)
    assert eight.rescaled(["a-0", "a-1"], 8).slot_by_instance == (0, 1, 0, 0, 1, 1, 0, 1)


@settings(max_examples=100)
@given(steps)
def test_a_placement_comes_back_from_the_wire(story: list[tuple[set[str], int]]) -> None:
    placement = reported(story)[-1]
    epoch = Epoch(3, {}, (), BY_TEST, placement)
    assert Epoch.from_json(epoch.to_json()) == epoch
    assert placement.rescaled(placement.names, story[-1][1]) == placement, "nothing asked for, nothing moved"


@pytest.mark.parametrize(
    ("slots", "present", "homes", "found"),
    [
        (("a-0", "a-0"), (0,), (0,), "names of their own"),
        (("a-0",), (), (), "at least one"),
        (("a-0",), (1,), (), "at least one"),
        (("a-0", "a-1"), (1,), (0,), r"not on \[0\]"),
    ],
)
def test_inconsistent_placement_is_refused(
    slots: tuple[str, ...], present: tuple[int, ...], homes: tuple[int, ...], found: str
) -> None:
    with pytest.raises(ValueError, match=found):
        Placement(slots, present, homes)
