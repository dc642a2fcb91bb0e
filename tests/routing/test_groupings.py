"""Each grouping keeps its promise: two instances a key, equal turns, shares by capacity; and options are checked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopology.routing.groupings import Chooser, make_chooser
from streamtopology.routing.groupings.ticks import MOST_ROWS_AHEAD
from streamtopology.routing.planners import JOINT_PLANNERS
from streamtopology.routing.table.hashing import hash_int64
from streamtopology.routing.table.table import RoutingTable
from streamtopology.topology import groupings
from streamtopology.topology.groupings import GroupingError

SEED = 11


def chooser(name: str, instances: list[int], loads: list[float] | None = None, seed: int = SEED, **options: object) -> Chooser:
    counted = np.zeros(len(instances)) if loads is None else np.array(loads, np.float64)
    return make_chooser(name, np.array(instances, np.int32), counted, seed, options)


def zipf_hashes(n: int, exponent: float, keys: int = 100_000) -> np.ndarray:
    weights = np.arange(1, keys + 1) ** -exponent
    drawn = np.random.default_rng(5).choice(keys, n, p=weights / weights.sum())
    return hash_int64(drawn)


def imbalance(instances: np.ndarray, k: int, capacities: list[float] | None = None) -> float:
    finish = np.bincount(instances, minlength=k) / np.array(capacities or [1.0] * k)
    return float(finish.max() / (len(instances) / sum(capacities or [1.0] * k))) - 1


def test_the_registry_knows_each_grouping_by_its_name() -> None:
    assert all(spec.name == name for name, spec in groupings.GROUPINGS.items())
    tables = {name for name, spec in groupings.GROUPINGS.items() if spec.kind == "table"}
    splitting = {name for name, spec in groupings.GROUPINGS.items() if spec.splits_keys}
    assert {"fields", "mixed"} <= tables
    assert {"shuffle", "partial-key"} <= splitting
    assert not tables & splitting
    assert groupings.get("mixed").planner == "mixed"
    assert groupings.get("fields").planner is None
    assert not groupings.get("shuffle").needs_key


def test_unknown_groupings_and_choosers_of_tables_are_refused() -> None:
    with pytest.raises(GroupingError, match=r"no grouping 'random'; there are auto, shuffle"):
        groupings.get("random")
    with pytest.raises(GroupingError, match="no chooser"):
        chooser("fields", [0, 1])


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("fields", {"beta": 1}, "no option of the grouping 'fields'; allowed: none at all"),
        ("mixed", {"beta": "much"}, "beta: found 'much', expected a finite number"),
        ("mixed", {"beta": True, "alpha": 1}, "beta: .*alpha: is no option"),
        ("shuffle", {"capacities": 3}, "expected a list of numbers"),
        ("shuffle", {"capacities": [1, -1]}, "found -1"),
        ("shuffle", {"capacities": [0, 0.0]}, "at least one capacity"),
        ("partial-key", {"capacities": [float("nan")]}, "finite"),
    ],
)
def test_every_wrong_option_is_named(name: str, options: dict[str, object], sentence: str) -> None:
    with pytest.raises(GroupingError, match=sentence):
        groupings.get(name).check_options(options)


def test_options_left_out_have_their_default() -> None:
    assert groupings.get("mixed").check_options({}) == {"beta": 1.5}
    assert groupings.get("shuffle").check_options({"capacities": [1, 2]}) == {"capacities": (1.0, 2.0)}


@pytest.mark.parametrize("name", ["shuffle", "partial-key"])
def test_a_chooser_needs_a_load_and_a_capacity_for_each_instance(name: str) -> None:
    with pytest.raises(GroupingError, match="3 capacities for 2 active instances"):
        chooser(name, [0, 1], capacities=[1, 1, 1])
    with pytest.raises(GroupingError, match="a load for each"):
        chooser(name, [0, 1], loads=[1.0])
    with pytest.raises(GroupingError, match="active instances"):
        chooser(name, [])


@settings(max_examples=50)
@given(st.integers(1, 9), st.lists(st.integers(0, 40), min_size=1, max_size=6), st.integers(0, 2**40))
def test_shuffle_differs_by_at_most_one_over_any_batches(k: int, batches: list[int], seed: int) -> None:
    shuffle = chooser("shuffle", list(range(k)), seed=seed)
    chosen = np.concatenate([shuffle.choose(None, n) for n in batches])
    for end in range(len(chosen) + 1):
        counts = np.bincount(chosen[:end], minlength=k)
        assert counts.max() - counts.min() <= 1


def test_shuffle_starts_elsewhere_with_another_seed() -> None:
    first = {int(chooser("shuffle", [0, 1, 2, 3], seed=seed).choose(None, 1)[0]) for seed in range(4)}
    assert first == {0, 1, 2, 3}


def test_shuffle_gives_by_capacity_all_along() -> None:
    capacities = [1.0, 1.0, 1.0, 0.3]
    chosen = chooser("shuffle", [4, 5, 6, 9], capacities=capacities).choose(None, 100_000)
    shares = np.array(capacities) / sum(capacities)
    got = np.stack([np.cumsum(chosen == instance) for instance in (4, 5, 6, 9)], axis=1)
    due = np.arange(1, len(chosen) + 1)[:, None] * shares
    assert np.abs(got - due).max() < 3 + 1e-3 * len(chosen)
    assert np.abs(got[:1000] - due[:1000]).max() < 3


@settings(max_examples=40)
@given(st.integers(1, 12), st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20), st.integers(0, 2**32))
def test_partial_key_uses_the_same_two_instances_per_key_in_every_router(k: int, keys: list[int], seed: int) -> None:
    hashes = np.repeat(np.array(keys, np.uint64), 30)
    np.random.default_rng(1).shuffle(hashes)
    instances = list(range(3, 3 + k))
    ahead = [float(instance) for instance in instances]
    routers = [chooser("partial-key", instances, seed=seed), chooser("partial-key", instances, ahead)]
    chosen = np.concatenate([router.choose(hashes, len(hashes)) for router in routers])
    twice = np.concatenate([hashes, hashes])
    assert set(chosen.tolist()) <= set(instances)
    for key in keys:
        assert len(set(chosen[twice == np.uint64(key)].tolist())) <= 2


@settings(max_examples=40)
@given(
    st.lists(st.sampled_from([0.3, 0.5, 1.0, 2.0]), min_size=2, max_size=6),
    st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=40),
)
def test_partial_key_takes_the_choice_that_is_done_first(capacities: list[float], keys: list[int]) -> None:
    k = len(capacities)
    hashes = np.array(keys * 5, np.uint64)
    loads = [float(3 * i) for i in range(k)]
    chosen = chooser("partial-key", list(range(k)), loads, capacities=capacities).choose(hashes, len(hashes))
    choices: dict[int, set[int]] = {}
    for key, instance in zip(hashes.tolist(), chosen.tolist(), strict=True):
        choices.setdefault(key, set()).add(instance)
    done = [load / capacity for load, capacity in zip(loads, capacities, strict=True)]
    for key, instance in zip(hashes.tolist(), chosen.tolist(), strict=True):
        assert done[instance] <= min(done[other] for other in choices[key]) + 1e-3
        done[instance] += 1 / capacities[instance]


def test_partial_key_spreads_its_choices_over_all_pairs() -> None:
    router = chooser("partial-key", list(range(5)))
    keys = np.repeat(hash_int64(np.arange(2000)), 40)
    chosen = router.choose(keys, len(keys)).reshape(2000, 40)
    pairs = {tuple(sorted(set(row.tolist()))) for row in chosen}
    assert {pair for pair in pairs if len(pair) == 2} == {(a, b) for a in range(5) for b in range(a + 1, 5)}


@pytest.mark.parametrize("exponent", [0.8, 1.0])
def test_partial_key_balances_a_skewed_stream_that_hashing_does_not(exponent: float) -> None:
    k, hashes = 8, zipf_hashes(200_000, exponent)
    hashed = imbalance(RoutingTable.uniform(range(k)).lookup(hashes), k)
    split = imbalance(chooser("partial-key", list(range(k))).choose(hashes, len(hashes)), k)
    # The heaviest key (8 % at exponent 1) is below 2/k of the stream, so two choices suffice (Nasir et al., section 5).
    assert split < 0.01
    assert hashed > 5 * split + 0.05


def test_partial_key_gives_a_slow_instance_its_share() -> None:
    capacities = [1.0, 1.0, 1.0, 0.3]
    hashes = zipf_hashes(200_000, 0.8)
    chosen = chooser("partial-key", [0, 1, 2, 3], capacities=capacities).choose(hashes, len(hashes))
    assert imbalance(chosen, 4, capacities) < 0.01


@pytest.mark.parametrize("name", ["shuffle", "partial-key"])
def test_an_instance_without_capacity_gets_nothing(name: str) -> None:
    hashes = zipf_hashes(1_000, 0.5)
    assert set(chooser(name, [2, 4, 6], capacities=[1, 0, 1]).choose(hashes, 1_000).tolist()) == {2, 6}


def test_partial_key_makes_up_for_a_few_rows_of_former_batches_and_no_more() -> None:
    hashes = hash_int64(np.arange(1_000))
    for ahead in (MOST_ROWS_AHEAD, 1_000_000):
        chosen = chooser("partial-key", [0, 1], [float(ahead), 0.0]).choose(hashes, 1_000)
        assert (chosen[:MOST_ROWS_AHEAD] == 1).all()
        assert abs(int((chosen[MOST_ROWS_AHEAD:] == 0).sum()) - (1_000 - MOST_ROWS_AHEAD) // 2) <= 1


@settings(max_examples=40)
@given(
    former=st.lists(st.integers(0, 10**9), min_size=4, max_size=4),
    capacities=st.lists(st.sampled_from([0.5, 0.7, 1.0]), min_size=4, max_size=4),
    name=st.sampled_from(["partial-key", "potc", "d-choices", "w-choices"]),
)
def test_rows_follow_the_capacities_whatever_was_given_before(former: list[int], capacities: list[float], name: str) -> None:
    n = 6_000
    loads = [float(rows) for rows in former]
    chosen = chooser(name, [0, 1, 2, 3], loads, capacities=capacities).choose(zipf_hashes(n, 0.6), n)
    due = n * np.array(capacities) / sum(capacities)
    assert np.abs(np.bincount(chosen, minlength=4) - due).max() <= 4 * MOST_ROWS_AHEAD


def test_partial_key_carries_its_loads_from_batch_to_batch() -> None:
    hashes = zipf_hashes(10_000, 1.0)
    whole = chooser("partial-key", [0, 1, 2]).choose(hashes, 10_000)
    router = chooser("partial-key", [0, 1, 2])
    parts = [router.choose(hashes[start : start + 1_000], 1_000) for start in range(0, 10_000, 1_000)]
    assert (np.concatenate(parts) == whole).all()


def test_partial_key_without_keys_is_refused() -> None:
    with pytest.raises(GroupingError, match="5 tuples need 5 key hashes, found none"):
        chooser("partial-key", [0, 1]).choose(None, 5)
    with pytest.raises(GroupingError, match="found 2"):
        chooser("partial-key", [0, 1]).choose(np.zeros(2, np.uint64), 5)


def local_or_shuffle(instances: Sequence[int], options: dict[str, object], local: tuple[int, ...]) -> Chooser:
    active = np.array(instances, np.int32)
    return make_chooser("local-or-shuffle", active, np.zeros(len(active)), SEED, options, local=local)


@settings(max_examples=60)
@given(
    active=st.sets(st.integers(0, 7), min_size=1, max_size=6),
    beside=st.sets(st.integers(0, 9), max_size=4),
    n=st.integers(1, 200),
)
def test_local_or_shuffle_prefers_instances_of_its_executor(active: set[int], beside: set[int], n: int) -> None:
    instances = sorted(active)
    router = make_chooser(
        "local-or-shuffle", np.array(instances, np.int32), np.zeros(len(instances)), SEED, {}, local=tuple(beside)
    )
    chosen = router.choose(None, n)
    allowed = sorted(active & beside) or instances
    assert set(chosen.tolist()) <= set(allowed)
    counts = np.bincount(chosen, minlength=8)[allowed]
    assert counts.max() - counts.min() <= 1


def test_local_or_shuffle_has_no_use_for_a_local_instance_without_capacity() -> None:
    options = {"capacities": [0, 1, 3]}
    chosen = make_chooser("local-or-shuffle", np.arange(3, dtype=np.int32), np.zeros(3), SEED, options, local=(0,)).choose(
        None, 4000
    )
    assert np.bincount(chosen, minlength=3).tolist() == [0, 1000, 3000]
    near = make_chooser("local-or-shuffle", np.arange(3, dtype=np.int32), np.zeros(3), SEED, options, local=(1, 0)).choose(
        None, 10
    )
    assert set(near.tolist()) == {1}


def test_other_choosers_ignore_local_instances() -> None:
    router = make_chooser("shuffle", np.arange(3, dtype=np.int32), np.zeros(3), SEED, {}, (1,))
    assert set(router.choose(None, 3).tolist()) == {0, 1, 2}


def test_the_locality_policies_are_tables_planned_together() -> None:
    for name in ("locality", "locality-offline", "locality-worst"):
        spec = groupings.get(name)
        assert (spec.kind, spec.splits_keys) == ("table", False)
        assert spec.planner in JOINT_PLANNERS
