"""KIP on unequal instances; between equal ones it is held against the authors' algorithm in tests/papers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.planning import loads_after, plan_input, zipf_input

from streamtopology.lab.groupings.planners import get


def test_the_heaviest_key_is_isolated_and_the_others_share_the_rest():
    given_input = zipf_input(1, m=20_000, k=5)
    loads = np.sort(given_input.key_loads)[::-1]
    heavy = replace(given_input, key_loads=np.where(given_input.key_loads == loads[0], loads.sum(), given_input.key_loads))
    plan = get("kip")(heavy)
    after = loads_after(heavy, plan.table)
    assert after.max() == pytest.approx(loads.sum())
    assert np.sort(after)[-2] < 1.2 * after[after < loads.sum()].mean()


def test_instances_are_filled_up_in_proportion_to_their_capacity():
    given_input = replace(zipf_input(2, m=50_000, k=4), capacities=np.array([4e4, 2e4, 1e4, 1e4]))
    shares = loads_after(given_input, get("kip")(given_input).table) / given_input.key_loads.sum()
    assert shares == pytest.approx([1 / 2, 1 / 4, 1 / 8, 1 / 8], abs=0.03)


def test_at_most_two_keys_an_instance_have_an_entry():
    assert len(get("kip")(zipf_input(3, k=5)).table.entry_hashes) <= 10
    assert len(get("kip")(zipf_input(3, k=5, max_entries=4)).table.entry_hashes) <= 4


def test_a_balanced_stream_that_stays_is_left_where_it_is():
    given_input = zipf_input(4)
    first = get("kip")(given_input)
    again = get("kip")(replace(given_input, current=first.table))
    assert again.table == first.table
    assert again.moved_bytes == 0


def test_keys_of_an_instance_that_left_are_placed_again():
    given_input = replace(
        plan_input([8, 4, 2, 1], [0, 1, 2, 2], 3), instances=(0, 1), capacities=np.ones(2), fixed_seconds=np.zeros(2)
    )
    table = get("kip")(given_input).table
    assert set(table.instances()) <= {0, 1}
    assert loads_after(given_input, table).sum() == 15
