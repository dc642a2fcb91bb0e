"""PoRC, consistent hashing with bounded loads, PoTC: each tuple as the plain algorithm has it, and loads within bounds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopology.lab.simulate.streams import draw, zipf_probabilities
from streamtopology.routing.groupings import Chooser, make_chooser
from streamtopology.routing.groupings.ticks import MOST_ROWS_AHEAD
from streamtopology.routing.table.hashing import hash_int64
from streamtopology.topology.groupings import GroupingError

WORD = 2**64 - 1
BOUNDED = ("porc", "bounded-hash")

key_lists = st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=30)
weights = st.lists(st.sampled_from([0.3, 0.5, 1.0, 2.0]), min_size=1, max_size=7)
# Their inverses add up without rounding, so that a tie is one for every way to count.
exact_weights = st.lists(st.sampled_from([0.25, 0.5, 1.0, 2.0]), min_size=1, max_size=7)


def chooser(name: str, k: int, loads: list[float] | None = None, seed: int = 1, **options: object) -> Chooser:
    counted = np.zeros(k) if loads is None else np.array(loads, np.float64)
    return make_chooser(name, np.arange(10, 10 + k, dtype=np.int32), counted, seed, options)


def zipf(n: int, exponent: float, keys: int = 10_000) -> np.ndarray:
    return hash_int64(draw(zipf_probabilities(keys, exponent), n, np.random.default_rng(3)))


def plain_mix(value: int) -> int:
    value = (value + 0x9E3779B97F4A7C15) & WORD
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & WORD
    return value ^ (value >> 31)


def salted(key: int, k: int):
    """The endless sequence of instances of a key: two from each salted hash."""
    while True:
        mixed = plain_mix(key)
        yield ((mixed >> 32) * k) >> 32
        yield ((mixed & 0xFFFFFFFF) * k) >> 32
        key = (key + 0xD6E8FEB86659FD93) & WORD


def clockwise(key: int, k: int):
    """The endless walk from a key's place on the circle past the places of the instances 10, 11, ..."""
    places = [plain_mix(plain_mix(10 + i)) >> 48 for i in range(k)]
    order = sorted(range(k), key=lambda i: (places[i], i))
    at = next((j for j, i in enumerate(order) if places[i] >= key >> 48), 0)
    while True:
        yield order[at]
        at = (at + 1) % k


def plain_bounded(sequence, keys: list[int], capacities: list[float], epsilon: float, loads: list[float]) -> list[int]:
    """Algorithm 1 as it stands in the paper, with shares by capacity and the tuple at hand counted."""
    loads, k, chosen = list(loads), len(capacities), []
    for key in keys:
        total = sum(loads) + 1
        room = [load < (1 + epsilon) * total * c / sum(capacities) - 1e-9 for load, c in zip(loads, capacities, strict=True)]
        tries = sequence(key, k)
        choice = next((i for i in (next(tries) for _ in range(8 * k)) if room[i]), None)
        if choice is None:
            choice = int(np.argmin([load / c for load, c in zip(loads, capacities, strict=True)]))
        loads[choice] += 1
        chosen.append(10 + choice)
    return chosen


@pytest.mark.parametrize(("name", "sequence"), [("porc", salted), ("bounded-hash", clockwise)])
@settings(max_examples=60)
@given(keys=key_lists, capacities=weights, epsilon=st.sampled_from([0.0137, 0.10037, 0.9173]), behind=st.integers(0, 9))
def test_every_tuple_takes_the_first_instance_with_room(name, sequence, keys, capacities, epsilon, behind) -> None:
    loads = [float(behind * (i % 3)) for i in range(len(capacities))]
    routed = keys * 4
    router = chooser(name, len(capacities), loads, epsilon=epsilon, capacities=capacities)
    assert router.choose(np.array(routed, np.uint64), len(routed)).tolist() == plain_bounded(
        sequence, routed, capacities, epsilon, loads
    )


@pytest.mark.parametrize("name", BOUNDED)
@pytest.mark.parametrize(("k", "exponent"), [(5, 1.0), (10, 2.0), (100, 1.0), (100, 2.0)])
def test_no_load_exceeds_its_bound_at_any_time(name: str, k: int, exponent: float) -> None:
    hashes = zipf(20_000, exponent)
    chosen = chooser(name, k).choose(hashes, len(hashes)) - 10
    loads = np.zeros(k)
    for seen, instance in enumerate(chosen.tolist(), 1):
        loads[instance] += 1
        assert loads[instance] <= 1.01 * seen / k + 1


@pytest.mark.parametrize("name", BOUNDED)
def test_shares_follow_capacity(name: str) -> None:
    capacities = [1.0, 1.0, 0.3]
    hashes = zipf(50_000, 1.2)
    loads = np.bincount(chooser(name, 3, capacities=capacities).choose(hashes, len(hashes)) - 10, minlength=3)
    assert (loads <= 1.01 * len(hashes) * np.array(capacities) / 2.3 + 1).all()


@pytest.mark.parametrize("name", BOUNDED)
def test_with_ample_room_it_is_plain_hashing(name: str) -> None:
    hashes = zipf(5_000, 1.0)
    chosen = chooser(name, 8, epsilon=7.0).choose(hashes, len(hashes))
    assert all(len(set(chosen[hashes == key].tolist())) == 1 for key in np.unique(hashes))
    assert set(chosen.tolist()) == set(range(10, 18))


@pytest.mark.parametrize("name", [*BOUNDED, "potc", "d-choices", "w-choices"])
@settings(max_examples=20)
@given(cuts=st.lists(st.integers(0, 3_000), max_size=5), k=st.integers(1, 9))
def test_batches_make_no_difference(name: str, cuts: list[int], k: int) -> None:
    hashes = zipf(3_000, 1.1)
    whole = chooser(name, k).choose(hashes, len(hashes))
    router = chooser(name, k)
    bounds = [0, *sorted(cuts), len(hashes)]
    parts = [router.choose(hashes[a:b], b - a) for a, b in itertools.pairwise(bounds)]
    assert np.array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize("name", BOUNDED)
def test_memory_grows_as_epsilon_falls(name: str) -> None:
    hashes = zipf(50_000, 1.2)
    replicas = [
        len(np.unique(np.stack([chooser(name, 20, epsilon=e).choose(hashes, len(hashes)), hashes.view(np.int64)]), axis=1).T)
        for e in (0.01, 0.3, 19.0)
    ]
    assert replicas[0] > replicas[1] > replicas[2]


@pytest.mark.parametrize("name", [*BOUNDED, "d-choices", "w-choices"])
def test_without_keys_it_is_refused(name: str) -> None:
    with pytest.raises(GroupingError, match=f"{name} chooses by key: 5 tuples need 5 key hashes, found none"):
        chooser(name, 2).choose(None, 5)


@settings(max_examples=60)
@given(
    batches=st.lists(st.integers(0, 80), min_size=1, max_size=5),
    capacities=exact_weights,
    seed=st.integers(0, 2**63 - 1),
    ahead=st.lists(st.integers(0, MOST_ROWS_AHEAD), min_size=7, max_size=7),
)
def test_potc_takes_the_one_done_first_of_two_random_instances(
    batches: list[int], capacities: list[float], seed: int, ahead: list[int]
) -> None:
    """Section V-A.1, tuple by tuple: two hashes of the tuple's number name two instances, whatever its key."""
    k = len(capacities)
    router = chooser("potc", k, [float(rows) for rows in ahead[:k]], seed, capacities=capacities)
    found = np.concatenate([router.choose(None, n) for n in batches]).tolist()
    done = [rows / capacity for rows, capacity in zip(ahead, capacities, strict=False)]
    number, expected = plain_mix(seed), list[int]()
    for _ in range(sum(batches)):
        mixed = plain_mix(number)
        first, second = ((mixed >> 32) * k) >> 32, ((mixed & 0xFFFFFFFF) * (k - 1)) >> 32
        second += second >= first
        choice = second if k > 1 and done[second] < done[first] else first
        done[choice] += 1 / capacities[choice]
        expected.append(10 + choice)
        number = (number + 1) & WORD
    assert found == expected


def test_potc_spreads_even_one_key_over_all_instances() -> None:
    assert set(chooser("potc", 6).choose(np.zeros(100, np.uint64), 100).tolist()) == set(range(10, 16))
    first, second = (chooser("potc", 6, seed=seed).choose(None, 100) for seed in (1, 2))
    assert not np.array_equal(first, second)
