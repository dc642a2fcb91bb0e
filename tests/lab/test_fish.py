"""FISH: keys that are hot now have more choices, former ones no more; the tail keeps its two."""

from __future__ import annotations

import numpy as np
import pytest

from streamtopology.lab.groupings.fish import EPOCH, FishChooser
from streamtopology.lab.simulate.streams import draw, zipf_probabilities
from streamtopology.routing.groupings import make_chooser
from streamtopology.routing.groupings.chooser import Chooser
from streamtopology.routing.table.hashing import hash_int64

K = 10


def fish(k: int = K, capacities: tuple[float, ...] | None = None) -> FishChooser:
    options = {} if capacities is None else {"capacities": capacities}
    return FishChooser(np.arange(k, dtype=np.int32), np.zeros(k), 1, options)


def instances_of(chosen: np.ndarray, keys: np.ndarray, key: int) -> set[int]:
    return set(chosen[keys == key].tolist())


def stream(hot: dict[int, float], n: int, seed: int) -> np.ndarray:
    """Keys of which some have these shares; the others come from 100,000."""
    rng = np.random.default_rng(seed)
    keys = rng.integers(1_000, 101_000, n)
    drawn, below = rng.random(n), 0.0
    for key, share in hot.items():
        keys[(drawn >= below) & (drawn < below + share)] = key
        below += share
    return keys


def send(chooser: Chooser, keys: np.ndarray) -> np.ndarray:
    return chooser.choose(hash_int64(keys), len(keys))


def test_a_new_hot_key_is_spread_within_an_epoch_and_later_by_w_choices() -> None:
    before, after = stream({1: 0.3}, 200_000, 1), stream({2: 0.3}, EPOCH * K, 2)
    w_choices = make_chooser("w-choices", np.arange(K, dtype=np.int32), np.zeros(K), 1)
    for chooser, spread in ((fish(), K), (w_choices, 2)):
        send(chooser, before)
        assert len(instances_of(send(chooser, after), after, 2)) == spread


def test_a_former_hot_key_goes_back_to_two_instances() -> None:
    chooser = fish()
    send(chooser, stream({1: 0.3}, 20_000, 1))
    send(chooser, stream({}, 4 * EPOCH * K, 2))
    rare = stream({1: 0.002}, 20_000, 3)
    assert len(instances_of(send(chooser, rare), rare, 1)) <= 2


def test_the_less_frequent_of_two_hot_keys_has_fewer_instances() -> None:
    chooser, keys = fish(16), stream({1: 0.32, 2: 0.07}, 60_000, 4)
    send(chooser, keys[:20_000])
    chosen = send(chooser, keys[20_000:])
    first, second = (len(instances_of(chosen, keys[20_000:], key)) for key in (1, 2))
    assert first == 16
    assert 2 < second <= 8


def test_a_drifting_stream_is_balanced_in_every_part() -> None:
    chooser = fish()
    for seed in range(10):
        keys = np.random.default_rng(seed).permutation(20_000)[
            draw(zipf_probabilities(20_000, 1.2), 20_000, np.random.default_rng(seed))
        ]
        assert np.bincount(send(chooser, keys), minlength=K).max() <= 1.05 * 20_000 / K


@pytest.mark.parametrize("parts", [1, 7])
def test_routing_in_parts_is_routing_at_once(parts: int) -> None:
    keys, chooser = stream({1: 0.2, 2: 0.05}, 30_000, 5), fish()
    in_parts = np.concatenate([send(chooser, part) for part in np.array_split(keys, parts)])
    assert in_parts.tolist() == send(fish(), keys).tolist()


def test_loads_are_in_proportion_to_capacity_and_one_instance_takes_all() -> None:
    keys = stream({1: 0.3}, 40_000, 6)
    shares = np.bincount(send(fish(4, (1.0, 1.0, 1.0, 0.25)), keys), minlength=4) / len(keys)
    assert shares[3] == pytest.approx(0.25 / 3.25, abs=0.02)
    assert set(send(fish(1), keys).tolist()) == {0}
