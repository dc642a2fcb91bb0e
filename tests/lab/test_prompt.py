"""Prompt: every batch is packed into equal blocks, with about as many keys; keys are split only where they must be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopology.lab.groupings.prompt import PromptChooser
from streamtopology.lab.simulate.streams import draw, zipf_probabilities
from streamtopology.routing.table.hashing import hash_int64


def routed(keys: np.ndarray, k: int, capacities: tuple[float, ...] | None = None) -> np.ndarray:
    options = {} if capacities is None else {"capacities": capacities}
    chooser = PromptChooser(np.arange(10, 10 + k, dtype=np.int32), np.zeros(k), 1, options)
    return chooser.choose(hash_int64(keys), len(keys)) - 10


def packed(counts: dict[int, int], k: int) -> dict[tuple[int, int], int]:
    """The three steps, slowly: (key, block) -> tuples; `counts` in the order in which keys first came."""
    n = sum(counts.values())
    room, cut = [-(-n // k)] * k, max(n // len(counts), 1)
    pieces: dict[tuple[int, int], int] = {}
    last: dict[int, int] = {}

    def put(key: int, block: int, size: int) -> None:
        last[key] = block
        pieces[key, block] = pieces.get((key, block), 0) + size
        room[block] -= size

    most_first = sorted(counts, key=lambda key: -counts[key])
    for place, key in enumerate(most_first):
        turn = place % k
        block, size = (k - 1 - turn if place // k % 2 else turn), min(counts[key], cut)
        put(key, block if room[block] >= size else room.index(max(room)), size)
    for key in most_first:
        left = counts[key] - cut
        while left > 0:
            fitting = [block for block in range(k) if room[block] >= left]
            fitting = [last[key]] if last[key] in fitting else fitting
            block = min(fitting, key=lambda one: room[one]) if fitting else room.index(max(room))
            size = min(left, room[block])
            put(key, block, size)
            left -= size
    return pieces


@settings(max_examples=150)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=300), st.integers(1, 7), st.floats(0, 3))
def test_tuples_go_where_the_slow_packing_says(drawn: list[int], k: int, skew: float) -> None:
    keys = np.array([int(key // (1 + skew)) for key in drawn])
    chosen = routed(keys, k)
    found: dict[tuple[int, int], int] = {}
    counts: dict[int, int] = {}
    for key, block in zip(keys.tolist(), chosen.tolist(), strict=True):
        found[key, block] = found.get((key, block), 0) + 1
        counts[key] = counts.get(key, 0) + 1
    expected = packed(counts, k)
    assert sum(found.values()) == sum(expected.values()) == len(keys)
    assert found == expected


@pytest.mark.parametrize("exponent", [0.0, 0.8, 1.2, 2.0])
def test_blocks_are_equal_in_tuples(exponent: float) -> None:
    keys = draw(zipf_probabilities(5_000, exponent), 40_000, np.random.default_rng(1))
    tuples = np.bincount(routed(keys, 7), minlength=7)
    assert tuples.max() <= -(-40_000 // 7)


def test_keys_below_the_average_are_not_split() -> None:
    keys = draw(zipf_probabilities(5_000, 1.0), 40_000, np.random.default_rng(2))
    chosen = routed(keys, 7)
    counts = np.bincount(keys)
    rare = np.flatnonzero((counts > 0) & (counts <= len(keys) // np.count_nonzero(counts)))
    assert all(len(set(chosen[keys == key].tolist())) == 1 for key in rare[:200])


def test_blocks_are_in_proportion_to_capacity_and_one_without_gets_nothing() -> None:
    keys = draw(zipf_probabilities(5_000, 1.0), 40_000, np.random.default_rng(3))
    shares = np.bincount(routed(keys, 4, (2.0, 1.0, 0.0, 1.0)), minlength=4) / 40_000
    assert shares == pytest.approx([0.5, 0.25, 0, 0.25], abs=0.001)


def test_no_tuples_need_no_block() -> None:
    assert len(routed(np.empty(0, np.int64), 3)) == 0
