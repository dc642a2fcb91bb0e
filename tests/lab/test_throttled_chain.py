"""The simulated chain whose network counts: what a batch takes, and `auto` against the policies that see one side only."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from streamtopology.lab.bench import auto_chain
from streamtopology.lab.bench.auto_chain import CHAIN_CASES, CHEAP, DEAR, QUICK, ChainCase, chain_lines
from streamtopology.lab.simulate.streams import zipf_probabilities
from streamtopology.lab.simulate.throttled_chain import ChainSite, CommunityStream

SITE = ChainSite((1.0, 0.5), 1e-3, 0.1, 2e-3)


def test_batch_takes_both_stages_and_its_busiest_link():
    first, second = np.array([0, 0, 0, 1], np.int32), np.array([0, 1, 1, 1], np.int32)
    stages = max(0.1 + 3e-3, 0.2 + 2e-3) + max(0.1 + 1e-3, 0.2 + 6e-3)
    assert SITE.seconds(first, second) == pytest.approx(stages + 2 * 2e-3)
    assert replace(SITE, remote_seconds=0.0).seconds(first, second) == pytest.approx(stages)
    assert SITE.best_seconds(150) == pytest.approx(0.2)


@pytest.mark.parametrize(("correlation", "least", "most"), [(0.0, 0.0, 0.15), (1.0, 0.95, 1.0)])
def test_second_key_is_of_the_first_ones_community_as_often_as_asked(correlation: float, least: float, most: float):
    keys = np.arange(2_000, dtype=np.uint64)
    stream = CommunityStream(2_000, 20, correlation, zipf_probabilities(2_000, 0.0), 3)
    first, second = stream.batch(20_000, (keys, keys))
    rng = np.random.default_rng(3)
    for _ in range(2):
        rng.permutation(2_000)
    community = rng.integers(0, 20, (2, 2_000))
    assert least <= (community[0][first.astype(int)] == community[1][second.astype(int)]).mean() <= most


def test_bar_is_higher_where_remote_rows_cost_as_much_as_their_work():
    bars = {case.name: case.bar for case in CHAIN_CASES}
    assert sorted(bars.values()) == [CHEAP] * 3 + [DEAR] * 3
    assert ChainCase(0.8, 10e-6).bar == DEAR


def test_quick_auto_is_no_worse_than_any_other_policy_on_the_dear_network(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(auto_chain, "CHAIN_CASES", (ChainCase(0.8, 20e-6), ChainCase(0.8, 0.0)))
    medians = {(line["case"], line["metric"]): line["median"] for line in chain_lines(range(1, 2), quick=True)}
    dear, free = ({policy: medians[f"{case.name}, {policy}", "share of bound"] for policy in auto_chain.POLICIES}
                  for case in auto_chain.CHAIN_CASES)  # fmt: skip
    assert dear["auto"] == max(dear.values())
    assert free["auto"] == free["auto, each alone"]
    assert QUICK.batches >= 6
